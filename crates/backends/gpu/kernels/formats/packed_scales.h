// The scales and minima of 6 bits that Q4_K and Q5_K keep in 12 bytes: the first four of each
// in the low bits of 8 bytes, the last four in halves of 4 bytes and, above, the bits left.
FUNCTION uint packed_scale(GLOBAL const uchar* packed, uint span) {
    return span < 4 ? packed[span] & 63u : (packed[span + 4] & 15u) | packed[span - 4] >> 6 << 4;
}

FUNCTION uint packed_minimum(GLOBAL const uchar* packed, uint span) {
    return span < 4 ? packed[span + 4] & 63u : packed[span + 4] >> 4 | packed[span] >> 6 << 4;
}
