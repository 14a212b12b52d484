@compute @workgroup_size(GROUP)
fn layer_norm(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let line = group.x + group.y * ROW;
    if (line >= p.groups) { return; }
    let first = line * p.length;
    var part = 0.0;
    for (var j = lane; j < p.length; j += GROUP) { part += element(line, j); }
    let mean = totalled(lane, part) / f32(p.length);
    var squares = 0.0;
    for (var j = lane; j < p.length; j += GROUP) {
        let x = element(line, j) - mean;
        squares = fma(x, x, squares);
    }
    let variance = totalled(lane, squares) / f32(p.length);
    let factor = quotient(1.0, sqrt_f32(variance + p.eps));
    for (var j = lane; j < p.length; j += GROUP) {
        store_y(first + j, weighted(j, (element(line, j) - mean) * factor));
    }
}
