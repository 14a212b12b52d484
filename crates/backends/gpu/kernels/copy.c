// The elements of one view copied to another: a work-item for each EACH of them.
//
// X: dtype. RANK: number of dimensions.

KERNEL_BEGIN
    const uint first = GROUP_ID(0) * (GROUP * EACH) + LANE;
    // All loads come first: what is stored may be what is loaded next, for all that compilers know.
    COMPUTE(X) values[EACH];
    UNROLL
    for (uint e = 0; e < EACH; e++) {
        uint from = 0;
        ADD_OFFSET(from, min(first + e * GROUP, p.count - 1), RANK, p.view_shape, p.x_strides);
        values[e] = LOAD(X, x, from);
    }
    UNROLL
    for (uint e = 0; e < EACH; e++) {
        const uint i = first + e * GROUP;
        if (i < p.count) {
            uint to = 0;
            ADD_OFFSET(to, i, RANK, p.view_shape, p.y_strides);
            STORE(X, y, to, values[e]);
        }
    }
KERNEL_END
