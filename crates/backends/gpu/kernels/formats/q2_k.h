// Q2_K: 16 pairs of a scale and a minimum of 4 bits, 256 codes of 2 bits in planes of 32, the
// scales' scale and the minima's.
#define SPAN 16
#define ZERO_POINT 0
#define HAS_MINIMUM 1

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) {
    return word_at_4(block + 16 + i / 32 * 32 + i % 8 * 4) >> (i / 8 % 4 * 2) & 0x03030303u;
}

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) {
    return f16_at(block + 80) * (float)(block[span] & 15u);
}

FUNCTION float minimum_of(GLOBAL const uchar* block, uint span) {
    return f16_at(block + 82) * (float)(block[span] >> 4);
}
