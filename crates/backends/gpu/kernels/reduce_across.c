// Lines that lie beside each other, combined: a lane has VECTOR neighbours of them, and reads EACH elements of each at a time.
// Each of a group's TEAM rows of LANES lanes has its share of the elements of a segment.
//
// X, A: dtypes of the elements, and of what is combined, as which results are stored. COMBINE(a, b): how. START: what it
// begins with.

KERNEL_BEGIN
    LOCAL_ARRAY(COMPUTE(A), shared, GROUP * VECTOR);
    const uint lane = LANE % LANES, member = LANE / LANES;
    const uint line = (GROUP_ID(0) * LANES + lane) * VECTOR;
    const uint own = min(line, (uint)(p.count - VECTOR));
    const uint begin = GROUP_ID(1) * p.segment;
    const uint end = p.len - begin < p.segment ? p.len : begin + p.segment;
    COMPUTE(A) values[VECTOR];
    UNROLL
    for (uint e = 0; e < VECTOR; e++) values[e] = START;
    for (uint j = begin + member; j < end; j += TEAM * EACH) {
        uint words[4 * EACH];
        UNROLL
        for (uint k = 0; k < EACH; k++) {
            const uint at = min((uint)(j + k * TEAM), (uint)(end - 1));
            LOAD_4_WORDS(words + 4 * k, x, (at * p.step + own) / VECTOR)
        }
        // First with each other: a chain of all elements would lose digits.
        UNROLL
        for (uint e = 0; e < VECTOR; e++) {
            COMPUTE(A) few = START;
            UNROLL
            for (uint k = 0; k < EACH; k++) {
                if (j + k * TEAM < end) {
                    const COMPUTE(A) element = PART(X, words + 4 * k, e);
                    few = COMBINE(few, element);
                }
            }
            values[e] = COMBINE(values[e], few);
        }
    }
    UNROLL
    for (uint e = 0; e < VECTOR; e++) shared[e * GROUP + LANE] = values[e];
    BARRIER;
    if (member == 0 && line < p.count) {
        UNROLL
        for (uint e = 0; e < VECTOR; e++) {
            COMPUTE(A) value = values[e];
            for (uint m = 1; m < TEAM; m++) {
                const COMPUTE(A) other = shared[e * GROUP + LANE + m * LANES];
                value = COMBINE(value, other);
            }
            STORE(A, y, GROUP_ID(1) * p.count + line + e, value);
        }
    }
KERNEL_END
