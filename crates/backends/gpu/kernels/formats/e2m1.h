// Numbers of E2M1, four bits of floating point, for formats that have them.

// A little-endian word at any address.
FUNCTION uint word_at_1(GLOBAL const uchar* p) {
    return (uint)p[0] | (uint)p[1] << 8 | (uint)p[2] << 16 | (uint)p[3] << 24;
}

// For each of four bytes with a number, twice its value plus 12. The doubled magnitude of a number
// below 4 is its three low bits. From 4 on the two lowest are added again, and 2 for 7.
FUNCTION uint e2m1_codes(uint bits) {
    const uint low = bits & 0x03030303u;
    const uint more = low + ((low & low >> 1) << 1);
    const uint large = (bits >> 2 & 0x01010101u) * 7;
    const uint magnitude = (bits & 0x07070707u) + (more & large);
    const uint negative = (bits >> 3 & 0x01010101u) * 15;
    return 0x0c0c0c0cu + magnitude - ((magnitude & negative) << 1);
}
