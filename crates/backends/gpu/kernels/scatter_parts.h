// Parts of `p.part` elements of a line of an index that is sorted by `order`.
//
// INDEX: dtype. IS_ACROSS: are neighbours in memory of different lines? Neighbouring work-items are, too, then. AHEAD: elements
// that are loaded at once, so that those of a place with many do not each wait for the one before.

#if IS_ACROSS
#define LINE_OF(item) ((item) % (p.count / p.parts))
#define PART_OF(item) ((item) / (p.count / p.parts))
#define ITEM_OF(line, part) ((part) * (p.count / p.parts) + (line))
#else
#define LINE_OF(item) ((item) / p.parts)
#define PART_OF(item) ((item) % p.parts)
#define ITEM_OF(line, part) ((line) * p.parts + (part))
#endif

// The position of the element that comes as number `i` in the sorted line, and the place it goes to.
#define SORTED(i) LOAD(u32, order, order_at + (i) * p.order_step)
#define PICK(i) LOAD(INDEX, index, at + SORTED(i) * p.index_step)

// Where the line of a work-item begins everywhere.
#define FIND_LINE(line) \
    uint to = 0, at = 0, source_at = 0, order_at = 0; \
    ADD_OFFSET(to, line, p.lines_rank, p.lines_shape, p.y_strides); \
    ADD_OFFSET(at, line, p.lines_rank, p.lines_shape, p.index_strides); \
    ADD_OFFSET(source_at, line, p.lines_rank, p.lines_shape, p.source_strides); \
    ADD_OFFSET(order_at, line, p.lines_rank, p.lines_shape, p.order_strides);
