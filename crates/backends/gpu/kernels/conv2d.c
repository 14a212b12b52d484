// 2-D convolution: a work-item for each element of the result.
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
        ACCUMULATOR sum = 0;
#if HAS_BIAS
        sum = LOAD(X, b, o * p.b_strides[0]);
#endif
        for (uint c = 0; c < p.group_channels; c++) {
            for (uint ky = 0; ky < p.kernel_size[0]; ky++) {
                // Positions in the padding before the first wrap, and are behind the last as well.
                const uint y = row * p.stride[0] + ky * p.dilation[0] - p.padding[0];
                if (y >= p.size[0]) continue;
                const uint x_row = x_start + c * p.x_strides[1] + y * p.x_strides[2];
                const uint w_row =
                    o * p.w_strides[0] + c * p.w_strides[1] + ky * p.w_strides[2];
                for (uint kx = 0; kx < p.kernel_size[1]; kx++) {
                    const uint z = column * p.stride[1] + kx * p.dilation[1] - p.padding[1];
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
