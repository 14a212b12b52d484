// A block of Q4_0.
struct Unit {
    static constexpr uint ROWS = 2;
    static constexpr uint LENGTH = 32, PIECES = 2, BLOCK = BLOCK_LENGTH, BYTES = BLOCK_BYTES;
    static constexpr int FACTOR = -ZERO_POINT;
    static constexpr bool IS_INTERLEAVED = false, HAS_PAIRS = false;

    uint words[4];
    float scale;

    FUNCTION void load(const uchar* blocks, uint lane) {
        const uchar* block = blocks + lane * BYTES;
        scale = f16_at(block);
        words_at_2(words, block + 2);
    }

    FUNCTION float product(const Rounded<Unit>& x, uint) const {
        uint low[4], high[4];
        UNROLL
        for (uint i = 0; i < 4; i++) {
            low[i] = words[i] & 0x0f0f0f0fu;
            high[i] = words[i] >> 4 & 0x0f0f0f0fu;
        }
        const int dot = x.dot(1, high, x.dot(0, low, x.sums[0] + x.sums[1]));
        return scale * (float)dot;
    }
};
