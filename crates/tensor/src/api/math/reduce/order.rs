//! Largest and smallest elements, and sorting.

use rustorch_ir::DType;
use rustorch_ir::ops::{ArgReduce, KthValue, TopK};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::{Integer, OptionalDim};
use crate::error::{RusTorchResult, require};

#[track_calls]
impl Tensor {
    /// Index of the largest element along `dim`, or among all in row-major order (`None`). It is
    /// the first of equal ones; NaN is the largest. Takes integers and floats; the result is `i64`.
    ///
    /// # Errors
    /// Fails if the dimension does not exist or is empty, or for an unsupported dtype.
    pub fn argmax(&self, dim: impl OptionalDim, keepdim: bool) -> RusTorchResult<Self> {
        self.arg_reduce("argmax", true, dim.to_dim(), keepdim)
    }

    /// Index of the smallest element, otherwise like [`Tensor::argmax`] (NaN is the smallest).
    ///
    /// # Errors
    /// The same errors as [`Tensor::argmax`].
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

    /// The largest element along `dim`, and its index (`i64`), the first of equal ones; NaN is the
    /// largest. PyTorch's `max` of one dimension. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails if the dimension does not exist or is empty, or for an unsupported dtype.
    pub fn max_dim(&self, dim: impl Integer, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        self.extreme("max_dim", true, dim.to_isize(), keepdim)
    }

    /// The smallest element along `dim`, and its index, otherwise like [`Tensor::max_dim`] (NaN is
    /// the smallest).
    ///
    /// # Errors
    /// The same errors as [`Tensor::max_dim`].
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

    /// The `k` largest or smallest elements along `dim`, best first, and their indices (`i64`).
    /// Equal ones keep their order; NaN is the largest. Takes real numbers and booleans. A tensor
    /// of rank 0 returns its element, even for a `k` of 0.
    ///
    /// # Errors
    /// Fails if the dimension does not exist or has fewer than `k` elements. Also fails for an
    /// unsupported dtype.
    pub fn topk(&self, k: usize, dim: impl Integer, largest: bool) -> RusTorchResult<(Self, Self)> {
        let k = if self.rank() == 0 { k.max(1) } else { k };
        self.best("topk", Some(k), dim.to_isize(), largest)
    }

    /// The elements in ascending order along `dim`, or `descending`, and their former indices
    /// (`i64`). Equal elements keep their order; NaN is the largest. Takes real numbers and
    /// booleans.
    ///
    /// # Errors
    /// Fails if the dimension does not exist, or for an unsupported dtype.
    pub fn sort(&self, dim: impl Integer, descending: bool) -> RusTorchResult<(Self, Self)> {
        self.best("sort", None, dim.to_isize(), descending)
    }

    /// The indices of [`Tensor::sort`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::sort`].
    pub fn argsort(&self, dim: impl Integer, descending: bool) -> RusTorchResult<Self> {
        let (_, indices) = self.best("argsort", None, dim.to_isize(), descending)?;
        Ok(indices)
    }

    /// The elements in ascending order along the first dimension.
    ///
    /// # Errors
    /// The same errors as [`Tensor::sort`].
    pub fn msort(&self) -> RusTorchResult<Self> {
        let (values, _) = self.best("msort", None, 0, false)?;
        Ok(values)
    }

    /// The `k`-th smallest element along `dim`, counted from 1, and its index (`i64`). NaN is the
    /// largest. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails if the dimension does not exist or has fewer than `k` elements. Also fails for an
    /// unsupported dtype.
    pub fn kthvalue(
        &self,
        k: usize,
        dim: impl Integer,
        keepdim: bool,
    ) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "kthvalue";
        require(NAME, k > 0, "k from 1 on", k)?;
        let [values, indices] = self.along(|x| {
            let dim = x.dim(NAME, dim.to_isize())?;
            let mut shape = x.shape().to_vec();
            shape[dim] = 1;
            let place = Self::full(&shape[..], k - 1, DType::I64)?;
            x.in_order(NAME, dim, k, &place, keepdim)
        })?;
        Ok((values, indices))
    }

    /// The element of each line along `dim` with a place in rising order, and its index. `places` has size 1 along `dim`,
    /// and numbers below `k`.
    pub(super) fn in_order(
        &self,
        name: &'static str,
        dim: usize,
        k: usize,
        places: &Self,
        keepdim: bool,
    ) -> RusTorchResult<[Self; 2]> {
        let ordered = self.ordered(name)?;
        let [values, indices] = Self::apply_all(name, KthValue { k, dim }, &[&ordered, places])?;
        let kept = |x: Self| match keepdim {
            true => Ok(x),
            false => x.squeeze(dim as isize),
        };
        Ok([kept(values.cast(name, self.dtype())?)?, kept(indices)?])
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
