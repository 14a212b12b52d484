// Elements of `source` put, or added, to where an index says along one dimension: a work-item
// for each element of the result, which looks for its own among those of its line.
//
// X, INDEX: dtypes. COMBINE(a, b): what becomes of `a` where `b` is put.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        uint rest = i, from = 0, own = 0, at = 0, source_at = 0;
        // The index may be smaller than the result.
        uint picks = p.picks;
        for (uint d = p.rank; d > 0; d--) {
            const uint c = rest % p.shape[d - 1];
            rest /= p.shape[d - 1];
            from += c * p.x_strides[d - 1];
            if (d - 1 == p.dim) {
                own = c;
            } else {
                if (c >= p.index_shape[d - 1]) picks = 0;
                at += c * p.index_strides[d - 1];
                source_at += c * p.source_strides[d - 1];
            }
        }
        COMPUTE(X) value = LOAD(X, x, from);
        for (uint j = 0; j < picks; j++) {
            const long pick = LOAD(INDEX, index, at + j * p.index_step);
            if (pick < 0 || pick >= (long)p.size) REPORT(status, p.status_code);
            if (pick == (long)own) {
                const COMPUTE(X) other = LOAD(X, source, source_at + j * p.source_step);
                value = COMBINE(value, other);
            }
        }
        STORE(X, y, i, value);
    }
KERNEL_END
