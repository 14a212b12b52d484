//! Tensors put together, and what is put around one.

use rustorch_ir::ops::{Concat, Pad};
use rustorch_ir::{OpError, Scalar};

use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::promote::{Operand, result_dtype};

impl Tensor {
    /// Tensors joined along a dimension of theirs. Their other sizes are equal; their dtypes
    /// promote.
    ///
    /// # Errors
    /// No tensor; sizes that differ elsewhere; no such dimension.
    pub fn cat(tensors: &[&Self], dim: isize) -> RusTorchResult<Self> {
        Self::joined("cat", tensors, dim)
    }

    fn joined(name: &'static str, tensors: &[&Self], dim: isize) -> RusTorchResult<Self> {
        let Some(first) = tensors.first() else {
            return Err(OpError::new(name, "at least one tensor", "none").into());
        };
        let dim = first.dim(name, dim)?;
        let operands: Vec<Operand> = tensors.iter().map(|&t| t.into()).collect();
        let dtype = result_dtype(name, &operands)?;
        let tensors = (tensors.iter())
            .map(|t| t.cast(name, dtype))
            .collect::<RusTorchResult<Vec<Self>>>()?;
        Self::apply(name, Concat { dim }, &tensors.iter().collect::<Vec<_>>())
    }

    /// Tensors of one shape joined along a new dimension, between −rank − 1 and rank.
    ///
    /// # Errors
    /// No tensor; shapes that differ; no such place.
    pub fn stack(tensors: &[&Self], dim: isize) -> RusTorchResult<Self> {
        const NAME: &str = "stack";
        for pair in tensors.windows(2) {
            let same = pair[0].shape() == pair[1].shape();
            let got = format!("{} and {}", pair[0].ty(), pair[1].ty());
            require(NAME, same, "tensors of one shape", got)?;
        }
        let rows = (tensors.iter())
            .map(|t| t.unsqueeze(dim))
            .collect::<RusTorchResult<Vec<Self>>>()?;
        Self::joined(NAME, &rows.iter().collect::<Vec<_>>(), dim)
    }

    /// `value` put around the last dimensions, as `torch.nn.functional.pad`: `padding` is how
    /// many indices before and after the last dimension, then those of the one before it,
    /// and so on.
    ///
    /// # Errors
    /// An odd number of entries, or more than two for each dimension.
    pub fn pad(
        &self,
        padding: impl AsRef<[usize]>,
        value: impl Into<Scalar>,
    ) -> RusTorchResult<Self> {
        let (pairs, rest) = padding.as_ref().as_chunks::<2>();
        let fits = rest.is_empty() && pairs.len() <= self.rank();
        let expected = format!("a pair for each of the last of {} dimensions", self.rank());
        let got = format!("{:?}", padding.as_ref());
        require("pad", fits, expected, got)?;
        let kept = self.rank() - pairs.len();
        let op = Pad {
            padding: (std::iter::repeat_n((0, 0), kept))
                .chain(pairs.iter().rev().map(|&[before, after]| (before, after)))
                .collect(),
            value: value.into(),
        };
        Self::apply("pad", op, &[self])
    }
}
