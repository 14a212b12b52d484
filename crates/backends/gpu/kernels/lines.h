// Lines of elements, and how the lanes of a group share them.
//
// A group has GROUP = p.lines * p.team lanes: p.team of them for each of p.lines lines.
// Neighbours are members of a team where a line's elements are neighbours in memory, else of
// different lines.

#define LINE (GROUP_ID(0) * p.lines + LANE / p.line_step % p.lines)
#define MEMBER (LANE / p.member_step % p.team)

// The combination of a team's `value`s by `combine`, in each of its lanes. `shared` is a local
// array of GROUP elements, free again afterwards.
#ifdef SIMD_WIDTH
// Lanes that are neighbours combine within their SIMD-group; of each, one value goes to `shared`.
#define TEAM_REDUCE(shared, value, combine) \
    if (p.member_step == 1) { \
        const uint width_ = min((uint)p.team, (uint)SIMD_WIDTH); \
        for (uint mask_ = width_ / 2; mask_ > 0; mask_ /= 2) { \
            const auto other_ = simd_xor((value), mask_); \
            (value) = combine((value), other_); \
        } \
        if (p.team > SIMD_WIDTH) { \
            if (SIMD_LANE == 0) (shared)[SIMD_GROUP] = (value); \
            BARRIER; \
            const uint first_ = (LANE - MEMBER) / SIMD_WIDTH; \
            (value) = (shared)[first_]; \
            for (uint k_ = 1; k_ < p.team / SIMD_WIDTH; k_++) { \
                (value) = combine((value), (shared)[first_ + k_]); \
            } \
            BARRIER; \
        } \
    } else TEAM_REDUCE_IN_MEMORY(shared, value, combine)
#else
#define TEAM_REDUCE(shared, value, combine) TEAM_REDUCE_IN_MEMORY(shared, value, combine)
#endif

// The same for lanes anywhere. Four at a time are combined: with two, lanes wait for each other
// too often, and with more they read too much.
#define TEAM_REDUCE_IN_MEMORY(shared, value, combine) \
    { \
        (shared)[LANE] = (value); \
        BARRIER; \
        uint left_ = p.team; \
        for (; left_ > 4; left_ /= 4) { \
            const uint next_ = left_ / 4; \
            if (MEMBER < next_) { \
                for (uint k_ = 1; k_ < 4; k_++) { \
                    const uint other_ = LANE + k_ * next_ * p.member_step; \
                    (value) = combine((value), (shared)[other_]); \
                } \
                (shared)[LANE] = (value); \
            } \
            BARRIER; \
        } \
        const uint first_ = LANE - MEMBER * p.member_step; \
        (value) = (shared)[first_]; \
        for (uint k_ = 1; k_ < left_; k_++) { \
            (value) = combine((value), (shared)[first_ + k_ * p.member_step]); \
        } \
        BARRIER; \
    }

// A lane's elements of its line, for kernels that go through them more than once: HELD of
// them in registers, or read again if HELD is 0. FOR_OWN is a loop over them by their number
// `k` in the lane and `j` in the line; HOLD declares what OWN gives, in type `T`.
#if HELD
#define FOR_OWN(k, j) \
    for (uint k = 0, j = MEMBER; k < HELD; k++, j += p.team) if (j < p.len)
#define HOLD(T) T held[HELD]; FOR_OWN(k, j) held[k] = LOAD(X, x, x_start + j * p.x_step)
#define OWN(k, j) held[k]
#else
#define FOR_OWN(k, j) for (uint j = MEMBER; j < p.len; j += p.team)
#define HOLD(T)
#define OWN(k, j) LOAD(X, x, x_start + j * p.x_step)
#endif
