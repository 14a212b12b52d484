// The product of at most M rows of activations with rows of weights, which are read once, at
// the memory's speed. Each warp takes some rows of weights at a time, chunk by chunk, through
// a ring of slots in local memory that the copy engine fills ahead of it, and begins to fill
// before the launch's inputs are there. Every group normalises and rounds the activations for
// itself.
//
// X: dtype of activations and results. MATRICES: the matrices w0, w1 … of p.n0, p.n1 … rows
// have results y0, y1 …, unless IS_GATED: then there is one result, silu(x · w0ᵀ) · (x · w1ᵀ).
// The first FIRST_MATRICES have the `Unit` of namespace `first`, the others that of `second`
// and the groups from p.first_groups on. M: rows of activations, of which p.m exist. HAS_NORM,
// HAS_NORM_WEIGHT, HAS_BIAS, HAS_RESIDUAL: what else there is. RING_BYTES: of all rings.
// p.x_bytes: for each row of activations.

// Bytes in front of the rings: for their barriers, and for the sums of a norm.
#define HEAD_BYTES 2048

struct Matrices {
    const uchar* w[MATRICES];
    STORAGE(X)* y[MATRICES];
    const STORAGE(X)* bias[MATRICES];
    uint n[MATRICES];
};

struct Inputs {
    const STORAGE(X)* x;
    const STORAGE(X)* norm;
    const STORAGE(X)* residual;
};

// The matrices of one format, and how the warps share them.
template <class Unit, uint FIRST, uint COUNT> struct Task {
    // The rows of a warp's turn: those of both matrices if there is a gate.
    static constexpr uint ROWS = IS_GATED ? 2 : Unit::ROWS;
    // Bytes that the lanes of a warp take at a time, and how many times make a chunk.
    static constexpr uint STEP_BYTES = 32 * Unit::LENGTH / Unit::BLOCK * Unit::BYTES;
    static constexpr uint MOST_BYTES = IS_GATED && Unit::ROWS == 1 ? 1024 : 1536;
    static constexpr uint CHUNK_STEPS = STEP_BYTES > MOST_BYTES ? 1 : MOST_BYTES / STEP_BYTES;
    static constexpr uint CHUNK_BYTES = CHUNK_STEPS * STEP_BYTES;
    // A row's chunk in the ring, with the bytes around it up to multiples of 16.
    static constexpr bool IS_ALIGNED = Unit::BYTES % 16 == 0;
    static constexpr uint SLOT_BYTES = (CHUNK_BYTES + (IS_ALIGNED ? 0 : 30)) / 16 * 16;
    static constexpr uint MOST_SLOTS = RING_BYTES / (WARPS * ROWS * SLOT_BYTES);
    static constexpr uint SLOTS = MOST_SLOTS < 8 ? MOST_SLOTS : 8;
    static_assert(SLOTS > 0, "the ring is too small");

    const Matrices& all;
    uint row_bytes;

    FUNCTION Task(const Matrices& all, uint k)
        : all(all), row_bytes(k / Unit::BLOCK * Unit::BYTES) {}

    // How many times ROWS rows there are.
    FUNCTION uint turns() const {
        if (IS_GATED) return all.n[0];
        uint rows = 0;
        UNROLL
        for (uint i = FIRST; i < FIRST + COUNT; i++) rows += all.n[i];
        return (rows + ROWS - 1) / ROWS;
    }

    // The matrix of a row of a turn, and `row` in it, which is none of it behind the last one.
    FUNCTION uint find(uint turn, uint r, uint& row) const {
        row = IS_GATED ? turn : turn * ROWS + r;
        uint matrix = IS_GATED ? r : FIRST;
        UNROLL
        for (uint i = FIRST; !IS_GATED && i + 1 < FIRST + COUNT; i++) {
            if (matrix == i && row >= all.n[i]) {
                row -= all.n[i];
                matrix = i + 1;
            }
        }
        return matrix;
    }

    // An element of an array that is in registers.
    template <class T> FUNCTION T pick(const T (&values)[MATRICES], uint matrix) const {
        T value = values[FIRST];
        UNROLL
        for (uint i = FIRST + 1; i < FIRST + COUNT; i++) {
            if (matrix == i) value = values[i];
        }
        return value;
    }

    // Where a matrix begins, and its rows.
    FUNCTION const uchar* begin(uint matrix) const { return pick(all.w, matrix); }
    FUNCTION uint count(uint matrix) const { return pick(all.n, matrix); }

    // Bytes from the multiple of 16 before it to a row's chunk.
    FUNCTION uint before(uint turn, uint r, uint chunk) const {
        if (IS_ALIGNED) return 0;
        uint row;
        const uint matrix = find(turn, r, row);
        const uint from = (uint)(ulong)begin(matrix) + row * row_bytes;
        return (from + chunk * CHUNK_BYTES) & 15u;
    }
};

