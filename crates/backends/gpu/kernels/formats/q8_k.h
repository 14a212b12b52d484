// Q8_K: a scale in single precision, 256 codes with sign and sums of them.
#define SPAN 32
#define ZERO_POINT 0
#define HAS_MINIMUM 0

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) { return word_at_4(block + 4 + 4 * i); }

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) {
    return F32_OF_BITS(word_at_4(block));
}
