// The gradient of what maxima of 2-D windows were taken of: a work-item for each of its elements, which the windows that
// see it add to if their maxima are there.
//
// X: dtype. ACCUMULATOR: type that is computed in. CHANNELS_LAST: is the result [n, h, w, c] in memory? Pairs are (height,
// width).

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
        const uint ct_start = n * p.x_strides[0] + c * p.x_strides[1];
        const uint index_start = n * p.index_strides[0] + c * p.index_strides[1];
        const long own = row * p.out[3] + column;
        ACCUMULATOR sum = 0;
        for (uint ky = 0; ky < p.kernel_size[0]; ky++) {
            // What lies ahead of the first window wraps, and is behind the last as well.
            const uint down = row + p.padding[0] - ky * p.dilation[0];
            const uint y = down / p.stride[0];
            if (y >= p.size[0] || y * p.stride[0] != down) continue;
            for (uint kx = 0; kx < p.kernel_size[1]; kx++) {
                const uint right = column + p.padding[1] - kx * p.dilation[1];
                const uint z = right / p.stride[1];
                if (z >= p.size[1] || z * p.stride[1] != right) continue;
                const uint at = index_start + y * p.index_strides[2] + z * p.index_strides[3];
                if (LOAD(i64, index, at) != own) continue;
                sum += LOAD(X, x, ct_start + y * p.x_strides[2] + z * p.x_strides[3]);
            }
        }
        STORE(X, result, i, sum);
    }
KERNEL_END
