// MXFP4: the exponent of a scale and 32 numbers of E2M1, the low halves before the high ones.
#define SPAN 32
#define ZERO_POINT 12
#define HAS_MINIMUM 0
// The byte at which numbers begin.
#define E2M1_AT 1

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) {
    return e2m1_codes(word_at_1(block + E2M1_AT + i % 4 * 4) >> (i / 4 * 4) & 0x0f0f0f0fu);
}

// Half of it: codes are doubled.
FUNCTION float scale_of(GLOBAL const uchar* block, uint span) {
    const uint e = block[0];
    // Below the normal numbers, and in them.
    return F32_OF_BITS(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}
