// Neighbouring sorted runs made one: a work-item for each element, which looks up how many of
// the other run come before it.
//
// X, Y: dtypes. BEFORE(a, i, b, j): does element `i`, which is `a`, come before `j`, which is `b`?
// HAS_VALUES: are the elements written, too, and not their indices alone?
// `runs` has the indices of each line's runs: of `p.run` elements each, but for the last of a
// line, the best `p.kept`.

// Indices that there are of a run.
#define LENGTH(r) (p.len - (r) * p.run < p.kept ? p.len - (r) * p.run : p.kept)

KERNEL_BEGIN
    const uint item = GROUP_ID(0) * GROUP + LANE;
    const uint line = item / (p.runs_of_line * p.kept);
    const uint run = item / p.kept % p.runs_of_line, at = item % p.kept;
    if (item < p.count && at < LENGTH(run)) {
        uint x_start = 0, y_start = 0;
        ADD_OFFSET(x_start, line, p.x_lines_rank, p.x_lines_shape, p.x_strides);
        ADD_OFFSET(y_start, line, p.y_lines_rank, p.y_lines_shape, p.y_strides);
        const uint own = LOAD(u32, runs, item);
        const COMPUTE(X) value = LOAD(X, x, x_start + own * p.x_step);
        const uint other_run = run ^ 1, others = (line * p.runs_of_line + other_run) * p.kept;
        uint low = 0, high = other_run < p.runs_of_line ? LENGTH(other_run) : 0;
        while (low < high) {
            const uint middle = low + (high - low) / 2;
            const uint j = LOAD(u32, runs, others + middle);
            const COMPUTE(X) other = LOAD(X, x, x_start + j * p.x_step);
            if (BEFORE(other, j, value, own)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        const uint rank = at + low;
        if (rank < p.y_kept) {
            const uint to = y_start + (run / 2 * p.y_kept + rank) * p.y_step;
            STORE(Y, y, to, own);
#if HAS_VALUES
            STORE(X, values, to, value);
#endif
        }
    }
KERNEL_END
