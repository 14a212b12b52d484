// Rows without gaps, each of which a team holds in registers: a lane has HELD elements, VECTOR neighbours at a time. Where
// VECTOR is more than 1, rows begin at multiples of 16 bytes, and their lengths and HELD are multiples of it.
//
// Element `k` of a lane is element FIRST(k) of the row where `k` is a multiple of VECTOR, and its neighbours follow.

#define FIRST(k) (((k) / VECTOR * p.team + MEMBER) * VECTOR)

// A lane that holds a whole row, as on processors, goes through it in loops: unrolled, they take minutes to compile.
#if HELD > 64
#define UNROLL_ROW
#else
#define UNROLL_ROW UNROLL
#endif

#define FOR_VECTORS(v) UNROLL_ROW for (uint v = 0; v < HELD; v += VECTOR) if (FIRST(v) < p.len)
#define FOR_ROW(k, j) \
    FOR_VECTORS(v_) \
    UNROLL \
    for (uint k = v_, j = FIRST(v_); k < v_ + VECTOR; k++, j++)

// Loads and stores of VECTOR neighbours of a dtype `t`, which are so many `words`, from element `at` on.
#if VECTOR > 1
#define LOAD_WORDS(n) PASTE(PASTE(LOAD_, n), _WORDS)
#define STORE_WORDS(n) PASTE(PASTE(STORE_, n), _WORDS)
#define GET_VECTOR(t, words, values, memory, at) \
    { \
        uint words_[4]; \
        LOAD_WORDS(words)(words_, memory, (at) / VECTOR) \
        UNROLL \
        for (uint e_ = 0; e_ < VECTOR; e_++) (values)[e_] = PART(t, words_, e_); \
    }
#define PUT_VECTOR(t, words, memory, at, values) STORE_WORDS(words)(t, memory, (at) / VECTOR, values)
#else
#define GET_VECTOR(t, words, values, memory, at) (values)[0] = LOAD(t, memory, at);
#define PUT_VECTOR(t, words, memory, at, values) STORE(t, memory, at, (values)[0]);
#endif

// All of a lane's elements of the row that begins at `start`.
#define GET_ROW(t, words, values, memory, start) \
    FOR_VECTORS(v_) GET_VECTOR(t, words, (values) + v_, memory, (start) + FIRST(v_))
