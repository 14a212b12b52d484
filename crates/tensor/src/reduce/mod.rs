//! Elements combined along dimensions, one file for each family.

mod order;
mod scan;
mod statistics;

use rustorch_ir::DType;
use rustorch_ir::ops::{Binary, BinaryOp, Reduce, ReduceOp};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::dims::Dims;
use crate::dims::{IntoDims, OptionalDim};
use crate::elementwise::{compute_dtype, float_of};
use crate::error::{RusTorchResult, require, require_dtype};

pub use statistics::Interpolation;

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
        require_dtype(name, float, "a floating-point tensor", self.ty())
    }

    /// Floats, halves in single precision, and complex numbers.
    fn wide(&self, name: &'static str) -> RusTorchResult<Self> {
        let legal = self.dtype().is_float() || self.dtype().is_complex();
        let expected = "a floating-point or complex tensor (to_dtype converts)";
        require_dtype(name, legal, expected, self.ty())?;
        self.cast(name, compute_dtype(self.dtype()))
    }

    /// What `f` gives along a dimension of a tensor, for which one of rank 0 counts as `[1]`.
    fn along<const N: usize>(
        &self,
        f: impl FnOnce(&Self) -> RusTorchResult<[Self; N]>,
    ) -> RusTorchResult<[Self; N]> {
        if self.rank() > 0 {
            return f(self);
        }
        let mut results = f(&self.reshape([1usize])?)?;
        for result in &mut results {
            *result = result.reshape([0usize; 0])?;
        }
        Ok(results)
    }
}

