// Q4_K: the scales' scale and the minima's, 8 of each packed in 6 bits, 256 codes of 4 bits in planes of 32.
fn block_value(block: u32, i: u32) -> f32 {
    let heads = word_w(block);
    let span = i / 32u;
    let packed = block + 4u;
    var scale = 0u;
    var minimum = 0u;
    if (span < 4u) {
        scale = load_w(packed + span) & 63u;
        minimum = load_w(packed + span + 4u) & 63u;
    } else {
        let low = load_w(packed + span + 4u);
        scale = (low & 15u) | ((load_w(packed + span - 4u) >> 6u) << 4u);
        minimum = (low >> 4u) | ((load_w(packed + span) >> 6u) << 4u);
    }
    let code = (load_w(block + 16u + i / 64u * 32u + i % 32u) >> (span % 2u * 4u)) & 15u;
    return load_f16(heads & 0xffffu) * f32(scale) * f32(code) - load_f16(heads >> 16u) * f32(minimum);
}
