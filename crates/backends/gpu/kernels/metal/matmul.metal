// The product of matrices of real numbers of any strides, for results with many rows and columns:
// a group makes a tile, see simd_tile.h.
//
// A, B, Y: dtypes. A_ROW, A_K, B_K, B_COLUMN: strides. A_ALONG_K, B_ALONG_K: do neighbours in
// memory follow each other along k? HAS_BIAS: is a bias added, whose strides are BIAS_ROW and
// BIAS_COLUMN? CHAIN: products that are added one after the other, lest a long chain of roundings
// lose digits: the sums of the next are added to those in memory. With BY_EXPERT rows are those that
// chose one expert, see experts.h.

// The place of element `e` of a slab, so that neighbours read neighbours.
#define LINE_OF(e, lines, along_k) ((along_k) ? (e) / DEPTH : (e) % (lines))
#define K_OF(e, lines, along_k) ((along_k) ? (e) % DEPTH : (e) / (lines))

KERNEL_BEGIN
    SLABS;
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
        SUMS;
        const uint end = min(terms, begin + CHAIN);
        for (uint first = begin; first < end; first += DEPTH) {
            for (uint e = LANE; e < ROWS * DEPTH; e += GROUP) {
                const uint row = LINE_OF(e, ROWS, A_ALONG_K), k = K_OF(e, ROWS, A_ALONG_K);
                const bool exists = first_row + row < end_row && first + k < p.k;
                const uint from = exists ? X_ROW(first_row + row) : 0;
                A_AT(row, k) = exists ? LOAD(A, a, a_start + from * A_ROW + (first + k) * A_K) : 0;
            }
            for (uint e = LANE; e < COLUMNS * DEPTH; e += GROUP) {
                const uint column = LINE_OF(e, COLUMNS, B_ALONG_K), k = K_OF(e, COLUMNS, B_ALONG_K);
                const bool exists = first_column + column < p.n && first + k < p.k;
                const uint at = b_start + column * B_COLUMN + (first + k) * B_K;
                B_AT(column, k) = exists ? LOAD(B, b, at) : 0;
            }
            BARRIER;
            ADD_SLABS;
            BARRIER;
        }

        PUT_SUMS;
        for (uint e = LANE; e < ROWS * COLUMNS; e += GROUP) {
            const uint row = first_row + e / COLUMNS, column = first_column + e % COLUMNS;
            if (row < end_row && column < p.n) {
                const uint at = batch * p.m * p.n + Y_ROW(row) * p.y_row + column * p.y_column;
                float v = PRODUCT_AT(e / COLUMNS, e % COLUMNS);
                if (begin > 0) v += LOAD(Y, y, at);
#if HAS_BIAS
                if (begin == 0) v += LOAD(Y, bias, row * BIAS_ROW + column * BIAS_COLUMN);
#endif
                STORE(Y, y, at, v);
            }
        }
        BARRIER;
        begin += CHAIN;
    } while (begin < terms);
KERNEL_END
