// Dimensions in reverse order: a work-item for each element of the result.
//
// X: dtype. RANK: 1, or the parameter that says how many dimensions there are. Steps backwards
// are so long that positions wrap.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        uint at = p.start;
        ADD_OFFSET(at, i, RANK, p.shape, p.strides);
        STORE(X, y, i, LOAD(X, x, at));
    }
KERNEL_END
