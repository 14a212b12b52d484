// Lines divided by the root of their mean square: a team for each line.
//
// X: dtype. ACCUMULATOR: type that is computed in. EPS: added to the mean square.
// HAS_WEIGHT: is there a weight `w`?

KERNEL_BEGIN
    LAUNCH_NEXT;
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    uint x_start = 0, y_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.x_strides);
    ADD_OFFSET(y_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.y_strides);

    HOLD(ACCUMULATOR);
    ACCUMULATOR sum = 0;
    FOR_OWN(k, j) {
        const ACCUMULATOR v = OWN(k, j);
        sum += v * v;
    }
    TEAM_REDUCE(shared, sum, PLUS);
    const ACCUMULATOR scale = 1 / sqrt(sum / p.len + EPS);
#if HAS_WEIGHT
    if (exists) { PUT_OWN(OWN(k, j) * scale * LOAD(X, w, j * p.w_step)) }
#else
    if (exists) { PUT_OWN(OWN(k, j) * scale) }
#endif
KERNEL_END
