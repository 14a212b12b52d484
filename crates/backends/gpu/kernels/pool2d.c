// The maximum or average of 2-D windows: a work-item for each element of the result.
//
// X: dtype. ACCUMULATOR: type that is computed in. START, COMBINE(a, b), FINISH(a): what becomes
// of a window's elements. HAS_INDICES: is it written, too, where in its plane each window's maximum
// is: the first of equals, the last NaN? CHANNELS_LAST: are results [n, h, w, c] in memory? Pairs are (height, width).

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
#if CHANNELS_LAST
        const uint c = i % p.out[1], pixel = i / p.out[1];
        const uint column = pixel % p.out[3], row = pixel / p.out[3] % p.out[2];
        const uint n = pixel / p.out[3] / p.out[2];
#else
        const uint column = i % p.out[3], row = i / p.out[3] % p.out[2];
        const uint plane = i / p.out[3] / p.out[2];
        const uint c = plane % p.out[1], n = plane / p.out[1];
#endif
        const uint x_start = n * p.x_strides[0] + c * p.x_strides[1];
        ACCUMULATOR value = START;
#if HAS_INDICES
        uint best = 0;
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
                const ACCUMULATOR element = LOAD(X, x, at);
#if HAS_INDICES
                if (!is_found || element > value || element != element) {
                    best = y * p.size[1] + z;
                    is_found = true;
                }
#endif
                value = COMBINE(value, element);
            }
        }
        STORE(X, result, i, FINISH(value));
#if HAS_INDICES
        STORE(i64, indices, i, best);
#endif
    }
KERNEL_END
