// Softmax along one dimension: a group for each line of `n` elements `stride` apart.
//
// X: dtype. `outer` lines of stride `x_outer` and, inside each, `inner` of stride 1.

KERNEL_BEGIN
    LOCAL_ARRAY(ACCUMULATOR, shared, GROUP);
    const uint line = GROUP_ID(0);
    const uint x_start = line / p.inner * p.n * p.inner + line % p.inner;

    ACCUMULATOR largest = -INFINITY;
    for (uint j = LANE; j < p.n; j += GROUP) {
        const ACCUMULATOR v = LOAD(X, x, x_start + j * p.inner);
        largest = v > largest || v != v ? v : largest;
    }
    GROUP_REDUCE(shared, largest, MAX_OR_NAN);

    ACCUMULATOR sum = 0;
    for (uint j = LANE; j < p.n; j += GROUP) {
        sum += exp(LOAD(X, x, x_start + j * p.inner) - largest);
    }
    GROUP_REDUCE(shared, sum, PLUS);

    for (uint j = LANE; j < p.n; j += GROUP) {
        const uint at = x_start + j * p.inner;
        STORE(X, y, at, exp(LOAD(X, x, at) - largest) / sum);
    }
KERNEL_END
