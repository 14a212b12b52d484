// Copies from global to local memory by the copy engine, and the barriers that tell of their
// end: PTX ISA, "cp.async.bulk" and "mbarrier" (sm_90).

FUNCTION uint local_address(const void* p) { return (uint)__cvta_generic_to_shared(p); }

// A phase of the barrier ends with `count` arrivals and all the bytes that they expect.
FUNCTION void barrier_init(ulong* barrier, uint count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
        :: "r"(local_address(barrier)), "r"(count) : "memory");
}

// Makes barriers known to the copy engine.
FUNCTION void barrier_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

FUNCTION void barrier_arrive(ulong* barrier, uint expected_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
        :: "r"(local_address(barrier)), "r"(expected_bytes) : "memory");
}

// Waits for the end of a phase; they alternate in parity, from 0 on.
FUNCTION void barrier_wait(ulong* barrier, uint parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@!done bra again;\n"
        "}\n" :: "r"(local_address(barrier)), "r"(parity) : "memory");
}

// Addresses and size are multiples of 16.
FUNCTION void copy_bulk(void* to, const void* from, uint bytes, ulong* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%0], [%1], %2, [%3];"
        :: "r"(local_address(to)), "l"(from), "r"(bytes), "r"(local_address(barrier))
        : "memory");
}

// Lets the cache fetch what will be read; address and size are multiples of 16.
FUNCTION void prefetch_bulk(const void* from, uint bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
        :: "l"(from), "r"(bytes) : "memory");
}
