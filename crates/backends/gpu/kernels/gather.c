// Elements that an index picks along one dimension: a work-item for each.
//
// X, INDEX: dtypes. RANK: number of dimensions.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        uint from = 0, at = 0;
        ADD_OFFSET(from, i, RANK, p.view_shape, p.x_strides);
        ADD_OFFSET(at, i, RANK, p.view_shape, p.index_strides);
        const long pick = LOAD(INDEX, index, at);
        if (pick >= 0 && pick < (long)p.size) {
            STORE(X, y, i, LOAD(X, x, from + (uint)pick * p.step));
        } else {
            REPORT(status, p.status_code);
        }
    }
KERNEL_END
