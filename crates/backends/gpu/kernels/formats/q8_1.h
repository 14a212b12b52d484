// Q8_1: a scale, the sum of the values and 32 codes with sign.
#define SPAN 32
#define ZERO_POINT 0
#define HAS_MINIMUM 0

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) { return word_at_4(block + 4 + 4 * i); }

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) { return f16_at(block); }
