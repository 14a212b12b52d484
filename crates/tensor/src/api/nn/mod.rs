//! PyTorch's `torch.nn.functional`, one file for each family.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `linear.rs`, `embedding.rs` | products with weights; rows of tables, and bags of them |
//! | `convolution.rs` | convolutions and transposed convolutions of 1 to 3 dimensions |
//! | `windows.rs`, `pooling/` | windows along dimensions, and what is made of them |
//! | `softmax.rs`, `normalization.rs` | softmax and its logarithm, the norms |
//! | `interpolate.rs`, `sampling.rs` | images in other sizes, and seen through grids |
//! | `attention.rs`, `multi_head.rs` | attention, rotary embedding, the layer made of them |
//! | `recurrent.rs` | layers of recurrent networks |
//! | `dropout.rs` | elements left out by chance |
//! | `distance.rs` | distances between vectors |
//! | `loss/` | losses |
//! | `backward/` | gradients of layers, as `aten` has them |

mod attention;
pub mod backward;
mod convolution;
mod distance;
mod dropout;
mod embedding;
mod interpolate;
mod linear;
mod loss;
mod multi_head;
mod normalization;
mod pooling;
mod recurrent;
pub(crate) mod sampling;
mod softmax;
mod windows;

pub use attention::AttentionOptions;
pub use convolution::{ConvOptions, ConvPadding, ConvTransposeOptions};
pub use distance::CdistMode;
pub use embedding::{EmbeddingBagMode, EmbeddingBagOptions};
pub use interpolate::{InterpolateMode, InterpolateOptions, InterpolateSize};
pub use loss::{CrossEntropyOptions, CtcOptions, Reduction, TripletOptions};
pub use multi_head::{MultiHeadOptions, Projections};
pub use normalization::{BatchNormOptions, BatchNormed};
pub use pooling::{AvgPoolOptions, FractionalSize, MaxPoolOptions};
pub use sampling::{GridSampleMode, GridSampleOptions, GridSamplePadding};

use rustorch_ir::DType;
use rustorch_ir::ops::Pad;

use crate::Tensor;
use crate::api::promote::Number;
use crate::error::{RusTorchResult, require};

impl Tensor {
    /// The tensor in the dtype that compositions are computed in: at least single precision.
    pub(crate) fn widened(&self, name: &'static str) -> RusTorchResult<Self> {
        match self.dtype() {
            DType::F16 | DType::BF16 => self.cast(name, DType::F32),
            _ => Ok(self.clone()),
        }
    }

    /// `[n, c, …]` of a tensor that may lack the batch, with `dims` dimensions behind the channels;
    /// and whether it has one.
    fn with_batch(&self, name: &'static str, dims: usize) -> RusTorchResult<(Self, bool)> {
        let expected =
            format_args!("[n, c, ..] or [c, ..] with {dims} dimensions after the channels");
        let has_batch = self.rank() == dims + 2;
        let fits = has_batch || self.rank() == dims + 1;
        require(name, fits, expected, self.ty())?;
        match has_batch {
            true => Ok((self.clone(), true)),
            false => Ok((self.unsqueeze(0)?, false)),
        }
    }

    /// [`Tensor::with_batch`] undone.
    fn without_batch(&self, has_batch: bool) -> RusTorchResult<Self> {
        match has_batch {
            true => Ok(self.clone()),
            false => self.squeeze(0),
        }
    }

    /// `value` put before and behind the last dimensions, by a pair for each.
    pub(crate) fn surrounded(
        &self,
        name: &'static str,
        pairs: &[(usize, usize)],
        value: impl Number,
    ) -> RusTorchResult<Self> {
        if pairs.iter().all(|&pair| pair == (0, 0)) {
            return Ok(self.clone());
        }
        let kept = std::iter::repeat_n((0, 0), self.rank() - pairs.len());
        let padding = kept.chain(pairs.iter().copied()).collect();
        let value = value.to_number();
        Self::apply(name, Pad { padding, value }, &[self])
    }

    /// A vector, one number for each channel, as it broadcasts along dimension 1 of `rank`.
    fn by_channel(&self, rank: usize) -> RusTorchResult<Self> {
        let mut shape = vec![1; rank.max(2)];
        shape[1] = self.numel();
        self.reshape(&shape[..])
    }
}
