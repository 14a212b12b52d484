//! Eight scales and eight minima of six bits in twelve bytes, as `Q4_K` and `Q5_K` store them.

/// Unpacks the scales and the minima, each below 64, of the groups of a `Q4_K` or `Q5_K` block.
///
/// Bytes 0 to 3 hold scales 0 to 3 in their low six bits. Bytes 4 to 7 hold minima 0 to 3 likewise.
/// Bytes 8 to 11 hold the low four bits of scales 4 to 7. Above them are those of minima 4 to 7.
/// Their high two bits are on top of bytes 0 to 7.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_and_mins_keep_their_places() {
        let scales = [63, 1, 2, 3, 0x14, 0x25, 0x36, 63];
        let mins = [8, 9, 10, 63, 0x2C, 0x1D, 63, 0x0F];
        let packed = pack_scales_mins(&scales, &mins);
        assert_eq!(packed[8], 0xC4);
        assert_eq!(packed[0], 63 | 1 << 6);
        assert_eq!(unpack_scales_mins(&packed), (scales, mins));
    }

    #[test]
    fn every_bit_has_a_place() {
        for bit in 0..96 {
            let mut packed = [0; 12];
            packed[bit / 8] = 1 << (bit % 8);
            let (scales, mins) = unpack_scales_mins(&packed);
            assert!(scales.iter().chain(&mins).all(|&value| value < 64));
            assert_eq!(pack_scales_mins(&scales, &mins), packed);
        }
    }
}
