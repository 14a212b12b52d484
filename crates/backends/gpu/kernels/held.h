// What lines.h says of a lane's own elements, for lines that are held in registers as VECTOR
// neighbours at a time, if that is more than 1. Lines of the operand and of the result are then
// without gaps and begin at multiples of 16 bytes, and their lengths and HELD are multiples of VECTOR.
//
// PUT_OWN(value) stores what `value` is of each element, whose number in the lane is `k` and in the
// line `j`. It is inside of `exists`.

#if VECTOR > 1
#undef FOR_OWN
#undef HOLD
#define FOR_OWN_VECTORS(v, j) \
    UNROLL \
    for (uint v = 0, j = MEMBER * VECTOR; v < HELD; v += VECTOR, j += p.team * VECTOR) if (j < p.len)
#define FOR_OWN(k, j) \
    FOR_OWN_VECTORS(v_, j##_) \
    for (uint k = v_, j = j##_; k < v_ + VECTOR; k++, j++)
#define HOLD(T) \
    T held[HELD]; \
    FOR_OWN_VECTORS(v_, j_) { \
        uint words_[4]; \
        LOAD_4_WORDS(words_, x, (x_start + j_) / VECTOR) \
        UNROLL \
        for (uint e_ = 0; e_ < VECTOR; e_++) held[v_ + e_] = PART(X, words_, e_); \
    }
#define PUT_OWN(value) \
    FOR_OWN_VECTORS(v_, first_) { \
        COMPUTE(X) values_[VECTOR]; \
        UNROLL \
        for (uint k = v_, j = first_; k < v_ + VECTOR; k++, j++) values_[k - v_] = (value); \
        STORE_4_WORDS(X, y, (y_start + first_) / VECTOR, values_) \
    }
#else
#define PUT_OWN(value) FOR_OWN(k, j) STORE(X, y, y_start + j * p.y_step, (value));
#endif
