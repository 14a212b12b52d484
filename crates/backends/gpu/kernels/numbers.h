// Vectors of VECTOR numbers in memory, which are loaded and stored at once; see vectors.h.
//
// VECTOR: 1, or what 16 bytes have room for. ACCUMULATOR: type that is computed in.

// What WORDS of KEPT hold is vector `at` of memory, and NUMBER(…, e) its number `e`.
#if VECTOR > 1
#define WORDS 4
#define GET_WORDS(t, words, memory, at) LOAD_4_WORDS(words, memory, at)
#define NUMBER(t, words, e) PART(t, words, e)
#define PUT_NUMBERS(t, memory, at, values) STORE_4_WORDS(t, memory, at, values)
#define KEPT uint
#else
#define WORDS 1
#define GET_WORDS(t, words, memory, at) (words)[0] = LOAD(t, memory, at);
#define NUMBER(t, words, e) (words)[e]
#define PUT_NUMBERS(t, memory, at, values) STORE(t, memory, at, (values)[0]);
#define KEPT ACCUMULATOR
#endif
