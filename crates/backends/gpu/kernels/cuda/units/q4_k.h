// 16 bytes of the codes of Q4_K: 16 values each of two neighbouring spans.
struct Unit {
    static constexpr uint ROWS = 2;
    static constexpr uint LENGTH = 32, PIECES = 2, BLOCK = BLOCK_LENGTH, BYTES = BLOCK_BYTES;
    static constexpr int FACTOR = 1;
    static constexpr bool IS_INTERLEAVED = true, HAS_PAIRS = true;

    uint4 header, codes;

    FUNCTION void load(const uchar* blocks, uint lane) {
        const uchar* block = blocks + lane / 8 * BYTES;
        header = *(const uint4*)block;
        codes = *(const uint4*)(block + 16 + lane % 8 * 16);
    }

    FUNCTION float product(const Rounded<Unit>& x, uint lane) const {
        const uint words[4] = {codes.x, codes.y, codes.z, codes.w};
        uint low[4], high[4];
        UNROLL
        for (uint i = 0; i < 4; i++) {
            low[i] = words[i] & 0x0f0f0f0fu;
            high[i] = words[i] >> 4 & 0x0f0f0f0fu;
        }
        const uint pair = packed_pair(header.y, header.z, header.w, lane % 8 / 2);
        return packed_product(pair, header.x, x.dot(0, low, 0), x.dot(1, high, 0), x.sums[0]);
    }
};
