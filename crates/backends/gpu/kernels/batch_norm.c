// Channels normalised by given statistics: EACH elements for each work-item.
//
// X: dtype. ACCUMULATOR: type that is computed in. EPS: added to the variance. HAS_WEIGHT, HAS_BIAS: are
// there a weight `w` and a bias `b`?

KERNEL_BEGIN
    for (uint k = 0; k < EACH; k++) {
        const uint i = (GROUP_ID(0) * EACH + k) * GROUP + LANE;
        if (i < p.count) {
            const uint channel = i / p.pixels % p.channels;
            const ACCUMULATOR variance = LOAD(X, var, channel);
            const ACCUMULATOR scale = 1 / sqrt(variance + EPS);
            ACCUMULATOR v = (LOAD(X, x, i) - LOAD(X, mean, channel)) * scale;
#if HAS_WEIGHT
            v *= LOAD(X, w, channel);
#endif
#if HAS_BIAS
            v += LOAD(X, b, channel);
#endif
            STORE(X, y, i, v);
        }
    }
KERNEL_END
