@compute @workgroup_size(GROUP)
fn embedding(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (group.x + group.y * ROW) * GROUP + lane;
    if (i >= p.n) { return; }
    let id = load_ids(at_ids(i / p.width));
    if (id < 0 || u32(id) >= p.rows) {
        report_status();
        return;
    }
    store_y(i, weight(u32(id), i % p.width));
}
