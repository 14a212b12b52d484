// Elements combined over some dimensions: a team for each result and, where results are few,
// for each of several segments of what it is made of.
//
// X, A, Y: dtypes of the elements, of what is combined, of the results.
// COMBINE(a, b): how. START: what a lane begins with, if not with a first element. EACH: elements it
// reads at a time. ALONG_RANK: 1, or the parameter that says how many dimensions a line has.
// VECTOR: neighbours that are loaded at once, of lines without gaps; else 1.
// BEGIN_LINE(line), ELEMENT(name, j): declare what there is to know of a line, and element `j` of it.
// EPILOGUE: declares RESULT, what is stored of a combined `value`.

#ifndef ELEMENT
#define BEGIN_LINE(line) \
    uint x_start = 0; \
    ADD_OFFSET(x_start, line, p.starts_rank, p.starts_shape, p.starts_strides)
#define ELEMENT(name, j) \
    uint name##_at = x_start; \
    ADD_OFFSET(name##_at, j, ALONG_RANK, p.along_shape, p.along_strides) \
    const COMPUTE(X) name = LOAD(X, x, name##_at);
#endif
#ifndef EPILOGUE
#define EPILOGUE
#define RESULT value
#endif

KERNEL_BEGIN
    LOCAL_ARRAY(COMPUTE(A), shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    const uint begin = GROUP_ID(1) * p.segment;
    const uint end = p.len - begin < p.segment ? p.len : begin + p.segment;
    const uint own = exists ? line : 0;
    BEGIN_LINE(own)

    // Several at a time, which do not wait for each other.
    COMPUTE(A) values[EACH];
#ifdef START
    for (uint k = 0; k < EACH; k++) values[k] = START;
#else
    {
        ELEMENT(first, 0)
        for (uint k = 0; k < EACH; k++) values[k] = first;
    }
#endif
#if VECTOR > 1
    for (uint j = begin + MEMBER * VECTOR; j < end; j += p.team * (VECTOR * EACH)) {
        uint words[4 * EACH];
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            const uint at = j + k * p.team * VECTOR;
            LOAD_4_WORDS(words + 4 * k, x + x_start, (at < end ? at : j) / VECTOR)
        }
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team * VECTOR < end) {
                UNROLL
                for (uint i = 0; i < VECTOR; i++) {
                    const COMPUTE(A) element = PART(X, words + 4 * k, i);
                    values[k] = COMBINE(values[k], element);
                }
            }
        }
    }
#else
    for (uint j = begin + MEMBER; j < end; j += p.team * EACH) {
        for (uint k = 0; k < EACH; k++) {
            if (j + k * p.team < end) {
                ELEMENT(element, j + k * p.team)
                values[k] = COMBINE(values[k], element);
            }
        }
    }
#endif
    COMPUTE(A) value = values[0];
    for (uint k = 1; k < EACH; k++) value = COMBINE(value, values[k]);
    TEAM_REDUCE(shared, value, COMBINE);
    if (exists && MEMBER == 0) {
        EPILOGUE
        STORE(Y, y, line * p.y_line + GROUP_ID(1) * p.y_segment, RESULT);
    }
KERNEL_END
