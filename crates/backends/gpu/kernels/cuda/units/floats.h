// 16 bytes of rows of floating-point numbers of dtype W.
struct Unit {
    static constexpr uint ROWS = 1;
    static constexpr uint LENGTH = 16 / sizeof(STORAGE(W)), PIECES = LENGTH / 4;
    static constexpr uint BLOCK = LENGTH, BYTES = 16;

    uint words[4];

    FUNCTION void load(const uchar* blocks, uint lane) {
        const uint4 all = ((const uint4*)blocks)[lane];
        words[0] = all.x;
        words[1] = all.y;
        words[2] = all.z;
        words[3] = all.w;
    }

    FUNCTION float value(uint i) const {
        const uint word = words[i * 4 / LENGTH];
        if (LENGTH == 4) return F32_OF_BITS(word);
        const STORAGE(W) half = (STORAGE(W))(word >> (i % 2 * 16));
        return LOAD(W, &half, 0);
    }

    FUNCTION float product(const Exact<Unit>& x, uint) const {
        float sum = 0;
        UNROLL
        for (uint i = 0; i < LENGTH; i++) sum = fma(value(i), x.values[i], sum);
        return sum;
    }
};
