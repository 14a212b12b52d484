//! Eight scales and eight minima of six bits in twelve bytes, as `Q4_K` and `Q5_K` store them.

/// Unpacks the scales and the minima (each below 64) of the eight groups of a `Q4_K` or `Q5_K` block.
///
/// The first four bytes hold four whole scales and the next four bytes four whole minima in their low six bits. The last four bytes hold the low four bits of
/// the other scales and, above them, of the other minima, whose high two bits are on top of the first eight bytes.
#[inline]
pub fn unpack_scales_mins(packed: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = packed[j] & 0x3F;
        mins[j] = packed[j + 4] & 0x3F;
        scales[j + 4] = packed[j + 8] & 0x0F | (packed[j] >> 6) << 4;
        mins[j + 4] = packed[j + 8] >> 4 | (packed[j + 4] >> 6) << 4;
    }
    (scales, mins)
}

/// Packs scales and minima below 64, the inverse of [`unpack_scales_mins`].
pub(crate) fn pack_scales_mins(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut packed = [0; 12];
    for j in 0..4 {
        packed[j] = scales[j] | (scales[j + 4] >> 4) << 6;
        packed[j + 4] = mins[j] | (mins[j + 4] >> 4) << 6;
        packed[j + 8] = scales[j + 4] & 0x0F | (mins[j + 4] & 0x0F) << 4;
    }
    packed
}
