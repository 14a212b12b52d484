//! The run-time view: one table of all formats, from which everything else is derived.

mod block;
mod mxfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_1;
mod q8_k;

use crate::QuantError;
use block::{dequantize_blocks, quantize_blocks, unpack_blocks};
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

pub use block::{Block, LEAST_GROUP, MOST_VALUES, Parts};

macro_rules! formats {
    ($d:tt $($(#[$doc:meta])* $variant:ident = $name:literal, $module:ident::$block:ident;)+) => {
        $(pub use $module::$block;)+
        $(const _: () = assert!(<$block>::FORMAT as u8 == BlockFormat::$variant as u8);)+

        /// A block format, by ggml's name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum BlockFormat {
            $($(#[$doc])* $variant),+
        }

        impl BlockFormat {
            /// Every format.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            const fn codec(self) -> &'static Codec {
                match self {
                    $(Self::$variant => const { &Codec::of::<$block>($name) }),+
                }
            }
        }

        /// Passes all formats to a macro, which builds a table from them. `for_each_format!(table)`
        /// is `table! { Q4_0 q4_0 BlockQ4_0, … }`, with the names in [`BlockFormat`], of the file
        /// and of the block.
        #[macro_export]
        macro_rules! for_each_format {
            ($d table:ident) => { $d table! { $($variant $module $block),+ } };
        }
    };
}

formats! {
    $
    /// 32 values of 4 bits and a scale: 4.5 bits a value.
    Q4_0 = "Q4_0", q4_0::BlockQ4_0;
    /// 32 values of 4 bits, a scale and a minimum: 5 bits a value.
    Q4_1 = "Q4_1", q4_1::BlockQ4_1;
    /// 32 values of 5 bits and a scale: 5.5 bits a value.
    Q5_0 = "Q5_0", q5_0::BlockQ5_0;
    /// 32 values of 5 bits, a scale and a minimum: 6 bits a value.
    Q5_1 = "Q5_1", q5_1::BlockQ5_1;
    /// 32 values of 8 bits and a scale: 8.5 bits a value.
    Q8_0 = "Q8_0", q8_0::BlockQ8_0;
    /// `Q8_0` with the sum of the values, for dot products with `Q4_1` and `Q5_1`: 9 bits a value.
    Q8_1 = "Q8_1", q8_1::BlockQ8_1;
    /// 16 groups of 16 values of 2 bits, 4-bit scales and minima: 2.625 bits a value.
    Q2K = "Q2_K", q2_k::BlockQ2K;
    /// 16 groups of 16 values of 3 bits, 6-bit scales: 3.4375 bits a value.
    Q3K = "Q3_K", q3_k::BlockQ3K;
    /// 8 groups of 32 values of 4 bits, 6-bit scales and minima: 4.5 bits a value.
    Q4K = "Q4_K", q4_k::BlockQ4K;
    /// 8 groups of 32 values of 5 bits, 6-bit scales and minima: 5.5 bits a value.
    Q5K = "Q5_K", q5_k::BlockQ5K;
    /// 16 groups of 16 values of 6 bits, 8-bit scales: 6.5625 bits a value.
    Q6K = "Q6_K", q6_k::BlockQ6K;
    /// 256 values of 8 bits, an f32 scale and sums of 16, for dot products with the other K
    /// formats: 9.125 bits a value.
    Q8K = "Q8_K", q8_k::BlockQ8K;
    /// 32 values of FP4 with a power of two as their scale: 4.25 bits a value.
    Mxfp4 = "MXFP4", mxfp4::BlockMxfp4;
}

/// Facts that the table derives from a block type.
struct Codec {
    name: &'static str,
    block_len: usize,
    block_bytes: usize,
    group_len: usize,
    codes: RangeInclusive<i8>,
    has_minima: bool,
    unpack: fn(&[u8], Parts<'_>),
    dequantize: fn(&[u8], &mut [f32]),
    quantize: fn(&[f32], &mut [u8]),
}

impl Codec {
    const fn of<B: Block>(name: &'static str) -> Self {
        Self {
            name,
            block_len: B::LEN,
            block_bytes: size_of::<B>(),
            group_len: B::GROUP,
            codes: B::CODES,
            has_minima: B::HAS_MINIMA,
            unpack: unpack_blocks::<B>,
            dequantize: dequantize_blocks::<B>,
            quantize: quantize_blocks::<B>,
        }
    }
}

impl BlockFormat {
    /// ggml's name, such as `Q4_K`.
    pub const fn name(self) -> &'static str {
        self.codec().name
    }

    /// Values in a block.
    pub const fn block_len(self) -> usize {
        self.codec().block_len
    }

    /// Bytes in a block.
    pub const fn block_bytes(self) -> usize {
        self.codec().block_bytes
    }

    /// Bytes of a row of `k` values, or `None` if they do not fill whole blocks or overflow.
    pub const fn row_bytes(self, k: usize) -> Option<usize> {
        if k.is_multiple_of(self.block_len()) {
            (k / self.block_len()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }

    /// Values of a block that share a scale, and a minimum if there are any.
    pub const fn group_len(self) -> usize {
        self.codec().group_len
    }

    /// The range of the codes.
    pub const fn codes(self) -> &'static RangeInclusive<i8> {
        &self.codec().codes
    }

    /// Returns whether groups have a minimum. Then codes are not negative.
    pub const fn has_minima(self) -> bool {
        self.codec().has_minima
    }

    /// Writes the codes, scales and minima of the blocks `src`, which may have any alignment, to zeroed `parts`.
    ///
    /// # Errors
    /// [`QuantError`] unless the codes fill whole blocks and `src` has exactly their bytes. Each
    /// group also needs a scale and a minimum.
    pub fn unpack(self, src: &[u8], parts: Parts<'_>) -> Result<(), QuantError> {
        self.check(parts.codes.len(), src.len())?;
        let groups = parts.codes.len() / self.group_len();
        for given in [parts.scales.len(), parts.minima.len()] {
            if given != groups {
                return Err(QuantError::Groups {
                    format: self,
                    elements: parts.codes.len(),
                    groups,
                    given,
                });
            }
        }
        (self.codec().unpack)(src, parts);
        Ok(())
    }

    /// Writes the values of the blocks `src`, which may have any alignment, to `dst`.
    ///
    /// # Errors
    /// [`QuantError`] unless `dst` fills whole blocks and `src` has exactly their bytes.
    pub fn dequantize(self, src: &[u8], dst: &mut [f32]) -> Result<(), QuantError> {
        self.check(dst.len(), src.len())?;
        (self.codec().dequantize)(src, dst);
        Ok(())
    }

    /// Quantises the values `src` to blocks in `dst`, which may have any alignment. NaN and
    /// infinities give blocks without meaning.
    ///
    /// # Errors
    /// [`QuantError`] unless `src` fills whole blocks and `dst` has exactly their bytes.
    pub fn quantize(self, src: &[f32], dst: &mut [u8]) -> Result<(), QuantError> {
        self.check(src.len(), dst.len())?;
        (self.codec().quantize)(src, dst);
        Ok(())
    }

    fn check(self, elements: usize, bytes: usize) -> Result<(), QuantError> {
        let expected = self.row_bytes(elements).ok_or(QuantError::PartialBlock {
            format: self,
            elements,
        })?;
        if bytes == expected {
            Ok(())
        } else {
            Err(QuantError::BufferLength {
                format: self,
                elements,
                expected,
                bytes,
            })
        }
    }
}

impl fmt::Display for BlockFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for BlockFormat {
    type Err = QuantError;

    /// Reads a format's name in any case: ggml prints `q4_K`, its quantiser `Q4_K`.
    fn from_str(name: &str) -> Result<Self, QuantError> {
        let found = Self::ALL
            .iter()
            .find(|format| format.name().eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| QuantError::UnknownFormat {
            name: name.to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back() {
        for &format in BlockFormat::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
            assert_eq!(format.name().to_lowercase().parse(), Ok(format));
        }
        assert_eq!(BlockFormat::Q4K.to_string(), "Q4_K");
        assert!("".parse::<BlockFormat>().is_err());
    }

    #[test]
    fn row_bytes_are_whole_blocks() {
        assert_eq!(BlockFormat::Q4_0.row_bytes(64), Some(36));
        assert_eq!(BlockFormat::Q6K.row_bytes(512), Some(420));
        assert_eq!(BlockFormat::Q6K.row_bytes(500), None);
        assert_eq!(BlockFormat::Q8K.row_bytes(usize::MAX - 255), None);
    }

    #[test]
    fn blocks_can_be_viewed_in_mapped_bytes() {
        let aligned = [0_u16; 144];
        let bytes: &[u8] = bytemuck::cast_slice(&aligned);
        let blocks: &[BlockQ4K] = bytemuck::try_cast_slice(bytes).unwrap();
        assert_eq!(blocks.len(), 2);
    }
}
