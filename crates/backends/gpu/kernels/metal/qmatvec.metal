// The product of at most M rows of rounded activations with rows of blocks, which are read once:
// a SIMD-group goes through COLUMNS rows of blocks side by side.
//
// LANES lanes share a block. Each has every LANES-th word of codes, WORDS in all, so that
// neighbours read neighbours, and codes that are packed in the same bytes are one lane's. The
// sums of products of codes are whole numbers below 2^24, of which floats have all digits.
//
// With BY_EXPERT a group has a part of one row, see experts.h.
//
// Y: dtype. HAS_BIAS: is a bias added? The blocks' own macros are in formats.

KERNEL_BEGIN
    const uint lane = SIMD_LANE % LANES;
    const uint blocks = p.k / BLOCK_LENGTH;
#if BY_EXPERT
    const uint columns = GROUP / SIMD_WIDTH * COLUMNS, parts = (p.n + columns - 1) / columns;
    const uint part_of_row = GROUP_ID(0) % parts, y_row = GROUP_ID(0) / parts;
    const uint x_row = y_row / p.sharing;
    CHOOSE(first_w, y_row);
#else
    const uint part_of_row = GROUP_ID(0), y_row = 0, x_row = 0, first_w = 0;
#endif
    const uint first = (part_of_row * (GROUP / SIMD_WIDTH) + SIMD_GROUP) * COLUMNS;
    float sum[COLUMNS * M];
    UNROLL for (uint i = 0; i < COLUMNS * M; i++) sum[i] = 0;

    for (uint b = SIMD_LANE / LANES; b < blocks; b += SIMD_WIDTH / LANES) {
        UNROLL for (uint j = 0; j < COLUMNS; j++) {
            // Rows past the last are computed as the last, and dropped.
            const uint column = min(first + j, p.n - 1);
            GLOBAL const uchar* block = w + ((first_w + column) * blocks + b) * BLOCK_BYTES;
            float4 codes[WORDS];
            float scales[WORDS];
#if HAS_MINIMUM
            float minima[WORDS];
#endif
            UNROLL for (uint i = 0; i < WORDS; i++) {
                const uint word = lane + i * LANES;
                const char4 code = as_type<char4>(codes_at(block, word));
                codes[i].x = (float)(code.x - ZERO_POINT);
                codes[i].y = (float)(code.y - ZERO_POINT);
                codes[i].z = (float)(code.z - ZERO_POINT);
                codes[i].w = (float)(code.w - ZERO_POINT);
                scales[i] = scale_of(block, word / (SPAN / 4));
#if HAS_MINIMUM
                minima[i] = minimum_of(block, word / (SPAN / 4));
#endif
            }
            UNROLL for (uint row = 0; row < M; row++) {
                const uint from = ((x_row + min(row, p.m - 1)) * blocks + b) * (BLOCK_LENGTH / 4);
                float product = 0;
                UNROLL for (uint i = 0; i < WORDS; i++) {
                    const char4 code = as_type<char4>(x_codes[from + lane + i * LANES]);
                    float4 x;
                    x.x = (float)code.x;
                    x.y = (float)code.y;
                    x.z = (float)code.z;
                    x.w = (float)code.w;
                    product = fma(scales[i], dot(codes[i], x), product);
#if HAS_MINIMUM
                    product = fma(-minima[i], x.x + x.y + x.z + x.w, product);
#endif
                }
                sum[j * M + row] = fma(x_scales[from / 8], product, sum[j * M + row]);
            }
        }
    }

    UNROLL for (uint i = 0; i < COLUMNS * M; i++) {
        const uint column = first + i / M, row = i % M;
        float v = simd_sum(sum[i]);
        if (SIMD_LANE == 0 && column < p.n && row < p.m) {
#if HAS_BIAS
            v += LOAD(Y, bias, column);
#endif
            STORE(Y, y, (y_row + row) * p.n + column, v);
        }
    }
KERNEL_END
