// The gradient of what maxima of 2-D windows were taken of: a work-item for each of its elements, which the windows that
// see it add to if their maxima are there.
//
// X: dtype. ACCUMULATOR: type that is computed in. CHANNELS_LAST: is the result [n, h, w, c] in memory? Pairs are (height,
// width).

// Windows, from the first to that behind the last, that reach the element `at`, padding counted, along dimension `d`.
#define REACH(d) ((p.kernel_size[d] - 1) * p.dilation[d])
#define BEGIN(d, at) ((at) <= REACH(d) ? 0 : ((at) - REACH(d) + p.stride[d] - 1) / p.stride[d])
#define END(d, at) min((at) / p.stride[d] + 1, p.size[d])

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
        const uint down = row + p.padding[0], right = column + p.padding[1];
        const uint end_y = END(0, down), end_z = END(1, right);
        ACCUMULATOR sum = 0;
        for (uint y = BEGIN(0, down); y < end_y; y++) {
            for (uint z = BEGIN(1, right); z < end_z; z++) {
                const uint at = index_start + y * p.index_strides[2] + z * p.index_strides[3];
                if (LOAD(i64, index, at) != own) continue;
                sum += LOAD(X, x, ct_start + y * p.x_strides[2] + z * p.x_strides[3]);
            }
        }
        STORE(X, result, i, sum);
    }
KERNEL_END
