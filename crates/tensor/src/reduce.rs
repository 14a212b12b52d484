//! Elements combined along dimensions.

use rustorch_ir::ops::{ArgReduce, Cumsum, Reduce, ReduceOp, TopK};
use rustorch_ir::{DType, OpError};

use crate::Tensor;
use crate::dims::Dims;
use crate::error::{RusTorchResult, require};

impl Tensor {
    fn reduce(
        &self,
        name: &'static str,
        op: ReduceOp,
        dims: &Dims,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        let dims = dims.resolve(name, self.rank())?;
        Self::apply(name, Reduce { op, dims, keepdim }, &[self])
    }

    /// How many elements each result of a reduction is made of.
    fn reduced_elements(&self, name: &'static str, dims: &Dims) -> RusTorchResult<usize> {
        let dims = dims.resolve(name, self.rank())?;
        Ok(dims.iter().map(|&d| self.shape()[d]).product())
    }

    pub(crate) fn require_float(&self, name: &'static str) -> RusTorchResult<()> {
        let float = self.dtype().is_float();
        require(name, float, "a floating-point tensor", self.ty())
    }
}

/// One method for each line: documentation, name, reduction.
macro_rules! reduce_methods {
    ($($doc:literal $name:ident = $op:ident;)*) => {
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// `dims`: one, several, or `None` for all. They are dropped, or kept with size 1.
            ///
            /// # Errors
            /// There are no such dimensions; a dtype that the reduction is not defined for.
            pub fn $name(&self, dims: impl Into<Dims>, keepdim: bool) -> RusTorchResult<Self> {
                self.reduce(stringify!($name), ReduceOp::$op, &dims.into(), keepdim)
            })*
        }
    };
}

reduce_methods! {
    "Sum; of integers and booleans an `i64`. 0 where there is nothing to add."
    sum = Sum;
    "Product; of integers and booleans an `i64`. 1 where there is nothing to multiply."
    prod = Prod;
    "Largest element, as `torch.amax`; NaN where one is NaN. Real numbers and booleans, at \
     least one. [`Tensor::max_dim`] tells where, too."
    max = Max;
    "Smallest element, as `torch.amin`; NaN where one is NaN. Real numbers and booleans, at \
     least one. [`Tensor::min_dim`] tells where, too."
    min = Min;
}

impl Tensor {
    /// Mean. Floats and complex numbers; NaN where there are no elements.
    ///
    /// # Errors
    /// There are no such dimensions; another dtype.
    pub fn mean(&self, dims: impl Into<Dims>, keepdim: bool) -> RusTorchResult<Self> {
        let dims = dims.into();
        let legal = self.dtype().is_float() || self.dtype().is_complex();
        let expected = "a floating-point or complex tensor (to_dtype converts)";
        require("mean", legal, expected, self.ty())?;
        let n = self.reduced_elements("mean", &dims)?;
        self.reduce("mean", ReduceOp::Sum, &dims, keepdim)?
            .div(n as f64)
    }

    /// Variance `Σ(x - mean)² / max(0, n - correction)`: `correction` 1 for a sample's, 0 for
    /// a population's. Floats.
    ///
    /// # Errors
    /// There are no such dimensions; another dtype.
    pub fn var(
        &self,
        dims: impl Into<Dims>,
        correction: usize,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        let dims = dims.into();
        self.require_float("var")?;
        let n = self.reduced_elements("var", &dims)?;
        let square = self.sub(&self.mean(dims.clone(), true)?)?.square()?;
        square
            .reduce("var", ReduceOp::Sum, &dims, keepdim)?
            .div(n.saturating_sub(correction) as f64)
    }

    /// Standard deviation: the root of [`Tensor::var`].
    ///
    /// # Errors
    /// As [`Tensor::var`].
    pub fn std(
        &self,
        dims: impl Into<Dims>,
        correction: usize,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        self.var(dims, correction, keepdim)?.sqrt()
    }

    /// Is any element other than 0? Result `bool`; false where there are none.
    ///
    /// # Errors
    /// There are no such dimensions; a block format.
    pub fn any(&self, dims: impl Into<Dims>, keepdim: bool) -> RusTorchResult<Self> {
        let dims = dims.into();
        let x = self.cast("any", DType::Bool)?;
        match self.reduced_elements("any", &dims)? {
            // A maximum needs an element, a sum does not.
            0 => x.reduce("any", ReduceOp::Sum, &dims, keepdim)?.ne(0),
            _ => x.reduce("any", ReduceOp::Max, &dims, keepdim),
        }
    }

