// Where in 2-D windows the maximum is: fewer than 256 elements, of which it is told by a byte, or anywhere in the plane.
//
// I: dtype of places, u8 in windows, else i64. VECTOR: neighbouring channels of a work-item.

#define IN_WINDOWS_u8 1
#define IN_WINDOWS_i64 0
#define IN_WINDOWS PASTE(IN_WINDOWS_, I)

// The places of a vector of channels: in memory as vector `at`, in registers, and of number `e`.
#if IN_WINDOWS && VECTOR == 8
#define GET_PLACES(places, memory, at) LOAD_2_WORDS(places, memory, at)
#define PUT_PLACES(memory, at, values) STORE_2_WORDS(u8, memory, at, values)
#define PLACE_OF(places, e) part_u8(places, e)
#elif IN_WINDOWS && VECTOR == 4
#define GET_PLACES(places, memory, at) LOAD_1_WORDS(places, memory, at)
#define PUT_PLACES(memory, at, values) ((GLOBAL uint*)(memory))[at] = WORD(u8, values, 0);
#define PLACE_OF(places, e) part_u8(places, e)
#else
#define GET_PLACES(places, memory, at) \
    UNROLL \
    for (uint e_ = 0; e_ < VECTOR; e_++) (places)[e_] = (uint)LOAD(I, memory, (at) * VECTOR + e_);
#define PUT_PLACES(memory, at, values) \
    UNROLL \
    for (uint e_ = 0; e_ < VECTOR; e_++) STORE(I, memory, (at) * VECTOR + e_, (values)[e_]);
#define PLACE_OF(places, e) (places)[e]
#endif
