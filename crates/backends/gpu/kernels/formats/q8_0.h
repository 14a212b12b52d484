// Q8_0: a scale and 32 codes with sign.
#define SPAN 32
#define ZERO_POINT 0
#define HAS_MINIMUM 0

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) { return word_at_2(block + 2 + 4 * i); }

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) { return f16_at(block); }
