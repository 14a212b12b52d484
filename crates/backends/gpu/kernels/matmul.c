// The product of matrices of any strides, for results with many rows and columns: a group
// makes a tile of ROWS x COLUMNS, each of its LANES_ROW x LANES_COLUMN work-items elements of
// it that are as far apart. Slabs of DEPTH go through local memory.
//
// A, B, Y: dtypes. A_ROW, A_K, B_K, B_COLUMN: strides. A_ALONG_K, B_ALONG_K: do neighbours in
// memory follow each other along k? HAS_BIAS: is a bias added, whose strides are BIAS_ROW and
// BIAS_COLUMN?

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, a_tile, DEPTH * (ROWS + PAD));
    LOCAL_ARRAY(ACCUMULATOR, b_tile, DEPTH * (COLUMNS + PAD));
    const uint columns = (p.n + COLUMNS - 1) / COLUMNS, rows = (p.m + ROWS - 1) / ROWS;
    const uint first_column = GROUP_ID(0) % columns * COLUMNS;
    const uint first_row = GROUP_ID(0) / columns % rows * ROWS;
    const uint batch = GROUP_ID(0) / columns / rows;
    const uint lane_row = LANE / LANES_COLUMN, lane_column = LANE % LANES_COLUMN;
    uint a_start = 0, b_start = 0;
    ADD_OFFSET(a_start, batch, BATCH_RANK, p.batch, p.a_batch);
    ADD_OFFSET(b_start, batch, BATCH_RANK, p.batch, p.b_batch);

    ACCUMULATOR sum[LANE_ROWS * LANE_COLUMNS];
    for (uint i = 0; i < LANE_ROWS * LANE_COLUMNS; i++) sum[i] = ZERO;

    for (uint first = 0; first < p.k; first += DEPTH) {
        for (uint e = LANE; e < DEPTH * ROWS; e += GROUP) {
            const uint k = A_ALONG_K ? e % DEPTH : e / ROWS;
            const uint row = A_ALONG_K ? e / DEPTH : e % ROWS;
            ACCUMULATOR v = ZERO;
            if (first + k < p.k && first_row + row < p.m) {
                v = LOAD(A, a, a_start + (first_row + row) * A_ROW + (first + k) * A_K);
            }
            a_tile[k * (ROWS + PAD) + row] = v;
        }
        for (uint e = LANE; e < DEPTH * COLUMNS; e += GROUP) {
            const uint k = B_ALONG_K ? e % DEPTH : e / COLUMNS;
            const uint column = B_ALONG_K ? e / DEPTH : e % COLUMNS;
            ACCUMULATOR v = ZERO;
            if (first + k < p.k && first_column + column < p.n) {
                v = LOAD(B, b, b_start + (first_column + column) * B_COLUMN + (first + k) * B_K);
            }
            b_tile[k * (COLUMNS + PAD) + column] = v;
        }
        BARRIER;
        for (uint k = 0; k < DEPTH; k++) {
            ACCUMULATOR b_k[LANE_COLUMNS];
            for (uint j = 0; j < LANE_COLUMNS; j++) {
                b_k[j] = b_tile[k * (COLUMNS + PAD) + lane_column + j * LANES_COLUMN];
            }
            for (uint i = 0; i < LANE_ROWS; i++) {
                const ACCUMULATOR a_k = a_tile[k * (ROWS + PAD) + lane_row + i * LANES_ROW];
                for (uint j = 0; j < LANE_COLUMNS; j++) {
                    const uint at = i * LANE_COLUMNS + j;
                    sum[at] = ADD_PRODUCT(sum[at], a_k, b_k[j]);
                }
            }
        }
        BARRIER;
    }

    for (uint i = 0; i < LANE_ROWS; i++) {
        const uint row = first_row + lane_row + i * LANES_ROW;
        for (uint j = 0; j < LANE_COLUMNS; j++) {
            const uint column = first_column + lane_column + j * LANES_COLUMN;
            if (row < p.m && column < p.n) {
                ACCUMULATOR v = sum[i * LANE_COLUMNS + j];
#if HAS_BIAS
                v += LOAD(Y, bias, row * BIAS_ROW + column * BIAS_COLUMN);
#endif
                STORE(Y, y, batch * p.m * p.n + row * p.y_row + column * p.y_column, v);
            }
        }
    }
KERNEL_END
