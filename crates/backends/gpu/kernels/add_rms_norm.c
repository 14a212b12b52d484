// The sum of `x` and `other` as `y`, and its lines divided by the root of their mean square as
// `normed`: a team for each line. All are contiguous.
//
// X: dtype. ACCUMULATOR: type that is computed in. ROUNDED: a number as it is when it was stored
// as X. EPS: added to the mean square. HAS_WEIGHT: is there a weight `w`?

#define SUM(j) ROUNDED(LOAD(X, x, start + (j)) + LOAD(X, other, start + (j)))
#if HELD
#define OWN_SUM(k, j) held[k]
#else
#define OWN_SUM(k, j) SUM(j)
#endif

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    const uint start = (exists ? line : 0) * p.len;
#if HELD
    ACCUMULATOR held[HELD];
    FOR_OWN(k, j) held[k] = SUM(j);
#endif
    ACCUMULATOR sum = 0;
    FOR_OWN(k, j) {
        const ACCUMULATOR v = OWN_SUM(k, j);
        if (exists) STORE(X, y, start + j, v);
        sum += v * v;
    }
    TEAM_REDUCE(shared, sum, PLUS);
    const ACCUMULATOR scale = 1 / sqrt(sum / p.len + EPS);
    FOR_OWN(k, j) {
        ACCUMULATOR v = OWN_SUM(k, j) * scale;
#if HAS_WEIGHT
        v *= LOAD(X, w, j);
#endif
        if (exists) STORE(X, normed, start + j, v);
    }
KERNEL_END
