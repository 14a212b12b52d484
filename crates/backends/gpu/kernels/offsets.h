// Adds to `a` and `b` where element `index` of an array lies in two views of it, as ADD_OFFSET does.
#define ADD_OFFSETS(a, b, index, rank, shape, a_strides, b_strides) \
    { \
        uint rest_ = (index); \
        for (uint d_ = (rank); d_ > 1; d_--) { \
            const uint quotient_ = rest_ / (shape)[d_ - 1]; \
            const uint at_ = rest_ - quotient_ * (shape)[d_ - 1]; \
            (a) += at_ * (a_strides)[d_ - 1]; \
            (b) += at_ * (b_strides)[d_ - 1]; \
            rest_ = quotient_; \
        } \
        (a) += rest_ * (a_strides)[0]; \
        (b) += rest_ * (b_strides)[0]; \
    }
