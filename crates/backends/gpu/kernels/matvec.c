// The product of matrices of any strides, for results with at most M rows: LANES_K work-items
// share LANES_N * LANE_N columns of a group. Each work-item sums LANE_K terms of a column at a
// time, LANES_K apart; then they are added up.
//
// A, B, Y: dtypes. A_ROW, A_K, B_K, B_COLUMN: strides. B_ALONG_K: do neighbours in memory
// follow each other along k? HAS_BIAS: is a bias added, whose strides are BIAS_ROW and
// BIAS_COLUMN? CHAIN: terms of a work-item's sum that are added one after the other, lest a long
// chain of roundings lose digits; 0 if all of them are. With BY_EXPERT rows are a batch, see experts.h.

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP * M * LANE_N);
    const uint columns = (p.n + LANES_N * LANE_N - 1) / (LANES_N * LANE_N);
    const uint first_column = GROUP_ID(0) % columns * (LANES_N * LANE_N);
    const uint batch = GROUP_ID(0) / columns;
    // Neighbours read neighbours.
    const uint lane_k = B_ALONG_K ? LANE % LANES_K : LANE / LANES_N;
    const uint lane_n = B_ALONG_K ? LANE / LANES_K : LANE % LANES_N;
    uint a_start = 0, b_start = 0;
    ADD_OFFSET(a_start, batch, BATCH_RANK, p.batch, p.a_batch);
    ADD_OFFSET(b_start, batch, BATCH_RANK, p.batch, p.b_batch);
#if BY_EXPERT
    CHOOSE(first_w, batch);
    b_start += first_w * B_COLUMN;
#endif

    // Rows and columns past the last are computed as the last, and dropped.
    ACCUMULATOR sum[M * LANE_N * LANE_K];
    for (uint i = 0; i < M * LANE_N * LANE_K; i++) sum[i] = ZERO;
#if CHAIN
    ACCUMULATOR total[M * LANE_N * LANE_K];
    for (uint i = 0; i < M * LANE_N * LANE_K; i++) total[i] = ZERO;
#endif
    const uint whole = p.k - p.k % (LANES_K * LANE_K);
    for (uint first = lane_k; first < whole; first += LANES_K * LANE_K) {
        for (uint j = 0; j < LANE_N; j++) {
            const uint column = min(first_column + lane_n + j * LANES_N, p.n - 1);
            for (uint u = 0; u < LANE_K; u++) {
                const uint k = first + u * LANES_K;
                const ACCUMULATOR b_k = LOAD(B, b, b_start + column * B_COLUMN + k * B_K);
                for (uint i = 0; i < M; i++) {
                    const uint row = min(i, p.m - 1);
                    const ACCUMULATOR a_k = LOAD(A, a, a_start + row * A_ROW + k * A_K);
                    const uint at = (i * LANE_N + j) * LANE_K + u;
                    sum[at] = ADD_PRODUCT(sum[at], a_k, b_k);
                }
            }
        }
#if CHAIN
        if (first / (LANES_K * LANE_K) % CHAIN == CHAIN - 1) {
            for (uint i = 0; i < M * LANE_N * LANE_K; i++) {
                total[i] = ADD(total[i], sum[i]);
                sum[i] = ZERO;
            }
        }
#endif
    }
    for (uint k = whole + lane_k; k < p.k; k += LANES_K) {
        for (uint j = 0; j < LANE_N; j++) {
            const uint column = min(first_column + lane_n + j * LANES_N, p.n - 1);
            const ACCUMULATOR b_k = LOAD(B, b, b_start + column * B_COLUMN + k * B_K);
            for (uint i = 0; i < M; i++) {
                const uint row = min(i, p.m - 1);
                const ACCUMULATOR a_k = LOAD(A, a, a_start + row * A_ROW + k * A_K);
                const uint at = (i * LANE_N + j) * LANE_K;
                sum[at] = ADD_PRODUCT(sum[at], a_k, b_k);
            }
        }
    }

#if CHAIN
    for (uint i = 0; i < M * LANE_N * LANE_K; i++) sum[i] = ADD(total[i], sum[i]);
#endif
    for (uint i = 0; i < M * LANE_N; i++) {
        ACCUMULATOR v = sum[i * LANE_K];
        for (uint u = 1; u < LANE_K; u++) v = ADD(v, sum[i * LANE_K + u]);
        shared[(i * LANES_N + lane_n) * LANES_K + lane_k] = v;
    }
    BARRIER;
    for (uint e = LANE; e < M * LANE_N * LANES_N; e += GROUP) {
        const uint row = e / (LANE_N * LANES_N);
        const uint column = first_column + e % (LANE_N * LANES_N);
        if (row < p.m && column < p.n) {
            ACCUMULATOR v = shared[e * LANES_K];
            for (uint u = 1; u < LANES_K; u++) v = ADD(v, shared[e * LANES_K + u]);
#if HAS_BIAS
            v += LOAD(Y, bias, row * BIAS_ROW + column * BIAS_COLUMN);
#endif
            STORE(Y, y, batch * p.m * p.n + row * p.y_row + column * p.y_column, v);
        }
    }
KERNEL_END
