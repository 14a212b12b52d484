// Rows as panels of 16-bit numbers for gemm.cu: 64 numbers of every row, then the next 64. A row
// of a panel has eight chunks of 16 bytes, of which chunk c is at c ^ row % 8, as the tensor
// cores' 128-byte swizzle wants it. Past the end of a row there are zeros.
//
// X: dtype. OPERAND: f16 or bf16; numbers too large for f16 become its largest. IS_SHUFFLED: are
// sixteen numbers in the order 0 1 4 5 8 9 12 13, 2 3 6 7 10 11 14 15, in which a lane's part of
// a product's step is four neighbours? IS_DENSE: do numbers of a row follow each other, and rows
// and weights begin at multiples of 16 bytes? IS_ALONG_ROWS: do neighbouring work-items take neighbouring
// rows, and not neighbouring parts of a row?
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
    for (uint part = LANE; part < parts; part += GROUP) {
        // One part each needs no second reading.
        if (parts > GROUP)
#else
    const uint i = GROUP_ID(0) * GROUP + LANE;
#if IS_ALONG_ROWS
    const uint row = i % p.rows, part = i / p.rows;
#else
    const uint row = i / parts, part = i % parts;
#endif
    const STORAGE(X)* from = x + (ulong)row * p.outer;
    if (row < p.rows && part < parts) {
#endif
        read_part(values, from, part, p.inner, p.k);
#if HAS_NORM
        UNROLL for (uint j = 0; j < PART; j++) values[j] *= factor;
#if HAS_WEIGHT
        float weights[PART];
        read_part(weights, weight, part, 1, p.k);
        UNROLL for (uint j = 0; j < PART; j++) values[j] *= weights[j];
#endif
#endif
        uint chunks[PART / 2];
        UNROLL for (uint j = 0; j < PART; j += 2) {
#if IS_SHUFFLED
            const uint to = j / 4 + j % 4 / 2 * 4;
#else
            const uint to = j / 2;
#endif
            const uint low = PASTE(to_, OPERAND)(values[j]);
            chunks[to] = low | (uint)PASTE(to_, OPERAND)(values[j + 1]) << 16;
        }
        const uint panel = part / (PANEL / PART), chunk = part % (PANEL / PART) * 2;
        uint4* line = (uint4*)(panels + ((ulong)panel * p.stride + row) * PANEL);
        UNROLL for (uint j = 0; j < 2; j++) {
            line[(chunk + j) ^ row % 8] =
                make_uint4(chunks[j * 4], chunks[j * 4 + 1], chunks[j * 4 + 2], chunks[j * 4 + 3]);
        }
    }
KERNEL_END
