// The product of matrices of any strides, for results with many rows and columns: a group makes
// a tile, see tile.h. Slabs of DEPTH go through local memory.
//
// A, B, Y: dtypes. A_ROW, A_K, B_K, B_COLUMN: strides. A_ALONG_K, B_ALONG_K: do neighbours in
// memory follow each other along k? HAS_BIAS: is a bias added, whose strides are BIAS_ROW and
// BIAS_COLUMN? CHAIN: products that are added one after the other, lest a long chain of roundings
// lose digits: the sums of the next are added to those in memory. With BY_EXPERT rows are those that
// chose one expert, see experts.h.

#define A_AT(k, row) a_tile[(k) * (ROWS + PAD) + (row)]
#define B_AT(k, column) b_tile[(k) * (COLUMNS + PAD) + (column)]

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, a_tile, DEPTH * (ROWS + PAD));
    LOCAL_ARRAY(ACCUMULATOR, b_tile, DEPTH * (COLUMNS + PAD));
    const uint columns = (p.n + COLUMNS - 1) / COLUMNS;
    const uint first_column = GROUP_ID(0) % columns * COLUMNS;
#if BY_EXPERT
    const uint batch = 0;
    ROWS_OF_TILE(GROUP_ID(0) / columns);
#else
    const uint rows = (p.m + ROWS - 1) / ROWS, batch = GROUP_ID(0) / columns / rows;
    ROWS_OF_TILE(GROUP_ID(0) / columns % rows);
#endif
    // A tile of an expert may have no rows.
    const uint terms = first_row < end_row ? p.k : 0;
    uint a_start = 0, b_start = 0;
    ADD_OFFSET(a_start, batch, BATCH_RANK, p.batch, p.a_batch);
    ADD_OFFSET(b_start, batch, BATCH_RANK, p.batch, p.b_batch);
    b_start += (first_w + first_column) * B_COLUMN;

    uint begin = 0;
    do {
        ACCUMULATOR sum[BLOCKS * BLOCK_SIZE];
        for (uint i = 0; i < BLOCKS * BLOCK_SIZE; i++) sum[i] = ZERO;
        const uint end = min(terms, begin + CHAIN);
        for (uint first = begin; first < end; first += DEPTH) {
            const uint end_k = min(p.k - first, (uint)DEPTH);
            const uint end_line = min(end_row - first_row, (uint)ROWS);
            const uint end_column = min(p.n - first_column, (uint)COLUMNS);
#if A_ALONG_K
            EACH_OF(row, ROWS, k, DEPTH)
#else
            EACH_OF(k, DEPTH, row, ROWS)
#endif
            {
                ACCUMULATOR v = ZERO;
                if (k < end_k && row < end_line) {
                    v = LOAD(A, a, a_start + X_ROW(first_row + row) * A_ROW + (first + k) * A_K);
                }
                A_AT(k, row) = v;
            }
#if B_ALONG_K
            EACH_OF(column, COLUMNS, k, DEPTH)
#else
            EACH_OF(k, DEPTH, column, COLUMNS)
#endif
            {
                ACCUMULATOR v = ZERO;
                if (k < end_k && column < end_column) {
                    v = LOAD(B, b, b_start + column * B_COLUMN + (first + k) * B_K);
                }
                B_AT(k, column) = v;
            }
            BARRIER;
            for (uint block = 0; block < BLOCKS; block++) {
                const uint row = ROW_OF(block * GROUP + LANE), column = COLUMN_OF(block * GROUP + LANE);
                ACCUMULATOR part[BLOCK_SIZE];
                UNROLL for (uint i = 0; i < BLOCK_SIZE; i++) part[i] = sum[block * BLOCK_SIZE + i];
                for (uint k = 0; k < DEPTH; k++) {
                    ACCUMULATOR b_k[LANE_COLUMNS];
                    UNROLL for (uint j = 0; j < LANE_COLUMNS; j++) {
                        b_k[j] = B_AT(k, column + j * COLUMN_STEP);
                    }
                    UNROLL for (uint i = 0; i < LANE_ROWS; i++) {
                        const ACCUMULATOR a_k = A_AT(k, row + i * ROW_STEP);
                        UNROLL for (uint j = 0; j < LANE_COLUMNS; j++) {
                            const uint at = i * LANE_COLUMNS + j;
                            part[at] = ADD_PRODUCT(part[at], a_k, b_k[j]);
                        }
                    }
                }
                UNROLL for (uint i = 0; i < BLOCK_SIZE; i++) sum[block * BLOCK_SIZE + i] = part[i];
            }
            BARRIER;
        }

        for (uint i = 0; i < BLOCKS * BLOCK_SIZE; i++) {
            const uint block = i / BLOCK_SIZE * GROUP + LANE;
            const uint row = first_row + ROW_OF(block) + i % BLOCK_SIZE / LANE_COLUMNS * ROW_STEP;
            const uint column = first_column + COLUMN_OF(block) + i % LANE_COLUMNS * COLUMN_STEP;
            if (row < end_row && column < p.n) {
                const uint at = batch * p.m * p.n + Y_ROW(row) * p.y_row + column * p.y_column;
                ACCUMULATOR v = sum[i];
                if (begin > 0) v = ADD(v, LOAD(Y, y, at));
#if HAS_BIAS
                if (begin == 0) v += LOAD(Y, bias, row * BIAS_ROW + column * BIAS_COLUMN);
#endif
                STORE(Y, y, at, v);
            }
        }
        begin += CHAIN;
    } while (begin < terms);
KERNEL_END
