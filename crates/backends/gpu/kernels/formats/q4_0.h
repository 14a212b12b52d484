// Q4_0: a scale and 32 codes of 4 bits, the low halves before the high ones.
#define SPAN 32
#define ZERO_POINT 8
#define HAS_MINIMUM 0

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) {
    return word_at_2(block + 2 + i % 4 * 4) >> (i / 4 * 4) & 0x0f0f0f0fu;
}

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) { return f16_at(block); }
