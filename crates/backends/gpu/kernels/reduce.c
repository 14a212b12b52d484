// Elements combined over some dimensions: a team for each result and, where results are few,
// for each of several segments of what it is made of.
//
// X, A, Y: dtypes of the elements, of what is combined, of the results.
// COMBINE(a, b): how. START: what a lane begins with. EACH: elements it reads at a time.
// ALONG_RANK: 1, or the parameter that says how many dimensions a line has. VECTOR: neighbours that
// are loaded at once, of lines without gaps; else 1.

KERNEL_BEGIN
    LOCAL_ARRAY(COMPUTE(A), shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    const uint begin = GROUP_ID(1) * p.segment;
    const uint end = p.len - begin < p.segment ? p.len : begin + p.segment;
    uint x_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.starts_strides);

    // Several at a time, which do not wait for each other.
    COMPUTE(A) values[EACH];
    for (uint k = 0; k < EACH; k++) values[k] = START;
#if VECTOR > 1
    for (uint j = begin + MEMBER * VECTOR; j < end; j += p.team * (VECTOR * EACH)) {
        uint words[4 * EACH];
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            const uint at = j + k * p.team * VECTOR;
            LOAD_WORDS(words + 4 * k, x + x_start, at < end ? at : j);
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
                uint at = x_start;
                ADD_OFFSET(at, j + k * p.team, ALONG_RANK, p.along_shape, p.along_strides);
                const COMPUTE(A) element = LOAD(X, x, at);
                values[k] = COMBINE(values[k], element);
            }
        }
    }
#endif
    COMPUTE(A) value = values[0];
    for (uint k = 1; k < EACH; k++) value = COMBINE(value, values[k]);
    TEAM_REDUCE(shared, value, COMBINE);
    if (exists && MEMBER == 0) {
        STORE(Y, y, line * p.y_line + GROUP_ID(1) * p.y_segment, value);
    }
KERNEL_END
