// Products whose weights are chosen row by row, if BY_EXPERT. Row r of the result is made of row
// r / p.sharing of x and of its expert's rows of w. A group has one row, and looks the expert up.
// Or it has a tile of rows with one expert, see expert_rows.c.
//
// INDEX: dtype of the ids of p.experts experts. EXPERT_ROWS: rows of w of each.

#if BY_EXPERT
// Where the rows of w begin that row `row` of the result chose.
#define CHOOSE(first_w, row) \
    uint first_w = 0; \
    { \
        const long id_ = LOAD(INDEX, ids, row); \
        if (id_ >= 0 && id_ < (long)p.experts) first_w = (uint)id_ * EXPERT_ROWS; \
        else REPORT(status, p.status_code); \
    }
// The rows of a tile, among those that are sorted by expert, and where their rows of w begin.
#define ROWS_OF_TILE(tile) \
    const uint first_row = tiles[(tile) * 3], end_row = tiles[(tile) * 3 + 1]; \
    const uint first_w = tiles[(tile) * 3 + 2] * EXPERT_ROWS
#define Y_ROW(row) order[row]
#define X_ROW(row) sources[row]
#else
#define ROWS_OF_TILE(tile) \
    const uint first_row = (tile) * ROWS, end_row = p.m, first_w = 0
#define Y_ROW(row) (row)
#define X_ROW(row) (row)
#endif
