// The product y = x · wᵀ + bias on the tensor cores of compute capability 9.0, for many rows of
// x: a group makes tiles of yᵀ, ROWS rows of w by COLUMNS rows of x. Its last warpgroup copies to
// local memory; the other warpgroups multiply 64 rows of w each.
//
// x are panels, see panels.cu. OPERAND: what is multiplied, f16 or bf16. W_KIND: is w BLOCKS,
// made OPERAND in registers, LINES of OPERAND one after the other, or PANELS like x? PIXELS make
// a convolution: x are its weights, and a row of w is what a pixel of the result sees of images
// with their channels last, see channels_last.cu. Its padding and dilation may be negative: they
// are added modulo 2^32. Results are where y's strides say; IS_WIDE: are columns neighbours there, in vectors of eight?
// TERMS: 3 if w and x are single precision, as sums of so many bf16 numbers, of which the products
// that matter are made (Henry, Tang and Heinecke 2019, arXiv:1904.06376); else 1. Tensor cores cut
// off what they add (Fasi et al. 2021, doi 10.7717/peerj-cs.330): sums of three terms leave them
// after each panel and are added in single precision. What is too large for that, or infinite, makes
// a result that is no number: it is computed again as by definition.
// SETS: of w, y and bias, up to three, whose x is the same. IS_GATED: is the result instead
// silu(x · wᵀ) (x · w_1ᵀ)? In local memory there are STAGES panels of x, and SLABS slabs of blocks,
// for whose rows PIECES times 16 bytes are copied. Y: dtype. BIAS(i), BIAS_1(i), …: what is
// added to row i. HAS_OTHER: are other rows like y added?
// BY_EXPERT: are the columns of a tile rows of x that chose the same rows of w, of those of all experts? The
// tiles of columns are those of expert_rows.c, and only results that exist are written. If IS_GATED, these are `after`
// of both products and of numbers of the TABLES tables, which have one for each row of w.
// The blocks' own macros are in formats; IS_BYTES: are their codes signed bytes? E2M1_AT: the byte of a block of 32 where
// codes that are numbers of E2M1 begin, where they are.

#define BLOCKS 0
#define LINES 1
#define PANELS 2
#define PIXELS 3

#if SETS == 1
#define PICK(of_0, of_1, of_2) (of_0)
#elif SETS == 2
#define PICK(of_0, of_1, of_2) (work.set == 0 ? (of_0) : (of_1))
#else
#define PICK(of_0, of_1, of_2) (work.set == 0 ? (of_0) : work.set == 1 ? (of_1) : (of_2))
#endif
// Which w row `r` of a tile is of, and how far behind the tile's first row: of those that a lane
// has the sums of, r and r + 8, the first is a gate and the second what it gates.
#if IS_GATED
#define TILE_ROWS (ROWS / 2)
#define W_OF(r) ((r) / 8 % 2 == 0 ? w : w_1)
#define ROW_OF(r) ((r) / 16 * 8 + (r) % 8)
#else
#define TILE_ROWS ROWS
#define W_OF(r) PICK(w, w_1, w_2)
#define ROW_OF(r) (r)
#endif

#define PANEL 64
// Bytes of a panel's line.
#define LINE 128
#define WARPGROUPS (ROWS / 64)
#define PRODUCER (WARPGROUPS * 4)
#define COPIERS 128
#define LINES_COPIED (COPIERS / 8)
// What work-items that multiply get of the registers, and what those that copy keep.
#if WARPGROUPS == 1
#define REGISTERS 168
#define COPIER_REGISTERS 72
#elif RESIDENT == 2
#define REGISTERS 96
#define COPIER_REGISTERS 48
#else
#define REGISTERS 216
#define COPIER_REGISTERS 72
#endif
#define X_TERM_BYTES (COLUMNS * LINE)
#define X_BYTES (TERMS * X_TERM_BYTES)

#if W_KIND == BLOCKS
// Blocks come in slabs of this many values of each row.
#define SLAB 256
#define SLAB_PANELS (SLAB / PANEL)
#define SLAB_BYTES (SLAB / BLOCK_LENGTH * BLOCK_BYTES)
#define W_BYTES (ROWS * PIECES * 16)
#define W_STAGES SLABS
// Work-items that copy a row of blocks, and rows that are copied at a time.
#define ROW_COPIERS 4
#define ROWS_COPIED (COPIERS / ROW_COPIERS)
// Steps of 16 along k that a fragment of blocks is made before it is multiplied.
#define AHEAD 2
#else
#define W_TERM_BYTES (ROWS * LINE)
#define W_BYTES (TERMS * W_TERM_BYTES)
#define W_STAGES STAGES
#endif

FUNCTION uint local_address(const void* p) { return (uint)__cvta_generic_to_shared(p); }

// Barriers that copies tell of their end, by their addresses.
FUNCTION void barrier_init(uint barrier, uint count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(count));
}
FUNCTION void arrive(uint barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
FUNCTION void arrive_expecting(uint barrier, uint bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 :: "r"(barrier), "r"(bytes) : "memory");
}
FUNCTION void arrive_after_copies(uint barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(barrier) : "memory");
}
FUNCTION void wait(uint barrier, uint parity) {
    asm volatile("{\n.reg .pred done;\n"
                 "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@done bra DONE;\nbra AGAIN;\nDONE:\n}"
                 :: "r"(barrier), "r"(parity) : "memory");
}

