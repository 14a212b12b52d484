// Indices of the best elements of lines: a team for each line and, where lines are few and long,
// for each of several segments of it.
//
// X, Y: dtypes. BEATS(a, b): is `a` better than `b`? HAS_CANDIDATES: is the choice between the
// indices in `candidates`, `p.len` for each line in rising order, and not between all?
// HAS_EXTREMES: are the elements written, too, of lines that are one segment? VECTOR: neighbours
// that are loaded at once, of lines without gaps; else 1. EACH: how often before one is looked at.

// Takes another candidate if it is better, or as good and earlier.
#define TAKE(other, index) \
    if (BEATS(other, value) || (!BEATS(value, other) && (index) < best)) { \
        value = other; \
        best = index; \
    }

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
#if VECTOR > 1
    uint best = begin;
    COMPUTE(X) value = LOAD(X, x, x_start + begin);
    for (uint j = begin + MEMBER * VECTOR; j < end; j += p.team * (VECTOR * EACH)) {
        uint words[4 * EACH];
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            const uint at = j + k * p.team * VECTOR;
            LOAD_4_WORDS(words + 4 * k, x + x_start, (at < end ? at : j) / VECTOR)
        }
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            const uint at = j + k * p.team * VECTOR;
            UNROLL
            for (uint i = 0; i < VECTOR; i++) {
                const COMPUTE(X) other = PART(X, words + 4 * k, i);
                if (BEATS(other, value) && at < end) {
                    value = other;
                    best = at + i;
                }
            }
        }
    }
#else
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
#endif
    uint left = p.team;
#ifdef SIMD_WIDTH
    // Lanes that are neighbours choose within their SIMD-group first.
    if (p.member_step == 1) {
        for (uint mask = min((uint)p.team, (uint)SIMD_WIDTH) / 2; mask > 0; mask /= 2) {
            const COMPUTE(X) other = simd_xor(value, mask);
            const uint index = simd_xor(best, mask);
            TAKE(other, index)
            left /= 2;
        }
    }
#endif
    // The lanes that stand for others are then so far apart.
    const uint apart = p.team / left;
    if (left > 1) {
        values[LANE] = value;
        indices[LANE] = best;
        BARRIER;
        for (; left > 1; left /= 2) {
            const uint lane = LANE + left / 2 * apart * p.member_step;
            if (MEMBER % apart == 0 && MEMBER / apart < left / 2) {
                TAKE(values[lane], indices[lane])
                values[LANE] = value;
                indices[LANE] = best;
            }
            BARRIER;
        }
    }
    if (exists && MEMBER == 0) {
        STORE(Y, y, line * p.segments + GROUP_ID(1), best);
#if HAS_EXTREMES
        STORE(X, extremes, line, value);
#endif
    }
KERNEL_END
