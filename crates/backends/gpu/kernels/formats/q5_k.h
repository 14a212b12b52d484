// Q5_K: the scales' scale and the minima's, 8 of each packed, the highest bits of 256 codes in
// planes of 32, their 4 low bits in planes of 32.
#define SPAN 32
#define ZERO_POINT 0
#define HAS_MINIMUM 1

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) {
    const uint low = word_at_4(block + 48 + i / 16 * 32 + i % 8 * 4) >> (i / 8 % 2 * 4);
    const uint high = word_at_4(block + 16 + i % 8 * 4) >> (i / 8);
    return (low & 0x0f0f0f0fu) | (high & 0x01010101u) << 4;
}

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) {
    return f16_at(block) * (float)packed_scale(block + 4, span);
}

FUNCTION float minimum_of(GLOBAL const uchar* block, uint span) {
    return f16_at(block + 2) * (float)packed_minimum(block + 4, span);
}
