// Products of warpgroups of 128 work-items, whose operands are tiles of local memory or registers:
// PTX ISA, "wgmma.mma_async" (sm_90a). MMA: the dtype of what is multiplied, in PTX.
//
// Tiles are in columns of 64, in which rows have 128 bytes; of these, the 16 bytes i of row r are
// at i ^ r % 8. Of a sum's 64 rows a lane has two, 8 apart, LANE % 128 / 32 * 16 + SIMD_LANE / 4
// the first, and of every 8 columns the two from SIMD_LANE % 4 * 2 on: elements 0, 1 of the first
// row, 2, 3 of the second, then those of the next 8 columns.

FUNCTION void arrive(ulong* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(local_address(barrier))
                 : "memory");
}

// Arrives once this lane's copies to local memory are made.
FUNCTION void arrive_after_copies(ulong* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];"
                 :: "r"(local_address(barrier)) : "memory");
}

// A tile at `address`: 1024 bytes from 8 rows to the next, and `across` from one column of 64 to
// the next.
FUNCTION ulong descriptor(uint address, uint across) {
    return (ulong)1 << 62 | (ulong)(1024 / 16) << 32 | (ulong)(across / 16) << 16
        | (address & 0x3ffff) / 16;
}

#define FLOATS_8(x, i) \
    "+f"((x)[i]), "+f"((x)[i + 1]), "+f"((x)[i + 2]), "+f"((x)[i + 3]), "+f"((x)[i + 4]), \
    "+f"((x)[i + 5]), "+f"((x)[i + 6]), "+f"((x)[i + 7])
#define FLOATS_32(x, i) \
    FLOATS_8(x, i), FLOATS_8(x, i + 8), FLOATS_8(x, i + 16), FLOATS_8(x, i + 24)
#define REGISTERS_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, " \
    "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64 \
    REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, " \
    "%47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA(n) "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." MMA "." MMA

// Adds 64 rows by 16 of N rows, 64 or 128, both in local memory; or begins anew, unless `adds`.
template <uint N> FUNCTION void multiply_tiles(float* sum, ulong a, ulong b, uint adds) {
    if constexpr (N == 64) {
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %34, 0;\n"
                     WGMMA(64) " {" REGISTERS_32 "}, %32, %33, adds, 1, 1, 0, 0;\n}"
                     : FLOATS_32(sum, 0)
                     : "l"(a), "l"(b), "r"(adds));
    } else {
        asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %66, 0;\n"
                     WGMMA(128) " {" REGISTERS_64 "}, %64, %65, adds, 1, 1, 0, 0;\n}"
                     : FLOATS_32(sum, 0), FLOATS_32(sum, 32)
                     : "l"(a), "l"(b), "r"(adds));
    }
}

// Adds 64 rows in registers, of both of a lane's rows two elements and then those 8 further, by 16
// rows of N, 64 or 128, columns in local memory, or by 16 of N rows there; or begins anew, unless
// `adds`.
#define MULTIPLY_REGISTERS(name, are_columns) \
    template <uint N> FUNCTION void name(float* sum, const uint* a, ulong b, uint adds) { \
        if constexpr (N == 64) { \
            asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %37, 0;\n" \
                         WGMMA(64) " {" REGISTERS_32 "}, {%32, %33, %34, %35}, %36, adds, 1, 1, " \
                         are_columns ";\n}" \
                         : FLOATS_32(sum, 0) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds)); \
        } else { \
            asm volatile("{\n.reg .pred adds;\nsetp.ne.b32 adds, %69, 0;\n" \
                         WGMMA(128) " {" REGISTERS_64 "}, {%64, %65, %66, %67}, %68, adds, 1, 1, " \
                         are_columns ";\n}" \
                         : FLOATS_32(sum, 0), FLOATS_32(sum, 32) \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(adds)); \
        } \
    }
MULTIPLY_REGISTERS(multiply_columns, "1")
MULTIPLY_REGISTERS(multiply_own_rows, "0")

// Four matrices of 8 by 8 numbers as products take rows from registers; the lanes 8 i to 8 i + 7 give
// where the rows of the i-th are in local memory.
FUNCTION void load_matrices(uint* x, uint address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address) : "memory");
}

// Begins products, after which registers were written; ends a group of them; and waits until
// no more than `pending` groups are at work.
#define BEGIN_PRODUCTS asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define END_PRODUCTS asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT_PRODUCTS(pending) \
    asm volatile("wgmma.wait_group.sync.aligned " #pending ";" ::: "memory")

// From here on a compiler may not use what the registers were before.
FUNCTION void renew(float* x, uint count) {
    UNROLL for (uint i = 0; i < count; i += 8) asm volatile("" : FLOATS_8(x, i) :: "memory");
}

// What was copied to local memory is for the tensor cores.
#define COPIES_TO_PRODUCTS asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
