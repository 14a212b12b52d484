// 2-D convolution: a work-item for each place of the result and OUTPUTS neighbouring channels of
// a group.
//
// X: dtype. ACCUMULATOR: type of the sums. HAS_BIAS: is there a bias `b`? Channels of a group are
// those that its outputs see. Pairs are (height, width).

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        const uint column = i % p.out[3], row = i / p.out[3] % p.out[2];
        const uint plane = i / p.out[3] / p.out[2];
        const uint o = plane * OUTPUTS % p.out[1], n = plane * OUTPUTS / p.out[1];
        const uint channel = o / p.group_outputs * p.group_channels;
        const uint x_start = n * p.x_strides[0] + channel * p.x_strides[1];
        ACCUMULATOR sums[OUTPUTS];
        for (uint k = 0; k < OUTPUTS; k++) {
#if HAS_BIAS
            sums[k] = LOAD(X, b, (o + k) * p.b_strides[0]);
#else
            sums[k] = 0;
#endif
        }
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
                    const uint w_at = w_row + kx * p.w_strides[3];
                    for (uint k = 0; k < OUTPUTS; k++) {
                        const ACCUMULATOR weight = LOAD(X, w, w_at + k * p.w_strides[0]);
                        sums[k] = MULTIPLY_ADD(a, weight, sums[k]);
                    }
                }
            }
        }
        for (uint k = 0; k < OUTPUTS; k++) {
            const uint at = (n * p.out[1] + o + k) * p.out[2] + row;
            STORE(X, result, at * p.out[3] + column, sums[k]);
        }
    }
KERNEL_END
