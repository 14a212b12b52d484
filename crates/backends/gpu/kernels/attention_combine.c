// Puts together what groups of attention have made of their parts of the keys: a group for each
// row of queries, a work-item for each of its values.
//
// X: dtype. HAS_TOTALS: is the logarithm of the weights' total wanted?

KERNEL_BEGIN
    const uint row = GROUP_ID(0);
    ACCUMULATOR peak = -INFINITY;
    for (uint i = 0; i < p.splits; i++) peak = max(peak, partial_peaks[row * p.splits + i]);
    const ACCUMULATOR base = BASE_OF(peak);
    for (uint d = LANE; d < p.dv; d += GROUP) {
        ACCUMULATOR sum = 0, total = 0;
        for (uint i = 0; i < p.splits; i++) {
            const uint at = row * p.splits + i;
            const ACCUMULATOR weight = exp(partial_peaks[at] - base);
            total = MULTIPLY_ADD(weight, partial_totals[at], total);
            sum = MULTIPLY_ADD(weight, partial_sums[at * p.dv + d], sum);
        }
        STORE(X, y, row * p.dv + d, sum / total);
#if HAS_TOTALS
        if (d == 0) totals[row] = LOG_OF_TOTAL(peak, total);
#endif
    }
KERNEL_END
