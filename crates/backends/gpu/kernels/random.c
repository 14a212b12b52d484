// Numbers of a stream: a work-item for each four, which are one block of the generator, from that of number `offset` on.
//
// X: dtype. REAL: type that is computed in. BITS: random bits of an evenly distributed number,
// or 0 for normal ones, of which Box and Muller make two of two words. DEVIATION: theirs. TURN:
// a whole turn in radians.

KERNEL_BEGIN
    const uint block = GROUP_ID(0) * GROUP + LANE;
    if (block < p.count) {
        const ulong key = (ulong)seed[0], at = (ulong)offset[0] + block;
        const words4 words = philox((uint)at, (uint)(at >> 32), (uint)key, (uint)(key >> 32));
        REAL drawn[4];
#if BITS
        const REAL grid = (REAL)1 / (REAL)((ulong)1 << BITS);
        for (uint k = 0; k < 4; k++) drawn[k] = (REAL)(words.x[k] >> (32 - BITS)) * grid;
#else
        const REAL unit = (REAL)1 / (REAL)4294967296.0f;
        for (uint k = 0; k < 4; k += 2) {
            const REAL first = ((REAL)words.x[k] + 1) * unit;
            const REAL angle = (REAL)words.x[k + 1] * unit * TURN;
            const REAL radius = sqrt(-2 * log(first)) * DEVIATION;
            drawn[k] = radius * cos(angle);
            drawn[k + 1] = radius * sin(angle);
        }
#endif
        for (uint k = 0; k < 4; k++) {
            const uint i = 4 * block + k;
            if (i < p.numbers) STORE(X, y, i, drawn[k]);
        }
    }
KERNEL_END
