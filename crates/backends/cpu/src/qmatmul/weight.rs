//! Matrices of weights in the caller's memory.

use super::activations::SLAB;
use super::float::Floats;
use super::operand::Operand;
use super::quantized::Blocks;
use super::tile::Tile;
use super::{Linear, Many, Rows, compute, convert, many, stream};
use crate::simd::Level;
use half::{bf16, f16};
use rustorch_quant::*;
use std::fmt;
use thiserror::Error;

/// The type of a matrix of weights.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WeightType {
    /// f32.
    F32,
    /// f16.
    F16,
    /// bf16.
    BF16,
    /// Blocks of a format.
    Block(BlockFormat),
}

/// Functions that the table of types derives from an operand.
pub(crate) struct Kernels {
    /// Weights in an element.
    len: usize,
    bytes: usize,
    align: usize,
    /// Bytes of a slab of activations.
    pub(super) slab: usize,
    /// Many rows of activations.
    pub(super) product: fn(Linear<'_>),
    /// The parts of products: activations, a few rows of them with some rows of weights, and many.
    pub(super) convert: fn(Level, Rows<'_>, usize, &mut [u8]),
    pub(super) stream: fn(Level, &Weight<'_>, usize, &[u8], Tile<'_>),
    pub(super) many: fn(Level, &Weight<'_>, Many<'_>),
    /// The most rows of weights for one call with many rows.
    pub(super) most_rows: fn(Level) -> usize,
}

impl Kernels {
    const fn of<O: Operand>() -> &'static Self {
        const {
            &Self {
                len: SLAB * size_of::<O::Element>() / size_of::<O::Slab>(),
                bytes: size_of::<O::Element>(),
                align: align_of::<O::Element>(),
                slab: size_of::<O::X>(),
                product: compute::<O>,
                convert: convert::<O>,
                stream: stream::<O>,
                many: many::<O>,
                most_rows: O::most_rows,
            }
        }
    }
}

macro_rules! kernels {
    ($($variant:ident $module:ident $block:ident),+) => {
        const fn kernels_of_blocks(format: BlockFormat) -> &'static Kernels {
            match format {
                $(BlockFormat::$variant => Kernels::of::<Blocks<$block>>()),+
            }
        }
    };
}

rustorch_quant::for_each_format!(kernels);

impl WeightType {
    /// The table of types.
    pub(crate) const fn kernels(self) -> &'static Kernels {
        match self {
            Self::F32 => Kernels::of::<Floats<f32>>(),
            Self::F16 => Kernels::of::<Floats<f16>>(),
            Self::BF16 => Kernels::of::<Floats<bf16>>(),
            Self::Block(format) => kernels_of_blocks(format),
        }
    }
}

impl fmt::Display for WeightType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::F32 => f.pad("f32"),
            Self::F16 => f.pad("f16"),
            Self::BF16 => f.pad("bf16"),
            Self::Block(format) => format.fmt(f),
        }
    }
}

/// A matrix of `n` rows of `k` weights, used where it lies.
#[derive(Clone, Copy)]
pub struct Weight<'a> {
    weight_type: WeightType,
    bytes: &'a [u8],
    n: usize,
    k: usize,
}

/// The reason why bytes are not a matrix of weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum WeightError {
    /// Rows would end within a block.
    #[error(
        "a row of {k} weights does not fill blocks of {weight_type}, which hold {len}: choose another format for this matrix"
    )]
    PartialBlock {
        /// The type of the weights.
        weight_type: WeightType,
        /// Weights in a row.
        k: usize,
        /// Weights in a block.
        len: usize,
    },
    /// The bytes are not those of `n × k` weights.
    #[error("{n} rows of {k} weights in {weight_type} do not take {bytes} bytes: check the shape")]
    Length {
        /// The type of the weights.
        weight_type: WeightType,
        /// Rows.
        n: usize,
        /// Weights in a row.
        k: usize,
        /// The bytes that were given.
        bytes: usize,
    },
    /// The memory does not have the alignment of the type.
    #[error(
        "weights in {weight_type} must begin at a multiple of {align} bytes: copy them to aligned memory"
    )]
    Misaligned {
        /// The type of the weights.
        weight_type: WeightType,
        /// Its alignment.
        align: usize,
    },
}

impl<'a> Weight<'a> {
    /// Rows of `k` weights, `n` of them one after the other, in little-endian bytes.
    ///
    /// # Errors
    /// [`WeightError`] unless `k` is a multiple of the block size and `bytes` holds exactly all
    /// rows. Also fails unless `bytes` begins at a multiple of the type's alignment (at most four).
    pub fn new(
        weight_type: WeightType,
        bytes: &'a [u8],
        n: usize,
        k: usize,
    ) -> Result<Self, WeightError> {
        let Kernels {
            len,
            bytes: size,
            align,
            ..
        } = *weight_type.kernels();
        if !k.is_multiple_of(len) {
            return Err(WeightError::PartialBlock {
                weight_type,
                k,
                len,
            });
        }
        let expected = (k / len)
            .checked_mul(size)
            .and_then(|row| row.checked_mul(n));
        if expected != Some(bytes.len()) {
            return Err(WeightError::Length {
                weight_type,
                n,
                k,
                bytes: bytes.len(),
            });
        }
        if !bytes.is_empty() && !bytes.as_ptr().addr().is_multiple_of(align) {
            return Err(WeightError::Misaligned { weight_type, align });
        }
        Ok(Self {
            weight_type,
            bytes,
            n,
            k,
        })
    }

    /// The type of the weights.
    pub fn weight_type(&self) -> WeightType {
        self.weight_type
    }

    /// Rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Weights in a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The bytes of the rows.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Bytes of [`super::Scratch`] that a product with `t` rows of activations needs.
    pub fn scratch_bytes(&self, t: usize) -> usize {
        self.k.div_ceil(SLAB) * t * self.weight_type.kernels().slab
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_matrices_are_refused() {
        let weight_type = WeightType::Block(BlockFormat::Q8_0);
        let bytes = [0_u16; 51];
        let bytes: &[u8] = bytemuck::cast_slice(&bytes);
        assert!(Weight::new(weight_type, bytes, 3, 32).is_ok());
        assert!(Weight::new(weight_type, bytes, 1, 96).is_ok());
        assert!(Weight::new(weight_type, &[], 0, 96).is_ok());
        let refused = |bytes, n, k| Weight::new(weight_type, bytes, n, k).err();
        assert_eq!(
            refused(bytes, 3, 33),
            Some(WeightError::PartialBlock {
                weight_type,
                k: 33,
                len: 32
            })
        );
        for (n, k) in [(2, 32), (3, 64), (usize::MAX, 32), (1, 1 << 63)] {
            assert_eq!(
                refused(bytes, n, k),
                Some(WeightError::Length {
                    weight_type,
                    n,
                    k,
                    bytes: 102
                })
            );
        }
        assert_eq!(
            refused(&bytes[1..69], 2, 32),
            Some(WeightError::Misaligned {
                weight_type,
                align: 2
            })
        );
    }
}