    /// Is every element other than 0? Result `bool`; true where there are none.
    ///
    /// # Errors
    /// There are no such dimensions; a block format.
    pub fn all(&self, dims: impl Into<Dims>, keepdim: bool) -> RusTorchResult<Self> {
        self.logical_not()?.any(dims, keepdim)?.logical_not()
    }

    /// Index of the largest element along `dim`, or among all in row-major order (`None`):
    /// the first one of equals; NaN is the largest. Integers and floats; result `i64`.
    ///
    /// # Errors
    /// There is no such dimension, or no element; another dtype.
    pub fn argmax(&self, dim: impl Into<Option<isize>>, keepdim: bool) -> RusTorchResult<Self> {
        self.arg_reduce("argmax", true, dim.into(), keepdim)
    }

    /// Index of the smallest element: otherwise as [`Tensor::argmax`] (NaN is the smallest).
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    pub fn argmin(&self, dim: impl Into<Option<isize>>, keepdim: bool) -> RusTorchResult<Self> {
        self.arg_reduce("argmin", false, dim.into(), keepdim)
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
        let dim = self.dim(name, dim)?;
        let index = Self::apply(name, op(dim), &[self])?;
        match keepdim {
            true => index.unsqueeze(dim as isize),
            false => Ok(index),
        }
    }

    /// The largest element along `dim`, and its index (`i64`): the first one of equals; NaN is
    /// the largest. PyTorch's `max` of one dimension. Integers and floats.
    ///
    /// # Errors
    /// There is no such dimension, or no element; another dtype.
    pub fn max_dim(&self, dim: isize, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        self.extreme("max_dim", true, dim, keepdim)
    }

    /// The smallest element along `dim`, and its index: otherwise as [`Tensor::max_dim`] (NaN is
    /// the smallest).
    ///
    /// # Errors
    /// As [`Tensor::max_dim`].
    pub fn min_dim(&self, dim: isize, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        self.extreme("min_dim", false, dim, keepdim)
    }

    fn extreme(
        &self,
        name: &'static str,
        largest: bool,
        dim: isize,
        keepdim: bool,
    ) -> RusTorchResult<(Self, Self)> {
        let dim = self.dim(name, dim)?;
        let op = ArgReduce {
            largest,
            dim,
            values: true,
        };
        let [values, indices] = Self::apply_all(name, op, &[self])?;
        let kept = |x: Self| match keepdim {
            true => x.unsqueeze(dim as isize),
            false => Ok(x),
        };
        Ok((kept(values)?, kept(indices)?))
    }

    /// `log Σ exp(x)`, computed without overflow. Floats.
    ///
    /// # Errors
    /// There are no such dimensions, or no elements; another dtype.
    pub fn logsumexp(&self, dims: impl Into<Dims>, keepdim: bool) -> RusTorchResult<Self> {
        const NAME: &str = "logsumexp";
        let dims = dims.into();
        self.require_float(NAME)?;
        let max = self.reduce(NAME, ReduceOp::Max, &dims, true)?;
        // Infinite maxima would make NaN of their difference to themselves.
        let infinite = max.abs()?.eq(f64::INFINITY)?;
        let max = max.masked_fill(&infinite, 0.0)?;
        let log = (self.sub(&max)?.exp()?)
            .reduce(NAME, ReduceOp::Sum, &dims, true)?
            .log()?
            .add(&max)?;
        match keepdim {
            true => Ok(log),
            false => log.squeezed(NAME, &dims),
        }
    }

    /// Without the named dimensions, which have size 1.
    fn squeezed(&self, name: &'static str, dims: &Dims) -> RusTorchResult<Self> {
        let dims: Vec<isize> = (dims.resolve(name, self.rank())?.iter())
            .map(|&d| d as isize)
            .collect();
        self.squeeze(&dims[..])
    }

