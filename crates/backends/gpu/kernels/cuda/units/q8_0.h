// A block of Q8_0.
struct Unit {
    static constexpr uint ROWS = 2;
    static constexpr uint LENGTH = 32, PIECES = 2, BLOCK = BLOCK_LENGTH, BYTES = BLOCK_BYTES;
    static constexpr int FACTOR = 1;
    static constexpr bool IS_INTERLEAVED = false, HAS_PAIRS = false;

    uint words[8];
    float scale;

    FUNCTION void load(const uchar* blocks, uint lane) {
        const uchar* block = blocks + lane * BYTES;
        scale = f16_at(block);
        words_at_2(words, block + 2);
    }

    FUNCTION float product(const Rounded<Unit>& x, uint) const {
        return scale * (float)x.dot(1, &words[4], x.dot(0, words, 0));
    }
};