// The same for words in global memory, which are 0 but while something waits to be taken.
FUNCTION void publish(uint* word) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(word), "r"(1u) : "memory");
}
FUNCTION void take(uint* word) {
    uint is_ready;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is_ready) : "l"(word) : "memory");
    } while (!is_ready);
    *word = 0;
}

// Copies of many bytes by one work-item, and of 16 by each: the first `bytes`, then zeros.
FUNCTION void copy_bulk(uint to, const void* from, uint bytes, uint barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];"
                 :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
FUNCTION void copy_16(uint to, const void* from, uint bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

// The same for what other work-items of the group copy as well.
FUNCTION void copy_16_cached(uint to, const void* from, uint bytes) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;"
                 :: "r"(to), "l"(from), "r"(bytes) : "memory");
}

// A matrix in local memory, in lines of 128 bytes with the 128-byte swizzle: the bytes from
// eight lines to the next eight are 1024.
FUNCTION ulong descriptor(uint address) {
    return (ulong)(address >> 4 & 0x3fffu) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define TEN(t) "%" t "0, %" t "1, %" t "2, %" t "3, %" t "4, %" t "5, %" t "6, %" t "7, %" t "8, %" t "9, "
#define FOUR(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SIXTEEN(i) FOUR(i), FOUR(i + 4), FOUR(i + 8), FOUR(i + 12)
#define THIRTY_TWO(i) SIXTEEN(i), SIXTEEN(i + 16)
// The operands of an instruction with so many columns: the sums, then w and x, then for descriptors
// whether it adds to the sums or begins anew.
#if COLUMNS == 48
#define SHAPE "m64n48k16"
#define SUM_NAMES "{" TEN("") TEN("1") "%20, %21, %22, %23}, "
#define FRAGMENT_NAMES "{%24, %25, %26, %27}, %28"
#define DESCRIPTOR_NAMES "%24, %25"
#define ADDS_NAME "%26"
#define SUMS SIXTEEN(0), FOUR(16), FOUR(20)
#elif COLUMNS == 64
#define SHAPE "m64n64k16"
#define SUM_NAMES "{" TEN("") TEN("1") TEN("2") "%30, %31}, "
#define FRAGMENT_NAMES "{%32, %33, %34, %35}, %36"
#define DESCRIPTOR_NAMES "%32, %33"
#define ADDS_NAME "%34"
#define SUMS THIRTY_TWO(0)
#elif COLUMNS == 80
#define SHAPE "m64n80k16"
#define SUM_NAMES "{" TEN("") TEN("1") TEN("2") "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, "
#define FRAGMENT_NAMES "{%40, %41, %42, %43}, %44"
#define DESCRIPTOR_NAMES "%40, %41"
#define ADDS_NAME "%42"
#define SUMS THIRTY_TWO(0), FOUR(32), FOUR(36)
#elif COLUMNS == 128
#define SHAPE "m64n128k16"
#define SUM_NAMES "{" TEN("") TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") "%60, %61, %62, %63}, "
#define FRAGMENT_NAMES "{%64, %65, %66, %67}, %68"
#define DESCRIPTOR_NAMES "%64, %65"
#define ADDS_NAME "%66"
#define SUMS THIRTY_TWO(0), THIRTY_TWO(32)
#elif COLUMNS == 256
#define SHAPE "m64n256k16"
#define SUM_NAMES "{" TEN("") TEN("1") TEN("2") TEN("3") TEN("4") TEN("5") TEN("6") TEN("7") \
    TEN("8") TEN("9") TEN("10") TEN("11") \
    "%120, %121, %122, %123, %124, %125, %126, %127}, "
#define FRAGMENT_NAMES "{%128, %129, %130, %131}, %132"
#define DESCRIPTOR_NAMES "%128, %129"
#define ADDS_NAME "%130"
#define SUMS THIRTY_TWO(0), THIRTY_TWO(32), THIRTY_TWO(64), THIRTY_TWO(96)
#endif
#define TEXT_(t) #t
#define TEXT(t) TEXT_(t)
#define MULTIPLY(adds) \
    "{\n.reg .pred p;\nsetp.ne.b32 p, " adds ", 0;\n" \
    "wgmma.mma_async.sync.aligned." SHAPE ".f32." TEXT(OPERAND) "." TEXT(OPERAND) " " SUM_NAMES

#if W_KIND == BLOCKS
FUNCTION void multiply(float (&sums)[COLUMNS / 2], const uint (&w)[4], ulong x) {
    asm volatile(MULTIPLY("1") FRAGMENT_NAMES ", p, 1, 1, 0;\n}"
                 : SUMS : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "l"(x));
}

FUNCTION uint bytes_of(uint a, uint b, uint selector) { return __byte_perm(a, b, selector); }
FUNCTION uint add_bf16x2(uint a, uint b) {
    uint y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(0x3f803f80u), "r"(b));
    return y;
}
FUNCTION uint scaled_bf16x2(uint a, uint scale, uint minimum) {
    uint y;
#if HAS_MINIMUM
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(scale), "r"(minimum));
#else
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(scale));
#endif
    return y;
}
FUNCTION uint two_bf16(float low, float high) {
    uint y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
    return y;
}

// Bytes as the last bits of bf16 numbers that begin with 128 are these numbers plus 128.
#define OF_128 0x43434343u
// -(128 + the zero point), twice.
#define MINUS_OFFSET ((0xc300u + ZERO_POINT) * 0x10001u)

