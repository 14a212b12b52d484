// The result seen as `[lead, index, rest]`.

@compute @workgroup_size(GROUP)
fn index_select(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = (group.x + group.y * ROW) * GROUP + lane;
    if (i >= p.n) { return; }
    let id = load_ids(at_ids(i / p.rest % p.count));
    if (id < 0 || u32(id) >= p.size) {
        report_status();
        return;
    }
    let other = i / p.rest / p.count * p.rest + i % p.rest;
    store_y(i, load_x(at_others(other) + u32(id) * p.stride));
}
