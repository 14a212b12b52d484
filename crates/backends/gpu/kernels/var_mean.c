// Mean and variance over some dimensions: a team for each result and, where results are few, for each
// of several segments of what it is made of.
//
// X, Y: dtypes of the elements and of the results. ACCUMULATOR: type that is computed in. EACH:
// elements that a lane reads at a time, each of VECTOR neighbours. ALONG_RANK: 1, or the parameter that says how many dimensions
// a line has. Numbers are taken relative to the line's first, so that equal ones have no variance.
// DIVISOR: of the sum of squares. HAS_PARTS: are elements parts of lines, of which mean and
// sum of squares are known?

// Adds `n` elements of mean `m` and of the sum `s` of squared distances from it to what a lane has seen
// (Chan, Golub and LeVeque 1979, Stanford STAN-CS-79-773).
#define ADD_PART(n, m, s) \
    { \
        const ACCUMULATOR both_ = count + (n); \
        const ACCUMULATOR way_ = (m) - mean; \
        const ACCUMULATOR share_ = (n) / both_; \
        mean += way_ * share_; \
        squares += (s) + way_ * way_ * count * share_; \
        count = both_; \
    }

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    const uint begin = GROUP_ID(1) * p.segment;
    const uint end = p.len - begin < p.segment ? p.len : begin + p.segment;
    uint x_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.starts_strides);

    ACCUMULATOR shift = 0;
#if HAS_PARTS
    if (exists && p.len > 0) shift = LOAD(X, means, x_start);
#else
    if (exists && p.len > 0) shift = LOAD(X, x, x_start);
#endif
    if (!(fabs(shift) < INFINITY)) shift = 0;

    ACCUMULATOR count = 0, mean = 0, squares = 0;
#if HAS_PARTS
    for (uint j = begin + MEMBER; j < end; j += p.team) {
        uint at = x_start;
        ADD_OFFSET(at, j, ALONG_RANK, p.along_shape, p.along_strides);
        const ACCUMULATOR n = min(p.part, p.whole - j * p.part);
        const ACCUMULATOR m = LOAD(X, means, at) - shift;
        const ACCUMULATOR s = LOAD(X, x, at);
        ADD_PART(n, m, s);
    }
#elif VECTOR > 1
    for (uint j = begin + MEMBER * VECTOR; j < end; j += p.team * (VECTOR * EACH)) {
        uint words[4 * EACH];
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            const uint own = j + k * p.team * VECTOR;
            uint at = x_start;
            ADD_OFFSET(at, own < end ? own : j, ALONG_RANK, p.along_shape, p.along_strides);
            LOAD_4_WORDS(words + 4 * k, x, at / VECTOR)
        }
        ACCUMULATOR n = 0, sum = 0, s = 0;
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team * VECTOR < end) {
                UNROLL
                for (uint i = 0; i < VECTOR; i++) sum += PART(X, words + 4 * k, i) - shift;
                n += VECTOR;
            }
        }
        const ACCUMULATOR m = sum / n;
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team * VECTOR < end) {
                UNROLL
                for (uint i = 0; i < VECTOR; i++) {
                    const ACCUMULATOR v = PART(X, words + 4 * k, i) - shift - m;
                    s += v * v;
                }
            }
        }
        ADD_PART(n, m, s);
    }
#else
    for (uint j = begin + MEMBER; j < end; j += p.team * EACH) {
        ACCUMULATOR values[EACH];
        ACCUMULATOR n = 0, sum = 0, s = 0;
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team < end) {
                uint at = x_start;
                ADD_OFFSET(at, j + k * p.team, ALONG_RANK, p.along_shape, p.along_strides);
                values[k] = LOAD(X, x, at) - shift;
                sum += values[k];
                n += 1;
            }
        }
        const ACCUMULATOR m = sum / n;
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team < end) s += (values[k] - m) * (values[k] - m);
        }
        ADD_PART(n, m, s);
    }
#endif
    ACCUMULATOR number = count, sum_of_all = count * mean;
    TEAM_REDUCE(shared, number, PLUS);
    TEAM_REDUCE(shared, sum_of_all, PLUS);
    const ACCUMULATOR centre = sum_of_all / number;
    squares += count * (mean - centre) * (mean - centre);
    TEAM_REDUCE(shared, squares, PLUS);
    if (exists && MEMBER == 0) {
        const uint at = line * p.y_line + GROUP_ID(1) * p.y_segment;
        STORE(Y, y, at, squares / DIVISOR);
        STORE(Y, mean_of, at, centre + shift);
    }
KERNEL_END
