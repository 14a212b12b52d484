// Softmax along one dimension, or its logarithm: a team for each line.
//
// X: dtype. ACCUMULATOR: type that is computed in. LOWEST: its smallest number. LOG: the
// logarithm?
// Lines that are not held in registers are read twice: their sum is rescaled whenever the
// maximum grows (Milakov and Gimelshein 2018, arXiv:1805.02867).

#define FOLD 32

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint line = LINE;
    const bool exists = line < p.count;
    uint x_start = 0, y_start = 0;
    ADD_OFFSET(x_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.x_strides);
    ADD_OFFSET(y_start, exists ? line : 0, p.starts_rank, p.starts_shape, p.y_strides);

    // Never minus infinity, which cannot be subtracted from itself: of the elements it is
    // the only one that may be, unless there is no other.
    ACCUMULATOR largest = LOWEST;
    ACCUMULATOR sum = 0;
    HOLD(ACCUMULATOR);
#if HELD
    FOR_OWN(k, j) largest = MAX_OR_NAN(held[k], largest);
    TEAM_REDUCE(shared, largest, MAX_OR_NAN);
#if LOG
    FOR_OWN(k, j) sum += exp(held[k] - largest);
    TEAM_REDUCE(shared, sum, PLUS);
    const ACCUMULATOR whole = log(sum);
    if (exists) { PUT_OWN(held[k] - largest - whole) }
#else
    FOR_OWN(k, j) {
        held[k] = exp(held[k] - largest);
        sum += held[k];
    }
    TEAM_REDUCE(shared, sum, PLUS);
    const ACCUMULATOR scale = 1 / sum;
    if (exists) { PUT_OWN(held[k] * scale) }
#endif
#else
    // Sums of so many elements are added to that of earlier ones: one long chain of additions would lose digits.
    ACCUMULATOR part = 0;
    uint count = 0;
    FOR_OWN(k, j) {
        const ACCUMULATOR v = OWN(k, j);
        if (v > largest) {
            const ACCUMULATOR older = exp(largest - v);
            sum *= older;
            part = part * older + 1;
            largest = v;
        } else {
            part += exp(v - largest);
        }
        if (++count == FOLD) {
            sum += part;
            part = 0;
            count = 0;
        }
    }
    sum += part;
    const ACCUMULATOR own_largest = largest;
    TEAM_REDUCE(shared, largest, MAX_OR_NAN);
    sum *= exp(own_largest - largest);
    TEAM_REDUCE(shared, sum, PLUS);
#if LOG
    const ACCUMULATOR whole = log(sum);
    FOR_OWN(k, j) {
        if (exists) STORE(X, y, y_start + j * p.y_step, OWN(k, j) - largest - whole);
    }
#else
    const ACCUMULATOR scale = 1 / sum;
    FOR_OWN(k, j) {
        if (exists) STORE(X, y, y_start + j * p.y_step, exp(OWN(k, j) - largest) * scale);
    }
#endif
#endif
KERNEL_END
