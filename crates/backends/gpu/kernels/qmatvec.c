// The product of at most M rows of rounded activations with rows of blocks, which are read once:
// LANES_K work-items share a row of blocks, chunk by chunk of 32 values, and a group has LANES_N
// such rows at a time, LANE_N times.
//
// With BY_EXPERT a group has a part of one row, see experts.h.
//
// Y: dtype. HAS_BIAS: is a bias added? The blocks' own macros are in formats.

KERNEL_BEGIN
    LOCAL_ARRAY(float, shared, GROUP * M);
    const uint lane_k = LANE % LANES_K, lane_n = LANE / LANES_K;
    const uint chunks = p.k / 32;
#if BY_EXPERT
    const uint parts = (p.n + LANES_N * LANE_N - 1) / (LANES_N * LANE_N);
    const uint part_of_row = GROUP_ID(0) % parts, y_row = GROUP_ID(0) / parts;
    const uint x_row = y_row / p.sharing;
    CHOOSE(first_w, y_row);
#else
    const uint part_of_row = GROUP_ID(0), y_row = 0, x_row = 0, first_w = 0;
#endif
    for (uint j = 0; j < LANE_N; j++) {
        const uint first = (part_of_row * LANE_N + j) * LANES_N;
        // Rows past the last are computed as the last, and dropped.
        const uint column = min(first + lane_n, p.n - 1);
        float sum[M];
        for (uint i = 0; i < M; i++) sum[i] = 0;
        for (uint chunk = lane_k; chunk < chunks; chunk += LANES_K) {
            const uint at = (first_w + column) * chunks + chunk;
            GLOBAL const uchar* block = w + at / (BLOCK_LENGTH / 32) * BLOCK_BYTES;
            const uint part = at % (BLOCK_LENGTH / 32);
            uint codes[8];
            for (uint word = 0; word < 8; word++) codes[word] = codes_at(block, part * 8 + word);
            for (uint i = 0; i < M; i++) {
                const uint from = (x_row + min(i, p.m - 1)) * chunks + chunk;
                float product = 0;
                for (uint span = 0; span < 32 / SPAN; span++) {
                    int dot = 0;
                    for (uint word = 0; word < SPAN / 4; word++) {
                        const uint e = span * (SPAN / 4) + word;
                        dot = dot4((int)codes[e], (int)x_codes[from * 8 + e], dot);
                    }
#if ZERO_POINT != 0
                    dot -= ZERO_POINT * x_sums[from * (32 / SPAN) + span];
#endif
                    const uint place = part * (32 / SPAN) + span;
                    product = MULTIPLY_ADD(scale_of(block, place), (float)dot, product);
#if HAS_MINIMUM
                    const float x_sum = (float)x_sums[from * (32 / SPAN) + span];
                    product = MULTIPLY_ADD(-minimum_of(block, place), x_sum, product);
#endif
                }
                sum[i] = MULTIPLY_ADD(x_scales[from], product, sum[i]);
            }
        }
        for (uint i = 0; i < M; i++) shared[(i * LANES_N + lane_n) * LANES_K + lane_k] = sum[i];
        BARRIER;
        for (uint e = LANE; e < M * LANES_N; e += GROUP) {
            const uint row = e / LANES_N, to = first + e % LANES_N;
            if (row < p.m && to < p.n) {
                float v = 0;
                for (uint u = 0; u < LANES_K; u++) v += shared[e * LANES_K + u];
#if HAS_BIAS
                v += LOAD(Y, bias, to);
#endif
                STORE(Y, y, (y_row + row) * p.n + to, v);
            }
        }
        BARRIER;
    }
KERNEL_END
