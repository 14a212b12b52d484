// Elements of `source` put, or added, to where an index says along one dimension: a group for each
// line of the result. In local memory it chains the elements that go to one place, in whatever order
// lanes come by; each element of the result then takes its own in the order of the index.
//
// X, INDEX: dtypes. COMBINE(a, b): what becomes of `a` where `b` is put. CELLS: p.size + p.picks, at
// least. EXCHANGE(cell, value): puts a value into a cell, by its address, at once for what it held.
// The result's dimensions are those of `p.shape` and the one of `p.size`.

// Elements that are looked for in their chain, as often as there are such; for more of them the whole
// index is gone through.
#define SHORT 16

#define NONE ~0u
#define FIRST_OF(place) cells[place]
#define NEXT_OF(j) cells[p.size + (j)]
#define FOR_CHAIN(j, place) for (uint j = FIRST_OF(place); j != NONE; j = NEXT_OF(j))
#define PUT(j) \
    { \
        const COMPUTE(X) other = LOAD(X, source, source_at + (j) * p.source_step); \
        value = COMBINE(value, other); \
    }

KERNEL_BEGIN
    LOCAL_ARRAY(uint, cells, CELLS);
    uint rest = GROUP_ID(0), to = 0, from = 0, at = 0, source_at = 0;
    // The index may be smaller than the result.
    uint picks = p.picks;
    for (uint d = p.rank; d > 0; d--) {
        const uint c = rest % p.shape[d - 1];
        rest /= p.shape[d - 1];
        to += c * p.y_strides[d - 1];
        from += c * p.x_strides[d - 1];
        at += c * p.index_strides[d - 1];
        source_at += c * p.source_strides[d - 1];
        if (c >= p.index_shape[d - 1]) picks = 0;
    }
    for (uint place = LANE; place < p.size; place += GROUP) FIRST_OF(place) = NONE;
    BARRIER;
    for (uint j = LANE; j < picks; j += GROUP) {
        const long pick = LOAD(INDEX, index, at + j * p.index_step);
        if (pick >= 0 && pick < (long)p.size) {
            NEXT_OF(j) = EXCHANGE(&FIRST_OF((uint)pick), j);
        } else {
            REPORT(status, p.status_code);
        }
    }
    BARRIER;
    for (uint place = LANE; place < p.size; place += GROUP) {
        COMPUTE(X) value = LOAD(X, x, from + place * p.x_step);
        uint length = 0;
        FOR_CHAIN(j, place) length++;
        if (length <= SHORT) {
            uint next = 0;
            for (uint taken = 0; taken < length; taken++) {
                uint least = NONE;
                FOR_CHAIN(j, place) {
                    if (j >= next && j < least) least = j;
                }
                PUT(least)
                next = least + 1;
            }
        } else {
            for (uint j = 0; j < picks; j++) {
                if (LOAD(INDEX, index, at + j * p.index_step) == (long)place) PUT(j)
            }
        }
        STORE(X, y, to + place * p.y_step, value);
    }
KERNEL_END
