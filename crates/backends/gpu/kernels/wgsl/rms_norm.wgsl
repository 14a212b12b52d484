@compute @workgroup_size(GROUP)
fn rms_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let line = group.x + group.y * ROW;
    if (line >= p.groups) { return; }
    var squares = 0.0;
    for (var j = lane; j < p.length; j += GROUP) {
        let x = element(line, j);
        squares = fma(x, x, squares);
    }
    let mean = totalled(lane, squares) / f32(p.length);
    let factor = quotient(1.0, sqrt_f32(mean + p.eps));
    for (var j = lane; j < p.length; j += GROUP) {
        let x = element(line, j);
        store_y(line * p.length + j, weighted(j, x * factor));
    }
}
