// Q5_0: a scale, a word of the highest bits and 32 times 4 low bits, the low halves before the
// high ones.
#define SPAN 32
#define ZERO_POINT 16
#define HAS_MINIMUM 0

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) {
    const uint low = word_at_2(block + 6 + i % 4 * 4) >> (i / 4 * 4) & 0x0f0f0f0fu;
    return low | spread_bits(word_at_2(block + 2) >> (4 * i)) << 4;
}

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) { return f16_at(block); }
