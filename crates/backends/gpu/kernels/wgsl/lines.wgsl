// A group for each line of elements: its lanes share what they find.

var<workgroup> parts: array<COMPUTED, GROUP>;

fn totalled(lane: u32, own: COMPUTED) -> COMPUTED {
    workgroupBarrier();
    parts[lane] = own;
    for (var half = GROUP / 2u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if (lane < half) { parts[lane] = combined(parts[lane], parts[lane + half]); }
    }
    workgroupBarrier();
    return parts[0];
}
