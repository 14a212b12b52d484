// The gradient of the cross entropy of rows without gaps, and the loss, out of one pass over memory: a group has a row in its
// local memory, of which each lane brings, looks at and writes its own pieces of 16 bytes.
//
// X, Y, CT: dtypes of elements, of losses and of their gradients. VECTOR: elements of a piece. LOWEST: the smallest number.
// HAS_LOSS: is the loss wanted? IS_HALF: are elements halves, for which exponentials need not be as precise?

// Parts of a row, each looked at while the next are on their way.
#define PARTS 4
#define WARPS (GROUP / 32)

// What `v` is more than the largest, of which `base` says how much that is.
#if IS_HALF
#define LOG2_E 1.44269504f
// Finite, so that infinitely little beside it is nothing.
#define BASE(largest) (max(largest, -2e38f) * LOG2_E)
FUNCTION float exponential(float v, float base) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fma(v, LOG2_E, -base)));
    return y;
}
#else
#define BASE(largest) (largest)
#define exponential(v, base) exp((v) - (base))
#endif

FUNCTION void bring(uint4* to, const uint4* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                 :: "r"((uint)__cvta_generic_to_shared(to)), "l"(from) : "memory");
}

// Waits for all but the last `n` parts of this lane.
template <int n> FUNCTION void wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(n) : "memory");
}

// Adds the exponentials of pieces `at` to `end` to a lane's sum, of what they are more than the largest so far.
FUNCTION void look_at(const uint4* row, uint at, uint end, float* largest, float* sum) {
    for (; at < end; at += GROUP) {
        uint words[4];
        *(uint4*)words = row[at];
        float values[VECTOR], most = *largest;
        UNROLL for (uint e = 0; e < VECTOR; e++) {
            values[e] = PART(X, words, e);
            most = values[e] > most ? values[e] : most;
        }
        const float base = BASE(most);
        float added = 0;
        UNROLL for (uint e = 0; e < VECTOR; e++) added += exponential(values[e], base);
        *sum = *sum * exponential(*largest, base) + added;
        *largest = most;
    }
}

KERNEL_BEGIN
    LOCAL_ARRAY(float2, shared, WARPS);
    uint4* row = (uint4*)DYNAMIC_LOCAL;
    const uint line = GROUP_ID(0), pieces = p.len / VECTOR;
    uint x_start = 0, y_start = 0, class_start = 0, ct_start = 0;
    ADD_OFFSET(x_start, line, p.starts_rank, p.starts_shape, p.x_strides);
    ADD_OFFSET(y_start, line, p.starts_rank, p.starts_shape, p.y_strides);
    ADD_OFFSET(class_start, line, p.starts_rank, p.starts_shape, p.class_strides);
    ADD_OFFSET(ct_start, line, p.starts_rank, p.starts_shape, p.ct_strides);

    const uint4* from = (const uint4*)(x + x_start);
    const uint part = (pieces + PARTS * GROUP - 1) / (PARTS * GROUP) * GROUP;
    for (uint n = 0; n < PARTS; n++) {
        for (uint at = n * part + LANE; at < min((n + 1) * part, pieces); at += GROUP) {
            bring(row + at, from + at);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    const long class_index = LOAD(i64, classes, class_start);
    const long ignored = (long)((ulong)p.ignored[0] | (ulong)p.ignored[1] << 32);
    const float ct = class_index == ignored ? 0 : LOAD(CT, cts, ct_start);
    // No element of the row where there is no such class.
    const uint own = class_index >= 0 && class_index < (long)p.len ? (uint)class_index : ~0u;

    float largest = LOWEST, sum = 0;
    wait<3>();
    look_at(row, LANE, min(part, pieces), &largest, &sum);
    wait<2>();
    look_at(row, part + LANE, min(2 * part, pieces), &largest, &sum);
    wait<1>();
    look_at(row, 2 * part + LANE, min(3 * part, pieces), &largest, &sum);
    wait<0>();
    look_at(row, 3 * part + LANE, pieces, &largest, &sum);

    float most = largest;
    UNROLL for (uint mask = 16; mask > 0; mask /= 2) {
        const float other = simd_xor(most, mask);
        most = MAX_OR_NAN(most, other);
    }
    sum *= exponential(largest, BASE(most));
    UNROLL for (uint mask = 16; mask > 0; mask /= 2) sum += simd_xor(sum, mask);
    if (SIMD_LANE == 0) shared[SIMD_GROUP] = make_float2(most, sum);
    BARRIER;
    largest = shared[0].x;
    UNROLL for (uint k = 1; k < WARPS; k++) largest = MAX_OR_NAN(largest, shared[k].x);
    const float base = BASE(largest);
    sum = 0;
    UNROLL for (uint k = 0; k < WARPS; k++) sum += shared[k].y * exponential(shared[k].x, base);

#if HAS_LOSS
    if (LANE == 0) {
        float loss = 0;
        if (own != ~0u) {
            // Before the gradient is written there.
            const float v = LOAD(X, (STORAGE(X)*)row, own);
            loss = class_index == ignored ? 0 : log(sum) - (v - largest);
        } else if (class_index != ignored) {
            REPORT(status, p.status_code);
        }
        STORE(Y, losses, line, loss);
    }
#endif
    const float scale = ct / sum;
    uint4* to = (uint4*)(y + y_start);
    for (uint at = LANE; at < pieces; at += GROUP) {
        uint words[4];
        *(uint4*)words = row[at];
        float values[VECTOR];
        UNROLL for (uint e = 0; e < VECTOR; e++) {
            values[e] = exponential(PART(X, words, e), base) * scale;
        }
        if (own - at * VECTOR < VECTOR) {
            UNROLL for (uint e = 0; e < VECTOR; e++) values[e] -= own == at * VECTOR + e ? ct : 0;
        }
        STORE_4_WORDS(X, to, at, values)
    }
KERNEL_END