// Two of a word's codes less the zero point, in bf16.
FUNCTION uint numbers(uint codes, uint selector) {
#if IS_BYTES
    // The seven low bits, less the sign bit's 128: 128 + low - (128 or 256).
    const uint low = bytes_of(codes & 0x7f7f7f7fu, OF_128, selector);
    const uint sign = bytes_of(codes & 0x80808080u, OF_128, selector);
    return add_bf16x2(low, sign | 0x80008000u);
#else
    return add_bf16x2(bytes_of(codes, OF_128, selector), MINUS_OFFSET);
#endif
}

// Spans that four lanes read together, and those that each of them reads.
#define SPANS 8
#define OWN_SPANS (SPANS / 4)

// Scales and minima of the two rows that four lanes share.
struct Scales {
    // Those that this lane has read, in halves of words.
    uint own[2][OWN_SPANS];
    // Those of a span, twice each.
    uint scale[2], minimum[2];
#ifdef E2M1_AT
    // Codes of two steps.
    uint word[2];
#endif

    // Reads its part of the spans from `first` on.
    FUNCTION void read(const uchar* row_0, const uchar* row_8, uint first) {
        UNROLL for (uint r = 0; r < 2; r++) {
            UNROLL for (uint i = 0; i < OWN_SPANS; i++) {
                const uint at = (first + SIMD_LANE % 4 * OWN_SPANS + i) * SPAN;
                const uchar* from = (r == 0 ? row_0 : row_8) + at / BLOCK_LENGTH * BLOCK_BYTES;
                const uint span = at % BLOCK_LENGTH / SPAN;
#if HAS_MINIMUM
                own[r][i] = two_bf16(scale_of(from, span), -minimum_of(from, span));
#else
                const float scale = scale_of(from, span);
                own[r][i] = two_bf16(scale, scale);
#endif
            }
        }
    }

    // Takes those of a span from the lane that has read them.
    FUNCTION void take(uint span) {
        UNROLL for (uint r = 0; r < 2; r++) {
            const uint lane = SIMD_LANE / 4 * 4 + span % SPANS / OWN_SPANS;
            const uint both = __shfl_sync(~0u, own[r][span % OWN_SPANS], lane);
            scale[r] = bytes_of(both, 0, 0x1010u);
            minimum[r] = HAS_MINIMUM ? bytes_of(both, 0, 0x3232u) : 0;
        }
    }
};

#ifdef E2M1_AT
// A little-endian word at any address of local memory.
FUNCTION uint word_at_any(const uchar* p) {
    const uint in_word = (uint)(ulong)p & 3u;
    const uint* from = (const uint*)(p - in_word);
    return __funnelshift_r(from[0], from[1], in_word * 8);
}

// Two numbers of E2M1 as bf16, doubled. They are in a word's bytes that `selector` puts into the upper half of each
// 16 bits, in the byte's high or low half. Their three last bits are those of a bf16 number whose exponent is 126 too
// small, if they are its exponent's last two and its fraction's first.
FUNCTION uint e2m1_numbers(uint word, uint selector, bool is_high) {
    const uint bytes = bytes_of(word, 0, selector);
    const uint sign = (is_high ? bytes : bytes << 4) & 0x80008000u;
    const uint magnitude = (is_high ? bytes >> 6 : bytes >> 2) & 0x01c001c0u;
    uint y;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(magnitude | sign), "r"(0x7f007f00u));
    return y;
}
#endif

// The lane's part of a step of 16 along k, of two rows of blocks. `scales` are those of the step
// before.
FUNCTION void values(uint (&w)[4], Scales& scales, const uchar* row_0, const uchar* row_8,
                     uint step) {
    const uint at = step * 16 % BLOCK_LENGTH, block = step * 16 / BLOCK_LENGTH * BLOCK_BYTES;
    const uint span = step * 16 / SPAN;
    if (step * 16 % (SPANS * SPAN) == 0) scales.read(row_0, row_8, span);
    if (step * 16 % SPAN == 0) scales.take(span);
    UNROLL for (uint r = 0; r < 2; r++) {
        const uchar* from = (r == 0 ? row_0 : row_8) + block;
#ifdef E2M1_AT
        if (at == 0) scales.word[r] = word_at_any(from + E2M1_AT + SIMD_LANE % 4 * 4);
        const uint first = e2m1_numbers(scales.word[r], 0x1404u, at > 0);
        const uint second = e2m1_numbers(scales.word[r], 0x3424u, at > 0);
#else
        const uint codes = codes_at(from, at / 4 + SIMD_LANE % 4);
        const uint first = numbers(codes, 0x4140u), second = numbers(codes, 0x4342u);
#endif
        w[r] = scaled_bf16x2(first, scales.scale[r], scales.minimum[r]);
        w[r + 2] = scaled_bf16x2(second, scales.scale[r], scales.minimum[r]);
    }
}
#else
FUNCTION void multiply(float (&sums)[COLUMNS / 2], ulong w, ulong x, uint adds) {
    asm volatile(MULTIPLY(ADDS_NAME) DESCRIPTOR_NAMES ", p, 1, 1, 0, 0;\n}"
                 : SUMS : "l"(w), "l"(x), "r"(adds));
}
#endif

