// Tiles that the copy engine brings to local memory as a map says, which the host makes of a tensor's
// layout: PTX ISA, "cp.async.bulk.tensor" (sm_90). They are in columns of 64 numbers of two bytes, as
// warpgroups' products read them; rows that are not there become 0.

struct alignas(64) TensorMap {
    ulong words[16];
};

FUNCTION void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}

// `to` is a multiple of 1024. The barrier expects the bytes.
FUNCTION void load_tile(uint to, const TensorMap* map, int row, uint head, uint batch, ulong* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1, {%2, %3, %4, %5, %6}], [%7];"
        :: "r"(to), "l"(map), "r"(0), "r"(row), "r"(0), "r"(head), "r"(batch),
           "r"(local_address(barrier)) : "memory");
}
