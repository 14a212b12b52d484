@compute @workgroup_size(GROUP)
fn reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let line = group.x + group.y * ROW;
    if (line >= p.groups) { return; }
    let first = at_starts(line);
    var total = beginning(first);
    for (var j = lane; j < p.length; j += GROUP) {
        total = combined(total, load_x(first + at_along(j)));
    }
    total = totalled(lane, total);
    if (lane == 0u) { store_y(line, total); }
}
