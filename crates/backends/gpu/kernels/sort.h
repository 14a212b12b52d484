// Bitonic sorting of keys in local memory (Batcher 1968, doi 10.1145/1468075.1468121), where of
// longer runs only the first keys may be asked for (Shanbhag, Pirk and Madden 2018,
// doi 10.1145/3183713.3183735). Lanes compare 16 keys at a time, in registers.
//
// KEY: the keys' type. AFTER(a, b): does `a` come after `b`?

// Keys that are 16 apart, or a multiple of it, are in different banks.
#define PADDED(i) ((i) + (i) / 16)

#define ORDER(a, b, rises) \
    if (AFTER(a, b) == (rises)) { \
        const KEY other_ = a; \
        a = b; \
        b = other_; \
    }

// Sorts 16 keys after each other: those of every second 16, by the bit `block` of their places,
// the other way round.
FUNCTION void sort_16(LOCAL KEY* keys, uint lane, uint live, uint block) {
    for (uint job = lane; job < live / 16; job += GROUP) {
        const uint first = job * 16;
        KEY own[16];
        UNROLL
        for (uint e = 0; e < 16; e++) own[e] = keys[PADDED(first + e)];
        UNROLL
        for (uint size = 1; size <= 4; size++) {
            UNROLL
            for (uint level = 1; level <= size; level++) {
                const uint apart = (1u << size) >> level;
                UNROLL
                for (uint e = 0; e < 16; e++) {
                    const bool rises = size < 4 ? (e >> size & 1) == 0 : (first & block) == 0;
                    if ((e & apart) == 0) ORDER(own[e], own[e + apart], rises)
                }
            }
        }
        UNROLL
        for (uint e = 0; e < 16; e++) keys[PADDED(first + e)] = own[e];
    }
}

// Compares keys `top`, `top` / 2, `top` / 4 and `top` / 8 apart, as far as there are such. The
// `live` keys are in runs of 2^`run_bits` that begin `gap` apart; if `folds`, each run first takes
// the smaller keys of what is half a gap behind it. Runs rise but for those whose places, among
// live keys, have the bit `block`.
FUNCTION void exchange(
    LOCAL KEY* keys, uint lane, uint live, uint run_bits, uint gap, uint top, uint block, bool folds
) {
    const uint step = top > 8 ? top / 8 : 1;
    for (uint job = lane; job < live / 16; job += GROUP) {
        const uint low = job & (step - 1);
        const uint first = (job - low) * 16 + low;
        const uint start = first + (first >> run_bits) * (gap - (1u << run_bits));
        KEY own[16];
        UNROLL
        for (uint e = 0; e < 16; e++) {
            own[e] = keys[PADDED(start + e * step)];
            if (folds) {
                const KEY other = keys[PADDED(start + e * step + gap / 2)];
                if (AFTER(own[e], other)) own[e] = other;
            }
        }
        const bool rises = (first & block) == 0;
        UNROLL
        for (uint level = 0; level < 4; level++) {
            const uint apart = 8 >> level;
            UNROLL
            for (uint e = 0; e < 16; e++) {
                if ((e & apart) == 0 && apart * step <= top) ORDER(own[e], own[e + apart], rises)
            }
        }
        UNROLL
        for (uint e = 0; e < 16; e++) keys[PADDED(start + e * step)] = own[e];
    }
}

// Sorts each 2^`size_bits` of `live` keys, of which there are then the first 2^`run_bits`. Both are
// at least 16.
#define SORT(keys, live, size_bits, run_bits) \
    { \
        const uint size_ = 1u << (size_bits), run_ = 1u << (run_bits); \
        sort_16(keys, LANE, live, size_ == 16 ? 0 : 16); \
        BARRIER; \
        for (uint block_ = 32; block_ <= run_; block_ *= 2) { \
            for (uint top_ = block_ / 2; top_ > 0; top_ /= 16) { \
                const uint falls_ = block_ == size_ ? 0 : block_; \
                exchange(keys, LANE, live, run_bits, run_, top_, falls_, false); \
                BARRIER; \
            } \
        } \
        for (uint gap_ = 2 * run_; gap_ <= size_; gap_ *= 2) { \
            for (uint top_ = run_ / 2; top_ > 0; top_ /= 16) { \
                const uint falls_ = gap_ == size_ ? 0 : run_; \
                const uint left_ = (live) / (gap_ / run_); \
                exchange(keys, LANE, left_, run_bits, gap_, top_, falls_, top_ == run_ / 2); \
                BARRIER; \
            } \
        } \
    }