// What a group does: tiles, and before them parts along k of tiles that groups share, so that
// none is idle while others make the last tiles (Osama et al. 2023, doi 10.1145/3572848.3577479).
// A unit is a slab of blocks or a panel; `count` of them from `first` on are the part of `tile`.
// The part's tile begins at `row` of set `set`, which has `n` rows, and at `column`.
struct Work {
    uint units, unit, end, next;
    uint first, count;
    uint set, n, row, column;
#if BY_EXPERT
    // The columns' places in the order of rows, and the first row of w that is the expert's.
    uint begin, over, first_w;
#endif
};

// The first unit of a group's part of the shared tiles, which the first p.sharers groups have.
FUNCTION uint shared_unit(const Params& p, uint units, uint group) {
    return p.shared_tiles * units * min(group, p.sharers) / p.sharers;
}

FUNCTION Work work_of(const Params& p, uint units) {
    Work work;
    work.units = units;
    work.unit = shared_unit(p, units, GROUP_ID(0));
    work.end = shared_unit(p, units, GROUP_ID(0) + 1);
    work.next = p.shared_tiles + GROUP_ID(0);
    return work;
}

#if BY_EXPERT
#define NEXT_PART next_part(work, p, tiles)
#define FIRST_W work.first_w
FUNCTION bool next_part(Work& work, const Params& p, const uint* tiles) {
    const uint rows = (p.n[0] + TILE_ROWS - 1) / TILE_ROWS;
    uint tile = work.next;
    // Tiles without columns are passed over. Groups that work at the same time share rows of x.
    while (tile < p.tiles && tiles[tile / rows * 3] >= tiles[tile / rows * 3 + 1]) tile += gridDim.x;
    work.next = tile + gridDim.x;
    if (tile >= p.tiles) return false;
    const uint* const of = tiles + tile / rows * 3;
    work.begin = of[0];
    work.over = of[1];
    work.first_w = of[2] * p.n[0];
    work.first = 0;
    work.count = work.units;
    work.set = 0;
    work.n = p.n[0];
    work.row = tile % rows * TILE_ROWS;
    work.column = tile / rows * COLUMNS;
    return true;
}
#else
#define NEXT_PART next_part(work, p)
#define FIRST_W 0
FUNCTION bool next_part(Work& work, const Params& p) {
    uint tile = work.next;
    if (work.unit < work.end) {
        tile = work.unit / work.units;
        work.first = work.unit % work.units;
        work.count = min(work.units - work.first, work.end - work.unit);
        work.unit += work.count;
    } else {
        work.first = 0;
        work.count = work.units;
        work.next += gridDim.x;
    }
    // Groups that work at the same time share rows of w.
    const uint columns = (p.m + COLUMNS - 1) / COLUMNS;
    uint rows = tile / columns;
    work.column = tile % columns * COLUMNS;
    work.set = 0;
#if SETS > 1
    for (; work.set < SETS - 1; work.set++) {
        const uint tiles = (p.n[work.set] + TILE_ROWS - 1) / TILE_ROWS;
        if (rows < tiles) break;
        rows -= tiles;
    }
#endif
    work.n = p.n[work.set];
    work.row = rows * TILE_ROWS;
    return tile < p.tiles;
}
#endif

// A pointer to global memory so many elements further, made from the one before even if the compiler could make
// all of a column's at once, for which there are no registers.
template <class T> FUNCTION T* behind(T* p, ulong elements) {
    p += elements;
    asm volatile("" : "+l"(p));
    __builtin_assume(__isGlobal(p));
    return p;
}

#if IS_WIDE
// Of four groups of eight columns, of which each of four lanes has two: all eight of the group that is as many behind
// the first as the lane behind the first of the four. `sums` are 4 further from one group to the next.
FUNCTION uint4 neighbours(const float* sums) {
    uint words[4];
    UNROLL for (uint i = 0; i < 4; i++) {
        asm("cvt.rn." TEXT(OPERAND) "x2.f32 %0, %1, %2;"
            : "=r"(words[i]) : "f"(sums[i * 4 + 1]), "f"(sums[i * 4]));
    }
    UNROLL for (uint mask = 1; mask < 4; mask *= 2) {
        const bool is_upper = SIMD_LANE & mask;
        UNROLL for (uint i = 0; i < 4; i++) {
            if (i & mask) continue;
            const uint given = simd_xor(is_upper ? words[i] : words[i + mask], mask);
            if (is_upper) words[i] = given;
            else words[i + mask] = given;
        }
    }
    return make_uint4(words[0], words[1], words[2], words[3]);
}
#endif

#if TERMS > 1
// The sum for row `column` of x and row `row` of w, from what their terms were made of.
FUNCTION float defined(const Params& p, const float* x, const float* w, uint column, uint row) {
    float sum = 0;
#if W_KIND == PIXELS
    const uint top = row % p.plane / p.out_width * p.stride[0] - p.padding[0];
    const uint left = row % p.plane % p.out_width * p.stride[1] - p.padding[1];
    w += row / p.plane * p.w_strides[0];
    x += column * p.x_strides[0];
    for (uint channel = 0; channel < p.channels; channel++) {
        for (uint tap = 0; tap < p.kernel_size[0] * p.kernel_size[1]; tap++) {
            const uint down = tap / p.kernel_size[1], right = tap % p.kernel_size[1];
            const uint line = top + down * p.dilation[0], at = left + right * p.dilation[1];
            if (line >= p.size[0] || at >= p.size[1]) continue;
            sum = MULTIPLY_ADD(
                w[channel * p.w_strides[1] + line * p.w_strides[2] + at * p.w_strides[3]],
                x[channel * p.x_strides[1] + down * p.x_strides[2] + right * p.x_strides[3]], sum);
        }
    }
#else
    w += (ulong)row * p.w_strides[0];
    x += (ulong)column * p.x_strides[0];
    for (uint k = 0; k < p.k; k++) {
        sum = MULTIPLY_ADD(w[(ulong)k * p.w_strides[1]], x[(ulong)k * p.x_strides[1]], sum);
    }
#endif
    return sum;
}
#endif

