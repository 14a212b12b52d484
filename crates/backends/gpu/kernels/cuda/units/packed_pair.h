// Of the 12 bytes in which Q4_K and Q5_K keep eight scales and eight minima (packed_scales.h),
// those of spans `2 * pair` and `2 * pair + 1`: a byte each, the scales before the minima.
FUNCTION uint packed_pair(uint first, uint second, uint third, uint pair) {
    const uint halves = pair % 2 == 0 ? 0x5410u : 0x7632u;
    const uint early = __byte_perm(first, second, halves);
    const uint late = __byte_perm(third, third >> 4, halves);
    return pair < 2 ? early & 0x3f3f3f3fu : (late & 0x0f0f0f0fu) | (early >> 2 & 0x30303030u);
}

// The sum of the products of both spans: `dots` are those of the codes, `sums` the halves that
// belong to the minima, `header` the scale of scales and that of minima.
FUNCTION float packed_product(uint pair, uint header, int dot_0, int dot_1, int sums) {
    const int product = (int)(pair & 255u) * dot_0 + (int)(pair >> 8 & 255u) * dot_1;
    const int minimum = __dp2a_hi(sums, (int)pair, 0);
    const float scale = f16_to_f32((ushort)header);
    const float of_minima = f16_to_f32((ushort)(header >> 16));
    return fma(scale, (float)product, -of_minima * (float)minimum);
}