// What a lane copies to the ring of its warp: one of the rows of each turn, chunk by chunk.
template <class Task> struct Source {
    const Task& task;
    const uchar* from;
    // Bytes of the row that are still to be copied; is it the last of its matrix?
    uint left;
    bool is_last;

    FUNCTION Source(const Task& task) : task(task) {}

    FUNCTION void begin(uint turn, uint r) {
        uint row;
        const uint matrix = task.find(turn, r, row), rows = task.count(matrix);
        from = task.begin(matrix) + (ulong)row * task.row_bytes;
        left = row < rows ? task.row_bytes : 0;
        is_last = row + 1 == rows;
    }

    // Copies the multiples of 16 bytes that the next chunk lies in, but nothing behind the
    // matrix.
    FUNCTION void copy(uchar* slot, ulong* full) {
        const uint bytes = min(Task::CHUNK_BYTES, left), before = (uint)(ulong)from & 15u;
        const uint end = before + bytes;
        uint copied = bytes == 0 ? 0 : (end + 15) & ~15u;
        if (is_last && bytes == left && copied > end) {
            copied -= 16;
            _Pragma("unroll 1")
            for (uint i = copied; i < end; i++) slot[i] = from[(int)(i - before)];
        }
        barrier_arrive(full, copied);
        if (copied > 0) copy_bulk(slot, from - before, copied, full);
        from += bytes;
        left -= bytes;
    }
};

template <class Unit, uint FIRST, uint COUNT>
FUNCTION void multiply(const Matrices& all, const Inputs& in, const Params& p, uint group,
                       uint groups) {
    using Work = Task<Unit, FIRST, COUNT>;
    constexpr uint ROWS = Work::ROWS, SLOTS = Work::SLOTS, STEPS = Work::CHUNK_STEPS;
    const Work task(all, p.k);
    const uint lane = SIMD_LANE, warp = __shfl_sync(~0u, SIMD_GROUP, 0);
    const uint units = p.k / Unit::LENGTH;
    const uint chunks = (units + STEPS * 32 - 1) / (STEPS * 32);
    const uint own = warp * groups + group, stride = WARPS * groups, turns = task.turns();

    ulong* full = (ulong*)DYNAMIC_LOCAL + warp * SLOTS;
    uchar* ring = DYNAMIC_LOCAL + HEAD_BYTES + warp * (SLOTS * ROWS * Work::SLOT_BYTES);
    if (lane == 0) {
        for (uint slot = 0; slot < SLOTS; slot++) barrier_init(full + slot, ROWS);
        barrier_fence();
    }
    __syncwarp();
    Source<Work> source(task);
    uint next_turn = own, next_chunk = 0;
    const auto fill = [&](uint slot) {
        if (next_turn >= turns) return;
        if (lane < ROWS) {
            if (next_chunk == 0) source.begin(next_turn, lane);
            source.copy(ring + (slot * ROWS + lane) * Work::SLOT_BYTES, full + slot);
        }
        if (++next_chunk == chunks) {
            next_chunk = 0;
            next_turn += stride;
        }
    };
    _Pragma("unroll 1")
    for (uint slot = 0; slot < SLOTS; slot++) fill(slot);
    // The weights of a warp's first slab are in its registers by then, others in the cache.
    const uint own_slab = warp * Slab::LENGTH, slab_stride = WARPS * Slab::LENGTH;
#if HAS_NORM
    Slab norm_weights;
#endif
#if HAS_NORM_WEIGHT
    norm_weights.load(in.norm, own_slab, p.k);
    if (LANE == 0 && ((ulong)in.norm | p.k * sizeof(STORAGE(X))) % 16 == 0) {
        prefetch_bulk(in.norm, p.k * sizeof(STORAGE(X)));
    }
#endif
    WAIT_FOR_INPUTS;

    uchar* behind = DYNAMIC_LOCAL + HEAD_BYTES + RING_BYTES;
    const Activations<Unit> activations(behind, p.k, p.x_bytes);
#if HAS_NORM
    float* sums_of_squares = (float*)(DYNAMIC_LOCAL + HEAD_BYTES / 2);
    for (uint i = 0; i < p.m; i++) {
        const float sum = sum_squares(in.x + i * p.k, p.k);
        if (lane == 0) sums_of_squares[i * WARPS + warp] = sum;
    }
    BARRIER;
#endif
    for (uint i = 0; i < p.m; i++) {
#if HAS_NORM
        const float scale = norm_scale(sums_of_squares + i * WARPS, p.k, p.eps);
        for (uint first = own_slab; first < p.k; first += slab_stride) {
            Slab slab, weights = norm_weights;
            slab.load(in.x + i * p.k, first, p.k);
#if HAS_NORM_WEIGHT
            if (first != own_slab) weights.load(in.norm, first, p.k);
#endif
            slab.normalize(scale, weights);
            activations.store(i, slab, first, p.k);
        }
#else
        // Two at a time, which wait for memory once.
        for (uint first = own_slab; first < p.k; first += 2 * slab_stride) {
            Slab slab, next;
            slab.load(in.x + i * p.k, first, p.k);
            next.load(in.x + i * p.k, first + slab_stride, p.k);
            activations.store(i, slab, first, p.k);
            if (first + slab_stride < p.k) {
                activations.store(i, next, first + slab_stride, p.k);
            }
        }
#endif
    }
    BARRIER;

    // The result that a lane writes, and who does.
    constexpr uint RESULTS = ROWS * M, SHARE = 32 / RESULTS;
    const uint result_r = lane / SHARE % ROWS, result_m = lane / SHARE / ROWS;
    const bool writes = lane % SHARE == 0 && result_m < p.m && !(IS_GATED && result_r > 0);
    uint slot = 0, parity = 0;
    for (uint turn = own; turn < turns; turn += stride) {
        uint row;
        const uint matrix = task.find(turn, result_r, row), n = task.count(matrix);
        const bool is_written = writes && row < n;
        const uint at = result_m * n + row;
#if HAS_BIAS
        // Of both matrices of a gate, though only one's lane writes.
        const float bias = row < n ? LOAD(X, task.pick(all.bias, matrix), row) : 0;
#endif
#if HAS_RESIDUAL
        const float residual = is_written ? LOAD(X, in.residual, at) : 0;
#endif
        float sums[RESULTS];
        UNROLL
        for (uint i = 0; i < RESULTS; i++) sums[i] = 0;
        for (uint chunk = 0; chunk < chunks; chunk++) {
            const uchar* rows[ROWS];
            UNROLL
            for (uint r = 0; r < ROWS; r++) {
                const uint before = task.before(turn, r, chunk);
                rows[r] = ring + (slot * ROWS + r) * Work::SLOT_BYTES + before;
            }
            const uint first = chunk * STEPS, left = units - first * 32;
            barrier_wait(full + slot, parity);
            UNROLL
            for (uint step = 0; step < STEPS; step++) {
                if (step * 32 + lane < left) {
                    Unit weights[ROWS];
                    UNROLL
                    for (uint r = 0; r < ROWS; r++) {
                        weights[r].load(rows[r] + step * Work::STEP_BYTES, lane);
                    }
                    UNROLL
                    for (uint i = 0; i < M; i++) {
                        const auto x = activations.load(i, first + step, lane);
                        UNROLL
                        for (uint r = 0; r < ROWS; r++) {
                            const float product = weights[r].product(x, lane);
                            sums[i * ROWS + r] = fma(x.scale, product, sums[i * ROWS + r]);
                        }
                    }
                }
            }
            __syncwarp();
            fill(slot);
            if (++slot == SLOTS) {
                slot = 0;
                parity ^= 1;
            }
        }
        float value = add_lanes<RESULTS>(sums);
#if HAS_BIAS
        value += bias;
#endif
#if IS_GATED
        // The second matrix's is in the neighbour that has its result.
        const float factor = ROUND(X, simd_xor(value, SHARE)), gate = ROUND(X, value);
        value = ROUND(X, gate * (1 / (1 + exp(-gate)))) * factor;
#endif
#if HAS_RESIDUAL
        value = residual + ROUND(X, value);
#endif
        if (is_written) STORE(X, task.pick(all.y, matrix), at, value);
    }
}

