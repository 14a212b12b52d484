// The elements of up to four views copied to others: a work-item for each EACH of them, and a row of
// groups for each view.
//
// X: dtype. VIEWS: how many.

// All loads come first: what is stored may be what is loaded next, for all that compilers know.
#define COPY(x, y, count, rank, shape, x_strides, y_strides) \
    { \
        const uint first = GROUP_ID(0) * (GROUP * EACH) + LANE; \
        COMPUTE(X) values[EACH]; \
        uint to[EACH]; \
        UNROLL \
        for (uint e = 0; e < EACH; e++) { \
            const uint i = min(first + e * GROUP, count - 1); \
            uint from = 0; \
            to[e] = 0; \
            ADD_OFFSETS(from, to[e], i, rank, shape, x_strides, y_strides); \
            values[e] = LOAD(X, x, from); \
        } \
        UNROLL \
        for (uint e = 0; e < EACH; e++) { \
            if (first + e * GROUP < count) STORE(X, y, to[e], values[e]); \
        } \
    }
#define COPY_OF(k) \
    if (GROUP_ID(1) == k) { \
        COPY(x##k, y##k, p.count##k, p.view##k##_rank, p.view##k##_shape, p.x##k##_strides, \
             p.y##k##_strides) \
    }

KERNEL_BEGIN
    COPY_OF(0)
#if VIEWS > 1
    COPY_OF(1)
#endif
#if VIEWS > 2
    COPY_OF(2)
#endif
#if VIEWS > 3
    COPY_OF(3)
#endif
KERNEL_END
