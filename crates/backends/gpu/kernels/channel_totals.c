// What segments of elements of channels, see channel_statistics.c and channel_gradients.c, are together: a group for every
// eight channels.
//
// IS_BACKWARD: are they sums of gradients, of which those of weight and bias follow, and what the gradient of x is made by?
// Else the results are variance and mean. S: dtype of sums. ACCUMULATOR: type that is computed in.

#define TOGETHER 8

#define SUM_MEMBERS(shared, value) \
    (shared)[LANE] = (value); \
    BARRIER; \
    (value) = 0; \
    for (uint m_ = LANE % TOGETHER; m_ < GROUP; m_ += TOGETHER) (value) += (shared)[m_]; \
    BARRIER;

KERNEL_BEGIN
    LAUNCH_NEXT;
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint channel = min(GROUP_ID(0) * TOGETHER + LANE % TOGETHER, p.channels - 1);
    const uint member = LANE / TOGETHER;
    const bool writes = member == 0 && GROUP_ID(0) * TOGETHER + LANE < p.channels;
    ACCUMULATOR first = 0, second = 0;
#if IS_BACKWARD
    for (uint i = member; i < p.segments; i += GROUP / TOGETHER) {
        first += LOAD(S, means, i * p.channels + channel);
        second += LOAD(S, parts, i * p.channels + channel);
    }
    SUM_MEMBERS(shared, first)
    SUM_MEMBERS(shared, second)
    if (writes) {
        const ACCUMULATOR variance = LOAD(S, var, channel);
        const ACCUMULATOR inverse = 1 / sqrt(variance + EPS);
        STORE(W, of_weight, channel, second * inverse);
        STORE(W, of_bias, channel, first);
        STORE(S, shares, channel, first / p.members);
        STORE(S, shares, p.channels + channel, second / p.members * inverse * inverse);
    }
#else
#define COUNT(i) min(p.segment, p.members - (i) * p.segment)
    const ACCUMULATOR shift = LOAD(S, means, channel);
    for (uint i = member; i < p.segments; i += GROUP / TOGETHER) {
        first += (LOAD(S, means, i * p.channels + channel) - shift) * COUNT(i);
    }
    SUM_MEMBERS(shared, first)
    const ACCUMULATOR centre = first / p.members;
    for (uint i = member; i < p.segments; i += GROUP / TOGETHER) {
        const ACCUMULATOR way = LOAD(S, means, i * p.channels + channel) - shift - centre;
        const ACCUMULATOR share = (ACCUMULATOR)COUNT(i) / p.members;
        second += (LOAD(S, parts, i * p.channels + channel) + way * way) * share;
    }
    SUM_MEMBERS(shared, second)
    if (writes) {
        STORE(S, variance, channel, second);
        STORE(S, mean, channel, centre + shift);
    }
#endif
KERNEL_END
