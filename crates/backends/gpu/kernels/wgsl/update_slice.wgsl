@compute @workgroup_size(GROUP)
fn update_slice(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (group.x + group.y * ROW) * GROUP + lane;
    let first = load_start(0u);
    if (first < 0 || u32(first) > p.last) {
        report_status();
        return;
    }
    if (i < p.n) { store_y(at_y(i) + u32(first) * p.stride, load_x(at_x(i))); }
}
