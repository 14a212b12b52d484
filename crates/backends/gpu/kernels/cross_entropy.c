// The cross entropy of lines along one dimension with a class each: a team for each line.
//
// X, Y: dtypes of the elements and of the results. ACCUMULATOR: type that is computed in. LOWEST: its
// smallest number. VECTOR: see log_sum.h.

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    uint x_start = 0, class_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.x_strides);
    ADD_OFFSET(class_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.class_strides);

    LOG_SUM(ACCUMULATOR, shared, largest, sum)
    if (exists && MEMBER == 0) {
        const long class_index = LOAD(i64, classes, class_start);
        const long ignored = (long)((ulong)p.ignored[0] | (ulong)p.ignored[1] << 32);
        ACCUMULATOR loss = 0;
        if (class_index >= 0 && class_index < (long)p.len) {
            const ACCUMULATOR v = LOAD(X, x, x_start + (uint)class_index * p.x_step);
            loss = class_index == ignored ? 0 : log(sum) - (v - largest);
        } else if (class_index != ignored) {
            REPORT(status, p.status_code);
        }
        STORE(Y, y, line, loss);
    }
KERNEL_END
