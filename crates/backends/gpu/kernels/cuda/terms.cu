// Rows of keys and of values in single precision, which are of one shape, as terms, see terms.h: all rows of the first,
// then all of the next. A work-item has four neighbours; the second dimension of groups says of which operand.
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
        uint pairs[2];
        UNROLL for (uint j = 0; j < 2; j++) {
            float* const two = values + 2 * j;
            pairs[j] = term == 0 ? first_terms(two[0], two[1])
                                 : f32_to_bf16(two[0]) | (uint)f32_to_bf16(two[1]) << 16;
            two[0] -= F32_OF_BITS(pairs[j] << 16);
            two[1] -= F32_OF_BITS(pairs[j] & 0xffff0000u);
        }
        *(uint2*)(terms + (ulong)term * p.count + i) = make_uint2(pairs[0], pairs[1]);
    }
KERNEL_END
