//! Bit fields in planes, the one layout that all formats use for their codes.
//!
//! A chunk of `STRIDE` bytes holds `8 / BITS` planes of `STRIDE` codes each: the lowest bits of all bytes are
//! the first `STRIDE` codes in order. The bits above them are the next `STRIDE` codes, and so on. A vector unit
//! unpacks a plane with one shift and one mask.

/// Adds the fields of `packed`, shifted left by `at`, to `codes`.
#[inline(always)]
pub(crate) fn unpack<const BITS: usize, const STRIDE: usize>(
    packed: &[u8],
    at: u32,
    codes: &mut [u8],
) {
    for (bytes, codes) in packed
        .as_chunks::<STRIDE>()
        .0
        .iter()
        .zip(codes.chunks_exact_mut(STRIDE * 8 / BITS))
    {
        for (plane, codes) in codes.as_chunks_mut::<STRIDE>().0.iter_mut().enumerate() {
            for (code, byte) in codes.iter_mut().zip(bytes) {
                *code |= ((byte >> (plane * BITS)) & mask::<BITS>()) << at;
            }
        }
    }
}

/// Takes the fields of `packed` from `codes`, shifted right by `at`. `packed` comes in zeroed.
#[inline(always)]
pub(crate) fn pack<const BITS: usize, const STRIDE: usize>(
    codes: &[u8],
    at: u32,
    packed: &mut [u8],
) {
    for (bytes, codes) in packed
        .as_chunks_mut::<STRIDE>()
        .0
        .iter_mut()
        .zip(codes.chunks_exact(STRIDE * 8 / BITS))
    {
        for (plane, codes) in codes.as_chunks::<STRIDE>().0.iter().enumerate() {
            for (code, byte) in codes.iter().zip(bytes.iter_mut()) {
                *byte |= ((code >> at) & mask::<BITS>()) << (plane * BITS);
            }
        }
    }
}

/// Makes codes bytes in two's complement, around a zero point.
#[inline(always)]
pub(crate) fn centre<const ZERO: u8>(codes: &mut [u8]) {
    for code in codes {
        *code = code.wrapping_sub(ZERO);
    }
}

const fn mask<const BITS: usize>() -> u8 {
    u8::MAX >> (8 - BITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_follow_each_other() {
        let mut codes = [0; 8];
        unpack::<2, 2>(&[0b11_10_01_00, 0b00_01_10_11], 0, &mut codes);
        assert_eq!(codes, [0, 3, 1, 2, 2, 1, 3, 0]);
        unpack::<1, 1>(&[0b1000_0010], 2, &mut codes);
        assert_eq!(codes, [0, 3 + 4, 1, 2, 2, 1, 3, 4]);
    }

    #[test]
    fn packing_is_the_inverse() {
        let codes: [u8; 256] = std::array::from_fn(|i| (i * 37 % 64) as u8);
        let (mut low, mut high) = ([0; 128], [0; 64]);
        pack::<4, 64>(&codes, 0, &mut low);
        pack::<2, 32>(&codes, 4, &mut high);
        let mut back = [0; 256];
        unpack::<4, 64>(&low, 0, &mut back);
        unpack::<2, 32>(&high, 4, &mut back);
        assert_eq!(back, codes);
    }
}
