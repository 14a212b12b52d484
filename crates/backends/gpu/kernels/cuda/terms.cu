// Rows of keys and of values in single precision, which are of one shape, as sums of TERMS bf16
// numbers: all rows of the first, the largest, then all of the next. A work-item has four
// neighbours; the second dimension of groups says of which operand.
//
// Rows have p.d numbers, a multiple of 4, and begin at multiples of 16 bytes.

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint i = (GROUP_ID(0) * GROUP + LANE) * 4;
    if (i >= p.count) return;
    const bool is_key = GROUP_ID(1) == 0;
    uint key_at = i % p.d, value_at = key_at;
    ADD_OFFSET(key_at, i / p.d, p.rows_rank, p.rows_shape, p.k_strides);
    ADD_OFFSET(value_at, i / p.d, p.rows_rank, p.rows_shape, p.v_strides);
    const float4 x4 = *(const float4*)(is_key ? k + key_at : v + value_at);
    ushort* terms = is_key ? k_terms : v_terms;
    float values[4] = {x4.x, x4.y, x4.z, x4.w};
    UNROLL for (uint term = 0; term < TERMS; term++) {
        uint numbers[4];
        UNROLL for (uint j = 0; j < 4; j++) {
            numbers[j] = f32_to_bf16(values[j]);
            values[j] -= F32_OF_BITS(numbers[j] << 16);
        }
        *(uint2*)(terms + (ulong)term * p.count + i) =
            make_uint2(numbers[0] | numbers[1] << 16, numbers[2] | numbers[3] << 16);
    }
KERNEL_END