// Products are made while the program goes on; `wait_for_products` leaves so many stages' under
// way.
#define BEGIN_PRODUCTS asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define COMMIT_PRODUCTS asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define WAIT_FOR_PRODUCTS(left) \
    asm volatile("wgmma.wait_group.sync.aligned " TEXT(left) ";" ::: "memory")
// From here on a compiler may not use what the sums were before.
FUNCTION void renew(float (&sums)[COLUMNS / 2]) { asm volatile("" : SUMS :: "memory"); }

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint base = (local_address(DYNAMIC_LOCAL) + 1023) & ~1023u;
    const uint w_base = base + STAGES * X_BYTES;
    const uint full = w_base + W_STAGES * W_BYTES, empty = full + STAGES * 8;
#if W_KIND == BLOCKS
    const uint slab_full = empty + STAGES * 8, slab_empty = slab_full + SLABS * 8;
#endif
    if (LANE == 0) {
        for (uint i = 0; i < STAGES; i++) {
            barrier_init(full + i * 8, W_KIND == LINES || W_KIND == PIXELS ? 1 + COPIERS : 1);
            barrier_init(empty + i * 8, WARPGROUPS * 4);
        }
#if W_KIND == BLOCKS
        for (uint i = 0; i < SLABS; i++) {
            barrier_init(slab_full + i * 8, COPIERS);
            barrier_init(slab_empty + i * 8, WARPGROUPS * 128);
        }
#endif
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    BARRIER;
#if W_KIND == BLOCKS
    // Whole slabs: there are zeros behind the ends of the rows.
    Work work = work_of(p, (p.k + SLAB - 1) / SLAB);
    const uint row_bytes = p.k / BLOCK_LENGTH * BLOCK_BYTES;
    uint slab_count = 0;
#else
    Work work = work_of(p, (p.k + PANEL - 1) / PANEL);
#endif
    // The place in the ring of panels, and how often it was gone around: the same for all warps.
    uint stage = 0, around = 0;

    if (SIMD_GROUP >= PRODUCER) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 " TEXT(COPIER_REGISTERS) ";");
        const uint lane = LANE - PRODUCER * SIMD_WIDTH;
        while (NEXT_PART) {
#if W_KIND == PIXELS
            // What this work-item's rows see first, which may be in the padding: positions before the first wrap, and are
            // behind the last as well.
            uint begin[ROWS / LINES_COPIED], top[ROWS / LINES_COPIED], left[ROWS / LINES_COPIED];
            UNROLL for (uint j = 0; j < ROWS / LINES_COPIED; j++) {
                const uint row = min(work.row + j * LINES_COPIED + lane / 8, work.n - 1);
                top[j] = row % p.plane / p.out_width * p.stride[0] - p.padding[0];
                left[j] = row % p.plane % p.out_width * p.stride[1] - p.padding[1];
                begin[j] = (row / p.plane * p.size[0] + top[j]) * p.size[1] + left[j];
            }
            // What of windows it copies next.
            const uint first = work.first * 8 + lane % 8, tap = first / p.pieces_count;
            uint piece = first % p.pieces_count;
            uint of_height = tap / p.kernel_size[1], of_width = tap % p.kernel_size[1];
#endif
#if W_KIND == BLOCKS
            // Where this work-item's rows begin.
            const uchar* lines[ROWS / ROWS_COPIED];
            UNROLL for (uint j = 0; j < ROWS / ROWS_COPIED; j++) {
                const uint row = j * ROWS_COPIED + lane / ROW_COPIERS;
                const uint in_w = FIRST_W + min(work.row + ROW_OF(row), work.n - 1);
                lines[j] = W_OF(row) + (ulong)in_w * row_bytes;
            }
#endif
            for (uint unit = work.first; unit < work.first + work.count; unit++) {
#if W_KIND == BLOCKS
                const uint slab = slab_count % SLABS;
                wait(slab_empty + slab * 8, slab_count / SLABS % 2 ^ 1);
                slab_count++;
                UNROLL for (uint j = 0; j < ROWS / ROWS_COPIED; j++) {
                    const uint row = j * ROWS_COPIED + lane / ROW_COPIERS;
                    const uchar* begin = lines[j] + unit * SLAB_BYTES;
                    const uchar* from = (const uchar*)((ulong)begin & ~15ull);
                    const int left = (int)(row_bytes - unit * SLAB_BYTES) + (int)(begin - from);
                    const uint to = w_base + slab * W_BYTES + row * (PIECES * 16);
                    UNROLL for (uint first = 0; first < PIECES; first += ROW_COPIERS) {
                        const uint piece = first + lane % ROW_COPIERS;
                        const int bytes = min(left - (int)piece * 16, 16);
                        if (piece < PIECES) {
                            copy_16(to + piece * 16, bytes > 0 ? from + piece * 16 : lines[j],
                                    (uint)max(bytes, 0));
                        }
                    }
                }
                arrive_after_copies(slab_full + slab * 8);
                for (uint panel = unit * SLAB_PANELS; panel < (unit + 1) * SLAB_PANELS; panel++)
#else
                const uint panel = unit;
#endif
                {
                    wait(empty + stage * 8, around % 2 ^ 1);
#if W_KIND == LINES
                    const uint to = w_base + stage * W_BYTES;
                    const uint k = panel * PANEL + lane % 8 * 8;
                    const uint bytes = k < p.k ? min(p.k - k, 8u) * 2 : 0;
                    UNROLL for (uint j = 0; j < ROWS / LINES_COPIED; j++) {
                        const uint row = j * LINES_COPIED + lane / 8;
                        const uint chunk = lane % 8 ^ row % 8;
                        const ushort* line =
                            W_OF(row)
                            + (ulong)(FIRST_W + min(work.row + ROW_OF(row), work.n - 1)) * p.w_stride;
                        copy_16(to + row * LINE + chunk * 16, line + (bytes > 0 ? k : 0), bytes);
                    }
                    arrive_after_copies(full + stage * 8);
#elif W_KIND == PIXELS
                    const uint to = w_base + stage * W_BYTES;
                    const uint down = of_height * p.dilation[0], right = of_width * p.dilation[1];
                    const uint further = down * p.size[1] + right;
                    const bool exists = of_height < p.kernel_size[0];
                    UNROLL for (uint j = 0; j < ROWS / LINES_COPIED; j++) {
                        const uint row = j * LINES_COPIED + lane / 8;
                        const uint place = row * LINE + (lane % 8 ^ row % 8) * 16;
                        const bool is_inside = exists && top[j] + down < p.size[0]
                            && left[j] + right < p.size[1];
                        const uint pixel = is_inside ? begin[j] + further : 0;
                        const ushort* from = w + ((ulong)pixel * p.pieces_count + piece) * 8;
                        UNROLL for (uint term = 0; term < TERMS; term++) {
                            copy_16_cached(to + term * W_TERM_BYTES + place,
                                           from + (ulong)term * p.term_pieces * 8,
                                           is_inside ? 16 : 0);
                        }
                    }
                    arrive_after_copies(full + stage * 8);
                    for (piece += 8; piece >= p.pieces_count; piece -= p.pieces_count) {
                        if (++of_width == p.kernel_size[1]) of_width = 0, of_height++;
                    }
#endif
                    if (lane == 0) {
#if BY_EXPERT
                        // What is behind the tile's rows is multiplied as it is.
                        const uint x_bytes = (work.over - work.begin) * LINE;
#else
                        const uint x_bytes = X_TERM_BYTES;
#endif
                        const uint bytes = TERMS * x_bytes + (W_KIND == PANELS ? W_BYTES : 0);
                        arrive_expecting(full + stage * 8, bytes);
                        UNROLL for (uint term = 0; term < TERMS; term++) {
                            const ulong at = term * ((p.k + PANEL - 1) / PANEL) + panel;
                            copy_bulk(base + stage * X_BYTES + term * X_TERM_BYTES,
                                      x + (at * p.x_stride + work.column) * PANEL, x_bytes,
                                      full + stage * 8);
#if W_KIND == PANELS
                            copy_bulk(w_base + stage * W_BYTES + term * W_TERM_BYTES,
                                      w + (at * p.w_stride + work.row) * PANEL, W_TERM_BYTES,
                                      full + stage * 8);
#endif
                        }
                    }
                    if (++stage == STAGES) stage = 0, around++;
                }
            }
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 " TEXT(REGISTERS) ";");
        const uint row = SIMD_GROUP * 16 + SIMD_LANE / 4;
        while (NEXT_PART) {
            float sums[COLUMNS / 2];
            UNROLL for (uint i = 0; i < COLUMNS / 2; i++) sums[i] = 0;
            // A lane has two neighbouring columns of every eight, in two rows.
            const uint to = work.row + ROW_OF(row);
            const bool has_0 = to < work.n, has_8 = !IS_GATED && to + 8 < work.n;
            const uint to_0 = min(to, work.n - 1), to_8 = min(to + (IS_GATED ? 0 : 8), work.n - 1);
            // Where these rows are in a column of y, and from one column to the next.
#if W_KIND == PIXELS
#define PLACE(to) \
    ((ulong)((to) / p.plane) * p.y_strides[0] + (to) % p.plane / p.out_width * p.y_strides[2] \
     + (to) % p.plane % p.out_width * p.y_strides[3])
            const uint step = p.y_strides[1];
#else
#define PLACE(to) (to)
            const uint step = work.n;
#endif
            const ulong place_0 = PLACE(to_0), place_8 = PLACE(to_8) - place_0;
            const uint begin = work.column + SIMD_LANE % 4 * 2;
#define EACH_COLUMN(i, column, at, y) \
    auto* at = y + ((ulong)begin * step + place_0); \
    UNROLL for (uint i = 0, column = begin; i < COLUMNS / 2; \
                i += i % 4 == 0 ? 1 : 3, column += i % 4 == 0 ? 7 : 1, \
                at = behind(at, (ulong)step * (i % 4 == 0 ? 7 : 1)))
            // What is added comes first, while the first panels are under way.
            if (work.first == 0) {
#if IS_GATED
                const float bias_0 = BIAS(to_0), bias_8 = BIAS_1(to_8);
#elif W_KIND != PIXELS
                const float bias_0 = PICK(BIAS(to_0), BIAS_1(to_0), BIAS_2(to_0));
                const float bias_8 = PICK(BIAS(to_8), BIAS_1(to_8), BIAS_2(to_8));
#endif
#if W_KIND == PIXELS
                EACH_COLUMN(i, column, at, y) {
                    sums[i] = sums[i + 2] = BIAS(min(column, p.m - 1));
                }
#else
                UNROLL for (uint i = 0; i < COLUMNS / 2; i++) sums[i] = i / 2 % 2 ? bias_8 : bias_0;
#endif
#if HAS_OTHER
                EACH_COLUMN(i, column, at, other) {
                    if (column < p.m) {
                        sums[i] += LOAD(Y, at, 0);
                        sums[i + 2] += LOAD(Y, at, place_8);
                    }
                }
#endif
            }
            // The stage whose products may be under way, if there is one.
            uint last = STAGES;
#if W_KIND == BLOCKS
            // Where rows begin in their first pieces.
#define BEGIN_OF(r) \
    ((uint)(ulong)W_OF(r) + (FIRST_W + min(work.row + ROW_OF(r), work.n - 1)) * row_bytes)
            const uint begin_0 = BEGIN_OF(row), begin_8 = BEGIN_OF(row + 8);
            const uchar* lines = DYNAMIC_LOCAL + (w_base - local_address(DYNAMIC_LOCAL))
                + row * (PIECES * 16);
#define ROW_0(unit) (lines + slab * W_BYTES + (begin_0 + (unit) * SLAB_BYTES) % 16)
#define ROW_8(unit) \
    (lines + slab * W_BYTES + 8 * PIECES * 16 + (begin_8 + (unit) * SLAB_BYTES) % 16)
            uint slab = slab_count % SLABS;
            wait(slab_full + slab * 8, slab_count / SLABS % 2);
            const uchar *row_0 = ROW_0(work.first), *row_8 = ROW_8(work.first);
            Scales scales;
            uint fragments[AHEAD * 2][4];
            UNROLL for (uint s = 0; s < AHEAD; s++) values(fragments[s], scales, row_0, row_8, s);
            for (uint unit = work.first; unit < work.first + work.count; unit++) {
                const bool has_next = unit + 1 < work.first + work.count;
                UNROLL for (uint step = 0; step < SLAB / 16; step++) {
                    const uint s = step % (PANEL / 16);
                    if (s == 0) wait(full + stage * 8, around % 2);
                    BEGIN_PRODUCTS;
                    multiply(sums, fragments[step % (AHEAD * 2)],
                             descriptor(base + stage * X_BYTES) + s * 2);
                    COMMIT_PRODUCTS;
                    WAIT_FOR_PRODUCTS(AHEAD);
                    if (s == AHEAD - 1 && last < STAGES && SIMD_LANE == 0) arrive(empty + last * 8);
                    if (s == PANEL / 16 - 1) {
                        last = stage;
                        if (++stage == STAGES) stage = 0, around++;
                    }
                    // While it is made, the fragments of a later one. At the end these are dropped.
                    if (step == SLAB / 16 - AHEAD && has_next) {
                        arrive(slab_empty + slab * 8);
                        slab_count++;
                        slab = slab_count % SLABS;
                        wait(slab_full + slab * 8, slab_count / SLABS % 2);
                        row_0 = ROW_0(unit + 1);
                        row_8 = ROW_8(unit + 1);
                    }
                    values(fragments[(step + AHEAD) % (AHEAD * 2)], scales, row_0, row_8,
                           (step + AHEAD) % (SLAB / 16));
                }
            }
            arrive(slab_empty + slab * 8);
            slab_count++;
#else
            for (uint i = 0; i < work.count; i++) {
                wait(full + stage * 8, around % 2);
#if W_KIND != PANELS
                // What the processor wrote the tensor cores see only from here on.
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
                const ulong x_panel = descriptor(base + stage * X_BYTES);
                const ulong w_panel =
                    descriptor(w_base + stage * W_BYTES + SIMD_GROUP / 4 * 64 * LINE);
                BEGIN_PRODUCTS;
#if TERMS > 1
                // A term is 2⁻⁹ of the one before. The smallest products that matter come first: what is
                // cut off of their sums is nothing beside the largest.
                float of_panel[COLUMNS / 2];
                UNROLL for (uint of_both = TERMS; of_both-- > 0;) {
                    UNROLL for (uint of_w = 0; of_w <= of_both; of_w++) {
                        const ulong w_term = w_panel + of_w * (W_TERM_BYTES / 16);
                        const ulong x_term = x_panel + (of_both - of_w) * (X_TERM_BYTES / 16);
                        UNROLL for (uint s = 0; s < PANEL / 16; s++) {
                            multiply(of_panel, w_term + s * 2, x_term + s * 2,
                                     of_both + 1 < TERMS || of_w + s > 0);
                        }
                    }
                }
                COMMIT_PRODUCTS;
                WAIT_FOR_PRODUCTS(0);
                if (SIMD_LANE == 0) arrive(empty + stage * 8);
                renew(of_panel);
                UNROLL for (uint j = 0; j < COLUMNS / 2; j++) sums[j] += of_panel[j];
#else
                UNROLL for (uint s = 0; s < PANEL / 16; s++) {
                    multiply(sums, w_panel + s * 2, x_panel + s * 2, 1);
                }
                COMMIT_PRODUCTS;
                WAIT_FOR_PRODUCTS(1);
                if (last < STAGES && SIMD_LANE == 0) arrive(empty + last * 8);
                last = stage;
#endif
                if (++stage == STAGES) stage = 0, around++;
            }
#endif
            WAIT_FOR_PRODUCTS(0);
            if (last < STAGES && SIMD_LANE == 0) arrive(empty + last * 8);

            // The first group of a shared tile adds what the next ones, in order, have put into
            // `parts`, where each warp has its place and a word that says so.
            if (work.first > 0) {
                float4* part = (float4*)parts
                    + (ulong)(GROUP_ID(0) * PRODUCER + SIMD_GROUP) * (COLUMNS / 8 * SIMD_WIDTH);
                UNROLL for (uint i = 0; i < COLUMNS / 8; i++) {
                    part[i * SIMD_WIDTH + SIMD_LANE] = make_float4(
                        sums[i * 4], sums[i * 4 + 1], sums[i * 4 + 2], sums[i * 4 + 3]);
                }
                __threadfence();
                __syncwarp();
                if (SIMD_LANE == 0) publish(ready + GROUP_ID(0) * PRODUCER + SIMD_GROUP);
                continue;
            }
            for (uint next = GROUP_ID(0) + 1, done = work.count; done < work.units; next++) {
                const uint count =
                    shared_unit(p, work.units, next + 1) - shared_unit(p, work.units, next);
                if (count == 0) continue;
                done += count;
                uint* word = ready + next * PRODUCER + SIMD_GROUP;
                if (SIMD_LANE == 0) take(word);
                __syncwarp();
                const float4* part = (const float4*)parts
                    + (ulong)(next * PRODUCER + SIMD_GROUP) * (COLUMNS / 8 * SIMD_WIDTH);
                UNROLL for (uint i = 0; i < COLUMNS / 8; i++) {
                    const float4 more = __ldcg(part + i * SIMD_WIDTH + SIMD_LANE);
                    sums[i * 4] += more.x;
                    sums[i * 4 + 1] += more.y;
                    sums[i * 4 + 2] += more.z;
                    sums[i * 4 + 3] += more.w;
                }
            }

#if IS_GATED && BY_EXPERT
            float rows_of_tables[TABLES + 1];
#if TABLES > 0
            rows_of_tables[0] = table0[work.first_w + to_0];
#endif
#if TABLES > 1
            rows_of_tables[1] = table1[work.first_w + to_0];
#endif
            UNROLL for (uint i = 0; i < COLUMNS / 2; i += i % 4 == 0 ? 1 : 3) {
                sums[i] = AFTER(sums[i], sums[i + 2], rows_of_tables);
            }
#elif IS_GATED
            UNROLL for (uint i = 0; i < COLUMNS / 2; i += i % 4 == 0 ? 1 : 3) {
                sums[i] = __fdividef(sums[i], 1 + __expf(-sums[i])) * sums[i + 2];
            }
#endif
            STORAGE(Y)* result = PICK(y, y_1, y_2);
#if IS_WIDE
            UNROLL for (uint i = 0; i < COLUMNS / 2; i += 16) {
                const uint column = work.column + i * 2 + SIMD_LANE % 4 * 8;
                UNROLL for (uint of = 0; of < 2; of++) {
                    const uint4 eight = neighbours(sums + i + of * 2);
                    if (column < p.m && (of == 0 ? has_0 : has_8)) {
                        *(uint4*)(result + (place_0 + of * place_8 + column)) = eight;
                    }
                }
            }
#elif BY_EXPERT
            UNROLL for (uint i = 0, column = begin; i < COLUMNS / 2;
                        i += i % 4 == 0 ? 1 : 3, column += i % 4 == 0 ? 7 : 1) {
                const uint place = work.begin + column - work.column;
                if (place >= work.over) continue;
                STORAGE(Y)* const at = result + ((ulong)order[place] * step + place_0);
                if (has_0) STORE(Y, at, 0, sums[i]);
                if (has_8) STORE(Y, at, place_8, sums[i + 2]);
            }
#else
            EACH_COLUMN(i, column, at, result) {
                if (column < p.m && has_0) STORE(Y, at, 0, sums[i]);
                if (column < p.m && has_8) STORE(Y, at, place_8, sums[i + 2]);
            }
#endif
#if TERMS > 1
            bool are_finite = true;
            UNROLL for (uint i = 0; i < COLUMNS / 2; i++) {
                are_finite = are_finite && fabs(sums[i]) < INFINITY;
            }
            if (are_finite) continue;
            for (uint i = 0; i < COLUMNS / 2; i++) {
                const uint column = begin + i / 4 * 8 + i % 2, place = i / 2 % 2;
                STORAGE(Y)* at = result + ((ulong)column * step + place_0 + place * place_8);
                if (column < p.m && (place ? has_8 : has_0) && !(fabs(LOAD(Y, at, 0)) < INFINITY)) {
                    STORE(Y, at, 0, defined(p, given_x, given_w, column, place ? to_8 : to_0)
                                        + BIAS(W_KIND == PIXELS ? column : place ? to_8 : to_0));
                }
            }
#endif
        }
    }
KERNEL_END
