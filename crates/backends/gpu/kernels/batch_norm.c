// Channels normalised by given statistics: EACH elements for each work-item, or EACH times VECTOR
// neighbours, which are of one channel.
//
// X: dtype. ACCUMULATOR: type that is computed in. EPS: added to the variance. HAS_WEIGHT, HAS_BIAS: are
// there a weight `w` and a bias `b`?

KERNEL_BEGIN
    for (uint k = 0; k < EACH; k++) {
        const uint i = (GROUP_ID(0) * EACH + k) * GROUP + LANE;
        if (i < p.count) {
            const uint channel = i / p.pixels % p.channels;
            const ACCUMULATOR variance = LOAD(X, var, channel), centre = LOAD(X, mean, channel);
            const ACCUMULATOR scale = 1 / sqrt(variance + EPS);
#if VECTOR > 1
            uint words[4];
            LOAD_4_WORDS(words, x, i)
            ACCUMULATOR values[VECTOR];
            UNROLL
            for (uint e = 0; e < VECTOR; e++) values[e] = PART(X, words, e);
#else
            ACCUMULATOR values[1];
            values[0] = LOAD(X, x, i);
#endif
            UNROLL
            for (uint e = 0; e < VECTOR; e++) {
                values[e] = (values[e] - centre) * scale;
#if HAS_WEIGHT
                values[e] *= LOAD(X, w, channel);
#endif
#if HAS_BIAS
                values[e] += LOAD(X, b, channel);
#endif
            }
#if VECTOR > 1
            STORE_4_WORDS(X, y, i, values)
#else
            STORE(X, y, i, values[0]);
#endif
        }
    }
KERNEL_END
