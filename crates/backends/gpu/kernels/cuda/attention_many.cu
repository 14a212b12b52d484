// Attention of halves for many rows of queries on Hopper's tensor cores (Shah et al. 2024, arXiv
// 2407.08608). A group goes with ROWS rows of one head's queries through the keys, KEYS at a time from
// the last that they see, and then with other rows. A lane of its first warpgroup has tiles brought to
// local memory; each of WARPGROUPS others has 64 queries, and makes scores of the next keys, also of
// its next rows' first, while it weighs the values of the last.
//
// X, C: dtypes of the queries and of the cache. D: width of keys and values, 64 or 128. MMA: the
// cache's type in PTX. HAS_PAST, HAS_WINDOW: as the operation says. STAGES: tiles of keys and of values in local
// memory. Q_TILES: tiles of queries there; without, lanes read their rows themselves. Q_IN_REGISTERS:
// are queries multiplied from registers?

#define ROWS (64 * WARPGROUPS)
#define Q_BYTES (ROWS * D * 2)
#define KV_BYTES (KEYS * D * 2)

// All together have no more registers than the launch gave them, 168 to each lane of three warpgroups
// and 128 of four: where they ask for more, they wait for ever.
#if WARPGROUPS == 3
#define FEW_REGISTERS "32"
#define MANY_REGISTERS "160"
#else
#define FEW_REGISTERS "24"
#define MANY_REGISTERS "240"
#endif

// Barriers of local memory: a tile is there; nobody reads it any more.
#define FULL_K(stage) (barriers + (stage).index)
#define FULL_V(stage) (barriers + STAGES + (stage).index)
#define FREE_K(stage) (barriers + 2 * STAGES + (stage).index)
#define FREE_V(stage) (barriers + 3 * STAGES + (stage).index)
#define FULL_Q(slot) (barriers + 4 * STAGES + (slot).index)
#define FREE_Q(slot) (barriers + 4 * STAGES + Q_TILES + (slot).index)

// One warpgroup after the other, so that while one makes products the others make weights of their
// scores.
#define TAKE_TURN asm volatile("bar.sync %0, 256;" :: "r"(3 + member) : "memory")
#define GIVE_TURN \
    asm volatile("bar.arrive %0, 256;" :: "r"(3 + (member + 1) % WARPGROUPS) : "memory")

// By how much a row's largest score may grow, as a power of 2, before sums so far are scaled to it:
// weights relative to a smaller one are as exact.
#define SLACK 8

// A group's items, from the front and from the end of what all groups take at a time by turns, so
// that they have about as much to do.
#define FIRST_ITEM uint item = GROUP_ID(0), step = 2 * (gridDim.x - GROUP_ID(0)) - 1
#define NEXT_ITEM \
    item += step; \
    step = 2 * gridDim.x - step

// The keys that all of a row's are before.
#define END_OF(row) (p.is_causal ? min((int)before + (row) + 1, (int)p.s) : (int)p.s)

// A tile's place among several, and the parity of its barriers' phase.
struct Slot {
    uint index = 0, phase = 0;
};

FUNCTION void go_on(Slot& slot, uint count) {
    if (++slot.index == count) {
        slot.index = 0;
        slot.phase ^= 1;
    }
}

struct Item {
    // Before 0 where the first tile of rows is not full.
    int first_row;
    uint head;
    // Tiles of keys that the rows see: those from `first` on, before `end`.
    uint first, end;
};

// An item of all heads' tiles of rows: the longest first; of so many heads at a time that their keys
// stay in the cache.
FUNCTION Item item_of(const Params& p, uint item, uint before) {
    const uint section = item / (p.tiles * p.together) * p.together;
    const uint place = item - section * p.tiles, width = min(p.together, p.all_heads - section);
    const int first_row = (int)((p.tiles - 1 - place / width) * ROWS) - (int)p.absent_rows;
    const int end = p.is_causal ? END_OF(min(first_row + ROWS, (int)p.t) - 1) : (int)p.s;
    const uint start = START_OF(before + (uint)max(first_row, 0));
    return {first_row, section + place % width, start / KEYS, (uint)(end + KEYS - 1) / KEYS};
}

