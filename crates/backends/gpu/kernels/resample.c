// Weighted sums of elements along one dimension: a work-item for each element of the result.
//
// X, INDEX: dtypes of the elements, and of their places. ACCUMULATOR: type that is computed in.
// RANK: 1, or the parameter that says how many dimensions there are.

SEPARATE_ROUNDING
KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        const uint j = i / p.inner % p.len;
        uint from = 0;
        ADD_OFFSET(from, i, RANK, p.view_shape, p.x_strides);
        ACCUMULATOR sum = 0;
        for (uint tap = 0; tap < p.taps; tap++) {
            const long place = LOAD(INDEX, places, tap * p.places_strides[0] + j * p.places_strides[1]);
            if (place >= 0 && place < (long)p.size) {
                const ACCUMULATOR weight =
                    LOAD(X, weights, tap * p.weights_strides[0] + j * p.weights_strides[1]);
                const ACCUMULATOR part = LOAD(X, x, from + (uint)place * p.step) * weight;
                sum = tap == 0 ? part : sum + part;
            } else {
                REPORT(status, p.status_code);
            }
        }
        STORE(X, y, i, sum);
    }
KERNEL_END
