// Numbers in single precision as sums of TERMS bf16 numbers, each the nearest to what is left, the largest first. The
// first has six digits, two less than it could have. Then sums of products of first terms have few more digits than
// single precision.

// The first terms of two numbers, that of the first in the low half.
FUNCTION uint first_terms(float first, float second) {
    return __byte_perm(BITS_OF_F32(first) + 0x20000u, BITS_OF_F32(second) + 0x20000u, 0x7632) & 0xfffcfffcu;
}