// Of each of a lane's two rows: the largest score that weights are relative to, as a power of 2, and
// the total of its own weights.
struct Totals {
    float base[2], total[2];
};

// Makes weights of scores of keys from `first` on, of which rows see those before `ends`, and of these as
// many as `window`. Adds them to totals. Are sums so far to be multiplied by `rescale`?
FUNCTION bool weigh(float* score, Totals& totals, float* rescale, float factor, int first, bool sees_all,
                    const int* ends, int window) {
    if (!sees_all) {
        // Element j is key j / 4 * 8 + column + j % 2 of the tile.
        const int column = first + (int)(SIMD_LANE % 4 * 2);
        UNROLL for (uint j = 0; j < KEYS / 2; j++) {
            const int left = ends[j / 2 % 2] - column - (int)(j / 4 * 8 + j % 2);
            if (left <= 0 || (HAS_WINDOW && left > window)) score[j] = -INFINITY;
        }
    }
    float largest[2];
    bool grows = false;
    UNROLL for (uint n = 0; n < 2; n++) {
        largest[n] = max(score[2 * n], score[2 * n + 1]);
        UNROLL for (uint j = 2 * n + 4; j < KEYS / 2; j += 4) {
            largest[n] = max(largest[n], max(score[j], score[j + 1]));
        }
        grows |= largest[n] * factor > totals.base[n] + SLACK;
    }
    // Lanes ask of their own scores alone, and of others' only where one's largest grows.
    const bool scales = __any_sync(~0u, grows);
    if (scales) {
        UNROLL for (uint n = 0; n < 2; n++) {
            largest[n] = max(largest[n], simd_xor(largest[n], 1));
            largest[n] = max(largest[n], simd_xor(largest[n], 2));
            const float last = totals.base[n];
            totals.base[n] = max(last, largest[n] * factor);
            rescale[n] = exp_2(last - BASE_OF(totals.base[n]));
            totals.total[n] *= rescale[n];
        }
    }
    UNROLL for (uint n = 0; n < 2; n++) {
        const float base = BASE_OF(totals.base[n]);
        float added[2] = {0, 0};
        UNROLL for (uint j = 2 * n; j < KEYS / 2; j += 4) {
            UNROLL for (uint k = 0; k < 2; k++) {
                score[j + k] = exp_2(fma(score[j + k], factor, -base));
                added[k] += score[j + k];
            }
        }
        totals.total[n] += added[0] + added[1];
    }
    return scales;
}

