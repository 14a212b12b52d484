// What the attention kernels share. The heads that share keys are one matrix of queries: row r is
// query r % t of head r / t. A group has ROWS of them, and of the keys those from `from` to `to`.
//
// X, C: dtypes of the queries and of the cache. WIDTH, VALUES: widths of keys and values at most.
// HAS_PAST, HAS_MASK, HAS_CAP, HAS_WINDOW: as the operation says. HAS_TOTALS: is the logarithm of the weights'
// total wanted? IS_SPLIT: do p.splits groups share the keys, each with a partial result for
// attention_combine?

#if HAS_MASK
#define MASK_START \
    uint mask_start = kv_head * p.each * p.mask_strides[0]; \
    ADD_OFFSET(mask_start, batch, LEAD_RANK, p.lead, p.mask_lead)
#define MASK_AT(row, key) \
    LOAD(X, mask, mask_start + (row) / p.t * p.mask_strides[0] \
         + (row) % p.t * p.mask_strides[1] + (key) * p.mask_strides[2])
#else
#define MASK_START
#define MASK_AT(row, key) 0
#endif

// Keys before the first query's own.
#if HAS_PAST
#define READ_PAST \
    const int given = past[0]; \
    if (given < 0 || p.t > p.s || (uint)given > p.s - p.t) { \
        REPORT(status, p.status_code); \
    } else { \
        before = (uint)given; \
    }
#else
#define READ_PAST
#endif

#if HAS_CAP
#define CAPPED(x) (CAP * tanh((x) / CAP))
#else
#define CAPPED(x) (x)
#endif

// Does a row's window begin before a key? Where does that of a position begin?
#if HAS_WINDOW
#define IS_NEAR(row, key) ((key) + p.window > before + (row) % p.t)
#define START_OF(position) ((position) + 1 - min(p.window, (position) + 1))
#else
#define IS_NEAR(row, key) true
#define START_OF(position) 0
#endif

// Where a group's rows are, and the keys that they see: from `start` on, before `to`.
#define ATTENTION_ROWS \
    const uint rows = p.each * p.t, tiles = (rows + ROWS - 1) / ROWS; \
    const uint split = GROUP_ID(0) % p.splits; \
    const uint first_row = GROUP_ID(0) / p.splits % tiles * ROWS; \
    const uint head = GROUP_ID(0) / p.splits / tiles; \
    const uint batch = head / p.heads, kv_head = head % p.heads; \
    uint q_start = kv_head * p.each * p.q_strides[0]; \
    uint k_start = kv_head * p.k_strides[0], v_start = kv_head * p.v_strides[0]; \
    ADD_OFFSET(q_start, batch, LEAD_RANK, p.lead, p.q_lead); \
    ADD_OFFSET(k_start, batch, LEAD_RANK, p.lead, p.k_lead); \
    ADD_OFFSET(v_start, batch, LEAD_RANK, p.lead, p.v_lead); \
    MASK_START; \
    uint before = 0; \
    READ_PAST; \
    uint start = 0, to = p.s; \
    if (p.is_causal) { \
        const uint last_row = min(first_row + ROWS, rows) - 1; \
        const bool one_head = first_row / p.t == last_row / p.t; \
        start = START_OF(before + (one_head ? first_row % p.t : 0)); \
        to = min(before + (one_head ? last_row % p.t : p.t - 1) + 1, p.s); \
    }

#define ATTENTION_START \
    ATTENTION_ROWS \
    uint from = start; \
    if (IS_SPLIT) { \
        const uint part = ((to - start + p.splits - 1) / p.splits + KEYS - 1) / KEYS * KEYS; \
        from = min(start + split * part, to); \
        to = min(from + part, to); \
    }

// Where the keys end that a row may see.
#define END_OF(row) (p.is_causal ? min(before + (row) % p.t + 1, to) : to)

#define LOAD_Q(row, column) \
    ((column) < p.d && (row) < rows \
         ? LOAD(X, q, q_start + (row) / p.t * p.q_strides[0] + (row) % p.t * p.q_strides[1] \
                + (column) * p.q_strides[2]) * SCALE \
         : 0)
#define LOAD_K(key, column) \
    LOAD(C, k, k_start + (key) * p.k_strides[1] + (column) * p.k_strides[2])
#define LOAD_V(key, column) \
    LOAD(C, v, v_start + (key) * p.v_strides[1] + (column) * p.v_strides[2])

// The score of a product of a query and a key, which is not seen from `end` on, nor before the window.
#define SCORE(product, row, key, end) \
    ((key) < (end) && IS_NEAR(row, key) && (row) < rows ? CAPPED(product) + MASK_AT(row, key) : -INFINITY)

// What scores are relative to; 0 while none is more than minus infinity.
#define BASE_OF(peak) ((peak) == -INFINITY ? 0 : (peak))

// The logarithm of the total of weights that are relative to the largest score.
#define LOG_OF_TOTAL(peak, total) (BASE_OF(peak) + log(total))

#define LARGER(a, b) ((a) > (b) ? (a) : (b))
