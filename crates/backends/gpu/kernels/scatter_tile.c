// Elements of `source` put, or added, to where an index says along one dimension: a group for each
// 2^p.line_bits lines of the result, or for a segment of those. It sorts the lines of the index in
// local memory, by where their elements go and then in their order; each element of the result
// looks up the first of its own there.
//
// X, INDEX: dtypes. COMBINE(a, b): what becomes of `a` where `b` is put. LINES: lines of a group, at
// most. The result's dimensions are those of `p.shape` and the one of `p.size`.

KERNEL_BEGIN
    LOCAL_ARRAY(uint, keys, PADDED(TILE));
    LOCAL_ARRAY(uint, starts, LINES * 4);
    const uint lines = 1u << p.line_bits, first = GROUP_ID(0) << p.line_bits;
    for (uint own = LANE; own < lines; own += GROUP) {
        uint rest = first + own, to = 0, from = 0, at = 0, source_at = 0;
        // The index may be smaller than the result.
        bool is_picked = rest < p.count;
        for (uint d = p.rank; d > 0; d--) {
            const uint c = rest % p.shape[d - 1];
            rest /= p.shape[d - 1];
            to += c * p.y_strides[d - 1];
            from += c * p.x_strides[d - 1];
            at += c * p.index_strides[d - 1];
            source_at += c * p.source_strides[d - 1];
            is_picked = is_picked && c < p.index_shape[d - 1];
        }
        starts[own * 4] = to;
        starts[own * 4 + 1] = from;
        starts[own * 4 + 2] = is_picked ? at : ~0u;
        starts[own * 4 + 3] = source_at;
    }
    BARRIER;

    const uint live = lines << p.size_bits, positions = 1u << p.size_bits;
    for (uint e = LANE; e < live; e += GROUP) {
        // Neighbouring lanes are at neighbouring elements.
        const uint own = p.is_across ? e & (lines - 1) : e >> p.size_bits;
        const uint j = p.is_across ? e >> p.line_bits : e & (positions - 1);
        const uint at = starts[own * 4 + 2];
        uint key = ~0u;
        if (at != ~0u && j < p.picks) {
            const long pick = LOAD(INDEX, index, at + j * p.index_step);
            if (pick >= 0 && pick < (long)p.size) {
                key = (uint)pick << p.size_bits | j;
            } else {
                REPORT(status, p.status_code);
            }
        }
        keys[PADDED((own << p.size_bits) + j)] = key;
    }
    BARRIER;
    SORT(keys, live, p.size_bits, p.size_bits);

    const uint begin = GROUP_ID(1) * p.segment;
    const uint width = p.size - begin < p.segment ? p.size - begin : p.segment;
    for (uint e = LANE; e < width << p.line_bits; e += GROUP) {
        uint own = 0, place = begin + e;
        if (p.is_across) {
            own = e & (lines - 1);
            place = begin + (e >> p.line_bits);
        } else if (lines > 1) {
            own = e / width;
            place = begin + e - own * width;
        }
        if (first + own < p.count) {
            const uint base = own << p.size_bits, wanted = place << p.size_bits;
            uint i = 0;
            for (uint step = positions / 2; step > 0; step /= 2) {
                if (keys[PADDED(base + i + step - 1)] < wanted) i += step;
            }
            if (keys[PADDED(base + i)] < wanted) i++;
            COMPUTE(X) value = LOAD(X, x, starts[own * 4 + 1] + place * p.x_step);
            for (; i < positions && keys[PADDED(base + i)] >> p.size_bits == place; i++) {
                const uint j = keys[PADDED(base + i)] & (positions - 1);
                const COMPUTE(X) other =
                    LOAD(X, source, starts[own * 4 + 3] + j * p.source_step);
                value = COMBINE(value, other);
            }
            STORE(X, y, starts[own * 4] + place * p.y_step, value);
        }
    }
KERNEL_END
