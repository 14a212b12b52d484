// Q6_K: 4 low bits of 256 codes in planes of 64, 2 high ones in planes of 32, 16 scales with sign, the scales' scale.
fn block_value(block: u32, i: u32) -> f32 {
    let low = (load_w(block + i / 128u * 64u + i % 64u) >> (i / 64u % 2u * 4u)) & 15u;
    let high = (load_w(block + 128u + i / 128u * 32u + i % 32u) >> (i / 32u % 4u * 2u)) & 3u;
    let scale = f32(load_i8(load_w(block + 192u + i / 16u)));
    let d = load_f16(load_w(block + 208u) | (load_w(block + 209u) << 8u));
    return d * scale * f32(i32(low | (high << 4u)) - 32);
}
