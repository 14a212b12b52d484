// A group for each result of a product of few rows: its lanes share the sum over k, in pieces of neighbours.

@compute @workgroup_size(GROUP)
fn matvec(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let flat = group.x + group.y * ROW;
    if (flat >= p.groups) { return; }
    let i = flat / p.n;
    let j = flat % p.n;
    var own = 0.0;
    for (var k = lane * EACH; k < p.k; k += GROUP * EACH) {
        own += piece(i, j, k);
    }
    let total = totalled(lane, own);
    if (lane == 0u) { store_y(flat, ended(j, total)); }
}
