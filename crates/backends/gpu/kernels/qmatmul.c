// The product of many rows of rounded activations with rows of blocks: a group makes a tile, see
// tile.h. Slabs of SLAB chunks of 32 values go through local memory.
//
// CODE: what the codes are in there, a float each or packed four in a word; CODES of them are a
// chunk. SUM and DOT: the type of sums of products of codes, and how one is added. Floats are as
// exact, since the sums over a chunk are integers below 2^24.
// With BY_EXPERT rows are those that chose one expert, see experts.h.
//
// Y: dtype. HAS_BIAS: is a bias added? The blocks' own macros are in formats.

#define SPANS (32 / SPAN)
#define X_AT(i, row) x_tile[(i) * (ROWS + PAD) + (row)]
#define W_AT(i, column) w_tile[(i) * (COLUMNS + PAD) + (column)]

#if IS_PACKED
#define CODE uint
#define CODES 8
#define SUM int
#define DOT(a, b, sum) dot4((int)(a), (int)(b), sum)
#define PUT(AT, word, line, codes) AT(word, line) = (codes)
#else
#define CODE float
#define CODES 32
#define SUM float
#define DOT(a, b, sum) MULTIPLY_ADD(a, b, sum)
#define PUT(AT, word, line, codes) \
    for (uint u_ = 0; u_ < 4; u_++) { \
        AT((word) * 4 + u_, line) = (float)(char)((codes) >> (8 * u_)); \
    }
#endif

KERNEL_BEGIN
    LOCAL_ARRAY(CODE, x_tile, SLAB * CODES * (ROWS + PAD));
    LOCAL_ARRAY(CODE, w_tile, SLAB * CODES * (COLUMNS + PAD));
    LOCAL_ARRAY(float, x_scale, SLAB * ROWS);
    LOCAL_ARRAY(float, x_sum, SLAB * SPANS * ROWS);
    LOCAL_ARRAY(float, w_scale, SLAB * SPANS * COLUMNS);
    LOCAL_ARRAY(float, w_minimum, SLAB * SPANS * COLUMNS);
    const uint columns = (p.n + COLUMNS - 1) / COLUMNS;
    const uint first_column = GROUP_ID(0) % columns * COLUMNS;
    ROWS_OF_TILE(GROUP_ID(0) / columns);
    const uint chunks = p.k / 32;

    float sum[BLOCKS * BLOCK_SIZE];
    for (uint i = 0; i < BLOCKS * BLOCK_SIZE; i++) sum[i] = 0;

    // Rows and columns past the last are computed as the last, and dropped.
    for (uint first = 0; first < chunks && first_row < end_row; first += SLAB) {
        const uint slab = min(chunks - first, (uint)SLAB);
        EACH_OF(line, ROWS, word, SLAB * 8) {
            const uint chunk = word / 8, row = min(first_row + line, end_row - 1);
            const uint from = X_ROW(row) * chunks + first + chunk;
            if (chunk < slab) {
                PUT(X_AT, word, line, x_codes[from * 8 + word % 8]);
                if (word % 8 == 0) x_scale[chunk * ROWS + line] = x_scales[from];
#if HAS_MINIMUM
                if (word % 8 < SPANS) {
                    const uint span = word % 8;
                    const float total = (float)x_sums[from * SPANS + span];
                    x_sum[(chunk * SPANS + span) * ROWS + line] = total;
                }
#endif
            }
        }
        EACH_OF(line, COLUMNS, word, SLAB * 8) {
            const uint chunk = word / 8, column = min(first_column + line, p.n - 1);
            const uint from = (first_w + column) * chunks + first + chunk;
            GLOBAL const uchar* block = w + from / (BLOCK_LENGTH / 32) * BLOCK_BYTES;
            const uint part = from % (BLOCK_LENGTH / 32);
            if (chunk < slab) {
                uint codes = codes_at(block, part * 8 + word % 8);
#if ZERO_POINT != 0
                // Byte by byte: the highest bits keep borrows in their bytes.
                codes = ((codes | 0x80808080u) - ZERO_POINT * 0x01010101u) ^ 0x80808080u;
#endif
                PUT(W_AT, word, line, codes);
                if (word % 8 < SPANS) {
                    const uint span = word % 8;
                    const uint at = (chunk * SPANS + span) * COLUMNS + line;
                    w_scale[at] = scale_of(block, part * SPANS + span);
#if HAS_MINIMUM
                    w_minimum[at] = minimum_of(block, part * SPANS + span);
#endif
                }
            }
        }
        BARRIER;
        for (uint i = 0; i < BLOCKS * slab * SPANS; i++) {
            const uint span = i % (slab * SPANS), block = i / (slab * SPANS);
            const uint row = ROW_OF(block * GROUP + LANE), column = COLUMN_OF(block * GROUP + LANE);
            SUM dot[BLOCK_SIZE];
            UNROLL for (uint e = 0; e < BLOCK_SIZE; e++) dot[e] = 0;
            for (uint code = span * (CODES / SPANS); code < (span + 1) * (CODES / SPANS); code++) {
                CODE codes[LANE_COLUMNS];
                UNROLL for (uint j = 0; j < LANE_COLUMNS; j++) {
                    codes[j] = W_AT(code, column + j * COLUMN_STEP);
                }
                UNROLL for (uint e = 0; e < LANE_ROWS; e++) {
                    const CODE x = X_AT(code, row + e * ROW_STEP);
                    UNROLL for (uint j = 0; j < LANE_COLUMNS; j++) {
                        const uint at = e * LANE_COLUMNS + j;
                        dot[at] = DOT(x, codes[j], dot[at]);
                    }
                }
            }
            UNROLL for (uint e = 0; e < LANE_ROWS; e++) {
                const uint line = row + e * ROW_STEP;
                const float scale = x_scale[span / SPANS * ROWS + line];
                UNROLL for (uint j = 0; j < LANE_COLUMNS; j++) {
                    const uint at = e * LANE_COLUMNS + j;
                    const uint from = span * COLUMNS + column + j * COLUMN_STEP;
                    float product = w_scale[from] * (float)dot[at];
#if HAS_MINIMUM
                    const float total = x_sum[span * ROWS + line];
                    product = MULTIPLY_ADD(-w_minimum[from], total, product);
#endif
                    const uint to = block * BLOCK_SIZE + at;
                    sum[to] = MULTIPLY_ADD(scale, product, sum[to]);
                }
            }
        }
        BARRIER;
    }

    for (uint i = 0; i < BLOCKS * BLOCK_SIZE; i++) {
        const uint block = i / BLOCK_SIZE * GROUP + LANE;
        const uint row = first_row + ROW_OF(block) + i % BLOCK_SIZE / LANE_COLUMNS * ROW_STEP;
        const uint column = first_column + COLUMN_OF(block) + i % LANE_COLUMNS * COLUMN_STEP;
        if (row < end_row && column < p.n) {
            float v = sum[i];
#if HAS_BIAS
            v += LOAD(Y, bias, column);
#endif
            STORE(Y, y, Y_ROW(row) * p.n + column, v);
        }
    }
KERNEL_END
