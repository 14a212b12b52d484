// A tensor in the middle of a larger one: a work-item for each element of the result.
//
// X: dtype. VALUE: what is around.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        uint rest = i, at = 0;
        bool is_inside = true;
        for (uint d = p.rank; d > 0; d--) {
            // What is before the tensor wraps, and is behind it as well.
            const uint c = rest % p.shape[d - 1] - p.before[d - 1];
            rest /= p.shape[d - 1];
            is_inside = is_inside && c < p.sizes[d - 1];
            at += c * p.strides[d - 1];
        }
        if (is_inside) {
            STORE(X, y, i, LOAD(X, x, at));
        } else {
            STORE(X, y, i, VALUE);
        }
    }
KERNEL_END