/// One method for each line: documentation, name, reduction.
macro_rules! reduce_methods {
    ($($doc:literal $name:ident = $op:ident;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// `dims`: one, several, or `None` for all. They are dropped, or kept with size 1.
            ///
            /// # Errors
            /// There are no such dimensions; a dtype that the reduction is not defined for.
            pub fn $name(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
                self.reduce(stringify!($name), ReduceOp::$op, &dims.into_dims(), keepdim)
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
    "Largest element: [`Tensor::max`] by its other name."
    amax = Max;
    "Smallest element: [`Tensor::min`] by its other name."
    amin = Min;
}

#[track_calls]
impl Tensor {
    /// Smallest and largest element along `dim`, or of all (`None`). Real numbers and booleans.
    ///
    /// # Errors
    /// There is no such dimension, or no element; another dtype.
    pub fn aminmax(&self, dim: impl OptionalDim, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        let dims = dim.to_dim().into_dims();
        let extreme = |op| self.reduce("aminmax", op, &dims, keepdim);
        Ok((extreme(ReduceOp::Min)?, extreme(ReduceOp::Max)?))
    }

    /// Mean. Floats and complex numbers; NaN where there are no elements.
    ///
    /// # Errors
    /// There are no such dimensions; another dtype.
    pub fn mean(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        let dims = dims.into_dims();
        let x = self.wide("mean")?;
        let n = x.reduced_elements("mean", &dims)?;
        let sum = x.reduce("mean", ReduceOp::Sum, &dims, keepdim)?;
        sum.div(n as f64)?.cast("mean", self.dtype())
    }

    /// [`Tensor::sum`] of what is not NaN. Real numbers and booleans.
    ///
    /// # Errors
    /// There are no such dimensions; a complex dtype or a block format.
    pub fn nansum(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        const NAME: &str = "nansum";
        require(NAME, !self.dtype().is_complex(), "real numbers", self.ty())?;
        let x = match self.dtype().is_float() {
            true => Self::where_(&self.isnan()?, 0.0, self)?,
            false => self.clone(),
        };
        x.reduce(NAME, ReduceOp::Sum, &dims.into_dims(), keepdim)
    }

    /// [`Tensor::mean`] of what is not NaN. Floats; NaN where there is nothing else.
    ///
    /// # Errors
    /// There are no such dimensions; another dtype.
    pub fn nanmean(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        const NAME: &str = "nanmean";
        self.require_float(NAME)?;
        let (dims, x) = (dims.into_dims(), self.wide(NAME)?);
        let count = x
            .isnan()?
            .logical_not()?
            .reduce(NAME, ReduceOp::Sum, &dims, keepdim)?;
        let sum = x.nansum(dims, keepdim)?;
        sum.div(&count.cast(NAME, x.dtype())?)?
            .cast(NAME, self.dtype())
    }

    /// Number of elements other than 0, an `i64`.
    ///
    /// # Errors
    /// There are no such dimensions; a block format.
    pub fn count_nonzero(&self, dims: impl IntoDims) -> RusTorchResult<Self> {
        self.ne(0)?
            .reduce("count_nonzero", ReduceOp::Sum, &dims.into_dims(), false)
    }

    /// The exclusive or of the elements' bits, `u64`, by which tensors are told apart: of floats as `f64`, of integers
    /// and booleans as 64 bits. The elements are computed.
    ///
    /// # Errors
    /// There are no such dimensions, or one has no elements; complex numbers, a block format; those of [`Tensor::eval`].
    pub fn hash_tensor(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        const NAME: &str = "hash_tensor";
        let dims = dims.into_dims();
        let reduced = dims.resolve(NAME, self.rank())?;
        let wide = match self.dtype() {
            DType::U64 => DType::U64,
            dtype if dtype.is_float() => DType::F64,
            _ => DType::I64,
        };
        let is_real = !self.dtype().is_complex() && !self.dtype().is_block();
        require(NAME, is_real, "real numbers or booleans", self.ty())?;
        let is_something = reduced.iter().all(|&dim| self.shape()[dim] > 0);
        require(NAME, is_something, "dimensions with elements", self.ty())?;
        let storage = self.cast(NAME, wide)?.storage()?;
        let mut bits = Self::from_storage(storage, self.shape(), DType::U64)?;
        for &dim in &reduced {
            let at = dim as isize;
            while bits.shape()[dim] > 1 {
                let (half, odd) = (bits.shape()[dim] / 2, bits.shape()[dim] % 2);
                let part = |from, len| bits.narrow(at, from, len);
                let both = part(0, half)?.bitwise_xor(&part(half, half)?)?;
                bits = match odd {
                    0 => both,
                    _ => Self::cat(&[&both, &part(2 * half, 1)?], at)?,
                };
            }
        }
        let hash = match keepdim {
            true => bits,
            false => bits.squeezed(NAME, &dims)?,
        };
        // As long as they are as they were hashed.
        hash.eval()?;
        Ok(hash)
    }

    /// Is any element other than 0? Result `bool`, or as PyTorch has it `u8` of `u8`; false where
    /// there are none.
    ///
    /// # Errors
    /// There are no such dimensions; a block format.
    pub fn any(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        let any = self.any_of("any", &dims.into_dims(), keepdim)?;
        self.truth("any", any)
    }

    /// Is every element other than 0? Result `bool`, or as PyTorch has it `u8` of `u8`; true where
    /// there are none.
    ///
    /// # Errors
    /// There are no such dimensions; a block format.
    pub fn all(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        let others = self
            .logical_not()?
            .any_of("all", &dims.into_dims(), keepdim)?;
        self.truth("all", others.logical_not()?)
    }

    fn any_of(&self, name: &'static str, dims: &Dims, keepdim: bool) -> RusTorchResult<Self> {
        let x = self.cast(name, DType::Bool)?;
        match self.reduced_elements(name, dims)? {
            // A maximum needs an element, a sum does not.
            0 => x.reduce(name, ReduceOp::Sum, dims, keepdim)?.ne(0),
            _ => x.reduce(name, ReduceOp::Max, dims, keepdim),
        }
    }

    fn truth(&self, name: &'static str, truth: Self) -> RusTorchResult<Self> {
        match self.dtype() {
            DType::U8 => truth.cast(name, DType::U8),
            _ => Ok(truth),
        }
    }

    /// `ln Σ eˣ`, computed without overflow; −∞ where there are no elements. Real (integers as `f32`)
    /// or complex.
    ///
    /// # Errors
    /// There are no such dimensions; another dtype.
    pub fn logsumexp(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        const NAME: &str = "logsumexp";
        let dims = dims.into_dims();
        let dtype = float_of(self.dtype());
        let x = self.cast(NAME, dtype)?.wide(NAME)?;
        if x.reduced_elements(NAME, &dims)? == 0 {
            let none = x.reduce(NAME, ReduceOp::Sum, &dims, keepdim)?;
            return none.log()?.cast(NAME, dtype);
        }
        let max = x.real()?.reduce(NAME, ReduceOp::Max, &dims, true)?;
        // Infinite maxima would make NaN of their difference to themselves.
        let infinite = max.abs()?.eq(f64::INFINITY)?;
        let max = max.masked_fill(&infinite, 0.0)?;
        let log = (x.sub(&max)?.exp()?)
            .reduce(NAME, ReduceOp::Sum, &dims, true)?
            .log()?
            .add(&max)?
            .cast(NAME, dtype)?;
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
    /// There are no such dimensions; another dtype; no elements for an infinite or a negative `p`.
    pub fn norm(
        &self,
        p: impl Into<f64>,
        dims: impl IntoDims,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        self.vector_norm("norm", p.into(), &dims.into_dims(), keepdim)
    }

    /// [`Tensor::norm`]: `torch.linalg.vector_norm`.
    ///
    /// # Errors
    /// As [`Tensor::norm`].
    pub fn linalg_vector_norm(
        &self,
        p: f64,
        dims: impl IntoDims,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        self.vector_norm("linalg_vector_norm", p, &dims.into_dims(), keepdim)
    }

    fn vector_norm(
        &self,
        name: &'static str,
        p: f64,
        dims: &Dims,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        let wide = self.wide(name)?;
        // The sign of a number is gone from its square.
        let length = match p == 2.0 && !self.dtype().is_complex() {
            true => wide,
            false => wide.abs()?,
        };
        let some = p >= 0.0 || self.reduced_elements(name, dims)? > 0;
        let expected = "elements, of which this order has an extreme one";
        require(name, some, expected, self.ty())?;
        let sum = |x: Self| x.reduce(name, ReduceOp::Sum, dims, keepdim);
        let root = |sum: Self, f: &dyn Fn(&Self) -> RusTorchResult<Self>| sum.flat(0.0, 0.0, f);
        let norm = match p {
            f64::INFINITY => length.reduce(name, ReduceOp::Max, dims, keepdim)?,
            f64::NEG_INFINITY => length.reduce(name, ReduceOp::Min, dims, keepdim)?,
            0.0 => sum(length.ne(0)?.cast(name, length.dtype())?)?,
            1.0 => sum(length)?,
            2.0 => {
                let op = BinaryOp::Mul;
                let square = Self::apply(name, Binary { op }, &[&length, &length])?;
                sum(square)?.root()?
            }
            // At 0 a derivative of such a power is infinite, and that of the norm is none.
            _ if p > 0.0 && p < 2.0 => {
                let powers = length.flat(0.0, 0.0, |x| x.pow(p))?;
                root(sum(powers)?, &|sum| sum.pow(1.0 / p))?
            }
            _ if p > 0.0 => root(sum(length.pow(p)?)?, &|sum| sum.pow(1.0 / p))?,
            _ => {
                let powers = length.flat(0.0, f64::INFINITY, |x| x.pow(p))?;
                sum(powers)?.flat(f64::INFINITY, 0.0, |sum| sum.pow(1.0 / p))?
            }
        };
        norm.cast(name, self.dtype().real())
    }

    /// The root, whose gradient at 0 is 0, as PyTorch has it for what is at its least there: a norm, a deviation.
    pub(crate) fn root(&self) -> RusTorchResult<Self> {
        self.flat(0.0, 0.0, Self::sqrt)
    }

    /// Results of `f`, which are `value` where `self` is `place`. The gradient is 0 there in place of an infinite
    /// one.
    fn flat(
        &self,
        place: f64,
        value: f64,
        f: impl Fn(&Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        if !self.requires_grad() {
            return f(self);
        }
        let is_there = self.eq(place)?;
        Self::where_(&is_there, value, &f(&Self::where_(&is_there, 1.0, self)?)?)
    }
}
