// Transposed 2-D convolution: a work-item for each place of the result and OUTPUTS neighbouring
// channels of a group, which adds up the windows that it is in.
//
// X: dtype. ACCUMULATOR: type of the sums. HAS_BIAS: is there a bias `b`? Channels of a group are
// those that its outputs see. Pairs are (height, width). CHAIN: products that are added one after
// the other, lest a long chain of roundings lose digits.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        const uint column = i % p.out[3], row = i / p.out[3] % p.out[2];
        const uint plane = i / p.out[3] / p.out[2];
        const uint o = plane * OUTPUTS % p.out[1], n = plane * OUTPUTS / p.out[1];
        const uint channel = o / p.group_outputs * p.group_channels;
        const uint x_start = n * p.x_strides[0] + channel * p.x_strides[1];
        const uint w_start =
            channel * p.w_strides[0] + o % p.group_outputs * p.w_strides[1];
        ACCUMULATOR sums[OUTPUTS], parts[OUTPUTS];
        for (uint k = 0; k < OUTPUTS; k++) {
            parts[k] = 0;
#if HAS_BIAS
            sums[k] = LOAD(X, b, (o + k) * p.b_strides[0]);
#else
            sums[k] = 0;
#endif
        }
        uint length = 0;
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
                    if (length++ == CHAIN) {
                        length = 1;
                        UNROLL for (uint k = 0; k < OUTPUTS; k++) {
                            sums[k] += parts[k];
                            parts[k] = 0;
                        }
                    }
                    const ACCUMULATOR a = LOAD(X, x, x_row + z * p.x_strides[3]);
                    const uint w_at = w_row + kx * p.w_strides[3];
                    for (uint k = 0; k < OUTPUTS; k++) {
                        const ACCUMULATOR weight = LOAD(X, w, w_at + k * p.w_strides[1]);
                        parts[k] = MULTIPLY_ADD(a, weight, parts[k]);
                    }
                }
            }
        }
        for (uint k = 0; k < OUTPUTS; k++) {
            const uint at = (n * p.out[1] + o + k) * p.out[2] + row;
            STORE(X, result, at * p.out[3] + column, sums[k] + parts[k]);
        }
    }
KERNEL_END