    /// `(Σ|x|ᵖ)^(1/p)`; of infinite `p` the largest, or smallest, `|x|`; of `p` 0 the number
    /// of elements other than 0. Floats and complex numbers.
    ///
    /// # Errors
    /// There are no such dimensions; another dtype.
    pub fn norm(&self, p: f64, dims: impl Into<Dims>, keepdim: bool) -> RusTorchResult<Self> {
        const NAME: &str = "norm";
        let dims = dims.into();
        let legal = self.dtype().is_float() || self.dtype().is_complex();
        require(NAME, legal, "a floating-point or complex tensor", self.ty())?;
        let sum = |x: Self| x.reduce(NAME, ReduceOp::Sum, &dims, keepdim);
        let length = self.abs()?;
        match p {
            f64::INFINITY => length.reduce(NAME, ReduceOp::Max, &dims, keepdim),
            f64::NEG_INFINITY => length.reduce(NAME, ReduceOp::Min, &dims, keepdim),
            0.0 => sum(length.ne(0)?.cast(NAME, length.dtype())?),
            1.0 => sum(length),
            2.0 => sum(length.square()?)?.sqrt(),
            _ => sum(length.pow(p)?)?.pow(1.0 / p),
        }
    }

    /// Running sum along `dim`; of integers and booleans an `i64`.
    ///
    /// # Errors
    /// There is no such dimension; a block format.
    pub fn cumsum(&self, dim: isize) -> RusTorchResult<Self> {
        let dim = self.dim("cumsum", dim)?;
        Self::apply("cumsum", Cumsum { dim }, &[self])
    }

    /// The `k` largest elements along `dim`, or the smallest, best first, and their indices
    /// (`i64`): the earlier one first of equals; NaN is the largest. Integers and floats.
    ///
    /// # Errors
    /// There is no such dimension, or it has fewer than `k` elements; another dtype.
    pub fn topk(&self, k: usize, dim: isize, largest: bool) -> RusTorchResult<(Self, Self)> {
        self.best("topk", k, dim, largest)
    }

    /// The elements in rising order along `dim`, or falling (`descending`), and the indices that
    /// they had (`i64`). Equal elements stay in their order; NaN is the largest. Integers and
    /// floats.
    ///
    /// # Errors
    /// There is no such dimension; another dtype.
    pub fn sort(&self, dim: isize, descending: bool) -> RusTorchResult<(Self, Self)> {
        self.sorted("sort", dim, descending)
    }

    /// The indices of [`Tensor::sort`].
    ///
    /// # Errors
    /// As [`Tensor::sort`].
    pub fn argsort(&self, dim: isize, descending: bool) -> RusTorchResult<Self> {
        let (_, indices) = self.sorted("argsort", dim, descending)?;
        Ok(indices)
    }

    fn sorted(
        &self,
        name: &'static str,
        dim: isize,
        descending: bool,
    ) -> RusTorchResult<(Self, Self)> {
        let k = self.shape()[self.dim(name, dim)?];
        self.best(name, k, dim, descending)
    }

    fn best(
        &self,
        name: &'static str,
        k: usize,
        dim: isize,
        largest: bool,
    ) -> RusTorchResult<(Self, Self)> {
        let dim = self.dim(name, dim)?;
        let [values, indices] = Self::apply_all(name, TopK { k, dim, largest }, &[self])?;
        Ok((values, indices))
    }

    /// Are shape, dtype and every element equal? NaN differs from itself.
    ///
    /// # Errors
    /// Those of evaluation.
    pub fn equal(&self, other: &Self) -> RusTorchResult<bool> {
        match self.ty() == other.ty() {
            true => self.eq(other)?.all(None, false)?.item(),
            false => Ok(false),
        }
    }

    /// Is `|self - other| <= atol + rtol · |other|` everywhere? Equal infinities are close;
    /// NaN is close to nothing. PyTorch's defaults are 1e-5 and 1e-8. Shapes broadcast.
    ///
    /// # Errors
    /// Different dtypes; shapes that do not broadcast; those of evaluation.
    pub fn allclose(&self, other: &Self, rtol: f64, atol: f64) -> RusTorchResult<bool> {
        const NAME: &str = "allclose";
        if self.dtype() != other.dtype() {
            let got = format!("{} and {}", self.ty(), other.ty());
            return Err(OpError::new(NAME, "operands of one dtype", got).into());
        }
        // In double precision, so that the bound itself is not rounded.
        let wide = |x: &Self| match x.dtype().is_complex() {
            true => x.cast(NAME, DType::Complex128),
            false => x.cast(NAME, DType::F64),
        };
        let (a, b) = (wide(self)?, wide(other)?);
        let length = b.abs()?;
        let near = a.sub(&b)?.abs()?.le(&length.mul(rtol)?.add(atol)?)?;
        let finite = length.ne(f64::INFINITY)?;
        let close = near.logical_and(&finite)?.logical_or(&a.eq(&b)?)?;
        close.all(None, false)?.item()
    }
}
