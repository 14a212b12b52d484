// Sums of the rows that a token's experts made, each multiplied by its weight: a row of y is the sum of p.slots rows of
// x, which follow each other. A work-item makes four neighbouring numbers.
//
// INDEX: dtype of the ids. TABLES: 1 if the row of `table0` that an expert has is added to its rows, else 0.
// HAS_OTHER: are other rows like y added?

FUNCTION void add(float4& sum, float4 x, float weight) {
    sum.x = fma(x.x, weight, sum.x);
    sum.y = fma(x.y, weight, sum.y);
    sum.z = fma(x.z, weight, sum.z);
    sum.w = fma(x.w, weight, sum.w);
}

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint at = GROUP_ID(0) * GROUP + LANE;
    if (at >= p.count) return;
    const uint first = at / p.vectors * p.slots, column = at % p.vectors;
    float4 sum = make_float4(0, 0, 0, 0);
    for (uint row = first; row < first + p.slots; row++) {
        float4 own = ((const float4*)x)[(ulong)row * p.vectors + column];
#if TABLES
        const long id = LOAD(INDEX, ids, row);
        if (id >= 0 && id < (long)p.experts) {
            add(own, ((const float4*)table0)[(ulong)id * p.vectors + column], 1);
        }
#endif
        add(sum, own, slot_weights[row]);
    }
#if HAS_OTHER
    add(sum, ((const float4*)other)[at], 1);
#endif
    ((float4*)y)[at] = sum;
KERNEL_END
