// Activations in local memory in single precision, in the order in which lanes read them: for
// each unit of 32 lanes its pieces of 4 values, lane by lane.

// What a lane multiplies a unit of weights with.
template <class Unit> struct Exact {
    float values[Unit::LENGTH];
    static constexpr float scale = 1;
};

template <class Unit> struct Activations {
    using Values = Exact<Unit>;
    static constexpr uint PIECES = Unit::PIECES;

    uchar* rows;
    // Bytes of a row.
    uint stride;

    FUNCTION Activations(uchar* memory, uint, uint bytes) {
        rows = memory;
        stride = bytes;
    }

    // Of the units `step * 32 + lane`.
    FUNCTION Values load(uint row, uint step, uint lane) const {
        const float4* from = (const float4*)(rows + row * stride) + step * (PIECES * 32);
        Values x;
        UNROLL
        for (uint i = 0; i < PIECES; i++) {
            const float4 four = from[i * 32 + lane];
            x.values[i * 4] = four.x;
            x.values[i * 4 + 1] = four.y;
            x.values[i * 4 + 2] = four.z;
            x.values[i * 4 + 3] = four.w;
        }
        return x;
    }

    // Stores the slab of row `row` that begins at value `first`.
    FUNCTION void store(uint row, const Slab& slab, uint first, uint k) const {
        float4* to = (float4*)(rows + row * stride);
        UNROLL
        for (uint half = 0; half < 2; half++) {
            const uint piece = Slab::at(first, half) / 4, unit = piece / PIECES;
            const float* values = slab.values[half];
            if (piece * 4 < k) {
                to[(unit / 32 * PIECES + piece % PIECES) * 32 + unit % 32] =
                    make_float4(values[0], values[1], values[2], values[3]);
            }
        }
    }
};
