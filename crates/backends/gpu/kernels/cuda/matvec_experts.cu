// Products of few rows of activations with rows of weights of the experts that they chose, at the memory's
// speed: a warp takes rows of weights through a ring in local memory, as in matvec.cu. There are p.rows
// choices, at most CHOICES, of p.n rows of weights each, see experts.h; those of K values begin at w0 and, if
// IS_GATED, at w1.
//
// X: dtype of activations and results. TABLES: tables of p.n numbers for each expert. If IS_GATED, a result is
// `after` of both products and of numbers of the tables. With SLOTS more than 0 a result is a sum of so many
// choices: each has its number of the table, if there is one, added, and is multiplied by its weight.
// HAS_RESIDUAL: is anything added to the sum? KNOWS_IDS: were the ids there before the launch ahead went on, so
// that they are read before it has ended? RING_BYTES: of all rings. p.x_bytes: for each row of activations.

// Bytes in front of the rings: for their barriers.
#define HEAD_BYTES 2048

using Unit = first::Unit;

// Rows of a warp's turn: those of both matrices if there is a gate, those of all choices of a sum.
constexpr uint ROWS = IS_GATED ? 2 : SLOTS > 0 ? SLOTS : Unit::ROWS;
// Results of a turn, and the rows that make one.
constexpr uint SUMS = SLOTS > 0 ? 1 : ROWS;
constexpr uint RESULTS = IS_GATED ? 1 : SUMS;
// Units of a row, and its bytes.
constexpr uint UNITS = K / Unit::LENGTH, ROW_BYTES = K / Unit::BLOCK * Unit::BYTES;
// Units that the lanes of a warp take at a time, the bytes of these, and how many times make a chunk.
constexpr uint STEP_BYTES = 32 * Unit::LENGTH / Unit::BLOCK * Unit::BYTES;
constexpr uint MOST_BYTES = SLOTS > 0 ? 1024 : 1664;
constexpr uint STEPS = STEP_BYTES > MOST_BYTES ? 1 : MOST_BYTES / STEP_BYTES;
constexpr uint CHUNK_UNITS = UNITS < STEPS * 32 ? UNITS : STEPS * 32;
constexpr uint CHUNKS = (UNITS + CHUNK_UNITS - 1) / CHUNK_UNITS;
constexpr uint LAST_UNITS = UNITS - (CHUNKS - 1) * CHUNK_UNITS;
constexpr uint CHUNK_BYTES = CHUNKS > 1 ? STEPS * STEP_BYTES : ROW_BYTES;
// A row's chunk in the ring, with the bytes around it up to multiples of 16.
constexpr uint CHUNK_PLACE = (CHUNK_BYTES + 30) / 16 * 16;
constexpr uint MOST_PLACES = RING_BYTES / (WARPS * ROWS * CHUNK_PLACE);
constexpr uint PLACES = MOST_PLACES < 8 ? MOST_PLACES : 8;
static_assert(PLACES > 0, "the ring is too small");

// Turns of a result's row.
FUNCTION uint turns_of_row(const Params& p) { return (p.n + RESULTS - 1) / RESULTS; }

// A warp's turn: a row of results, and the place in it.
struct Turn {
    uint result, at;

    FUNCTION Turn(const Params& p, uint turn) : result(turn / turns_of_row(p)), at(turn % turns_of_row(p)) {}

    // Goes on by so many turns.
    FUNCTION void advance(const Params& p, uint turns) {
        at += turns;
        while (at >= turns_of_row(p)) {
            at -= turns_of_row(p);
            result++;
        }
    }

    // The choice and the row of the matrix that row `r` of the turn is of.
    FUNCTION uint choice(uint r) const { return SLOTS > 0 ? result * SLOTS + r : result; }
    FUNCTION uint row(uint r) const { return at * RESULTS + (SUMS > 1 && !IS_GATED ? r : 0); }
};

KERNEL_BEGIN
    LOCAL_ARRAY(uint, chosen, CHOICES);
    LOCAL_ARRAY(float, weights, CHOICES);
#if !KNOWS_IDS
    WAIT_FOR_INPUTS;
