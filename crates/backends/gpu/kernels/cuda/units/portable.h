// 32 neighbouring values of any format, by its portable description.
struct Unit {
    static constexpr uint ROWS = SPAN == 16 ? 1 : 2;
    static constexpr uint LENGTH = 32, PIECES = 2, BLOCK = BLOCK_LENGTH, BYTES = BLOCK_BYTES;
    static constexpr int FACTOR = ZERO_POINT == 0 ? 1 : -ZERO_POINT;
    static constexpr bool IS_INTERLEAVED = false, HAS_PAIRS = false;

    uint codes[8];
    float scales[32 / SPAN], minima[32 / SPAN];

    FUNCTION void load(const uchar* blocks, uint lane) {
        const uchar* block = blocks + lane / (BLOCK / 32) * BYTES;
        const uint part = lane % (BLOCK / 32);
        UNROLL
        for (uint i = 0; i < 8; i++) codes[i] = codes_at(block, part * 8 + i);
        UNROLL
        for (uint i = 0; i < 32 / SPAN; i++) {
            scales[i] = scale_of(block, part * (32 / SPAN) + i);
#if HAS_MINIMUM
            minima[i] = minimum_of(block, part * (32 / SPAN) + i);
#endif
        }
    }

    FUNCTION float product(const Rounded<Unit>& x, uint) const {
        float product = 0;
        UNROLL
        for (uint span = 0; span < 32 / SPAN; span++) {
            int dot = 0, sum = 0;
            UNROLL
            for (uint i = span * (SPAN / 16); i < (span + 1) * (SPAN / 16); i++) {
                dot = x.dot(i, &codes[i * 4], dot);
                sum += x.sums[i];
            }
            if (ZERO_POINT != 0) dot += sum;
            product = fma(scales[span], (float)dot, product);
            if (HAS_MINIMUM) product = fma(-minima[span], (float)sum, product);
        }
        return product;
    }
};
