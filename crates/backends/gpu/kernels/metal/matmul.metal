// The product of matrices of real numbers of any strides, for results with many rows and columns:
// a group makes a tile, see simd_tile.h.
//
// A, B, Y: dtypes. A_ROW, A_K, B_K, B_COLUMN: strides. A_ALONG_K, B_ALONG_K: do neighbours in
// memory follow each other along k? HAS_BIAS: is a bias added, whose strides are BIAS_ROW and
// BIAS_COLUMN?

// The place of element `e` of a slab, so that neighbours read neighbours.
#define LINE_OF(e, lines, along_k) ((along_k) ? (e) / DEPTH : (e) % (lines))
#define K_OF(e, lines, along_k) ((along_k) ? (e) % DEPTH : (e) / (lines))

KERNEL_BEGIN
    SLABS;
    const uint columns = (p.n + COLUMNS - 1) / COLUMNS, rows = (p.m + ROWS - 1) / ROWS;
    const uint first_column = GROUP_ID(0) % columns * COLUMNS;
    const uint first_row = GROUP_ID(0) / columns % rows * ROWS;
    const uint batch = GROUP_ID(0) / columns / rows;
    uint a_start = 0, b_start = 0;
    ADD_OFFSET(a_start, batch, BATCH_RANK, p.batch, p.a_batch);
    ADD_OFFSET(b_start, batch, BATCH_RANK, p.batch, p.b_batch);
    a_start += first_row * A_ROW;
    b_start += first_column * B_COLUMN;
    SUMS;

    for (uint first = 0; first < p.k; first += DEPTH) {
        for (uint e = LANE; e < ROWS * DEPTH; e += GROUP) {
            const uint row = LINE_OF(e, ROWS, A_ALONG_K), k = K_OF(e, ROWS, A_ALONG_K);
            const bool exists = first_row + row < p.m && first + k < p.k;
            A_AT(row, k) = exists ? LOAD(A, a, a_start + row * A_ROW + (first + k) * A_K) : 0;
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
        if (row < p.m && column < p.n) {
            float v = PRODUCT_AT(e / COLUMNS, e % COLUMNS);
#if HAS_BIAS
            v += LOAD(Y, bias, row * BIAS_ROW + column * BIAS_COLUMN);
#endif
            STORE(Y, y, batch * p.m * p.n + row * p.y_row + column * p.y_column, v);
        }
    }
KERNEL_END
