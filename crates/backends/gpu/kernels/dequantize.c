// Values of blocks: a work-item for each four of them.
//
// Y: dtype of the values. HAS_IDS: are they the rows of the listed ids, of dtype IDS?

KERNEL_BEGIN
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.n) {
        uint from = i;
#if HAS_IDS
        const long id = (long)LOAD(IDS, ids, i / p.width);
        const bool exists = id >= 0 && id < (long)p.rows;
        if (!exists) REPORT(status, p.status_code);
        from = exists ? (uint)id * p.width + i % p.width : 0;
#endif
        GLOBAL const uchar* block = w + from / (BLOCK_LENGTH / 4) * BLOCK_BYTES;
        const uint at = from % (BLOCK_LENGTH / 4);
        const uint codes = codes_at(block, at);
        const float scale = scale_of(block, at / (SPAN / 4));
#if HAS_MINIMUM
        const float minimum = minimum_of(block, at / (SPAN / 4));
#else
        const float minimum = 0;
#endif
        for (uint u = 0; u < 4; u++) {
            const int code = (int)(char)(codes >> (8 * u)) - ZERO_POINT;
            STORE(Y, y, 4 * i + u, scale * (float)code - minimum);
        }
    }
KERNEL_END