#endif
    for (uint row = LANE; row < p.rows; row += GROUP) {
        CHOOSE(first_w, row);
        chosen[row] = first_w;
    }
    BARRIER;

    // A group has turns that follow each other, so that it rounds the activations of few of them.
    const uint lane = SIMD_LANE, warp = __shfl_sync(~0u, SIMD_GROUP, 0);
    const uint all_turns = (SLOTS > 0 ? p.rows / SLOTS : p.rows) * turns_of_row(p);
    const uint first_turn = (ulong)all_turns * GROUP_ID(0) / p.groups;
    const uint end_turn = (ulong)all_turns * (GROUP_ID(0) + 1) / p.groups;

    ulong* full = (ulong*)DYNAMIC_LOCAL + warp * PLACES;
    uchar* ring = DYNAMIC_LOCAL + HEAD_BYTES + warp * (PLACES * ROWS * CHUNK_PLACE);
    if (lane == 0) {
        for (uint place = 0; place < PLACES; place++) barrier_init(full + place, ROWS);
        barrier_fence();
    }
    __syncwarp();

    // Where a row's chunk begins.
    const auto chunk_of = [&](const Turn& turn, uint r, uint chunk) {
#if IS_GATED
        const uchar* w = r > 0 ? (const uchar*)w1 : (const uchar*)w0;
#else
        const uchar* w = (const uchar*)w0;
#endif
        return w + (ulong)(chosen[turn.choice(r)] + turn.row(r)) * ROW_BYTES + chunk * CHUNK_BYTES;
    };
    // Each of the first lanes copies one of the rows of each turn, chunk by chunk: the multiples of 16 bytes that the
    // next one lies in, but nothing behind the expert's matrix.
    uint next = first_turn + warp, next_chunk = 0;
    Turn coming(p, next);
    const auto fill = [&](uint place) {
        if (next >= end_turn) return;
        if (lane < ROWS) {
            const uchar* from = chunk_of(coming, lane, next_chunk);
            const bool is_last = next_chunk + 1 == CHUNKS;
            const uint row = coming.row(lane);
            const uint left = is_last ? ROW_BYTES - (CHUNKS - 1) * CHUNK_BYTES : CHUNK_BYTES;
            const uint bytes = row < p.n ? left : 0;
            const uint before = (uint)(ulong)from & 15u, end = before + bytes;
            uchar* to = ring + (place * ROWS + lane) * CHUNK_PLACE;
            uint copied = bytes == 0 ? 0 : (end + 15) & ~15u;
            if (is_last && row + 1 == p.n && copied > end) {
                copied -= 16;
                _Pragma("unroll 1")
                for (uint i = copied; i < end; i++) to[i] = from[(int)(i - before)];
            }
            barrier_arrive(full + place, copied);
            if (copied > 0) copy_bulk(to, from - before, copied, full + place);
        }
        if (++next_chunk == CHUNKS) {
            next_chunk = 0;
            next += WARPS;
            coming.advance(p, WARPS);
        }
    };
    _Pragma("unroll 1")
    for (uint place = 0; place < PLACES; place++) fill(place);
    WAIT_FOR_INPUTS;
    // Not earlier, so that the next launch begins when these ids are known.
    LAUNCH_NEXT;
#if SLOTS > 0
    for (uint row = LANE; row < p.rows; row += GROUP) weights[row] = slot_weights[row];
