// Indices of the best elements of lines: a team for each line and, where lines are few and long,
// for each of several segments of it.
//
// X, Y: dtypes. BEATS(a, b): is `a` better than `b`? HAS_CANDIDATES: is the choice between the
// indices in `candidates`, `p.len` for each line in rising order, and not between all?
// HAS_EXTREMES: are the elements written, too, of lines that are one segment?

KERNEL_BEGIN
    LOCAL_ARRAY(COMPUTE(X), values, GROUP);
    LOCAL_ARRAY(uint, indices, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    const uint begin = GROUP_ID(1) * p.segment;
    const uint end = p.len - begin < p.segment ? p.len : begin + p.segment;
    uint x_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.starts_strides);
#if HAS_CANDIDATES
#define CANDIDATE(j) LOAD(u32, candidates, (exists ? line : 0) * p.len + (j))
#else
#define CANDIDATE(j) (j)
#endif

    // Lanes without elements repeat the first.
    uint j = begin + MEMBER;
    uint best = CANDIDATE(j < end ? j : begin);
    COMPUTE(X) value = LOAD(X, x, x_start + best * p.step);
    for (j += p.team; j < end; j += p.team) {
        const uint index = CANDIDATE(j);
        const COMPUTE(X) other = LOAD(X, x, x_start + index * p.step);
        if (BEATS(other, value)) {
            value = other;
            best = index;
        }
    }
    values[LANE] = value;
    indices[LANE] = best;
    BARRIER;
    for (uint half_ = p.team / 2; half_ > 0; half_ /= 2) {
        if (MEMBER < half_) {
            const COMPUTE(X) other = values[LANE + half_ * p.member_step];
            const uint index = indices[LANE + half_ * p.member_step];
            if (BEATS(other, value) || (!BEATS(value, other) && index < best)) {
                value = other;
                best = index;
            }
            values[LANE] = value;
            indices[LANE] = best;
        }
        BARRIER;
    }
    if (exists && MEMBER == 0) {
        STORE(Y, y, line * p.segments + GROUP_ID(1), best);
#if HAS_EXTREMES
        STORE(X, extremes, line, value);
#endif
    }
KERNEL_END
