// `N` little-endian words at an address that is a multiple of 2, from words at multiples of 4:
// one that is read may lie half before, or half behind.
template <uint N> FUNCTION void words_at_2(uint (&words)[N], const uchar* p) {
    const uint odd = (uint)(ulong)p & 2u;
    const uint* from = (const uint*)(p - odd);
    const uint order = odd == 0 ? 0x3210u : 0x5432u;
    uint low = from[0];
    UNROLL
    for (uint i = 0; i < N; i++) {
        const uint high = from[i + 1];
        words[i] = __byte_perm(low, high, order);
        low = high;
    }
}
