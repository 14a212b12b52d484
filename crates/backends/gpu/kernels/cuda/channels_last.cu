// Tensors [images, channels, height, width] with their channels last as 16-bit numbers, in
// pieces of eight of them, the last filled up with zeros: what gemm.cu makes convolutions of. A
// work-item makes a piece.
//
// IS_PANELS: are an image's pieces, one after the other, a row of panels, see panels.cu? Else
// they are just that. TOGETHER: neighbouring pixels of a line that share a piece, which begins p.before pixels ahead of them;
// if there are several, each has as much of it. p.size: height, and pieces of a line. X: dtype. TERMS: as in panels.cu.

#define PIECE 8
#define SHARE (PIECE / TOGETHER)
// Pixels that neighbouring work-items take: they read and write 32 bytes next to each other.
#define NEIGHBOURS 16

KERNEL_BEGIN
    LAUNCH_NEXT;
    const uint i = GROUP_ID(0) * GROUP + LANE;
    const uint pixels = p.size[0] * p.size[1];
#if IS_PANELS
    const uint image = i / p.row_pieces, piece = i % p.row_pieces;
    const uint pixel = piece / p.pieces_count, part = piece % p.pieces_count;
    if (image >= p.images) return;
    const bool exists = pixel < pixels;
    const uint panel = piece / 8, place = piece % 8 ^ image % 8;
    const ulong to = ((ulong)panel * p.stride + image) * 8 + place;
#else
    uint part = 0, at = i;
    if (p.pieces_count > 1) {
        const uint pairs = (p.pieces_count + 1) / 2;
        part = i / (NEIGHBOURS * 2) % pairs * 2 + i % 2;
        at = i / (NEIGHBOURS * 2) / pairs * NEIGHBOURS + i / 2 % NEIGHBOURS;
    }
    const uint image = at / pixels, pixel = at % pixels;
    const bool exists = image < p.images && part < p.pieces_count;
    if (!exists) return;
    const ulong to = (ulong)at * p.pieces_count + part;
#endif
    const ulong from = (ulong)image * p.strides[0] + (ulong)(pixel / p.size[1]) * p.strides[2];
    STORAGE(X) values[PIECE];
    UNROLL for (uint j = 0; j < PIECE; j++) {
        const uint channel = part * PIECE + j % SHARE;
        // Before the first it wraps.
        const uint column = pixel % p.size[1] * TOGETHER + j / SHARE - p.before;
        values[j] = 0;
        if (exists && channel < p.channels && column < p.width) {
            values[j] = x[from + (ulong)column * p.strides[3] + (ulong)channel * p.strides[1]];
        }
    }
    UNROLL for (uint term = 0; term < TERMS; term++) {
        uint numbers[PIECE];
        UNROLL for (uint j = 0; j < PIECE; j++) {
#if TERMS > 1
            numbers[j] = f32_to_bf16(values[j]);
            values[j] -= F32_OF_BITS(numbers[j] << 16);
#else
            numbers[j] = values[j];
#endif
        }
        ((uint4*)pieces)[(ulong)term * p.term_pieces + to] = make_uint4(
            numbers[0] | numbers[1] << 16, numbers[2] | numbers[3] << 16,
            numbers[4] | numbers[5] << 16, numbers[6] | numbers[7] << 16);
    }
KERNEL_END
