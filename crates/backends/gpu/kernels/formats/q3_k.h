// Q3_K: the highest bits of 256 codes in planes of 32, their 2 low bits in planes of 32, 16
// scales of 6 bits (4 low bits in planes of 8, 2 high ones in planes of 4), the scales' scale.
#define SPAN 16
#define ZERO_POINT 4
#define HAS_MINIMUM 0

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) {
    const uint low = word_at_2(block + 32 + i / 32 * 32 + i % 8 * 4) >> (i / 8 % 4 * 2);
    const uint high = word_at_2(block + i % 8 * 4) >> (i / 8);
    return (low & 0x03030303u) | (high & 0x01010101u) << 2;
}

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) {
    const uint low = (uint)block[96 + span % 8] >> (span / 8 * 4) & 15u;
    const uint high = (uint)block[104 + span % 4] >> (span / 4 * 2) & 3u;
    return f16_at(block + 108) * (float)((int)(low | high << 4) - 32);
}
