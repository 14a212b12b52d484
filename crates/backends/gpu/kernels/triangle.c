// A triangle of each matrix, 0 elsewhere: a work-item for each element of the result.
//
// X: dtype. ZERO: of it. UPPER: is it the upper triangle? RANK: 1, or the parameter that says how many
// dimensions there are.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.count) {
        const long column = i % p.columns;
        const long row = i / p.columns % p.rows;
        // The column of the edge, which belongs to the triangle.
        const long edge = row + (long)((ulong)p.diagonal[0] | (ulong)p.diagonal[1] << 32);
#if UPPER
        const bool is_inside = column >= edge;
#else
        const bool is_inside = column <= edge;
#endif
        if (is_inside) {
            uint at = 0;
            ADD_OFFSET(at, i, RANK, p.view_shape, p.x_strides);
            STORE(X, y, i, LOAD(X, x, at));
        } else {
            STORE(X, y, i, ZERO);
        }
    }
KERNEL_END
