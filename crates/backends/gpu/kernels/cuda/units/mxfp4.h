// A block of MXFP4.
struct Unit {
    static constexpr uint ROWS = 2;
    static constexpr uint LENGTH = 32, PIECES = 2, BLOCK = BLOCK_LENGTH, BYTES = BLOCK_BYTES;
    static constexpr int FACTOR = -ZERO_POINT;
    static constexpr bool IS_INTERLEAVED = false, HAS_PAIRS = false;

    uint words[4];
    float scale;

    FUNCTION void load(const uchar* blocks, uint lane) {
        const uchar* block = blocks + lane * BYTES;
        scale = scale_of(block, 0);
        // From words at multiples of 4. The fifth one has some of a block's bytes unless this begins with one.
        const uint odd = (uint)(ulong)(block + 1) & 3u;
        const uint* from = (const uint*)(block + 1 - odd);
        uint low = from[0];
        UNROLL
        for (uint i = 0; i < 4; i++) {
            const uint high = i < 3 || odd > 0 ? from[i + 1] : 0;
            words[i] = __funnelshift_r(low, high, odd * 8);
            low = high;
        }
    }

    // The codes of four neighbouring halves of bytes, see e2m1.h: of positive numbers, and of
    // others.
    FUNCTION static uint codes(uint bits) {
        const uint positive = __byte_perm(0x0f0e0d0cu, 0x18141210u, bits & 0x7777u);
        const uint negative = __byte_perm(0x090a0b0cu, 0x00040608u, bits & 0x7777u);
        return __byte_perm(positive, negative, 0x3210u | (bits & 0x8888u) >> 1);
    }

    FUNCTION float product(const Rounded<Unit>& x, uint) const {
        uint low[4], high[4];
        UNROLL
        for (uint i = 0; i < 4; i++) {
            const uint first = codes(words[i]), second = codes(words[i] >> 16);
            low[i] = __byte_perm(first, second, 0x6420u);
            high[i] = __byte_perm(first, second, 0x7531u);
        }
        const int dot = x.dot(1, high, x.dot(0, low, x.sums[0] + x.sums[1]));
        return scale * (float)dot;
    }
};
