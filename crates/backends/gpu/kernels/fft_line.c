// Discrete Fourier transforms of whole lines without gaps, of usual lengths, as fft.c makes them: a
// group makes COLUMNS lines of N numbers. What the first stage needs comes from memory to registers,
// what the last one makes goes from there to memory, and between stages numbers are exchanged by way
// of local memory. See fft.h.
//
// X, Y: dtypes of the elements and the results. OF_PAIRS: are numbers pairs of real ones, as in
// fft.c, whose results are half of what the transforms of these are? INVERSE: is it the conjugate of
// what becomes of conjugates? STAGES: FIRST, MIDDLE and LAST of the radices; LAST not OF_PAIRS.

#if INVERSE
#define DIRECTED(z) MAKE((z).x, -(z).y)
#else
#define DIRECTED(z) (z)
#endif

// Each lane makes transforms of RADIX numbers, of which those ahead of them have `done`.
#define FOR_JOBS(RADIX) \
    for (uint job = LANE; job < COLUMNS * (N / RADIX); job += GROUP)
#define JOB(RADIX) \
    const uint column = job / (N / RADIX), i = job % (N / RADIX), k = i % done; \
    pair u[RADIX];

#define TAKE(RADIX) \
    UNROLL \
    for (uint j = 0; j < RADIX; j++) { \
        u[j] = tiles[source + PADDED(column * N + i + j * (N / RADIX))]; \
    }
#define PUT(RADIX) \
    const uint to = column * N + (i - k) * RADIX + k; \
    UNROLL \
    for (uint j = 0; j < RADIX; j++) tiles[target + PADDED(to + j * done)] = u[j];

#define NEXT(RADIX) \
    BARRIER; \
    done *= RADIX; \
    last = source; \
    source = target; \
    target = last;

#define FIRST(RADIX) \
    FOR_JOBS(RADIX) { \
        JOB(RADIX) \
        const uint line = first + column; \
        uint from = i; \
        ADD_OFFSET(from, line < p.count ? line : 0, p.starts_rank, p.starts_shape, p.x_strides) \
        UNROLL \
        for (uint j = 0; j < RADIX; j++) { \
            const pair z = LOAD(X, x, from + j * (N / RADIX)); \
            u[j] = DIRECTED(z); \
        } \
        DFT_##RADIX(u) \
        PUT(RADIX) \
    } \
    NEXT(RADIX)

#define MIDDLE(RADIX) \
    FOR_JOBS(RADIX) { \
        JOB(RADIX) \
        TAKE(RADIX) \
        TURN_ALL(RADIX, u, k, done) \
        DFT_##RADIX(u) \
        PUT(RADIX) \
    } \
    NEXT(RADIX)

#define LAST(RADIX) \
    FOR_JOBS(RADIX) { \
        JOB(RADIX) \
        TAKE(RADIX) \
        TURN_ALL(RADIX, u, k, done) \
        DFT_##RADIX(u) \
        const uint line = first + column; \
        if (line < p.count) { \
            uint to = i; \
            ADD_OFFSET(to, line, p.starts_rank, p.starts_shape, p.y_strides) \
            UNROLL \
            for (uint j = 0; j < RADIX; j++) STORE(Y, y, to + j * (N / RADIX), DIRECTED(u[j])); \
        } \
    }

KERNEL_BEGIN
    LOCAL_ARRAY(pair, tiles, 2 * PADDED(COLUMNS * N));
    const uint first = GROUP_ID(0) * COLUMNS;
    uint done = 1, source = 0, target = PADDED(COLUMNS * N), last = 0;
    STAGES

#if OF_PAIRS
    for (uint job = LANE; job < COLUMNS * (N / 2 + 1); job += GROUP) {
        const uint column = job / (N / 2 + 1), k = job % (N / 2 + 1), line = first + column;
        if (line < p.count) {
            uint start = 0;
            ADD_OFFSET(start, line, p.starts_rank, p.starts_shape, p.y_strides);
            // What the transforms of the numbers at even and at odd places add up to, and at the
            // mirrored place the conjugate of their difference.
            const pair z = tiles[source + PADDED(column * N + k)];
            pair mirrored = tiles[source + PADDED(column * N + (N - k) % N)];
            mirrored.y = -mirrored.y;
            const pair even = SCALE(ADD(z, mirrored), 0.5);
            const pair odd = SCALE(product(turn(k, 2 * N), TURNED(SUB(z, mirrored))), 0.5);
            STORE(Y, y, start + k, ADD(even, odd));
            if (k < N / 2) {
                const pair rest = SUB(even, odd);
                STORE(Y, y, start + N - k, MAKE(rest.x, -rest.y));
            }
        }
    }
#endif
KERNEL_END
