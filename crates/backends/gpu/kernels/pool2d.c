// The maximum or average of 2-D windows: a work-item for each element of the result, or for VECTOR neighbouring channels.
//
// X: dtype. ACCUMULATOR: type that is computed in. START, COMBINE(a, b), FINISH(a): what becomes
// of a window's elements. HAS_INDICES: is it written, too, where each window's maximum
// is: the first of equals, the last NaN? I: see windows.h. CHANNELS_LAST: are results [n, h, w, c] in memory? Else VECTOR is
// 1. Pairs are (height, width).

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
#if CHANNELS_LAST
        const uint channels = p.out[1] / VECTOR;
        const uint c = i % channels * VECTOR, pixel = i / channels;
        const uint column = pixel % p.out[3], row = pixel / p.out[3] % p.out[2];
        const uint n = pixel / p.out[3] / p.out[2];
#else
        const uint column = i % p.out[3], row = i / p.out[3] % p.out[2];
        const uint plane = i / p.out[3] / p.out[2];
        const uint c = plane % p.out[1], n = plane / p.out[1];
#endif
        const uint x_start = n * p.x_strides[0] + c * p.x_strides[1];
        ACCUMULATOR values[VECTOR];
        UNROLL
        for (uint e = 0; e < VECTOR; e++) values[e] = START;
#if HAS_INDICES
        uint best[VECTOR];
        UNROLL
        for (uint e = 0; e < VECTOR; e++) best[e] = 0;
        bool is_found = false;
#endif
        for (uint ky = 0; ky < p.kernel_size[0]; ky++) {
            // Positions in the padding before the first wrap, and are behind the last as well.
            const uint y = row * p.stride[0] + ky * p.dilation[0] - p.padding[0];
            if (y >= p.size[0]) continue;
            for (uint kx = 0; kx < p.kernel_size[1]; kx++) {
                const uint z = column * p.stride[1] + kx * p.dilation[1] - p.padding[1];
                if (z >= p.size[1]) continue;
                const uint at = x_start + y * p.x_strides[2] + z * p.x_strides[3];
                KEPT words[WORDS];
                GET_WORDS(X, words, x, at / VECTOR)
#if HAS_INDICES
                const uint place = IN_WINDOWS ? ky * p.kernel_size[1] + kx : y * p.size[1] + z;
#endif
                UNROLL
                for (uint e = 0; e < VECTOR; e++) {
                    const ACCUMULATOR element = NUMBER(X, words, e);
#if HAS_INDICES
                    if (!is_found || element > values[e] || element != element) best[e] = place;
#endif
                    values[e] = COMBINE(values[e], element);
                }
#if HAS_INDICES
                is_found = true;
#endif
            }
        }
        UNROLL
        for (uint e = 0; e < VECTOR; e++) values[e] = FINISH(values[e]);
        PUT_NUMBERS(X, result, i, values)
#if HAS_INDICES
        PUT_PLACES(indices, i, best)
#endif
    }
KERNEL_END
