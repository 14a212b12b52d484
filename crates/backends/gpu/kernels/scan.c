// Each element of a line combined with all before it: a team for each line or, where lines are few
// and long, for each of several segments of it.
//
// X, A, Y: dtypes of the elements, of what is combined, of the results. COMBINE(a, b): how. START:
// what changes nothing. EACH: neighbouring elements that a lane combines at a time.
// HAS_CARRIES: are there `carries`, what comes of the segments of each line up to each?

KERNEL_BEGIN
    LOCAL_ARRAY(COMPUTE(A), shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    const uint begin = GROUP_ID(1) * p.segment;
    const uint end = p.len - begin < p.segment ? p.len : begin + p.segment;
    uint x_start = 0, y_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.x_strides);
    ADD_OFFSET(y_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.y_strides);

    COMPUTE(A) carry = START;
#if HAS_CARRIES
    if (exists && GROUP_ID(1) > 0) {
        carry = LOAD(A, carries, line * p.segments + GROUP_ID(1) - 1);
    }
#endif
    for (uint chunk = begin; chunk < end; chunk += p.team * EACH) {
        const uint first = chunk + MEMBER * EACH;
        COMPUTE(A) totals[EACH];
        COMPUTE(A) total = START;
        for (uint k = 0; k < EACH; k++) {
            if (exists && first + k < end) {
                const COMPUTE(A) element = LOAD(X, x, x_start + (first + k) * p.x_step);
                total = COMBINE(total, element);
            }
            totals[k] = total;
        }
        // What comes of the team's lanes up to each (Hillis and Steele 1986, doi 10.1145/7902.7903).
        shared[LANE] = total;
        BARRIER;
        for (uint step = 1; step < p.team; step *= 2) {
            COMPUTE(A) before = START;
            if (MEMBER >= step) before = shared[LANE - step * p.member_step];
            BARRIER;
            shared[LANE] = COMBINE(before, shared[LANE]);
            BARRIER;
        }
        COMPUTE(A) before = carry;
        if (MEMBER > 0) before = COMBINE(carry, shared[LANE - p.member_step]);
        for (uint k = 0; k < EACH; k++) {
            if (exists && first + k < end) {
                STORE(Y, y, y_start + (first + k) * p.y_step, COMBINE(before, totals[k]));
            }
        }
        carry = COMBINE(carry, shared[LANE + (p.team - 1 - MEMBER) * p.member_step]);
        BARRIER;
    }
KERNEL_END
