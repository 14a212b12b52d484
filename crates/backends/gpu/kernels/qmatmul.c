// The product of many rows of rounded activations with rows of blocks: a group makes a tile of
// ROWS x COLUMNS of the result, each of its LANES_ROW x LANES_COLUMN work-items elements of it
// that are as far apart. Chunks of 32 values go through local memory, as words of four codes.
//
// Y: dtype. HAS_BIAS: is a bias added? The blocks' own macros are in formats.

KERNEL_BEGIN
    LOCAL_ARRAY(uint, x_tile, 8 * (ROWS + PAD));
    LOCAL_ARRAY(uint, w_tile, 8 * (COLUMNS + PAD));
    LOCAL_ARRAY(float, x_scale, ROWS);
    LOCAL_ARRAY(float, x_sum, 32 / SPAN * ROWS);
    LOCAL_ARRAY(float, w_scale, 32 / SPAN * COLUMNS);
    LOCAL_ARRAY(float, w_minimum, 32 / SPAN * COLUMNS);
    const uint columns = (p.n + COLUMNS - 1) / COLUMNS;
    const uint first_column = GROUP_ID(0) % columns * COLUMNS;
    const uint first_row = GROUP_ID(0) / columns * ROWS;
    const uint lane_row = LANE / LANES_COLUMN, lane_column = LANE % LANES_COLUMN;
    const uint chunks = p.k / 32;

    float sum[LANE_ROWS * LANE_COLUMNS];
    for (uint i = 0; i < LANE_ROWS * LANE_COLUMNS; i++) sum[i] = 0;

    // Rows and columns past the last are computed as the last, and dropped.
    for (uint chunk = 0; chunk < chunks; chunk++) {
        for (uint e = LANE; e < ROWS * 8; e += GROUP) {
            const uint row = e / 8, from = min(first_row + row, p.m - 1) * chunks + chunk;
            x_tile[e % 8 * (ROWS + PAD) + row] = x_codes[from * 8 + e % 8];
            if (e % 8 == 0) x_scale[row] = x_scales[from];
#if HAS_MINIMUM
            if (e % 8 < 32 / SPAN) {
                x_sum[e % 8 * ROWS + row] = (float)x_sums[from * (32 / SPAN) + e % 8];
            }
#endif
        }
        for (uint e = LANE; e < COLUMNS * 8; e += GROUP) {
            const uint column = e / 8;
            const uint at = min(first_column + column, p.n - 1) * chunks + chunk;
            GLOBAL const uchar* block = w + at / (BLOCK_LENGTH / 32) * BLOCK_BYTES;
            const uint part = at % (BLOCK_LENGTH / 32);
            // Minus the zero point, byte by byte: the highest bits keep borrows in their bytes.
            uint codes = codes_at(block, part * 8 + e % 8);
#if ZERO_POINT != 0
            codes = ((codes | 0x80808080u) - ZERO_POINT * 0x01010101u) ^ 0x80808080u;
#endif
            w_tile[e % 8 * (COLUMNS + PAD) + column] = codes;
            if (e % 8 < 32 / SPAN) {
                const uint place = part * (32 / SPAN) + e % 8;
                w_scale[e % 8 * COLUMNS + column] = scale_of(block, place);
#if HAS_MINIMUM
                w_minimum[e % 8 * COLUMNS + column] = minimum_of(block, place);
#endif
            }
        }
        BARRIER;
        for (uint span = 0; span < 32 / SPAN; span++) {
            int dot[LANE_ROWS * LANE_COLUMNS];
            for (uint i = 0; i < LANE_ROWS * LANE_COLUMNS; i++) dot[i] = 0;
            for (uint word = span * (SPAN / 4); word < (span + 1) * (SPAN / 4); word++) {
                for (uint i = 0; i < LANE_ROWS; i++) {
                    const uint x = x_tile[word * (ROWS + PAD) + lane_row + i * LANES_ROW];
                    for (uint j = 0; j < LANE_COLUMNS; j++) {
                        const uint at = i * LANE_COLUMNS + j;
                        const uint column = lane_column + j * LANES_COLUMN;
                        const uint codes = w_tile[word * (COLUMNS + PAD) + column];
                        dot[at] = dot4((int)x, (int)codes, dot[at]);
                    }
                }
            }
            for (uint i = 0; i < LANE_ROWS; i++) {
                const uint row = lane_row + i * LANES_ROW;
                for (uint j = 0; j < LANE_COLUMNS; j++) {
                    const uint at = i * LANE_COLUMNS + j;
                    const uint column = span * COLUMNS + lane_column + j * LANES_COLUMN;
                    float product = w_scale[column] * (float)dot[at];
#if HAS_MINIMUM
                    product = MULTIPLY_ADD(-w_minimum[column], x_sum[span * ROWS + row], product);
#endif
                    sum[at] = MULTIPLY_ADD(x_scale[row], product, sum[at]);
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
                float v = sum[i * LANE_COLUMNS + j];
#if HAS_BIAS
                v += LOAD(Y, bias, column);
#endif
                STORE(Y, y, row * p.n + column, v);
            }
        }
    }
KERNEL_END
