// Writes elements of any strides into a state: a work-item for each.
//
// X, Y: dtypes of the source and the state. CONVERT makes one of the state of one of the source.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    const int first = start[0];
    if (first < 0 || (uint)first > p.last) {
        REPORT(status, p.status_code);
    } else if (i < p.n) {
        uint from = 0, to = (uint)first * p.stride;
        ADD_OFFSET(from, i, RANK, p.shape, p.x_strides);
        ADD_OFFSET(to, i, RANK, p.shape, p.y_strides);
        const COMPUTE(X) v = LOAD(X, x, from);
        STORE(Y, y, to, CONVERT(v));
    }
KERNEL_END
