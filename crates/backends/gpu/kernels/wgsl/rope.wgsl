// Rotary position embedding: a work-item turns a pair of features, or copies one that does not turn.

fn high_of_product(a: u32, b: u32) -> u32 {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let first = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let second = (a & 0xffffu) * (b >> 16u) + (first & 0xffffu);
    return (a >> 16u) * (b >> 16u) + (first >> 16u) + (second >> 16u);
}

// Cosine and sine of an angle in turns, of which the word has the part behind the point: their series, up to an
// eighth of a turn.
fn turned(turns: u32) -> vec2<f32> {
    let quarter = (turns + 0x20000000u) >> 30u;
    let r = f32(bitcast<i32>(turns - (quarter << 30u))) * 1.4629181e-9;
    let z = r * r;
    var s = fma(z, 2.7557319e-6, -1.984127e-4);
    s = fma(z, s, 8.333334e-3);
    s = fma(z, s, -0.16666667);
    s = fma(r * z, s, r);
    var c = fma(z, -2.7557319e-7, 2.4801588e-5);
    c = fma(z, c, -1.3888889e-3);
    c = fma(z, c, 4.1666668e-2);
    c = fma(z, c, -0.5);
    c = fma(z, c, 1.0);
    switch quarter {
        case 0u: { return vec2(c, s); }
        case 1u: { return vec2(-s, c); }
        case 2u: { return vec2(-c, -s); }
        default: { return vec2(s, -c); }
    }
}

@compute @workgroup_size(GROUP)
fn rope(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (group.x + group.y * ROW) * GROUP + lane;
    let units = p.d - p.pairs;
    if (i >= p.n * units) { return; }
    let row = i / units;
    let unit = i % units;
    let begin = at_rows(row);
    let to = row * p.d;
    if (unit >= p.pairs) {
        let rest = unit + p.pairs;
        store_y(to + rest, load_x(begin + rest * p.stride));
        return;
    }
    let position = load_positions(row % p.t * p.position_stride);
    let distance = u32(abs(position));
    // A product of whole numbers: of the turn's fraction in units of 2⁻⁶⁴.
    let low = p.frequencies[2u * unit];
    let high = p.frequencies[2u * unit + 1u];
    let turn = turned(distance * high + high_of_product(distance, low));
    let c = turn.x * p.magnitude;
    let s = select(turn.y, -turn.y, position < 0) * p.magnitude;
    var first = unit;
    var second = unit + p.pairs;
    if (INTERLEAVED == 1u) {
        first = 2u * unit;
        second = first + 1u;
    }
    let a = load_x(begin + first * p.stride);
    let b = load_x(begin + second * p.stride);
    store_y(to + first, a * c - b * s);
    store_y(to + second, a * s + b * c);
}
