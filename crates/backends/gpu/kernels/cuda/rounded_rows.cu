// Rows of activations as `product_few.cu` reads them, from p.m rows of p.k numbers of dtype X, normalised if HAS_NORM.
// A group makes a row; rows from p.m on, up to TOKENS, are zeros.
//
// The copy for STAGE values along k is one piece of memory: for each 32 bytes of a row, all rows; then, where numbers are
// rounded to 8 bits, the scales, for each SCALED values all rows; then, if HAS_SUMS, the sums of codes, for each SPAN
// values all rows. Of 32 bytes, the words are in the order 0, 4, 1, 5, 2, 6, 3, 7. OPERAND: halves, if OF_HALVES.

#define PLACE_OF(word) ((word) % 4 * 2 + (word) / 4)

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint token = GROUP_ID(0);
    const bool exists = token < p.m;
    const STORAGE(X)* const row = x + (exists ? token * p.k : 0);
    const uint warp = SIMD_GROUP;
    float scale = 1;
#if HAS_NORM
    LOCAL_ARRAY(float, sums_of_squares, WARPS);
    const float own = sum_squares(row, p.k);
    if (SIMD_LANE == 0) sums_of_squares[warp] = own;
    BARRIER;
    scale = norm_scale(sums_of_squares, p.k, p.eps);
#endif
    for (uint first = warp * Slab::LENGTH; first < p.stages * STAGE; first += WARPS * Slab::LENGTH) {
        Slab slab;
        slab.load(row, first, p.k);
#if HAS_NORM
        Slab weights;
#if HAS_NORM_WEIGHT
        weights.load(norm, first, p.k);
#endif
        slab.normalize(scale, weights);
#endif
        if (!exists) {
            UNROLL for (uint i = 0; i < 8; i++) slab.values[i / 4][i % 4] = 0;
        }
#if OF_HALVES
        UNROLL for (uint half = 0; half < 2; half++) {
            const uint e = Slab::at(first, half), stage = e / STAGE, word = e % STAGE / 2;
            if (stage >= p.stages) continue;
            uint* const to = (uint*)((uchar*)y + (ulong)stage * STAGE_BYTES) + (word / 8 * TOKENS + token) * 8;
            UNROLL for (uint i = 0; i < 2; i++) {
                ushort pair[2];
                STORE(OPERAND, pair, 0, slab.values[half][2 * i]);
                STORE(OPERAND, pair, 1, slab.values[half][2 * i + 1]);
                to[PLACE_OF(word % 8 + i)] = pair[0] | (uint)pair[1] << 16;
            }
        }
#else
        uint peaks[2];
        UNROLL for (uint half = 0; half < 2; half++) {
            peaks[half] = 0;
            // Magnitudes compare as their bits do, and NaN above all: it gets into the scale.
            UNROLL for (uint i = 0; i < 4; i++) {
                peaks[half] = max(peaks[half], BITS_OF_F32(slab.values[half][i]) & 0x7fffffffu);
            }
        }
        if (SCALED == 256) peaks[0] = peaks[1] = __reduce_max_sync(~0u, max(peaks[0], peaks[1]));
        UNROLL for (uint half = 0; half < 2; half++) {
            UNROLL for (uint mask = SCALED == 256 ? 0 : 4; mask > 0; mask /= 2) {
                peaks[half] = max(peaks[half], simd_xor(peaks[half], mask));
            }
            const float peak = F32_OF_BITS(peaks[half]);
            // The smallest number with all digits.
            const float factor = peak / 127 >= 1.17549435e-38f ? 127 / peak : 0;
            uint word = 0;
            UNROLL for (uint i = 0; i < 4; i++) {
                word |= ((uint)(int)rint(slab.values[half][i] * factor) & 255u) << (8 * i);
            }
            int sum = dot4((int)word, 0x01010101, 0);
            UNROLL for (uint mask = 1; mask < SPAN / 4; mask *= 2) sum += simd_xor(sum, mask);
            const uint e = Slab::at(first, half), at = e % STAGE;
            uchar* const to = (uchar*)y + (ulong)(e / STAGE) * STAGE_BYTES;
            ((uint*)to)[(at / 32 * TOKENS + token) * 8 + PLACE_OF(at / 4 % 8)] = word;
            float* const scales = (float*)(to + STAGE * TOKENS);
            if (at % SCALED == 0) {
                const float exact = peak / 127, rounded = round_f16(exact);
                // Half precision has all digits of these.
                const bool is_normal = rounded >= 6.103515625e-5f && rounded <= 65504;
                scales[at / SCALED * TOKENS + token] = SCALED == 32 && is_normal ? rounded : exact;
            }
#if HAS_SUMS
            if (at % SPAN == 0) scales[(STAGE / SCALED + at / SPAN) * TOKENS + token] = (float)sum;
#endif
        }
#endif
    }
KERNEL_END
