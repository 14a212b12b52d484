// Rows of a table: a work-item for each element.
//
// W, IDS, Y: dtypes of the table, the ids and the result. CONVERT makes one of the result of one
// of the table.

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.n) {
        const long id = (long)LOAD(IDS, ids, i / p.width);
        const bool exists = id >= 0 && id < (long)p.rows;
        if (!exists) {
            REPORT(status, p.status_code);
        } else {
            const COMPUTE(W) v = LOAD(W, w, (uint)id * p.width + i % p.width);
            STORE(Y, y, i, CONVERT(v));
        }
    }
KERNEL_END
