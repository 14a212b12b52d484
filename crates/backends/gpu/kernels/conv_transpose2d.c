// Transposed 2-D convolution: a work-item for each element of the result, which adds up the
// windows that it is in.
//
// X: dtype. ACCUMULATOR: type of the sums. HAS_BIAS: is there a bias `b`? Channels of a group are
// those that an element of the result sees. Pairs are (height, width).

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        const uint column = i % p.out[3], row = i / p.out[3] % p.out[2];
        const uint plane = i / p.out[3] / p.out[2];
        const uint o = plane % p.out[1], n = plane / p.out[1];
        const uint channel = o / p.group_outputs * p.group_channels;
        const uint x_start = n * p.x_strides[0] + channel * p.x_strides[1];
        const uint w_start =
            channel * p.w_strides[0] + o % p.group_outputs * p.w_strides[1];
        ACCUMULATOR sum = 0;
#if HAS_BIAS
        sum = LOAD(X, b, o * p.b_strides[0]);
#endif
        for (uint c = 0; c < p.group_channels; c++) {
            for (uint ky = 0; ky < p.kernel_size[0]; ky++) {
                // The window's row `y` begins at y * stride - padding.
                const uint down = row + p.padding[0], own_down = ky * p.dilation[0];
                const uint y = (down - own_down) / p.stride[0];
                if (down < own_down || (down - own_down) % p.stride[0] != 0) continue;
                if (y >= p.size[0]) continue;
                const uint x_row = x_start + c * p.x_strides[1] + y * p.x_strides[2];
                const uint w_row = w_start + c * p.w_strides[0] + ky * p.w_strides[2];
                for (uint kx = 0; kx < p.kernel_size[1]; kx++) {
                    const uint right = column + p.padding[1], own_right = kx * p.dilation[1];
                    const uint z = (right - own_right) / p.stride[1];
                    if (right < own_right || (right - own_right) % p.stride[1] != 0) continue;
                    if (z >= p.size[1]) continue;
                    const ACCUMULATOR a = LOAD(X, x, x_row + z * p.x_strides[3]);
                    const ACCUMULATOR weight = LOAD(X, w, w_row + kx * p.w_strides[3]);
                    sum = MULTIPLY_ADD(a, weight, sum);
                }
            }
        }
        STORE(X, result, i, sum);
    }
KERNEL_END
