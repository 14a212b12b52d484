// Rows as panels of 16-bit numbers for gemm.cu: 64 numbers of every row, then the next 64. A row
// of a panel has eight chunks of 16 bytes, of which chunk c is at c ^ row % 8, as the tensor
// cores' 128-byte swizzle wants it. Past the end of a row there are zeros.
//
// X: dtype. OPERAND: f16 or bf16; numbers too large for f16 become its largest. IS_SHUFFLED: are
// sixteen numbers in the order 0 1 4 5 8 9 12 13, 2 3 6 7 10 11 14 15, in which a lane's part of
// a product's step is four neighbours? IS_DENSE: do numbers of a row follow each other, and rows
// and weights begin at multiples of 16 bytes? IS_ALONG_ROWS: do neighbouring work-items take neighbouring
// rows, and not neighbouring parts of a row?
// ROUNDS: are so many numbers, 32 or 256, rounded to 8 bits with one scale, as quantize.c does it
// for weights with blocks of that length? 0 if not. Then results are those of products of
// integers, as other devices make them.
// TERMS: 3 if numbers are in single precision and become sums of so many of bf16, first all
// panels of the first, the largest; else 1.
// BY_EXPERT: are the rows those of x in the order of experts, in tiles of COLUMNS rows, see expert_rows.c?
// What is behind the last row of a tile stays as it is.
// HAS_NORM: are rows divided by the root of their mean square, by a group each, and, if
// HAS_WEIGHT, multiplied by `weight`?

#define PANEL 64
// Numbers of a work-item.
#define PART 16

FUNCTION ushort to_f16(float x) {
    // Keeps NaN, unlike min and max of the language.
    asm("{ .reg .f32 t; min.NaN.f32 t, %1, 0f477fe000; max.NaN.f32 %0, t, 0fc77fe000; }"
        : "=f"(x) : "f"(x));
    return f32_to_f16(x);
}
#define to_bf16 f32_to_bf16

// The numbers of a part; zeros past the end.
FUNCTION void read_part(float (&values)[PART], const STORAGE(X)* row, uint part, uint inner,
                        uint k) {
#if IS_DENSE
    if ((part + 1) * PART <= k) {
        STORAGE(X) raw[PART];
        UNROLL for (uint j = 0; j < PART * sizeof(STORAGE(X)) / 16; j++) {
            ((uint4*)raw)[j] = ((const uint4*)(row + part * PART))[j];
        }
        UNROLL for (uint j = 0; j < PART; j++) values[j] = LOAD(X, raw, j);
        return;
    }
#endif
    UNROLL for (uint j = 0; j < PART; j++) {
        const uint at = part * PART + j;
        values[j] = at < k ? LOAD(X, row, (ulong)at * inner) : 0.0f;
    }
}

#if ROUNDS
// Numbers of a part as they are once they are rounded. Neighbouring lanes, all of which are
// here, have neighbouring parts.
FUNCTION void round_part(float (&values)[PART]) {
    // Magnitudes compare as their bits do, and NaN above all: it gets into the scale.
    uint peak_bits = 0;
    UNROLL for (uint j = 0; j < PART; j++) {
        peak_bits = max(peak_bits, BITS_OF_F32(values[j]) & 0x7fffffffu);
    }
    for (uint mask = ROUNDS / PART / 2; mask > 0; mask /= 2) {
        peak_bits = max(peak_bits, simd_xor(peak_bits, mask));
    }
    const float peak = F32_OF_BITS(peak_bits);
    float scale = peak / 127;
    // The smallest number with all digits.
    const float factor = scale >= 1.17549435e-38f ? 127 / peak : 0;
    const float rounded = round_f16(scale);
    // Half precision has all digits of these.
    if (ROUNDS == 32 && rounded >= 6.103515625e-5f && rounded <= 65504) scale = rounded;
    UNROLL for (uint j = 0; j < PART; j++) values[j] = rint(values[j] * factor) * scale;
}
#endif

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint parts = p.panels_count * (PANEL / PART);
    float values[PART];
#if HAS_NORM
    LOCAL_ARRAY(float, squares, GROUP / SIMD_WIDTH);
    const uint row = GROUP_ID(0);
    const STORAGE(X)* from = x + (ulong)row * p.outer;
    float sum = 0;
    for (uint part = LANE; part < parts; part += GROUP) {
        read_part(values, from, part, p.inner, p.k);
        UNROLL for (uint j = 0; j < PART; j++) sum = MULTIPLY_ADD(values[j], values[j], sum);
    }
    for (uint mask = SIMD_WIDTH / 2; mask > 0; mask /= 2) sum += simd_xor(sum, mask);
    if (SIMD_LANE == 0) squares[SIMD_GROUP] = sum;
    BARRIER;
    sum = 0;
    for (uint i = 0; i < GROUP / SIMD_WIDTH; i++) sum += squares[i];
    const float factor = 1 / sqrt(sum / (float)p.k + p.eps);
    // All lanes take part, since neighbours round together; past the end a part is zeros.
    for (uint first = 0; first < parts; first += GROUP) {
        const uint part = first + LANE;
        const bool exists = part < parts;
        // One part each needs no second reading.
        if (parts > GROUP) read_part(values, from, part, p.inner, p.k);
        UNROLL for (uint j = 0; j < PART; j++) values[j] = exists ? values[j] * factor : 0;
#if HAS_WEIGHT
        float weights[PART];
        read_part(weights, weight, part, 1, p.k);
        UNROLL for (uint j = 0; j < PART; j++) values[j] *= weights[j];
#endif
#else
    {
        const uint i = GROUP_ID(0) * GROUP + LANE;
#if IS_ALONG_ROWS
        const uint row = i % p.rows, part = i / p.rows, source = row;
        const bool exists = part < parts;
#else
        const uint row = i / parts, part = i % parts;
#if BY_EXPERT
        const uint* const tile = tiles + min(row, p.rows - 1) / COLUMNS * 3;
        const uint place = tile[0] + row % COLUMNS;
        const bool exists = row < p.rows && place < tile[1];
        const uint source = exists ? sources[place] : 0;
#else
        const bool exists = row < p.rows;
        const uint source = row;
#endif
#endif
        const STORAGE(X)* from = x + (ulong)source * p.outer;
        if (BY_EXPERT && !__any_sync(~0u, exists)) return;
        // Past the last row nothing is read.
        read_part(values, from, part, p.inner, exists ? p.k : 0);
#endif
#if ROUNDS
        round_part(values);
#endif
        const uint panel = part / (PANEL / PART), chunk = part % (PANEL / PART) * 2;
        UNROLL for (uint term = 0; term < TERMS; term++) {
            uint chunks[PART / 2];
            UNROLL for (uint j = 0; j < PART; j += 2) {
#if IS_SHUFFLED
                const uint to = j / 4 + j % 4 / 2 * 4;
#else
                const uint to = j / 2;
#endif
                const uint low = PASTE(to_, OPERAND)(values[j]);
                const uint high = PASTE(to_, OPERAND)(values[j + 1]);
                chunks[to] = low | high << 16;
#if TERMS > 1
                values[j] -= F32_OF_BITS(low << 16);
                values[j + 1] -= F32_OF_BITS(high << 16);
#endif
            }
            const ulong at = term * p.panels_count + panel;
            uint4* line = (uint4*)(panels + (at * p.stride + row) * PANEL);
            UNROLL for (uint j = 0; j < 2; j++) {
                const uint* four = chunks + j * 4;
                if (exists) {
                    line[(chunk + j) ^ row % 8] = make_uint4(four[0], four[1], four[2], four[3]);
                }
            }
        }
    }
KERNEL_END
