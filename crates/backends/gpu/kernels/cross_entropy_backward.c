// The gradient of the cross entropy's lines, and the loss if HAS_LOSS: a team for each line, which reads it a second time to
// write what it makes of it, out of a cache.
//
// X, Y, CT: dtypes of elements, of losses and of their gradients. ACCUMULATOR: type that is computed in. LOWEST: its smallest
// number. VECTOR: see log_sum.h; the result's lines are then like the operand's.

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    uint x_start = 0, y_start = 0, class_start = 0, ct_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.x_strides);
    ADD_OFFSET(y_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.y_strides);
    ADD_OFFSET(class_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.class_strides);
    ADD_OFFSET(ct_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.ct_strides);

    LOG_SUM(ACCUMULATOR, shared, largest, sum)
    const long class_index = LOAD(i64, classes, class_start);
    const long ignored = (long)((ulong)p.ignored[0] | (ulong)p.ignored[1] << 32);
    ACCUMULATOR ct = LOAD(CT, cts, ct_start);
    if (class_index == ignored) ct = 0;
    const ACCUMULATOR scale = ct / sum;
    // No element of the line where there is no such class.
    const uint own = class_index >= 0 && class_index < (long)p.len ? (uint)class_index : ~0u;
#if HAS_LOSS
    if (exists && MEMBER == 0) {
        ACCUMULATOR loss = 0;
        if (own != ~0u) {
            const ACCUMULATOR v = LOAD(X, x, x_start + own * p.x_step);
            loss = class_index == ignored ? 0 : log(sum) - (v - largest);
        } else if (class_index != ignored) {
            REPORT(status, p.status_code);
        }
        STORE(Y, losses, line, loss);
    }
    // Before the gradient is written there, which may be in the same memory.
    BARRIER;
#endif
    if (exists) {
#if VECTOR > 1
        FOR_PIECES(first) {
            uint words[4];
            LOAD_4_WORDS(words, x, (x_start + first) / VECTOR)
            COMPUTE(X) values[VECTOR];
            UNROLL
            for (uint e = 0; e < VECTOR; e++) values[e] = EXP(PART(X, words, e) - largest) * scale;
            if (own - first < VECTOR) {
                UNROLL
                for (uint e = 0; e < VECTOR; e++) values[e] -= own == first + e ? ct : 0;
            }
            STORE_4_WORDS(X, y, (y_start + first) / VECTOR, values)
        }
#else
        FOR_PIECES(j) {
            const ACCUMULATOR v = LOAD(X, x, x_start + j * p.x_step);
            STORE(X, y, y_start + j * p.y_step, EXP(v - largest) * scale - (j == own ? ct : 0));
        }
#endif
    }
KERNEL_END
