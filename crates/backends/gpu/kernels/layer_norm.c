// Lines with mean 0 and variance 1: a team for each line.
//
// X: dtype. ACCUMULATOR: type that is computed in. EPS: added to the variance.
// HAS_WEIGHT, HAS_BIAS: are there a weight `w` and a bias `b`? AFFINE(line, j): where in them that of
// element `j` of a line is.

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    uint x_start = 0, y_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.x_strides);
    ADD_OFFSET(y_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.y_strides);

    HOLD(ACCUMULATOR);
    ACCUMULATOR sum = 0;
    FOR_OWN(k, j) sum += OWN(k, j);
    TEAM_REDUCE(shared, sum, PLUS);
    const ACCUMULATOR mean = sum / p.len;
    // Of shares, so that their sum overflows only where the variance does.
    const ACCUMULATOR share = (ACCUMULATOR)1 / p.len;
    ACCUMULATOR squares = 0;
    FOR_OWN(k, j) {
        const ACCUMULATOR v = OWN(k, j) - mean;
        squares += v * share * v;
    }
    TEAM_REDUCE(shared, squares, PLUS);
    const ACCUMULATOR scale = 1 / sqrt(squares + EPS);
#if HAS_WEIGHT
#define WEIGHTED(v, j) (v) * LOAD(X, w, AFFINE(line, j))
#else
#define WEIGHTED(v, j) (v)
#endif
#if HAS_BIAS
#define BIASED(v, j) (v) + LOAD(X, b, AFFINE(line, j))
#else
#define BIASED(v, j) (v)
#endif
    if (exists) { PUT_OWN(BIASED(WEIGHTED((OWN(k, j) - mean) * scale, j), j)) }
KERNEL_END