KERNEL_BEGIN
    LOCAL_ARRAY(ulong, barriers, 4 * STAGES + 2 * Q_TILES);
    const uint local = (local_address(DYNAMIC_LOCAL) + 1023) / 1024 * 1024;
    const uint k_tiles = local + Q_TILES * Q_BYTES, v_tiles = k_tiles + STAGES * KV_BYTES;
    const uint q_heads = p.heads * p.each;
    uint before = 0;
    READ_PAST;

    if (LANE == 0) {
        // The lane that has a tile brought arrives, and one of every warp that reads it.
        for (uint i = 0; i < 4 * STAGES; i++) {
            barrier_init(barriers + i, i < 2 * STAGES ? 1 : 4 * WARPGROUPS);
        }
        for (uint i = 0; i < 2 * Q_TILES; i++) {
            barrier_init(barriers + 4 * STAGES + i, i < Q_TILES ? 1 : 4 * WARPGROUPS);
        }
        barrier_fence();
    }
    BARRIER;
    LAUNCH_NEXT;

    Slot stage, q_slot;
    FIRST_ITEM;
    if (SIMD_GROUP < 4) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 " FEW_REGISTERS ";");
        if (LANE == 0) {
#if Q_TILES
            prefetch_map(&q_map);
#endif
            prefetch_map(&k_map);
            prefetch_map(&v_map);
            // Values come after the keys that are scored before they are weighed.
            Slot v_stage;
            bool has_last = false;
            int last_first = 0;
            uint last_head = 0, last_batch = 0;
            const auto load_last = [&] {
                if (!has_last) return;
                barrier_wait(FREE_V(v_stage), v_stage.phase ^ 1);
                barrier_arrive(FULL_V(v_stage), KV_BYTES);
                load_tile(v_tiles + v_stage.index * KV_BYTES, &v_map, last_first, last_head, last_batch,
                          FULL_V(v_stage));
                go_on(v_stage, STAGES);
            };
            while (item < p.items) {
                const Item of = item_of(p, item, before);
                const uint batch = of.head / q_heads, q_head = of.head % q_heads;
                NEXT_ITEM;
#if Q_TILES
                barrier_wait(FREE_Q(q_slot), q_slot.phase ^ 1);
                barrier_arrive(FULL_Q(q_slot), Q_BYTES);
                load_tile(local + q_slot.index * Q_BYTES, &q_map, of.first_row, q_head, batch,
                          FULL_Q(q_slot));
                go_on(q_slot, Q_TILES);
#endif
                for (uint i = of.end; i-- > of.first;) {
                    barrier_wait(FREE_K(stage), stage.phase ^ 1);
                    barrier_arrive(FULL_K(stage), KV_BYTES);
                    load_tile(k_tiles + stage.index * KV_BYTES, &k_map, (int)(i * KEYS), q_head / p.each,
                              batch, FULL_K(stage));
                    go_on(stage, STAGES);
                    load_last();
                    has_last = true;
                    last_first = (int)(i * KEYS);
                    last_head = q_head / p.each;
                    last_batch = batch;
                }
            }
            load_last();
        }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 " MANY_REGISTERS ";");
        // The same in all lanes, which the compiler is to know: then addresses of tiles need no lanes.
        const uint member = __reduce_max_sync(~0u, SIMD_GROUP / 4 - 1), thread = LANE % 128;
        const float factor = SCALE * LOG2_E;
        float score[KEYS / 2], sum[D / 2], rescale[2];
        uint weight[KEYS / 4];
        UNROLL for (uint i = 0; i < D / 2; i++) sum[i] = 0;
#if Q_IN_REGISTERS
        uint query[D / 16][4];
