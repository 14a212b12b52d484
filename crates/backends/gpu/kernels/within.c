// Elements that have to be in a range: a work-item for each of them.
//
// X: dtype. ACCUMULATOR: type that is computed in. LOW, HIGH: the range. ALLOWS_NAN: is NaN inside?
// RANK: 1, or the parameter that says how many dimensions there are.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        uint at = 0;
        ADD_OFFSET(at, i, RANK, p.view_shape, p.x_strides);
        const ACCUMULATOR value = LOAD(X, x, at);
        if (!((value >= LOW && value <= HIGH) || (ALLOWS_NAN && value != value))) {
            REPORT(status, p.status_code);
        }
        STORE(X, y, i, value);
    }
KERNEL_END
