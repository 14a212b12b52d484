// 16 bytes of the high bits of Q6_K, and the low ones: 16 values each of four spans, every
// other one.
struct Unit {
    static constexpr uint ROWS = 1;
    static constexpr uint LENGTH = 64, PIECES = 4, BLOCK = BLOCK_LENGTH, BYTES = BLOCK_BYTES;
    static constexpr int FACTOR = -ZERO_POINT;
    static constexpr bool IS_INTERLEAVED = true, HAS_PAIRS = false;

    uint near[4], far[4], high[4];
    int scales[4];
    float scale;

    FUNCTION void load(const uchar* blocks, uint lane) {
        const uchar* block = blocks + lane / 4 * BYTES;
        const uint half = lane % 4 / 2, part = lane % 2;
        words_at_2(near, block + half * 64 + part * 16);
        words_at_2(far, block + half * 64 + part * 16 + 32);
        words_at_2(high, block + 128 + half * 32 + part * 16);
        UNROLL
        for (uint i = 0; i < 4; i++) {
            scales[i] = ((const signed char*)block)[192 + half * 8 + part + 2 * i];
        }
        scale = f16_at(block + 208);
    }

    FUNCTION float product(const Rounded<Unit>& x, uint) const {
        int sum = 0;
        UNROLL
        for (uint piece = 0; piece < 4; piece++) {
            uint codes[4];
            UNROLL
            for (uint i = 0; i < 4; i++) {
                const uint low = (piece % 2 == 0 ? near[i] : far[i]) >> (piece / 2 * 4);
                const uint bits =
                    piece < 2 ? high[i] << (4 - 2 * piece) : high[i] >> (2 * piece - 4);
                codes[i] = (low & 0x0f0f0f0fu) | (bits & 0x30303030u);
            }
            sum += scales[piece] * x.dot(piece, codes, x.sums[piece]);
        }
        return scale * (float)sum;
    }
};
