var<workgroup> sums: array<f32, GROUP>;

@compute @workgroup_size(GROUP)
fn softmax(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let line = group.x + group.y * ROW;
    if (line >= p.groups) { return; }
    let first = at_starts(line);
    var top = of_bits(0xff7fffffu);
    for (var j = lane; j < p.length; j += GROUP) { top = larger(top, load_x(first + at_along(j))); }
    top = totalled(lane, top);
    var sum_of = 0.0;
    for (var j = lane; j < p.length; j += GROUP) {
        sum_of += exp_f32(difference(load_x(first + at_along(j)), top));
    }
    sums[lane] = sum_of;
    for (var half = GROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) { sums[lane] += sums[lane + half]; }
    }
    workgroupBarrier();
    let total = sums[0];
    let begin = at_results(line);
    for (var j = lane; j < p.length; j += GROUP) {
        let x = difference(load_x(first + at_along(j)), top);
        if (LOG == 1u) {
            store_y(begin + at_along_results(j), difference(x, log_f32(total)));
        } else {
            store_y(begin + at_along_results(j), quotient(exp_f32(x), total));
        }
    }
}
