// START + i * STEP: a work-item for each element.
//
// X: dtype. VALUE(i): element `i` before it is stored.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) STORE(X, y, i, VALUE(i));
KERNEL_END
