// Q8_0: a scale, 32 codes of 8 bits.
fn block_value(block: u32, i: u32) -> f32 {
    let scale = load_f16(word_w(block) & 0xffffu);
    return scale * f32(load_i8(load_w(block + 2u + i)));
}
