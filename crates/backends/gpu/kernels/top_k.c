// The best elements of segments of lines, in order: a group for each 2^p.line_bits segments of
// p.run elements, which have room for 2^p.size_bits in local memory.
//
// X, Y: dtypes. ORDER_OF(v): a number that is the smaller the better `v` is, of 64 bits if IS_WIDE,
// else of 32. HAS_VALUES: are the elements written, too, and not their indices alone?

// The earlier first of those that are equal.
#if IS_WIDE
#define SET(key, order, index) (key).x = (order); (key).y = (index)
#define INDEX_OF(key) ((uint)(key).y)
#else
#define SET(key, order, index) (key) = (ulong)(order) << 32 | (index)
#define INDEX_OF(key) ((uint)(key))
#endif

// Unsigned numbers in the order of floats: both zeros are equal, NaN is the largest.
FUNCTION uint order_of_f32(float v) {
    if (v != v) return ~0u;
    const uint bits = v == 0 ? 0 : BITS_OF_F32(v);
    return bits >> 31 ? ~bits : bits | 1u << 31;
}
#if HAS_F64
FUNCTION ulong order_of_f64(double v) {
    if (v != v) return ~(ulong)0;
    const ulong bits = v == 0 ? 0 : BITS_OF_F64(v);
    return bits >> 63 ? ~bits : bits | (ulong)1 << 63;
}
#endif

#define LINE_OF(segment) (p.runs > 1 ? (segment) / p.runs : (segment))

KERNEL_BEGIN
    LOCAL_ARRAY(KEY, keys, PADDED(TILE));
    const uint first = GROUP_ID(0) << p.line_bits, lines = 1u << p.line_bits;
    const uint live = lines << p.size_bits;
    for (uint e = LANE; e < live; e += GROUP) {
        // Neighbouring lanes are at neighbouring elements.
        const uint own = p.is_across ? e & (lines - 1) : e >> p.size_bits;
        const uint j = p.is_across ? e >> p.line_bits : e & ((1u << p.size_bits) - 1);
        const uint segment = first + own, line = LINE_OF(segment);
        const uint index = (segment - line * p.runs) * p.run + j;
        KEY key;
        SET(key, ~(ulong)0, ~0u);
        if (segment < p.count && j < p.run && index < p.len) {
            uint x_start = 0;
            ADD_OFFSET(x_start, line, p.x_lines_rank, p.x_lines_shape, p.x_strides);
            const COMPUTE(X) value = LOAD(X, x, x_start + index * p.x_step);
            SET(key, ORDER_OF(value), index);
        }
        keys[PADDED((own << p.size_bits) + j)] = key;
    }
    BARRIER;
    SORT(keys, live, p.size_bits, p.kept_bits);

    for (uint e = LANE; e < p.kept << p.line_bits; e += GROUP) {
        uint own = 0, j = e;
        if (p.is_across) {
            own = e & (lines - 1);
            j = e >> p.line_bits;
        } else if (lines > 1) {
            own = e / p.kept;
            j = e - own * p.kept;
        }
        const uint segment = first + own, line = LINE_OF(segment);
        const uint run = segment - line * p.runs;
        if (segment < p.count && j < p.len - run * p.run) {
            uint x_start = 0, y_start = 0;
            ADD_OFFSET(x_start, line, p.x_lines_rank, p.x_lines_shape, p.x_strides);
            ADD_OFFSET(y_start, line, p.y_lines_rank, p.y_lines_shape, p.y_strides);
            const uint index = INDEX_OF(keys[PADDED((own << p.size_bits) + j)]);
            const uint to = y_start + (run * p.kept + j) * p.y_step;
            STORE(Y, y, to, index);
#if HAS_VALUES
            STORE(X, values, to, LOAD(X, x, x_start + index * p.x_step));
#endif
        }
    }
KERNEL_END
