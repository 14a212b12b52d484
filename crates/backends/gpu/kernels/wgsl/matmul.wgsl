// Tiles of 16 by 16 results. `a(i, k)` and `b(k, j)` are the elements, of the matrices that `begin` has chosen.

const TILE = 16u;

var<workgroup> rows: array<array<f32, TILE>, TILE>;
var<workgroup> columns: array<array<f32, TILE>, TILE>;

@compute @workgroup_size(GROUP)
fn matmul(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let flat = group.x + group.y * ROW;
    if (flat >= p.groups) { return; }
    let across = (p.n + TILE - 1u) / TILE;
    let down = (p.m + TILE - 1u) / TILE;
    let batch = flat / (across * down);
    begin(batch);
    let row = lane / TILE;
    let column = lane % TILE;
    let i = flat / across % down * TILE + row;
    let j = flat % across * TILE + column;
    var total = 0.0;
    for (var k = 0u; k < p.k; k += TILE) {
        var left = 0.0;
        if (i < p.m && k + column < p.k) { left = a(i, k + column); }
        var right = 0.0;
        if (j < p.n && k + row < p.k) { right = b(k + row, j); }
        rows[row][column] = left;
        columns[row][column] = right;
        workgroupBarrier();
        var part = 0.0;
        for (var t = 0u; t < min(TILE, p.k - k); t += 1u) {
            part = fma(rows[row][t], columns[t][column], part);
        }
        total += part;
        workgroupBarrier();
    }
    if (i < p.m && j < p.n) { store_y((batch * p.m + i) * p.n + j, ended(j, total)); }
}
