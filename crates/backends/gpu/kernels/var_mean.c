// Mean and variance over some dimensions: a team for each result and, where results are few, for each
// of several segments of what it is made of.
//
// X, Y: dtypes of the elements and of the results. ACCUMULATOR: type that is computed in. EACH:
// elements that a lane reads at a time, each of VECTOR neighbours. ALONG_RANK: 1, or the parameter that says how many dimensions
// a line has. DIVISOR: of the sum of squares, which may be `number`, that of elements. IS_ROOT: is the root of what results
// wanted? HAS_PARTS: are elements parts of lines, of which mean and the root of the mean square are known?
//
// Numbers are taken relative to the line's first, so that equal ones have no variance, and SMALLER times as large, so that
// neither differences nor a few of them together overflow. No square of a distance overflows or vanishes beside others: a
// lane's are of distances in units of 1 or, where one is above EDGE, of FAR, or, where all are below 1 / EDGE, of NEAR.

#define SMALLER ((ACCUMULATOR)0.0078125)
#define UNIT_OF(distance) ((distance) > EDGE ? FAR : (distance) * EDGE < 1 ? NEAR : (ACCUMULATOR)1)
#define LARGER(a, b) ((a) > (b) ? (a) : (b))

#define DIFFERENCE(k, i) MULTIPLY_ADD((ACCUMULATOR)PART(X, words + 4 * (k), i), SMALLER, from)

// Around what adds to `s` the squares of `part` times the distances of `n` elements from their mean `m`, of which `largest` is
// the largest: adds the elements to what a lane has seen (Chan, Golub and LeVeque 1979, Stanford STAN-CS-79-773).
#define START_PART(n, m, largest) \
    const ACCUMULATOR both = count + (n), share = (n) / both, way = (m) - mean; \
    const ACCUMULATOR furthest = LARGER(fabs(way), largest), own = UNIT_OF(furthest); \
    const ACCUMULATOR common = LARGER(unit, own), part = 1 / common; \
    ACCUMULATOR s = 0;
#define END_PART \
    squares = squares * (unit * part) * (unit * part) + s + way * part * (way * part) * count * share; \
    unit = common; \
    mean += way * share; \
    count = both;

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
    const ACCUMULATOR from = -shift * SMALLER;

    ACCUMULATOR count = 0, mean = 0, squares = 0, unit = NEAR;
#if HAS_PARTS
    for (uint j = begin + MEMBER; j < end; j += p.team) {
        uint at = x_start;
        ADD_OFFSET(at, j, ALONG_RANK, p.along_shape, p.along_strides);
        const ACCUMULATOR n = min(p.part, p.whole - j * p.part);
        const ACCUMULATOR m = MULTIPLY_ADD((ACCUMULATOR)LOAD(X, means, at), SMALLER, from);
        const ACCUMULATOR length = LOAD(X, x, at) * SMALLER;
        START_PART(n, m, length)
        s += length * part * (length * part) * n;
        END_PART
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
        ACCUMULATOR n = 0, sum = 0, largest = 0;
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team * VECTOR < end) {
                UNROLL
                for (uint i = 0; i < VECTOR; i++) sum += DIFFERENCE(k, i);
                n += VECTOR;
            }
        }
        const ACCUMULATOR m = sum / n;
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team * VECTOR < end) {
                UNROLL
                for (uint i = 0; i < VECTOR; i++) largest = LARGER(fabs(DIFFERENCE(k, i) - m), largest);
            }
        }
        START_PART(n, m, largest)
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team * VECTOR < end) {
                UNROLL
                for (uint i = 0; i < VECTOR; i++) {
                    const ACCUMULATOR v = (DIFFERENCE(k, i) - m) * part;
                    s += v * v;
                }
            }
        }
        END_PART
    }
#else
    for (uint j = begin + MEMBER; j < end; j += p.team * EACH) {
        ACCUMULATOR values[EACH];
        ACCUMULATOR n = 0, sum = 0, largest = 0;
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team < end) {
                uint at = x_start;
                ADD_OFFSET(at, j + k * p.team, ALONG_RANK, p.along_shape, p.along_strides);
                values[k] = MULTIPLY_ADD((ACCUMULATOR)LOAD(X, x, at), SMALLER, from);
                sum += values[k];
                n += 1;
            }
        }
        const ACCUMULATOR m = sum / n;
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team < end) largest = LARGER(fabs(values[k] - m), largest);
        }
        START_PART(n, m, largest)
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team < end) s += (values[k] - m) * part * ((values[k] - m) * part);
        }
        END_PART
    }
#endif
    ACCUMULATOR number = count;
    TEAM_REDUCE(shared, number, PLUS);
    ACCUMULATOR centre = mean * (count / number);
    TEAM_REDUCE(shared, centre, PLUS);
    const ACCUMULATOR way = count > 0 ? mean - centre : 0, own = UNIT_OF(fabs(way));
    ACCUMULATOR common = LARGER(unit, own);
    TEAM_REDUCE(shared, common, LARGER);
    const ACCUMULATOR old = unit / common, step = way / common;
    squares = squares * old * old + count * step * step;
    TEAM_REDUCE(shared, squares, PLUS);
    if (exists && MEMBER == 0) {
        const uint at = line * p.y_line + GROUP_ID(1) * p.y_segment;
        const ACCUMULATOR share = squares / DIVISOR, whole = common / SMALLER;
#if IS_ROOT
        STORE(Y, y, at, sqrt(share) * whole);
#else
        STORE(Y, y, at, share * whole * whole);
#endif
        STORE(Y, mean_of, at, (centre - from) / SMALLER);
    }
KERNEL_END
