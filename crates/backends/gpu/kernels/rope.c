// Rotary position embedding: a work-item turns one pair of features of one position in `each`
// heads, by the same angle. Those behind the last pair copy the features that do not turn.
//
// X: dtype. INTERLEAVED: are pairs neighbours? HAS_FACTORS: are frequencies divided?
// IN_F64: are angles computed in double precision? Otherwise see rope.h.

KERNEL_BEGIN
    const uint units = p.pairs + p.rest;
    const uint i = GROUP_ID(0) * GROUP + LANE;
    if (i < p.t * units) {
        const uint unit = i % units, row = i / units;
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
        const uint end = min((GROUP_ID(1) + 1) * p.each, p.heads);
        for (uint head = GROUP_ID(1) * p.each; head < end; head++) {
            uint from = row * p.row_stride;
            ADD_OFFSET(from, head, LEAD_RANK, p.lead, p.lead_strides);
            const uint to = (head * p.t + row) * p.d;
            const ACCUMULATOR a = LOAD(X, x, from + first * p.stride);
            if (turns) {
                const ACCUMULATOR b = LOAD(X, x, from + second * p.stride);
                STORE(X, y, to + first, a * cosine - b * sine);
                STORE(X, y, to + second, a * sine + b * cosine);
            } else {
                STORE(X, y, to + first, a);
            }
        }
    }
KERNEL_END
