//! The element types of ggml: one table, from which names, numbers and sizes are read.

use std::fmt;

use rustorch_quant::BlockFormat;

/// How a type lays its elements out.
enum Encoding {
    /// Single elements, each of this many bytes.
    Scalar(&'static str, usize),
    /// Blocks of so many elements and bytes.
    Blocks(&'static str, usize, usize),
}
use Encoding::{Blocks, Scalar};

macro_rules! ggml_types {
    ($($variant:ident = $id:literal, $layout:expr;)*) => {
        /// The element type of a tensor in a GGUF file, by ggml's numbers.
        ///
        /// Source: `enum ggml_type` in ggml.h and the block structures in ggml-common.h (ggml 0.25).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum GgmlType {
            $(#[doc = concat!("Type number ", $id, ".")] $variant = $id,)*
        }

        impl GgmlType {
            /// Every type, by increasing number.
            pub const ALL: &[GgmlType] = &[$(GgmlType::$variant),*];

            /// The type with this number, if ggml has one.
            pub fn from_id(id: u32) -> Option<Self> {
                match id {
                    $($id => Some(GgmlType::$variant),)*
                    _ => None,
                }
            }

            fn encoding(self) -> Encoding {
                match self {
                    $(GgmlType::$variant => $layout,)*
                }
            }
        }
    };
}

ggml_types! {
    F32 = 0, Scalar("F32", 4);
    F16 = 1, Scalar("F16", 2);
    Q4_0 = 2, Blocks("Q4_0", 32, 18);
    Q4_1 = 3, Blocks("Q4_1", 32, 20);
    Q5_0 = 6, Blocks("Q5_0", 32, 22);
    Q5_1 = 7, Blocks("Q5_1", 32, 24);
    Q8_0 = 8, Blocks("Q8_0", 32, 34);
    Q8_1 = 9, Blocks("Q8_1", 32, 36);
    Q2K = 10, Blocks("Q2_K", 256, 84);
    Q3K = 11, Blocks("Q3_K", 256, 110);
    Q4K = 12, Blocks("Q4_K", 256, 144);
    Q5K = 13, Blocks("Q5_K", 256, 176);
    Q6K = 14, Blocks("Q6_K", 256, 210);
    Q8K = 15, Blocks("Q8_K", 256, 292);
    Iq2Xxs = 16, Blocks("IQ2_XXS", 256, 66);
    Iq2Xs = 17, Blocks("IQ2_XS", 256, 74);
    Iq3Xxs = 18, Blocks("IQ3_XXS", 256, 98);
    Iq1S = 19, Blocks("IQ1_S", 256, 50);
    Iq4Nl = 20, Blocks("IQ4_NL", 32, 18);
    Iq3S = 21, Blocks("IQ3_S", 256, 110);
    Iq2S = 22, Blocks("IQ2_S", 256, 82);
    Iq4Xs = 23, Blocks("IQ4_XS", 256, 136);
    I8 = 24, Scalar("I8", 1);
    I16 = 25, Scalar("I16", 2);
    I32 = 26, Scalar("I32", 4);
    I64 = 27, Scalar("I64", 8);
    F64 = 28, Scalar("F64", 8);
    Iq1M = 29, Blocks("IQ1_M", 256, 56);
    BF16 = 30, Scalar("BF16", 2);
    Tq1_0 = 34, Blocks("TQ1_0", 256, 54);
    Tq2_0 = 35, Blocks("TQ2_0", 256, 66);
    Mxfp4 = 39, Blocks("MXFP4", 32, 17);
    Nvfp4 = 40, Blocks("NVFP4", 64, 36);
    Q1_0 = 41, Blocks("Q1_0", 128, 18);
    Q2_0 = 42, Blocks("Q2_0", 64, 18);
}

impl GgmlType {
    /// ggml's number for the type.
    pub fn id(self) -> u32 {
        self as u32
    }

    /// ggml's name for the type, such as `F16` or `Q4_K`.
    pub fn name(self) -> &'static str {
        match self.encoding() {
            Scalar(name, _) | Blocks(name, ..) => name,
        }
    }

    /// The block format of types that RusTorch computes with, see [`BlockFormat`].
    pub fn block_format(self) -> Option<BlockFormat> {
        let mut formats = BlockFormat::ALL.iter().copied();
        formats.find(|format| format.name() == self.name())
    }

    /// Whether RusTorch computes with the type. The others can be listed and copied, not used.
    pub fn is_supported(self) -> bool {
        matches!(self.encoding(), Scalar(..)) || self.block_format().is_some()
    }

    /// Elements in one block; 1 for scalar types.
    pub fn block_len(self) -> usize {
        match self.encoding() {
            Scalar(..) => 1,
            Blocks(_, len, _) => len,
        }
    }

    /// Bytes of one block; of one element for scalar types.
    pub fn block_bytes(self) -> usize {
        match self.encoding() {
            Scalar(_, bytes) | Blocks(_, _, bytes) => bytes,
        }
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_unique_and_lead_back() {
        let mut names: Vec<_> = GgmlType::ALL.iter().map(|ty| ty.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), GgmlType::ALL.len());
        for &ty in GgmlType::ALL {
            assert_eq!(GgmlType::from_id(ty.id()), Some(ty));
        }
        for withdrawn in [4, 5, 31, 32, 33, 36, 37, 38, 43, u32::MAX] {
            assert_eq!(GgmlType::from_id(withdrawn), None);
        }
    }

    /// Bits per weight as llama.cpp's documentation gives them.
    #[test]
    fn sizes_give_the_known_bits_per_weight() {
        let known = [
            (GgmlType::F32, 32.0),
            (GgmlType::BF16, 16.0),
            (GgmlType::Q8_0, 8.5),
            (GgmlType::Q6K, 6.5625),
            (GgmlType::Q5K, 5.5),
            (GgmlType::Q4K, 4.5),
            (GgmlType::Q4_0, 4.5),
            (GgmlType::Q3K, 3.4375),
            (GgmlType::Iq4Xs, 4.25),
            (GgmlType::Iq2Xxs, 2.0625),
            (GgmlType::Mxfp4, 4.25),
        ];
        for (ty, bits) in known {
            assert_eq!(
                8.0 * ty.block_bytes() as f64 / ty.block_len() as f64,
                bits,
                "{ty}"
            );
        }
    }

    #[test]
    fn every_format_is_a_type_of_its_size() {
        for &format in BlockFormat::ALL {
            let types = GgmlType::ALL.iter();
            let mut its = types.filter(|ty| ty.block_format() == Some(format));
            let ty = its.next().unwrap();
            assert!(its.next().is_none() && ty.is_supported(), "{format}");
            let size = (ty.block_len(), ty.block_bytes());
            assert_eq!(size, (format.block_len(), format.block_bytes()), "{format}");
        }
        assert!(GgmlType::F32.is_supported() && !GgmlType::Iq4Xs.is_supported());
    }
}
