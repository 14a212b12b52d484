// Q6_K: 4 low bits of 256 codes in planes of 64, 2 high ones in planes of 32, 16 scales with
// sign, the scales' scale.
#define SPAN 16
#define ZERO_POINT 32
#define HAS_MINIMUM 0

FUNCTION uint codes_at(GLOBAL const uchar* block, uint i) {
    const uint low = word_at_2(block + i / 32 * 64 + i % 16 * 4) >> (i / 16 % 2 * 4);
    const uint high = word_at_2(block + 128 + i / 32 * 32 + i % 8 * 4) >> (i / 8 % 4 * 2);
    return (low & 0x0f0f0f0fu) | (high & 0x03030303u) << 4;
}

FUNCTION float scale_of(GLOBAL const uchar* block, uint span) {
    return f16_at(block + 208) * (float)((GLOBAL const char*)block)[192 + span];
}
