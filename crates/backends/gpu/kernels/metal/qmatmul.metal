// The product of many rows of rounded activations with rows of blocks: a group makes a tile, see
// simd_tile.h. Both are slabs of values when they are multiplied.
//
// With BY_EXPERT rows are those that chose one expert, see experts.h.
//
// Y: dtype. HAS_BIAS: is a bias added? The blocks' own macros are in formats.

KERNEL_BEGIN
    SLABS;
    const uint columns = (p.n + COLUMNS - 1) / COLUMNS;
    const uint first_column = GROUP_ID(0) % columns * COLUMNS;
    ROWS_OF_TILE(GROUP_ID(0) / columns);
    const uint chunks = p.k / 32;
    SUMS;

    // Rows and columns past the last are computed as the last, and dropped.
    for (uint chunk = 0; chunk < chunks && first_row < end_row; chunk++) {
        for (uint e = LANE; e < ROWS * 8; e += GROUP) {
            const uint line = e / 8, word = e % 8;
            const uint from = X_ROW(min(first_row + line, end_row - 1)) * chunks + chunk;
            const char4 code = as_type<char4>(x_codes[from * 8 + word]);
            const float scale = x_scales[from];
            UNROLL for (uint u = 0; u < 4; u++) {
                A_AT(line, word * 4 + u) = scale * (float)code[u];
            }
        }
        for (uint e = LANE; e < COLUMNS * 8; e += GROUP) {
            const uint line = e / 8, word = e % 8;
            const uint from = (first_w + min(first_column + line, p.n - 1)) * chunks + chunk;
            GLOBAL const uchar* block = w + from / (BLOCK_LENGTH / 32) * BLOCK_BYTES;
            const uint at = from % (BLOCK_LENGTH / 32) * 8 + word;
            const char4 code = as_type<char4>(codes_at(block, at));
            const float scale = scale_of(block, at / (SPAN / 4));
            UNROLL for (uint u = 0; u < 4; u++) {
                float value = scale * (float)(code[u] - ZERO_POINT);
#if HAS_MINIMUM
                value -= minimum_of(block, at / (SPAN / 4));
#endif
                B_AT(line, word * 4 + u) = value;
            }
        }
        BARRIER;
        ADD_SLABS;
        BARRIER;
    }

    PUT_SUMS;
    for (uint e = LANE; e < ROWS * COLUMNS; e += GROUP) {
        const uint row = first_row + e / COLUMNS, column = first_column + e % COLUMNS;
        if (row < end_row && column < p.n) {
            float v = PRODUCT_AT(e / COLUMNS, e % COLUMNS);
#if HAS_BIAS
            v += LOAD(Y, bias, column);
#endif
            STORE(Y, y, Y_ROW(row) * p.n + column, v);
        }
    }
KERNEL_END
