// Rotary position embedding: a work-item turns one pair of features of one position in `each`
// heads, by the same angle. Those behind the last pair copy the features that do not turn.
//
// X: dtype. INTERLEAVED: are pairs neighbours? HAS_FACTORS: are frequencies divided?
// IN_F64: are angles computed in double precision? Otherwise see rope.h. AT_ONCE: heads that are loaded at once.

KERNEL_BEGIN
    const uint units = p.pairs + p.rest;
    const uint item = GROUP_ID(0) * GROUP + LANE;
    if (item < p.t * units) {
        const uint unit = item % units, row = item / units;
        const bool turns = unit < p.pairs;
        const uint pair = p.first_pair + unit;
        uint first = p.dims + unit - p.pairs, second = first;
        ACCUMULATOR cosine = 1, sine = 0;
        if (turns) {
            first = INTERLEAVED ? 2 * pair : pair;
            second = INTERLEAVED ? first + 1 : pair + p.dims / 2;
            const int position = positions[row * p.position_stride];
#if IN_F64
            double frequency = F64_OF_BITS((ulong)p.frequencies[2 * unit]
                                           | (ulong)p.frequencies[2 * unit + 1] << 32);
#if HAS_FACTORS
            frequency /= factors[pair * p.factor_stride];
#endif
            const double angle = position * frequency;
#else
            const float high = F32_OF_BITS(p.frequencies[2 * unit]);
            const float low = F32_OF_BITS(p.frequencies[2 * unit + 1]);
#if HAS_FACTORS
            const float factor = factors[pair * p.factor_stride];
            const float angle = rope_angle_divided(position, high, low, factor);
#else
            const float angle = rope_angle(position, high, low);
#endif
#endif
            cosine = cos(angle) * MAGNITUDE;
            sine = sin(angle) * MAGNITUDE;
        }
        const uint begin = GROUP_ID(1) * p.each, end = min(begin + p.each, p.heads);
        for (uint i = begin; i < end; i += AT_ONCE) {
            ACCUMULATOR a[AT_ONCE], b[AT_ONCE];
            UNROLL
            for (uint k = 0; k < AT_ONCE; k++) {
                const uint head = min(i + k, end - 1);
                uint from = row * p.row_stride;
                ADD_OFFSET(from, head, LEAD_RANK, p.lead, p.lead_strides);
                a[k] = LOAD(X, x, from + first * p.stride);
                if (turns) b[k] = LOAD(X, x, from + second * p.stride);
            }
            UNROLL
            for (uint k = 0; k < AT_ONCE; k++) {
                const uint to = ((i + k) * p.t + row) * p.d;
                if (i + k < end) {
                    if (turns) {
                        STORE(X, y, to + first, a[k] * cosine - b[k] * sine);
                        STORE(X, y, to + second, a[k] * sine + b[k] * cosine);
                    } else {
                        STORE(X, y, to + first, a[k]);
                    }
                }
            }
        }
    }
KERNEL_END
