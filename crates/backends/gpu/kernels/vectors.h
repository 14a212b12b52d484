// Elements that are loaded and stored up to 16 bytes at a time, as words of 32 bits.

// Loads the `words` that `p` has from a multiple of their number on.
#define LOAD_1_WORDS(words, p, at) (words)[0] = ((GLOBAL const uint*)(p))[at];
#define LOAD_2_WORDS(words, p, at) \
    { \
        const uint2 loaded_ = ((GLOBAL const uint2*)(p))[at]; \
        (words)[0] = loaded_.x; \
        (words)[1] = loaded_.y; \
    }
#define LOAD_4_WORDS(words, p, at) \
    { \
        const uint4 loaded_ = ((GLOBAL const uint4*)(p))[at]; \
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

// Stores values of a dtype as so many words.
#define STORE_2_WORDS(t, p, at, values) \
    { \
        uint2 stored_; \
        stored_.x = WORD(t, values, 0); \
        stored_.y = WORD(t, values, 1); \
        ((GLOBAL uint2*)(p))[at] = stored_; \
    }
#define STORE_4_WORDS(t, p, at, values) \
    { \
        uint4 stored_; \
        stored_.x = WORD(t, values, 0); \
        stored_.y = WORD(t, values, 1); \
        stored_.z = WORD(t, values, 2); \
        stored_.w = WORD(t, values, 3); \
        ((GLOBAL uint4*)(p))[at] = stored_; \
    }

// Word `k` of these.
#define WORD(t, values, k) PASTE(word_, t)(values, k)
#define TWO_HALVES(low, high) ((uint)(ushort)(low) | (uint)(ushort)(high) << 16)
#define FOUR_BYTES(v, k) \
    ((uint)(uchar)(v)[(k) * 4] | (uint)(uchar)(v)[(k) * 4 + 1] << 8 \
     | (uint)(uchar)(v)[(k) * 4 + 2] << 16 | (uint)(uchar)(v)[(k) * 4 + 3] << 24)
#if HAS_F64
#define word_f64(v, k) ((uint)(BITS_OF_F64((v)[(k) / 2]) >> (k) % 2 * 32))
#else
#define word_f64 word_i64
#endif
#define word_f32(v, k) BITS_OF_F32((v)[k])
#define word_f16(v, k) TWO_HALVES(f32_to_f16((v)[(k) * 2]), f32_to_f16((v)[(k) * 2 + 1]))
#define word_bf16(v, k) TWO_HALVES(f32_to_bf16((v)[(k) * 2]), f32_to_bf16((v)[(k) * 2 + 1]))
#define word_i64(v, k) ((uint)((ulong)(v)[(k) / 2] >> (k) % 2 * 32))
#define word_i32(v, k) ((uint)(v)[k])
#define word_i16(v, k) TWO_HALVES((v)[(k) * 2], (v)[(k) * 2 + 1])
#define word_i8(v, k) FOUR_BYTES(v, k)
#define word_u8(v, k) FOUR_BYTES(v, k)
#define word_u32(v, k) (v)[k]
#define word_bool(v, k) FOUR_BYTES(v, k)
#define word_complex64(v, k) BITS_OF_F32((k) % 2 == 0 ? (v)[(k) / 2].x : (v)[(k) / 2].y)
