// The elements of one view copied to another: a work-item for each.
//
// X: dtype. RANK: number of dimensions.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        uint from = 0, to = 0;
        ADD_OFFSET(from, i, RANK, p.view_shape, p.x_strides);
        ADD_OFFSET(to, i, RANK, p.view_shape, p.y_strides);
        STORE(X, y, to, LOAD(X, x, from));
    }
KERNEL_END
