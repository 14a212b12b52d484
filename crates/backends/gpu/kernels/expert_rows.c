// Sorts rows by their experts: `order` gets the rows, `sources` their rows of x. Shares them out in
// tiles of at most ROWS rows with one expert. A group does this for one expert. Tile i has the rows
// tiles[3 i] up to tiles[3 i + 1], with the expert tiles[3 i + 2]. First tiles of all experts come first. Places of
// others follow from the number of rows before. So no group waits for another, and some tiles are empty, but few of
// those in front: groups that take every n-th tile of a product have equally much to do.
//
// INDEX: dtype of the ids.

#define AHEAD 8

KERNEL_BEGIN
    // Of each work-item's part of the rows: how many chose an expert before this one, and this one.
    LOCAL_ARRAY(uint, before, GROUP);
    LOCAL_ARRAY(uint, own, GROUP);
    const uint expert = GROUP_ID(0), each = (p.rows + GROUP - 1) / GROUP;
    const uint first = min(LANE * each, p.rows), end = min(first + each, p.rows);
    uint lower = 0, equal = 0;
    for (uint begin = first; begin < end; begin += AHEAD) {
        // Several at a time, which wait for memory once.
        long several[AHEAD];
        UNROLL
        for (uint i = 0; i < AHEAD; i++) several[i] = LOAD(INDEX, ids, min(begin + i, end - 1));
        UNROLL
        for (uint i = 0; i < AHEAD; i++) {
            if (several[i] < 0 || several[i] >= (long)p.experts) REPORT(status, p.status_code);
            const uint exists = begin + i < end ? 1 : 0;
            lower += several[i] < (long)expert ? exists : 0;
            equal += several[i] == (long)expert ? exists : 0;
        }
    }
    before[LANE] = lower;
    own[LANE] = equal;
    BARRIER;
    uint start = 0, count = 0, ahead = 0;
    for (uint lane = 0; lane < GROUP; lane++) {
        if (lane == LANE) ahead = count;
        start += before[lane];
        count += own[lane];
    }
    uint at = start + ahead;
    for (uint row = first; row < end; row++) {
        if (LOAD(INDEX, ids, row) == (long)expert) {
            order[at] = row;
            sources[at++] = row / p.sharing;
        }
    }
    const uint behind = p.experts + start / ROWS;
    // Behind the last expert's are the tiles that remain where ids are outside.
    const uint others = (expert + 1 < p.experts ? start + count : p.rows) / ROWS - start / ROWS;
    for (uint i = LANE; i <= others; i += GROUP) {
        const uint tile = i == 0 ? expert : behind + i - 1, from = start + i * ROWS;
        tiles[tile * 3] = from;
        tiles[tile * 3 + 1] = min(from + ROWS, start + count);
        tiles[tile * 3 + 2] = expert;
    }
KERNEL_END
