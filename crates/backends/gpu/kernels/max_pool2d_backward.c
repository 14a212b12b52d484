// The gradient of what maxima of 2-D windows were taken of: a work-item for EACH neighbouring elements of a row, or for as
// many of VECTOR neighbouring channels, to which the windows that see them add if their maxima are there.
//
// X: dtype. ACCUMULATOR: type that is computed in. I: see windows.h. CHANNELS_LAST: is the result [n, h, w, c] in memory? Else
// EACH and VECTOR are 1. p.blocks: of EACH elements of a row. Pairs are (height, width).

// Windows, from the first to that behind the last, that reach the element `at`, padding counted, along dimension `d`.
#define REACH(d) ((p.kernel_size[d] - 1) * p.dilation[d])
#define BEGIN(d, at) ((at) <= REACH(d) ? 0 : ((at) - REACH(d) + p.stride[d] - 1) / p.stride[d])
#define END(d, at) ((at) / p.stride[d] + 1)

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
#if CHANNELS_LAST
        const uint channels = p.out[1] / VECTOR;
        const uint vector = i % channels, block = i / channels;
        const uint c = vector * VECTOR, lines = block / p.blocks;
        const uint first = block % p.blocks * EACH, row = lines % p.out[2], n = lines / p.out[2];
        const uint to = (lines * p.out[3] + first) * channels + vector;
#else
        const uint first = i % p.blocks, row = i / p.blocks % p.out[2];
        const uint plane = i / p.blocks / p.out[2];
        const uint c = plane % p.out[1], n = plane / p.out[1];
        const uint channels = 1, to = i;
#endif
        const uint ct_start = n * p.x_strides[0] + c * p.x_strides[1];
        const uint index_start = n * p.index_strides[0] + c * p.index_strides[1];
        const uint down = row + p.padding[0], end_y = min(END(0, down), p.size[0]);
        const uint begin_y = BEGIN(0, down);
        uint right = first + p.padding[1], begin_z = BEGIN(1, right), end_z = END(1, right);
        for (uint k = 0; k < EACH && first + k < p.out[3]; k++) {
            ACCUMULATOR sums[VECTOR];
            UNROLL
            for (uint e = 0; e < VECTOR; e++) sums[e] = 0;
            for (uint y = begin_y; y < end_y; y++) {
                for (uint z = begin_z; z < min(end_z, p.size[1]); z++) {
                    const uint from = ct_start + y * p.x_strides[2] + z * p.x_strides[3];
                    const uint at = index_start + y * p.index_strides[2] + z * p.index_strides[3];
                    uint places[VECTOR];
                    KEPT words[WORDS];
                    GET_PLACES(places, index, at / VECTOR)
                    GET_WORDS(X, words, x, from / VECTOR)
#if IN_WINDOWS
                    const uint own = (down - y * p.stride[0]) * p.kernel_size[1] + right - z * p.stride[1];
#else
                    const uint own = row * p.out[3] + first + k;
#endif
                    UNROLL
                    for (uint e = 0; e < VECTOR; e++) {
                        if (PLACE_OF(places, e) == own) sums[e] += NUMBER(X, words, e);
                    }
                }
            }
            PUT_NUMBERS(X, result, to + k * channels, sums)
            right++;
            begin_z += begin_z * p.stride[1] + REACH(1) < right;
            end_z += end_z * p.stride[1] <= right;
        }
    }
KERNEL_END
