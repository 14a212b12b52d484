// Elements that are loaded 16 bytes at a time.
//
// X: dtype. VECTOR: elements of 16 bytes.

// Loads VECTOR elements of `p` from `i` on, a multiple of VECTOR, as the four `words`.
#define LOAD_WORDS(words, p, i) \
    { \
        const uint4 loaded_ = ((GLOBAL const uint4*)(p))[(i) / VECTOR]; \
        (words)[0] = loaded_.x; \
        (words)[1] = loaded_.y; \
        (words)[2] = loaded_.z; \
        (words)[3] = loaded_.w; \
    }

// Element `k` of those, as it is computed with.
#define PART(t, words, k) PASTE(part_, t)(words, k)
#define HALF_WORD(words, k) ((words)[(k) / 2] >> (k) % 2 * 16)
#define QUARTER_WORD(words, k) ((words)[(k) / 4] >> (k) % 4 * 8)
#define TWO_WORDS(words, k) ((ulong)(words)[(k) * 2] | (ulong)(words)[(k) * 2 + 1] << 32)
#define part_f64(words, k) F64_OF_BITS(TWO_WORDS(words, k))
#define part_f32(words, k) F32_OF_BITS((words)[k])
#define part_f16(words, k) f16_to_f32((ushort)HALF_WORD(words, k))
#define part_bf16(words, k) F32_OF_BITS(HALF_WORD(words, k) << 16)
#define part_i64(words, k) ((long)TWO_WORDS(words, k))
#define part_i32(words, k) ((int)(words)[k])
#define part_i16(words, k) ((short)HALF_WORD(words, k))
#define part_i8(words, k) ((char)QUARTER_WORD(words, k))
#define part_u8(words, k) ((uchar)QUARTER_WORD(words, k))
#define part_u32(words, k) ((words)[k])
#define part_bool(words, k) ((uchar)QUARTER_WORD(words, k))
#define part_complex64(words, k) \
    make_complex64(F32_OF_BITS((words)[(k) * 2]), F32_OF_BITS((words)[(k) * 2 + 1]))
