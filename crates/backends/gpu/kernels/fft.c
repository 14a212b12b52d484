// A pass of the discrete Fourier transform of lines: Stockham's algorithm, whose results are in
// order without being moved (Govindaraju et al. 2008, doi 10.1109/SC.2008.5213922).
//
// A pass makes transforms of p.done · p.radix numbers of those of p.done that lie p.apart numbers
// from each other. Each group makes p.columns of these, in local memory, in stages of small
// radices. The inverse is the conjugate of what becomes of conjugates.
//
// X, Y: dtypes of the elements and the results. Z: the complex dtype that is computed with, R: that
// of its parts. FROM: COMPLEX, REAL, or HALF, the first half of numbers whose results are real; or
// PAIRS, neighbouring real numbers made one complex number, whose transform gives theirs (Cooley,
// Lewis and Welch 1970, doi 10.1016/0022-460X(70)90075-1). TO_REAL: are imaginary parts left out?
// See fft.h. TILE: numbers of a group, at most. RADIX, COLUMNS, APART, DONE: the parameters of these names, or
// numbers. STAGES: STAGE of each of the stages, or ANY_STAGES.

#define COMPLEX 0
#define REAL 1
#define HALF 2
#define PAIRS 3

// Each lane makes transforms of N numbers, of which those ahead of them have `done`.
#define STAGE(N) \
    for (uint job = LANE; job < COLUMNS * RADIX / N; job += GROUP) { \
        const uint apart = RADIX / N, column = job / apart, i = job % apart, k = i % done; \
        pair u[N]; \
        const uint from = column * RADIX + i; \
        UNROLL \
        for (uint j = 0; j < N; j++) u[j] = tiles[source + PADDED(from + j * apart)]; \
        if (done > 1) TURN_ALL(N, u, k, done) \
        DFT_##N(u) \
        const uint to = column * RADIX + (i - k) * N + k; \
        UNROLL \
        for (uint j = 0; j < N; j++) tiles[target + PADDED(to + j * done)] = u[j]; \
    } \
    BARRIER; \
    done *= N; \
    last = source; \
    source = target; \
    target = last;

#define ANY_STAGES \
    for (uint stage = 0; stage < p.stages; stage++) { \
        const uint radix = p.radices[stage]; \
        if (radix == 8) { STAGE(8) } \
        else if (radix == 4) { STAGE(4) } \
        else if (radix == 2) { STAGE(2) } \
        else if (radix == 3) { STAGE(3) } \
        else { STAGE(5) } \
    }

// Where number `job` of a group is: `j` of a `column`, whose line begins at `start`. Neighbouring
// lanes are at neighbouring elements.
#define FIND(across, strides) \
    const uint column = (across) ? job % COLUMNS : job / RADIX; \
    const uint j = (across) ? job / COLUMNS : job % RADIX; \
    const uint line = (first + column) / APART, i = (first + column) % APART; \
    uint start = 0; \
    ADD_OFFSET(start, line, p.starts_rank, p.starts_shape, strides);

KERNEL_BEGIN
    LOCAL_ARRAY(pair, tiles, 2 * PADDED(TILE));
    const uint first = GROUP_ID(0) * COLUMNS;
    for (uint job = LANE; job < COLUMNS * RADIX; job += GROUP) {
        FIND(p.reads_across, p.x_strides)
        if (first + column < p.count) {
            const uint at = i + j * APART;
#if FROM == REAL
            pair z = MAKE(LOAD(X, x, start + at * p.x_step), 0);
#elif FROM == PAIRS
            pair z = MAKE(
                LOAD(X, x, start + 2 * at * p.x_step), LOAD(X, x, start + (2 * at + 1) * p.x_step)
            );
#elif FROM == HALF
            const uint mirror = p.n - at;
            pair z = LOAD(X, x, start + (at < mirror ? at : mirror % p.n) * p.x_step);
            if (at == 0 || at == mirror) z.y = 0;
            if (at < mirror) z.y = -z.y;
#else
            pair z = LOAD(X, x, start + at * p.x_step);
            if (p.is_inverse) z.y = -z.y;
#endif
            if (DONE > 1) z = product(z, turn(j * (i % DONE), DONE * RADIX));
            tiles[PADDED(column * RADIX + j)] = z;
        }
    }
    BARRIER;

    uint done = 1, source = 0, target = PADDED(TILE), last = 0;
    STAGES

#if FROM == PAIRS
    for (uint job = LANE; job < COLUMNS * (RADIX + 1); job += GROUP) {
        const uint column = job / (RADIX + 1), k = job % (RADIX + 1);
        if (first + column < p.count) {
            uint start = 0;
            ADD_OFFSET(start, first + column, p.starts_rank, p.starts_shape, p.y_strides);
            // What the transforms of the numbers at even and at odd places add up to.
            const pair z = tiles[source + PADDED(column * RADIX + k % RADIX)];
            pair mirrored = tiles[source + PADDED(column * RADIX + (RADIX - k) % RADIX)];
            mirrored.y = -mirrored.y;
            const pair odd = product(turn(k, 2 * RADIX), TURNED(SUB(z, mirrored)));
            STORE(Y, y, start + k * p.y_step, SCALE(ADD(ADD(z, mirrored), odd), 0.5));
        }
    }
#else
    for (uint job = LANE; job < COLUMNS * RADIX; job += GROUP) {
        FIND(p.writes_across, p.y_strides)
        if (first + column < p.count) {
            const uint k = i % DONE, at = (i - k) * RADIX + k + j * DONE;
            pair z = tiles[source + PADDED(column * RADIX + j)];
            if (at < p.kept) {
#if TO_REAL
                STORE(Y, y, start + at * p.y_step, z.x);
#else
                if (p.is_inverse) z.y = -z.y;
                STORE(Y, y, start + at * p.y_step, z);
#endif
            }
        }
    }
#endif
KERNEL_END
