// How a group of work-items makes a tile of ROWS rows of a matrix: in LANES_ROW x LANES_COLUMN
// blocks of LANE_ROWS x LANE_COLUMNS elements, of which each work-item has BLOCKS. A block's
// elements are neighbours (ARE_NEIGHBOURS), as suits vectors; or as far apart as there are
// blocks, so that the work-items' are.
#define BLOCK_SIZE (LANE_ROWS * LANE_COLUMNS)
#if ARE_NEIGHBOURS
// What is done once with a large block would only be more to compile.
#define UNROLL_SMALL
#define ROW_OF(block) ((block) / LANES_COLUMN * LANE_ROWS)
#define COLUMN_OF(block) ((block) % LANES_COLUMN * LANE_COLUMNS)
#define ROW_STEP 1
#define COLUMN_STEP 1
#else
#define UNROLL_SMALL UNROLL
#define ROW_OF(block) ((block) / LANES_COLUMN)
#define COLUMN_OF(block) ((block) % LANES_COLUMN)
#define ROW_STEP LANES_ROW
#define COLUMN_STEP LANES_COLUMN
#endif

// Shares the elements of an array of `outer_size` x `inner_size` among the work-items, so that
// neighbours along `inner` go to neighbours. `inner_size` is a multiple of 32 or a power of two.
#define SHARED_BY(size) (GROUP < 32 ? GROUP : (size) < 32 ? (size) : 32)
#define EACH_OF(outer, outer_size, inner, inner_size) \
    for (uint outer = LANE / SHARED_BY(inner_size); outer < (outer_size); \
         outer += GROUP / SHARED_BY(inner_size)) \
        for (uint inner = LANE % SHARED_BY(inner_size); inner < (inner_size); \
             inner += SHARED_BY(inner_size))