#endif
        // An item's rows of this warpgroup, and its tiles of keys that are still to be scored: those from
        // `last` on, before `left`.
        int own_row = 0;
        uint head = 0, last = 0, left = 0, q_tile = 0;
        Totals totals_of;
        // What was scored last, whose values are not weighed yet: do they add to sums?
        Slot last_stage;
        uint adds = 0;

        const auto free_queries = [&] {
            if (Q_TILES && SIMD_LANE == 0) arrive(FREE_Q(q_slot));
        };
        const auto make_scores = [&] {
            renew(score, KEYS / 2);
            BEGIN_PRODUCTS;
            const ulong keys = descriptor(k_tiles + stage.index * KV_BYTES, 0);
            UNROLL for (uint j = 0; j < D / 16; j++) {
                const ulong tile = keys + (j / 4 * (KEYS * 128) + j % 4 * 32) / 16;
#if Q_IN_REGISTERS
                multiply_own_rows<KEYS>(score, query[j], tile, j > 0);
#else
                const uint q_step = j / 4 * (ROWS * 128) + j % 4 * 32;
                multiply_tiles<KEYS>(score, descriptor(q_tile, 0) + q_step / 16, tile, j > 0);
#endif
            }
            END_PRODUCTS;
        };
        const auto scores_are_made = [&] {
            renew(score, KEYS / 2);
            if (SIMD_LANE == 0) arrive(FREE_K(stage));
            if (!Q_IN_REGISTERS && left == last + 1) free_queries();
        };
        const auto weigh_values = [&] {
            renew(sum, D / 2);
            BEGIN_PRODUCTS;
            const ulong values = descriptor(v_tiles + last_stage.index * KV_BYTES, KEYS * 128);
            UNROLL for (uint j = 0; j < KEYS / 16; j++) {
                multiply_columns<D>(sum, weight + 4 * j, values + j * 2048 / 16, j > 0 ? 1 : adds);
            }
            END_PRODUCTS;
        };
        const auto values_are_weighed = [&] {
            renew(sum, D / 2);
            if (SIMD_LANE == 0) arrive(FREE_V(last_stage));
        };
        const auto first_row_of_lane = [&] { return own_row + (int)(thread / 32 * 16 + SIMD_LANE / 4); };
        const auto make_weights = [&] {
            const int first = (int)((left - 1) * KEYS), row = first_row_of_lane();
            const int ends[2] = {END_OF(row), END_OF(row + 8)};
            bool sees_all = first + KEYS <= END_OF(own_row);
#if HAS_WINDOW
            const int window = (int)p.window;
            sees_all &= END_OF(own_row + 63) - window <= first;
#else
            const int window = 0;
#endif
            return weigh(score, totals_of, rescale, factor, first, sees_all, ends, window);
        };
        const auto pack_weights = [&] {
            UNROLL for (uint j = 0; j < KEYS / 4; j++) weight[j] = packed(score[2 * j], score[2 * j + 1]);
        };
        const auto go_on_to_next_keys = [&] {
            last_stage = stage;
            go_on(stage, STAGES);
            left--;
        };
        // Reads the queries of the rows, which are 16 of each warp's.
        const auto read_queries = [&] {
#if Q_TILES
            barrier_wait(FULL_Q(q_slot), q_slot.phase);
            q_tile = local + q_slot.index * Q_BYTES + member * (64 * 128);
#endif
#if Q_IN_REGISTERS && Q_TILES
            UNROLL for (uint j = 0; j < D / 16; j++) {
                const uint line = thread / 32 * 16 + SIMD_LANE % 16, piece = 2 * j + SIMD_LANE / 16;
                load_matrices(query[j], q_tile + piece / 8 * (ROWS * 128) + line * 128
                                            + (piece % 8 ^ line % 8) * 16);
            }
            __syncwarp();
            free_queries();
#elif Q_IN_REGISTERS
            uint start = head % q_heads * p.q_strides[0];
            ADD_OFFSET(start, head / q_heads, LEAD_RANK, p.lead, p.q_lead);
            UNROLL for (uint n = 0; n < 2; n++) {
                const int row = first_row_of_lane() + (int)(8 * n);
                const bool is_there = row >= 0 && row < (int)p.t;
                const STORAGE(X)* from = q + start + (is_there ? row : 0) * p.q_strides[1] + SIMD_LANE % 4 * 2;
                UNROLL for (uint j = 0; j < D / 8; j++) {
                    const uint pair = packed(LOAD(X, from, 8 * j), LOAD(X, from, 8 * j + 1));
                    query[j / 2][j % 2 * 2 + n] = is_there ? pair : 0;
                }
            }
#endif
        };
        // Goes on to the next rows of which this warpgroup's see keys, and to the first tile that they
        // see; are there any?
        const auto begin_rows = [&] {
            if (item >= p.items) return false;
            const Item of = item_of(p, item, before);
            NEXT_ITEM;
            own_row = of.first_row + (int)(member * 64);
            head = of.head;
            last = of.first;
            left = of.end;
            UNROLL for (uint n = 0; n < 2; n++) {
                totals_of.base[n] = -INFINITY;
                totals_of.total[n] = 0;
            }
            read_queries();
            // Where values wait to be weighed, only one tile may be left out before the next is scored:
            // there are as many tiles as stages.
            while (left > last + 1 && (int)((left - 1) * KEYS) >= END_OF(own_row + 63)) {
                barrier_wait(FULL_K(stage), stage.phase);
                TAKE_TURN;
                GIVE_TURN;
                if (SIMD_LANE == 0) arrive(FREE_K(stage));
                barrier_wait(FULL_V(stage), stage.phase);
                if (SIMD_LANE == 0) arrive(FREE_V(stage));
                go_on(stage, STAGES);
                left--;
            }
            return true;
        };
        // Divides sums of rows by their totals and stores them.
        const auto finish = [&](const Totals& of, int first_row, uint of_head) {
            UNROLL for (uint n = 0; n < 2; n++) {
                float total = of.total[n];
                total += simd_xor(total, 1);
                total += simd_xor(total, 2);
                const float share = 1 / total;
                const int row = first_row + (int)(8 * n);
                if (row < 0 || row >= (int)p.t) continue;
#if HAS_TOTALS
                if (SIMD_LANE % 4 == 0) {
                    totals[of_head * p.t + row] = LOG_OF_TOTAL(of.base[n] * LN_2, total);
                }
#endif
                uint start = of_head % q_heads * p.y_strides[0];
                ADD_OFFSET(start, of_head / q_heads, LEAD_RANK, p.lead, p.y_lead);
                STORAGE(X)* const line = y + start + row * p.y_strides[1] + SIMD_LANE % 4 * 2;
                UNROLL for (uint j = 0; j < D / 8; j++) {
                    const float a = sum[4 * j + 2 * n] * share, b = sum[4 * j + 2 * n + 1] * share;
#if Q_TILES
                    ((uint*)line)[4 * j] = packed(a, b);
#else
                    STORE(X, line, 8 * j, a);
                    STORE(X, line, 8 * j + 1, b);
#endif
                }
            }
        };

        // The first turn is the first warpgroup's.
        if (member == WARPGROUPS - 1) GIVE_TURN;
        if (begin_rows()) {
            barrier_wait(FULL_K(stage), stage.phase);
            TAKE_TURN;
            make_scores();
            GIVE_TURN;
            WAIT_PRODUCTS(0);
            scores_are_made();
            make_weights();
            pack_weights();
            go_on_to_next_keys();
            Totals old_totals;
            int old_row = 0;
            uint old_head = 0;
            for (;;) {
                const bool is_new = left == last;
                if (is_new) {
                    old_totals = totals_of;
                    old_row = first_row_of_lane();
                    old_head = head;
                    if (Q_TILES) go_on(q_slot, Q_TILES);
                    if (!begin_rows()) break;
                }
                barrier_wait(FULL_K(stage), stage.phase);
                TAKE_TURN;
                make_scores();
                barrier_wait(FULL_V(last_stage), last_stage.phase);
                weigh_values();
                GIVE_TURN;
                WAIT_PRODUCTS(1);
                scores_are_made();
                const bool scales = make_weights();
                // Compilers move exponentials behind the wait for products, beside which they are to be made:
                // something before it depends on all of them, which are not negative.
                renew(score, KEYS / 2);
                asm volatile("{\n.reg .pred done;\n"
                             "mbarrier.test_wait.parity.shared::cta.b64 done, [%0], %1;\n}"
                             :: "r"(local_address(FULL_V(last_stage))),
                                "r"((BITS_OF_F32(totals_of.total[0]) | BITS_OF_F32(totals_of.total[1])) >> 31)
                             : "memory");
                WAIT_PRODUCTS(0);
                values_are_weighed();
                pack_weights();
                if (is_new) {
                    finish(old_totals, old_row, old_head);
                } else if (scales) {
                    UNROLL for (uint j = 0; j < D / 2; j++) sum[j] *= rescale[j / 2 % 2];
                }
                adds = !is_new;
                go_on_to_next_keys();
            }
            barrier_wait(FULL_V(last_stage), last_stage.phase);
            weigh_values();
            WAIT_PRODUCTS(0);
            values_are_weighed();
            finish(old_totals, old_row, old_head);
        }
        // Nobody waits for the last turn.
        if (member == 0) TAKE_TURN;
    }
KERNEL_END
