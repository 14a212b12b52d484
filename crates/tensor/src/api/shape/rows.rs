//! Tensors split into rows, or read as Rust's vectors.

use rustorch_macros::track_calls;

use crate::error::{RusTorchResult, require};
use crate::{Element, Tensor};

#[track_calls]
impl Tensor {
    /// The slices along the first dimension, as an iterator. `for row in &x` gives the same, each
    /// as a result.
    ///
    /// # Errors
    /// Fails for a tensor of rank 0.
    pub fn iter(&self) -> RusTorchResult<std::vec::IntoIter<Self>> {
        self.require_rows("iter")?;
        Ok(self.unbind(0)?.into_iter())
    }

    /// The only element of a tensor of rank 0: candle's `to_vec0`, or [`Tensor::to_scalar`] for
    /// rank 0.
    ///
    /// # Errors
    /// Fails for an unsupported rank. Also the errors of [`Tensor::to_scalar`].
    pub fn to_vec0<T: Element>(&self) -> RusTorchResult<T> {
        self.require_rank("to_vec0", 0)?;
        self.to_scalar()
    }

    /// The elements of a vector.
    ///
    /// # Errors
    /// Fails for an unsupported rank. Also the errors of [`Tensor::to_vec`].
    pub fn to_vec1<T: Element>(&self) -> RusTorchResult<Vec<T>> {
        self.require_rank("to_vec1", 1)?;
        self.to_vec()
    }

    /// The rows of a matrix.
    ///
    /// # Errors
    /// Fails for an unsupported rank. Also the errors of [`Tensor::to_vec`].
    pub fn to_vec2<T: Element>(&self) -> RusTorchResult<Vec<Vec<T>>> {
        self.require_rank("to_vec2", 2)?;
        let (rows, columns) = (self.shape()[0], self.shape()[1]);
        Ok(split(&self.to_vec()?, rows, columns))
    }

    /// The rows of each matrix of a tensor of rank 3.
    ///
    /// # Errors
    /// Fails for an unsupported rank. Also the errors of [`Tensor::to_vec`].
    pub fn to_vec3<T: Element>(&self) -> RusTorchResult<Vec<Vec<Vec<T>>>> {
        self.require_rank("to_vec3", 3)?;
        let (planes, rows, columns) = (self.shape()[0], self.shape()[1], self.shape()[2]);
        let elements: Vec<T> = self.to_vec()?;
        let planes = split(&elements, planes, rows * columns);
        Ok(planes
            .iter()
            .map(|plane| split(plane, rows, columns))
            .collect())
    }

    fn require_rank(&self, name: &'static str, rank: usize) -> RusTorchResult<()> {
        let expected = format_args!("rank {rank} (to_vec reads every rank)");
        require(name, self.rank() == rank, expected, self.ty())
    }

    fn require_rows(&self, name: &'static str) -> RusTorchResult<()> {
        require(name, self.rank() > 0, "a tensor with dimensions", self.ty())
    }
}

/// `count` rows of `width` elements each, which may be none.
fn split<T: Element>(elements: &[T], count: usize, width: usize) -> Vec<Vec<T>> {
    let row = |i| elements[i * width..(i + 1) * width].to_vec();
    (0..count).map(row).collect()
}

/// The slices of a tensor along the first dimension: `for row in &x`. A tensor of rank 0 has none,
/// which is an error.
pub struct Rows<'a> {
    tensor: &'a Tensor,
    next: usize,
    count: usize,
}

impl Iterator for Rows<'_> {
    type Item = RusTorchResult<Tensor>;

    fn next(&mut self) -> Option<Self::Item> {
        let index = self.next;
        if index == self.count {
            return None;
        }
        self.next += 1;
        let row = |()| self.tensor.select(0, index);
        Some(self.tensor.require_rows("iter").and_then(row))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.count - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for Rows<'_> {}

impl<'a> IntoIterator for &'a Tensor {
    type Item = RusTorchResult<Tensor>;
    type IntoIter = Rows<'a>;

    fn into_iter(self) -> Rows<'a> {
        Rows {
            tensor: self,
            next: 0,
            // The error of a tensor without rows is what comes first.
            count: self.shape().first().copied().unwrap_or(1),
        }
    }
}
