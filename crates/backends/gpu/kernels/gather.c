// Elements that an index picks along one dimension: a work-item for each EACH of them.
//
// X, INDEX: dtypes. RANK: number of dimensions.

KERNEL_BEGIN
    const uint first = GROUP_ID(0) * (GROUP * EACH) + LANE;
    // Loads of one kind come together, so that they do not wait for each other.
    uint from[EACH];
    long picks[EACH];
    COMPUTE(X) values[EACH];
    UNROLL
    for (uint e = 0; e < EACH; e++) {
        const uint i = min(first + e * GROUP, p.count - 1);
        uint at = 0;
        from[e] = 0;
        ADD_OFFSETS(from[e], at, i, RANK, p.view_shape, p.x_strides, p.index_strides);
        picks[e] = LOAD(INDEX, index, at);
    }
    UNROLL
    for (uint e = 0; e < EACH; e++) {
        if (picks[e] < 0 || picks[e] >= (long)p.size) {
            REPORT(status, p.status_code);
            // A reader that finds a valid element reports no mistake of its own.
            picks[e] = 0;
        }
        if (p.size > 0) values[e] = LOAD(X, x, from[e] + (uint)picks[e] * p.step);
    }
    UNROLL
    for (uint e = 0; e < EACH; e++) {
        const uint i = first + e * GROUP;
        if (i < p.count) STORE(X, y, i, values[e]);
    }
KERNEL_END
