// Memory around a result: a byte for each work-item. The result is in the middle.
//
// FILLS: marks all of it. Else tells whether a byte outside of the result was written, and copies the
// others out.

#define MARK(i) ((uchar)((i) * 37u + 165u))

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
#if FILLS
        memory[i] = MARK(i);
#else
        const uint at = i - p.guard;
        if (i >= p.guard && at < p.bytes) {
            y[at] = memory[i];
        } else if (memory[i] != MARK(i)) {
            REPORT(status, p.status_code);
        }
#endif
    }
KERNEL_END
