// Images as lines of vectors that groups go through in segments, by all channels. VECTOR: 1, or what 16 bytes have room for.
// Lanes read EACH lines before they use the first.
//
// IS_LAST: are the channels of images last? Then a vector is neighbouring channels of a pixel, a line is a pixel, and a group
// has COLUMNS lanes side by side, for GROUP / COLUMNS pixels at a time. Else a vector is neighbouring pixels of a channel, of which
// a group has one: COLUMNS is 1. p.segment: lines of a segment, of p.lines. p.vectors: vectors of a pixel's channels, or
// channels. p.plane: vectors of a channel of an image, if channels are not last.

#define STEP (GROUP / COLUMNS)
#define COLUMN (GROUP_ID(0) * COLUMNS + LANE % COLUMNS)

// Channels of a lane, and which of them is element `e` of a vector; where vector `line` of the lane's channels is.
#if IS_LAST
#define OWN VECTOR
#define OF(e) (e)
#define PLACE(line) ((line) * p.vectors + COLUMN)
#else
#define OWN 1
#define OF(e) 0
#define PLACE(line) (((line) / p.plane * p.vectors + COLUMN) * p.plane + (line) % p.plane)
#endif
#define CHANNELS (p.vectors * OWN)
// Channels of a group.
#define BLOCK (COLUMNS * OWN)
// Elements that a line has of a channel.
#define MEMBERS (VECTOR / OWN)

// Of EACH lines of the lane from `line` on, those that are there: vector `at`.
#define FOR_LINES(k, line, end, at) \
    UNROLL \
    for (uint k = 0, own_ = (line), at = PLACE(own_); k < EACH && own_ < (end); \
         k++, own_ += STEP, at = PLACE(own_))

// The sum over a group's lanes of `value` of a lane's channels, in `total` of a lane for each channel of the group.
#define SUM_LANES(shared, value, total) \
    UNROLL \
    for (uint e_ = 0; e_ < OWN; e_++) (shared)[LANE * OWN + e_] = (value)[e_]; \
    BARRIER; \
    for (uint t_ = LANE, n_ = 0; t_ < BLOCK; t_ += GROUP, n_++) { \
        ACCUMULATOR sum_ = 0; \
        for (uint lane_ = 0; lane_ < STEP; lane_++) sum_ += (shared)[lane_ * BLOCK + t_]; \
        (total)[n_] = sum_; \
    } \
    BARRIER;
// Channels that a lane has the totals of.
#define TOTALS ((BLOCK + GROUP - 1) / GROUP)
#define FOR_TOTALS(n, channel) \
    for (uint n = 0, t_ = LANE, channel = GROUP_ID(0) * BLOCK + LANE; t_ < BLOCK && channel < CHANNELS; \
         n++, t_ += GROUP, channel += GROUP)
