// 2-D convolution: a work-item for PLACES neighbouring rows of a column of the result and OUTPUTS
// neighbouring channels of a group.
//
// X: dtype. ACCUMULATOR: type of the sums. HAS_BIAS: is there a bias `b`? Channels of a group are
// those that its outputs see. Pairs are (height, width). CHAIN: products that are added one after
// the other, lest a long chain of roundings lose digits.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        const uint rows = (p.out[2] + PLACES - 1) / PLACES;
        const uint column = i % p.out[3], row = i / p.out[3] % rows * PLACES;
        const uint plane = i / p.out[3] / rows;
        const uint o = plane * OUTPUTS % p.out[1], n = plane * OUTPUTS / p.out[1];
        const uint channel = o / p.group_outputs * p.group_channels;
        const uint x_start = n * p.x_strides[0] + channel * p.x_strides[1];
        ACCUMULATOR sums[OUTPUTS * PLACES], parts[OUTPUTS * PLACES];
        for (uint k = 0; k < OUTPUTS; k++) {
#if HAS_BIAS
            const ACCUMULATOR bias = LOAD(X, b, (o + k) * p.b_strides[0]);
#else
            const ACCUMULATOR bias = 0;
#endif
            for (uint r = 0; r < PLACES; r++) {
                sums[k * PLACES + r] = bias;
                parts[k * PLACES + r] = 0;
            }
        }
        uint length = 0;
        for (uint c = 0; c < p.group_channels; c++) {
            for (uint ky = 0; ky < p.kernel_size[0]; ky++) {
                // Positions in the padding before the first wrap, and are behind the last as well.
                const uint y = row * p.stride[0] + ky * p.dilation[0] - p.padding[0];
                if (PLACES == 1 && y >= p.size[0]) continue;
                const uint x_row = x_start + c * p.x_strides[1] + y * p.x_strides[2];
                const uint w_row =
                    o * p.w_strides[0] + c * p.w_strides[1] + ky * p.w_strides[2];
                for (uint kx = 0; kx < p.kernel_size[1]; kx++) {
                    const uint z = column * p.stride[1] + kx * p.dilation[1] - p.padding[1];
                    if (z >= p.size[1]) continue;
                    if (length++ == CHAIN) {
                        length = 1;
                        UNROLL for (uint at = 0; at < OUTPUTS * PLACES; at++) {
                            sums[at] += parts[at];
                            parts[at] = 0;
                        }
                    }
                    ACCUMULATOR a[PLACES];
                    bool is_inside[PLACES];
                    for (uint r = 0; r < PLACES; r++) {
                        const uint down = r * p.stride[0];
                        const uint at = x_row + down * p.x_strides[2] + z * p.x_strides[3];
                        is_inside[r] = y + down < p.size[0];
                        a[r] = 0;
                        if (is_inside[r]) a[r] = LOAD(X, x, at);
                    }
                    const uint w_at = w_row + kx * p.w_strides[3];
                    for (uint k = 0; k < OUTPUTS; k++) {
                        const ACCUMULATOR weight = LOAD(X, w, w_at + k * p.w_strides[0]);
                        for (uint r = 0; r < PLACES; r++) {
                            const uint at = k * PLACES + r;
                            const ACCUMULATOR sum = MULTIPLY_ADD(a[r], weight, parts[at]);
                            parts[at] = is_inside[r] ? sum : parts[at];
                        }
                    }
                }
            }
        }
        for (uint k = 0; k < OUTPUTS; k++) {
            for (uint r = 0; r < PLACES && row + r < p.out[2]; r++) {
                const uint at = (n * p.out[1] + o + k) * p.out[2] + row + r;
                const ACCUMULATOR sum = sums[k * PLACES + r] + parts[k * PLACES + r];
                STORE(X, result, at * p.out[3] + column, sum);
            }
        }
    }
KERNEL_END
