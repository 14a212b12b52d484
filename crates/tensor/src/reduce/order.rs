//! The largest and smallest elements, and elements in order.

use rustorch_ir::DType;
use rustorch_ir::ops::{ArgReduce, TopK};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::dims::{Integer, OptionalDim};
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// Index of the largest element along `dim`, or among all in row-major order (`None`):
    /// the first one of equals; NaN is the largest. Integers and floats; result `i64`.
    ///
    /// # Errors
    /// There is no such dimension, or no element; another dtype.
    pub fn argmax(&self, dim: impl OptionalDim, keepdim: bool) -> RusTorchResult<Self> {
        self.arg_reduce("argmax", true, dim.to_dim(), keepdim)
    }

    /// Index of the smallest element: otherwise as [`Tensor::argmax`] (NaN is the smallest).
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    pub fn argmin(&self, dim: impl OptionalDim, keepdim: bool) -> RusTorchResult<Self> {
        self.arg_reduce("argmin", false, dim.to_dim(), keepdim)
    }

    fn arg_reduce(
        &self,
        name: &'static str,
        largest: bool,
        dim: Option<isize>,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        let op = |dim| ArgReduce {
            largest,
            dim,
            values: false,
        };
        let Some(dim) = dim else {
            let index = Self::apply(name, op(0), &[&self.reshape([-1])?])?;
            return match keepdim {
                true => index.reshape(&vec![1usize; self.rank()][..]),
                false => Ok(index),
            };
        };
        let [index] = self.along(|x| {
            let dim = x.dim(name, dim)?;
            let index = Self::apply(name, op(dim), &[x])?;
            match keepdim {
                true => Ok([index.unsqueeze(dim as isize)?]),
                false => Ok([index]),
            }
        })?;
        Ok(index)
    }

    /// The largest element along `dim`, and its index (`i64`): the first one of equals; NaN is
    /// the largest. PyTorch's `max` of one dimension. Real numbers and booleans.
    ///
    /// # Errors
    /// There is no such dimension, or no element; another dtype.
    pub fn max_dim(&self, dim: impl Integer, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        self.extreme("max_dim", true, dim.to_isize(), keepdim)
    }

    /// The smallest element along `dim`, and its index: otherwise as [`Tensor::max_dim`] (NaN is
    /// the smallest).
    ///
    /// # Errors
    /// As [`Tensor::max_dim`].
    pub fn min_dim(&self, dim: impl Integer, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        self.extreme("min_dim", false, dim.to_isize(), keepdim)
    }

    fn extreme(
        &self,
        name: &'static str,
        largest: bool,
        dim: isize,
        keepdim: bool,
    ) -> RusTorchResult<(Self, Self)> {
        let [values, indices] = self.along(|x| {
            let dim = x.dim(name, dim)?;
            let op = ArgReduce {
                largest,
                dim,
                values: true,
            };
            let [values, indices] = Self::apply_all(name, op, &[&x.ordered(name)?])?;
            let kept = |x: Self| match keepdim {
                true => x.unsqueeze(dim as isize),
                false => Ok(x),
            };
            Ok([kept(values)?, kept(indices)?])
        })?;
        Ok((values.cast(name, self.dtype())?, indices))
    }

    /// Booleans as numbers, which have an order.
    fn ordered(&self, name: &'static str) -> RusTorchResult<Self> {
        match self.dtype() {
            DType::Bool => self.cast(name, DType::U8),
            _ => Ok(self.clone()),
        }
    }

    /// The `k` largest elements along `dim`, or the smallest, best first, and their indices
    /// (`i64`): the earlier one first of equals; NaN is the largest. Real numbers and booleans. Of
    /// rank 0 the one element, even for a `k` of 0.
    ///
    /// # Errors
    /// There is no such dimension, or it has fewer than `k` elements; another dtype.
    pub fn topk(&self, k: usize, dim: impl Integer, largest: bool) -> RusTorchResult<(Self, Self)> {
        let k = if self.rank() == 0 { k.max(1) } else { k };
        self.best("topk", Some(k), dim.to_isize(), largest)
    }

    /// The elements in rising order along `dim`, or falling (`descending`), and the indices that
    /// they had (`i64`). Equal elements stay in their order; NaN is the largest. Real numbers and
    /// booleans.
    ///
    /// # Errors
    /// There is no such dimension; another dtype.
    pub fn sort(&self, dim: impl Integer, descending: bool) -> RusTorchResult<(Self, Self)> {
        self.best("sort", None, dim.to_isize(), descending)
    }

    /// The indices of [`Tensor::sort`].
    ///
    /// # Errors
    /// As [`Tensor::sort`].
    pub fn argsort(&self, dim: impl Integer, descending: bool) -> RusTorchResult<Self> {
        let (_, indices) = self.best("argsort", None, dim.to_isize(), descending)?;
        Ok(indices)
    }

    /// The elements in rising order along the first dimension.
    ///
    /// # Errors
    /// As [`Tensor::sort`].
    pub fn msort(&self) -> RusTorchResult<Self> {
        let (values, _) = self.best("msort", None, 0, false)?;
        Ok(values)
    }

    /// The `k`-th smallest element along `dim`, counted from 1, and its index (`i64`). NaN is the
    /// largest. Real numbers and booleans.
    ///
    /// # Errors
    /// There is no such dimension, or it has fewer than `k` elements; another dtype.
    pub fn kthvalue(
        &self,
        k: usize,
        dim: impl Integer,
        keepdim: bool,
    ) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "kthvalue";
        require(NAME, k > 0, "k from 1 on", k)?;
        let [values, indices] = self.along(|x| {
            let (values, indices) = x.best(NAME, Some(k), dim.to_isize(), false)?;
            let last = |x: Self| match keepdim {
                true => x.narrow(dim, k - 1, 1),
                false => x.select(dim, k as isize - 1),
            };
            Ok([last(values)?, last(indices)?])
        })?;
        Ok((values, indices))
    }

    /// The best `k` elements along `dim`, or all.
    fn best(
        &self,
        name: &'static str,
        k: Option<usize>,
        dim: isize,
        largest: bool,
    ) -> RusTorchResult<(Self, Self)> {
        let [values, indices] = self.along(|x| {
            let dim = x.dim(name, dim)?;
            let k = k.unwrap_or(x.shape()[dim]);
            Self::apply_all(name, TopK { k, dim, largest }, &[&x.ordered(name)?])
        })?;
        Ok((values.cast(name, self.dtype())?, indices))
    }
}
