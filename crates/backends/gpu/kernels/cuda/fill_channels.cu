// A tensor [images, channels, height, width] that is BIAS(i) in all of channel i: a work-item for
// each element, in the order of memory. shape, strides: of the dimensions in that order, of which CHANNELS is that of the
// channels. Where ARE_ZEROS, elements lie one after the other, and a work-item makes 16 bytes of them zeros.
//
// Y: dtype.

KERNEL_BEGIN
    LAUNCH_NEXT;
    uint rest = GROUP_ID(0) * GROUP + LANE;
    if (rest >= p.count) return;
#if ARE_ZEROS
    ((uint4*)y)[rest] = make_uint4(0, 0, 0, 0);
#else
    uint at = 0, channel = 0;
    UNROLL for (uint d = 4; d-- > 0;) {
        const uint place = rest % p.shape[d];
        rest /= p.shape[d];
        at += place * p.strides[d];
        if (d == CHANNELS) channel = place;
    }
    STORE(Y, y, at, BIAS(channel));
#endif
KERNEL_END
