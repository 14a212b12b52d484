// Rounds rows of activations to 8 bits, as llama.cpp does for the product with blocks: with one
// scale for as many values as a block has; of 32 values it is in half precision. A group makes
// 256 codes of a row, and if HAS_SUMS their sums over what shares a scale in the blocks.
//
// X: dtype. BLOCK_LENGTH, SPAN: of the blocks.

KERNEL_BEGIN
    LOCAL_ARRAY(float, values, 256);
    LOCAL_ARRAY(uint, peaks, 8);
#if HAS_SUMS
    LOCAL_ARRAY(uint, codes, 64);
#endif
    const uint slabs = (p.k + 255) / 256;
    const uint row = GROUP_ID(0) / slabs, first = GROUP_ID(0) % slabs * 256;

    for (uint e = LANE; e < 256; e += GROUP) {
        values[e] = first + e < p.k ? (float)LOAD(X, x, row * p.k + first + e) : 0;
    }
    BARRIER;
    // Magnitudes compare as their bits do, and NaN above all: it gets into the scale.
    for (uint i = LANE; i < 8; i += GROUP) {
        uint peak = 0;
        for (uint e = 0; e < 32; e++) {
            peak = max(peak, BITS_OF_F32(values[i * 32 + e]) & 0x7fffffffu);
        }
        peaks[i] = peak;
    }
    BARRIER;
    uint largest = 0;
    for (uint i = 0; i < 8; i++) largest = max(largest, peaks[i]);
    for (uint i = LANE; i < 8; i += GROUP) {
        const float scale = F32_OF_BITS(BLOCK_LENGTH == 256 ? largest : peaks[i]) / 127;
        const float rounded = round_f16(scale);
        // Half precision has all digits of these.
        const bool is_normal = rounded >= 6.103515625e-5f && rounded <= 65504;
        if (first + i * 32 < p.k) {
            const bool rounds = BLOCK_LENGTH == 32 && is_normal;
            x_scales[(row * p.k + first) / 32 + i] = rounds ? rounded : scale;
        }
    }
    for (uint i = LANE; i < 64; i += GROUP) {
        const float peak = F32_OF_BITS(BLOCK_LENGTH == 256 ? largest : peaks[i / 8]);
        // The smallest number with all digits.
        const float factor = peak / 127 >= 1.17549435e-38f ? 127 / peak : 0;
        uint word = 0;
        for (uint u = 0; u < 4; u++) {
            word |= ((uint)(int)rint(values[i * 4 + u] * factor) & 255u) << (8 * u);
        }
#if HAS_SUMS
        codes[i] = word;
#endif
        if (first + i * 4 < p.k) x_codes[(row * p.k + first) / 4 + i] = word;
    }
#if HAS_SUMS
    BARRIER;
    for (uint i = LANE; i < 256 / SPAN; i += GROUP) {
        int sum = 0;
        for (uint word = 0; word < SPAN / 4; word++) {
            sum = dot4((int)codes[i * (SPAN / 4) + word], 0x01010101, sum);
        }
        if (first + i * SPAN < p.k) x_sums[(row * p.k + first) / SPAN + i] = sum;
    }
#endif
KERNEL_END
