// Lines cut into runs, and each run sorted by counting: a work-item for each element, which
// counts those of its run that come before it.
//
// X, Y: dtypes. BEFORE(a, i, b, j): does element `i`, which is `a`, come before `j`, which is `b`?
// HAS_VALUES: are the elements written, too, and not their indices alone?

KERNEL_BEGIN
    const uint item = GROUP_ID(0) * GROUP + LANE;
    if (item < p.count) {
        const uint line = item / p.len, own = item % p.len;
        uint x_start = 0, y_start = 0;
        ADD_OFFSET(x_start, line, p.x_lines_rank, p.x_lines_shape, p.x_strides);
        ADD_OFFSET(y_start, line, p.y_lines_rank, p.y_lines_shape, p.y_strides);
        const COMPUTE(X) value = LOAD(X, x, x_start + own * p.x_step);
        const uint run = own / p.run, begin = run * p.run;
        const uint end = p.len - begin < p.run ? p.len : begin + p.run;
        uint rank = 0;
        for (uint j = begin; j < end; j++) {
            const COMPUTE(X) other = LOAD(X, x, x_start + j * p.x_step);
            if (BEFORE(other, j, value, own)) rank++;
        }
        if (rank < p.kept) {
            const uint to = y_start + (run * p.kept + rank) * p.y_step;
            STORE(Y, y, to, own);
#if HAS_VALUES
            STORE(X, values, to, value);
#endif
        }
    }
KERNEL_END
