// Activations in local memory rounded to 8 bits, as quantize.c rounds them, in the order in
// which lanes read them: for each unit of 32 lanes its pieces of 16 values, lane by lane.

// What a lane multiplies a unit of weights with. `HAS_PAIRS` of the unit says whether sums are
// in pairs of 16 bits.
template <class Unit> struct Rounded {
    static constexpr uint PIECES = Unit::PIECES, SUMS = Unit::HAS_PAIRS ? PIECES / 2 : PIECES;

    uint4 codes[PIECES];
    // Of the codes of each piece, times the unit's FACTOR.
    int sums[SUMS];
    float scale;

    // Adds the product of piece `i` with four words of codes to `sum`.
    FUNCTION int dot(uint i, const uint* words, int sum) const {
        sum = dot4((int)words[0], (int)codes[i].x, sum);
        sum = dot4((int)words[1], (int)codes[i].y, sum);
        sum = dot4((int)words[2], (int)codes[i].z, sum);
        return dot4((int)words[3], (int)codes[i].w, sum);
    }
};

template <class Unit> struct Activations {
    using Values = Rounded<Unit>;
    static constexpr uint PIECES = Unit::PIECES, LENGTH = Unit::LENGTH, SUMS = Values::SUMS;
    // Values with one scale.
    static constexpr uint SCALED = Unit::BLOCK == 256 ? 256 : 32;

    uchar* rows;
    // Bytes of a row; bytes up to its sums and up to its scales.
    uint stride, sums_at, scales_at;

    FUNCTION Activations(uchar* memory, uint k, uint bytes) {
        rows = memory;
        stride = bytes;
        // Of whole steps of 32 units.
        const uint units = (k / LENGTH + 31) / 32 * 32;
        sums_at = units * LENGTH;
        scales_at = sums_at + units * SUMS * 4;
    }

    // Of the units `step * 32 + lane`.
    FUNCTION Values load(uint row, uint step, uint lane) const {
        const uchar* from = rows + row * stride;
        Values x;
        UNROLL
        for (uint i = 0; i < PIECES; i++) {
            x.codes[i] = ((const uint4*)from + step * (PIECES * 32))[i * 32 + lane];
        }
        struct __align__(4 * SUMS) Sums { int each[SUMS]; };
        const Sums sums = ((const Sums*)(from + sums_at) + step * 32)[lane];
        UNROLL
        for (uint i = 0; i < SUMS; i++) x.sums[i] = sums.each[i];
        constexpr uint SHARING = SCALED / LENGTH;
        x.scale = ((const float*)(from + scales_at) + step * (32 / SHARING))[lane / SHARING];
        return x;
    }

    // Stores the slab of row `row` that begins at value `first`.
    FUNCTION void store(uint row, const Slab& slab, uint first, uint k) const {
        uchar* to = rows + row * stride;
        uint peaks[2];
        UNROLL
        for (uint half = 0; half < 2; half++) {
            peaks[half] = 0;
            // Magnitudes compare as their bits do, and NaN above all: it gets into the scale.
            UNROLL
            for (uint i = 0; i < 4; i++) {
                const uint magnitude = BITS_OF_F32(slab.values[half][i]) & 0x7fffffffu;
                peaks[half] = max(peaks[half], magnitude);
            }
        }
        if (SCALED == 256) {
            peaks[0] = peaks[1] = __reduce_max_sync(~0u, max(peaks[0], peaks[1]));
        }
        UNROLL
        for (uint half = 0; half < 2; half++) {
            UNROLL
            for (uint mask = SCALED == 256 ? 0 : 4; mask > 0; mask /= 2) {
                peaks[half] = max(peaks[half], simd_xor(peaks[half], mask));
            }
            const float peak = F32_OF_BITS(peaks[half]);
            // The smallest number with all digits.
            const float factor = peak / 127 >= 1.17549435e-38f ? 127 / peak : 0;
            uint word = 0;
            UNROLL
            for (uint i = 0; i < 4; i++) {
                word |= ((uint)(int)rint(slab.values[half][i] * factor) & 255u) << (8 * i);
            }
            int sum = dot4((int)word, 0x01010101, 0);
            sum += simd_xor(sum, 1);
            sum += simd_xor(sum, 2);
            const uint e = Slab::at(first, half);
            if (e < k) put(to, e, word, sum, peak / 127);
        }
    }

    // Four codes from value `e` on, the sum of 16 and the scale that they are of.
    FUNCTION void put(uchar* to, uint e, uint word, int sum, float scale) const {
        const uint piece = e / 16;
        const uint unit = Unit::IS_INTERLEAVED ? piece / (2 * PIECES) * 2 + piece % 2
                                               : piece / PIECES;
        const uint part = Unit::IS_INTERLEAVED ? piece / 2 % PIECES : piece % PIECES;
        ((uint*)to)[((unit / 32 * PIECES + part) * 32 + unit % 32) * 4 + e / 4 % 4] = word;
        if (e % 16 == 0) {
            const uint at = unit * PIECES + part;
            if (Unit::HAS_PAIRS) {
                ((short*)(to + sums_at))[at] = (short)(sum * Unit::FACTOR);
            } else {
                ((int*)(to + sums_at))[at] = sum * Unit::FACTOR;
            }
        }
        if (e % SCALED == 0) {
            const float rounded = round_f16(scale);
            // Half precision has all digits of these.
            const bool is_normal = rounded >= 6.103515625e-5f && rounded <= 65504;
            const bool rounds = Unit::BLOCK == 32 && is_normal;
            ((float*)(to + scales_at))[e / SCALED] = rounds ? rounded : scale;
        }
    }
};