#endif

    const Activations<Unit> activations(DYNAMIC_LOCAL + HEAD_BYTES + RING_BYTES, K, p.x_bytes);
    const uint turns_of_x = turns_of_row(p) * p.sharing, rows_of_x = SLOTS > 0 ? SLOTS : 1;
    const uint first_x = first_turn / turns_of_x * rows_of_x;
    const uint end_x = min((end_turn + turns_of_x - 1) / turns_of_x * rows_of_x, p.m);
    // The warps share the slabs of all rows, and have two at a time, which wait for memory once.
    constexpr uint SLABS = (K + Slab::LENGTH - 1) / Slab::LENGTH;
    for (uint each = first_x * SLABS + warp; each < end_x * SLABS; each += 2 * WARPS) {
        const uint other = each + WARPS;
        const uint row = each / SLABS, at = each % SLABS * Slab::LENGTH;
        const uint other_row = other / SLABS, other_at = other % SLABS * Slab::LENGTH;
        Slab slab, second;
        slab.load(x + row * K, at, K);
        if (other < end_x * SLABS) second.load(x + other_row * K, other_at, K);
        activations.store(row, slab, at, K);
        if (other < end_x * SLABS) activations.store(other_row, second, other_at, K);
    }
    BARRIER;

    // The row of a turn whose sum a lane gets, and who writes a result.
    constexpr uint SHARE = 32 / SUMS;
    const uint own = lane / SHARE;
    const bool writes = lane % SHARE == 0 && own < RESULTS;
    uint place = 0, parity = 0;
    Turn turn(p, first_turn + warp);
    for (uint at = first_turn + warp; at < end_turn; at += WARPS, turn.advance(p, WARPS)) {
        const uint row = turn.row(own);
        const bool is_written = writes && row < p.n;
        const uint to = turn.result * p.n + row;
        // What is added comes first, while the weights are under way.
#if TABLES > 0
        float rows_of_tables[2] = {0, 0};
        UNROLL
        for (uint slot = 0; slot < (SLOTS > 0 ? SLOTS : 1); slot++) {
            const uint choice = turn.choice(slot);
            const uint at_table = chosen[choice] + row;
            const float factor = SLOTS > 0 ? weights[choice] : 1;
            if (is_written) rows_of_tables[0] += factor * table0[at_table];
#if TABLES > 1
            if (is_written) rows_of_tables[1] += factor * table1[at_table];
#endif
        }
#endif
#if HAS_RESIDUAL
        const float residual = is_written ? LOAD(X, other, to) : 0;
#endif
        float sums[SUMS];
        UNROLL
        for (uint i = 0; i < SUMS; i++) sums[i] = 0;
        for (uint chunk = 0; chunk < CHUNKS; chunk++) {
            const bool is_last = chunk + 1 == CHUNKS;
            const uchar* from = ring + place * ROWS * CHUNK_PLACE;
            barrier_wait(full + place, parity);
#if SLOTS > 0
            // The lanes share the units of all rows.
            UNROLL
            for (uint i = 0; i < (CHUNK_UNITS * SLOTS + 31) / 32; i++) {
                const uint each = i * 32 + lane;
                const uint r = is_last ? each / LAST_UNITS : each / CHUNK_UNITS;
                const uint unit = is_last ? each % LAST_UNITS : each % CHUNK_UNITS;
                if (r < SLOTS) {
                    const uint before = (uint)(ulong)chunk_of(turn, r, chunk) & 15u, choice = turn.choice(r);
                    const uchar* units = from + r * CHUNK_PLACE + before + unit / 32 * STEP_BYTES;
                    Unit w;
                    w.load(units, unit % 32);
                    const auto values = activations.load(choice, chunk * STEPS + unit / 32, unit % 32);
                    const float product = w.product(values, unit % 32);
                    sums[0] = fma(values.scale * weights[choice], product, sums[0]);
                }
            }
#else
            const uchar* rows[ROWS];
            UNROLL
            for (uint r = 0; r < ROWS; r++) {
                rows[r] = from + r * CHUNK_PLACE + ((uint)(ulong)chunk_of(turn, r, chunk) & 15u);
            }
            UNROLL
            for (uint step = 0; step < (CHUNK_UNITS + 31) / 32; step++) {
                if (step * 32 + lane < (is_last ? LAST_UNITS : CHUNK_UNITS)) {
                    Unit w[ROWS];
                    UNROLL
                    for (uint r = 0; r < ROWS; r++) w[r].load(rows[r] + step * STEP_BYTES, lane);
                    const auto values =
                        activations.load(turn.result / p.sharing, chunk * STEPS + step, lane);
                    UNROLL
                    for (uint r = 0; r < ROWS; r++) {
                        sums[r] = fma(values.scale, w[r].product(values, lane), sums[r]);
                    }
                }
            }
#endif
            __syncwarp();
            fill(place);
            if (++place == PLACES) {
                place = 0;
                parity ^= 1;
            }
        }
        float value = add_lanes<SUMS>(sums);
#if IS_GATED
        // The second matrix's is in the neighbour that has its result.
        const float second = simd_xor(value, SHARE);
        value = AFTER(value, second, rows_of_tables);
#elif TABLES > 0
        value += rows_of_tables[0];
#endif
#if HAS_RESIDUAL
        value += residual;
#endif
        if (is_written) STORE(X, y, to, value);
    }
KERNEL_END
