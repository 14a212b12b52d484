// Elements of `source` put, or added, to where an index says along one dimension: a work-item
// for each line of the index, which goes through it in order. `y` begins as a copy of `x`.
//
// X, INDEX: dtypes. COMBINE(a, b): what becomes of `a` where `b` is put.

KERNEL_BEGIN
    const uint line = GROUP_ID(0) * GROUP + LANE;
    if (line < p.count) {
        uint to = 0, at = 0, source_at = 0;
        ADD_OFFSET(to, line, p.lines_rank, p.lines_shape, p.y_strides);
        ADD_OFFSET(at, line, p.lines_rank, p.lines_shape, p.index_strides);
        ADD_OFFSET(source_at, line, p.lines_rank, p.lines_shape, p.source_strides);
        for (uint j = 0; j < p.picks; j++) {
            const long pick = LOAD(INDEX, index, at + j * p.index_step);
            if (pick >= 0 && pick < (long)p.size) {
                const uint place = to + (uint)pick * p.y_step;
                COMPUTE(X) value = LOAD(X, y, place);
                const COMPUTE(X) other = LOAD(X, source, source_at + j * p.source_step);
                value = COMBINE(value, other);
                STORE(X, y, place, value);
            } else {
                REPORT(status, p.status_code);
            }
        }
    }
KERNEL_END
