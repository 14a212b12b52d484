// Q4_1: a scale, a minimum and 32 codes of 4 bits, the low halves before the high ones.
#define SPAN 32
#define ZERO_POINT 0
#define HAS_MINIMUM 1

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) {
    return word_at_4(block + 4 + i % 4 * 4) >> (i / 4 * 4) & 0x0f0f0f0fu;
}

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) { return f16_at(block); }
FUNCTION float minimum_of(GLOBAL const uchar* block, uint span) { return -f16_at(block + 2); }
