@compute @workgroup_size(GROUP)
fn copy(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (group.x + group.y * ROW) * GROUP + lane;
    if (i < p.n) { store_y(i, load_x(at_x(i))); }
}