KERNEL_BEGIN
    LAUNCH_NEXT;
    Matrices all;
    all.w[0] = (const uchar*)w0;
    all.y[0] = y0;
    all.n[0] = p.n0;
#if MATRICES > 1
    all.w[1] = (const uchar*)w1;
    all.n[1] = p.n1;
#if !IS_GATED
    all.y[1] = y1;
#endif
#endif
#if MATRICES > 2
    all.w[2] = (const uchar*)w2;
    all.y[2] = y2;
    all.n[2] = p.n2;
#endif
#if HAS_BIAS
    all.bias[0] = bias0;
#if MATRICES > 1
    all.bias[1] = bias1;
#endif
#if MATRICES > 2
    all.bias[2] = bias2;
#endif
#endif
    Inputs in;
    in.x = x;
#if HAS_NORM_WEIGHT
    in.norm = norm;
#endif
#if HAS_RESIDUAL
    in.residual = residual;
#endif
#if FIRST_MATRICES < MATRICES
    if (GROUP_ID(0) >= p.first_groups) {
        multiply<second::Unit, FIRST_MATRICES, MATRICES - FIRST_MATRICES>(
            all, in, p, GROUP_ID(0) - p.first_groups, p.groups - p.first_groups);
        return;
    }
#endif
    multiply<first::Unit, 0, FIRST_MATRICES>(all, in, p, GROUP_ID(0), p.first_groups);
KERNEL_END
