// A tensor [images, channels, height, width] that is BIAS(i) in all of channel i: a work-item for
// each element.
//
// Y: dtype.

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) STORE(Y, y, i, BIAS(i / p.plane % p.channels));
KERNEL_END
