//! Reductions along dimensions, one file for each family.

mod order;
mod scan;
mod statistics;

use std::borrow::Cow;

use rustorch_ir::DType;
use rustorch_ir::ops::{Binary, BinaryOp, Reduce, ReduceOp};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::math::elementwise::{compute_dtype, float_of};
use crate::api::math::known::{Known, KnownNorm};
use crate::args::dims::Dims;
use crate::args::dims::{IntoDims, OptionalDim};
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

    /// [`Tensor::reduce`] to the extreme element, whose gradient those that are NaN share.
    fn reduce_sharing(
        &self,
        name: &'static str,
        op: ReduceOp,
        dims: &Dims,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        let found = self.reduce(name, op, dims, keepdim)?;
        if !self.requires_grad() {
            return Ok(found);
        }
        let is_nan = self.isnan()?;
        let reduced = |x: &Self, op| x.reduce(name, op, dims, keepdim);
        let sum = reduced(&Self::where_(&is_nan, self, 0.0)?, ReduceOp::Sum)?;
        let mean = sum.div(&reduced(&is_nan, ReduceOp::Sum)?)?;
        let numbers = reduced(&Self::where_(&is_nan, 0.0, self)?, op)?;
        Ok(found.with_gradient_of(&Self::where_(&found.isnan()?, &mean, &numbers)?))
    }

    /// Number of elements that each result of a reduction is made of.
    fn reduced_elements(&self, name: &'static str, dims: &Dims) -> RusTorchResult<usize> {
        let dims = dims.resolve(name, self.rank())?;
        Ok(dims.iter().map(|&d| self.shape()[d]).product())
    }

    pub(crate) fn require_float(&self, name: &'static str) -> RusTorchResult<()> {
        let float = self.dtype().is_float();
        require_dtype(name, float, "a floating-point tensor", self.ty())
    }

    /// Floats, halves in single precision, and complex numbers.
    fn wide(&self, name: &'static str) -> RusTorchResult<Cow<'_, Self>> {
        let legal = self.dtype().is_float() || self.dtype().is_complex();
        let expected = "a floating-point or complex tensor (to_dtype converts)";
        require_dtype(name, legal, expected, self.ty())?;
        self.as_dtype(name, compute_dtype(self.dtype()))
    }

    /// The result of `f` along a dimension of a tensor; rank 0 counts as `[1]`.
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
            /// Fails if a dimension does not exist, or for a dtype that the reduction is not
            /// defined for.
            pub fn $name(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
                self.reduce(stringify!($name), ReduceOp::$op, &dims.into_dims(), keepdim)
            })*
        }
    };
}

reduce_methods! {
    "Sum; an `i64` for integers and booleans. An empty sum is 0."
    sum = Sum;
    "Product; an `i64` for integers and booleans. An empty product is 1."
    prod = Prod;
    "Largest element; NaN if one is NaN. Takes real numbers and booleans, at least one. \
     [`Tensor::max`] has other gradients of NaN."
    amax = Max;
    "Smallest element; NaN if one is NaN. Takes real numbers and booleans, at least one. \
     [`Tensor::min`] has other gradients of NaN."
    amin = Min;
}

#[track_calls]
impl Tensor {
    /// Largest element; NaN if one is NaN. Takes real numbers and booleans, at least one.
    /// [`Tensor::max_dim`] also returns the index. Equal elements share the gradient; so do NaN
    /// elements if all are reduced (`None`).
    ///
    /// `dims`: one, several, or `None` for all. They are dropped, or kept with size 1.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for a dtype that the reduction is not defined for.
    pub fn max(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        let dims = dims.into_dims();
        match dims.are_all() {
            true => self.reduce_sharing("max", ReduceOp::Max, &dims, keepdim),
            false => self.reduce("max", ReduceOp::Max, &dims, keepdim),
        }
    }

    /// Smallest element, see [`Tensor::max`]. [`Tensor::min_dim`] also returns the index.
    ///
    /// # Errors
    /// The same errors as [`Tensor::max`].
    pub fn min(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        let dims = dims.into_dims();
        match dims.are_all() {
            true => self.reduce_sharing("min", ReduceOp::Min, &dims, keepdim),
            false => self.reduce("min", ReduceOp::Min, &dims, keepdim),
        }
    }

    /// Smallest and largest element along `dim`, or of all (`None`). Takes real numbers and
    /// booleans.
    ///
    /// # Errors
    /// Fails if the dimension does not exist or is empty, or for an unsupported dtype.
    pub fn aminmax(&self, dim: impl OptionalDim, keepdim: bool) -> RusTorchResult<(Self, Self)> {
        let dims = dim.to_dim().into_dims();
        let extreme = |op| self.reduce("aminmax", op, &dims, keepdim);
        Ok((extreme(ReduceOp::Min)?, extreme(ReduceOp::Max)?))
    }

    /// Mean. Floats and complex numbers; NaN if there are no elements.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for an unsupported dtype.
    pub fn mean(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        let dims = dims.into_dims();
        let x = self.wide("mean")?;
        let n = x.reduced_elements("mean", &dims)?;
        let sum = x.reduce("mean", ReduceOp::Sum, &dims, keepdim)?;
        sum.div(n as f64)?.cast("mean", self.dtype())
    }

    /// [`Tensor::sum`] that ignores NaN. Takes real numbers and booleans.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for a complex dtype or a block format.
    pub fn nansum(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        const NAME: &str = "nansum";
        require(NAME, !self.dtype().is_complex(), "real numbers", self.ty())?;
        let x = match self.dtype().is_float() {
            true => Self::where_(&self.isnan()?, 0.0, self)?,
            false => self.clone(),
        };
        x.reduce(NAME, ReduceOp::Sum, &dims.into_dims(), keepdim)
    }

    /// [`Tensor::mean`] that ignores NaN. Takes floats; the result is NaN if all elements are.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for an unsupported dtype.
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

    /// Number of nonzero elements, an `i64`.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for a block format.
    pub fn count_nonzero(&self, dims: impl IntoDims) -> RusTorchResult<Self> {
        self.ne(0)?
            .reduce("count_nonzero", ReduceOp::Sum, &dims.into_dims(), false)
    }

    /// A hash of the tensor: the exclusive or of the elements' bits, `u64`. Floats are converted to
    /// `f64`, integers and booleans to 64 bits. This computes the elements.
    ///
    /// # Errors
    /// Fails if a dimension does not exist or is empty. Also fails for complex numbers or a block
    /// format. Also the errors of [`Tensor::eval`].
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

    /// Tests whether any element is nonzero. The result is `bool`, or `u8` for `u8` as in PyTorch; false if there
    /// are no elements.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for a block format.
    pub fn any(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        let any = self.any_of("any", &dims.into_dims(), keepdim)?;
        self.truth("any", any)
    }

    /// Tests whether all elements are nonzero. The result is `bool`, or `u8` for `u8` as in PyTorch; true if
    /// there are no elements.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for a block format.
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

    /// `ln Σ eˣ`, computed without overflow; −∞ if there are no elements. Takes real numbers
    /// (integers become `f32`) and complex ones.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for an unsupported dtype.
    pub fn logsumexp(&self, dims: impl IntoDims, keepdim: bool) -> RusTorchResult<Self> {
        const NAME: &str = "logsumexp";
        let dims = dims.into_dims();
        let dtype = float_of(self.dtype());
        let x = self.as_dtype(NAME, dtype)?;
        let x = x.wide(NAME)?;
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

    /// `(Σ|x|ᵖ)^(1/p)`. An infinite `p` gives the largest or smallest `|x|`, and 0 the number of
    /// nonzero elements. Takes floats and complex numbers.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or for an unsupported dtype. An infinite or negative
    /// `p` also fails for an empty dimension.
    pub fn norm(
        &self,
        p: impl Into<f64>,
        dims: impl IntoDims,
        keepdim: bool,
    ) -> RusTorchResult<Self> {
        self.vector_norm("norm", p.into(), &dims.into_dims(), keepdim)
    }

    /// The vector norm of [`Tensor::norm`]: `torch.linalg.vector_norm`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::norm`].
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
        let x = match self.dtype().is_complex() {
            true => Cow::Owned(wide.abs()?),
            false => wide,
        };
        let x = &*x;
        let elements = self.reduced_elements(name, dims)?;
        let some = p >= 0.0 || elements > 0;
        let expected = "elements, since this order has an extreme one";
        require(name, some, expected, self.ty())?;
        let sum = |x: &Self| x.reduce(name, ReduceOp::Sum, dims, keepdim);
        let norm = match p {
            f64::INFINITY => x
                .abs()?
                .reduce_sharing(name, ReduceOp::Max, dims, keepdim)?,
            f64::NEG_INFINITY => x
                .abs()?
                .reduce_sharing(name, ReduceOp::Min, dims, keepdim)?,
            0.0 => sum(&x.ne(0)?.cast(name, x.dtype())?)?,
            1.0 => sum(&x.abs()?)?,
            // One element has its length as the norm, also where its power is out of range.
            _ if elements == 1 => x.known_norm(name, 2.0, dims, sum(&x.untracked().abs()?)?)?,
            _ => {
                let at = &*x.untracked();
                let norm = match p == 2.0 {
                    true => {
                        let op = BinaryOp::Mul;
                        let square = Self::apply(name, Binary { op }, &[at, at])?;
                        sum(&square)?.sqrt()?
                    }
                    false => sum(&at.abs()?.pow(p)?)?.pow(1.0 / p)?,
                };
                x.known_norm(name, p, dims, norm)?
            }
        };
        match norm.dtype() == self.dtype().real() {
            true => Ok(norm),
            false => norm.cast(name, self.dtype().real()),
        }
    }

    /// The elements of `norm`, the norm of order `p` along `dims`, with its gradient.
    fn known_norm(
        &self,
        name: &'static str,
        p: f64,
        dims: &Dims,
        norm: Self,
    ) -> RusTorchResult<Self> {
        if !self.requires_grad() {
            return Ok(norm);
        }
        let mut kept = self.ty().shape.clone();
        for dim in dims.resolve(name, self.rank())? {
            kept = kept.with_dim(dim, 1);
        }
        self.known(name, Known::Norm(KnownNorm::new(p, kept)), norm)
    }

    /// The root, with a gradient of 0 at 0, as in PyTorch's norms and deviations.
    pub(crate) fn root(&self) -> RusTorchResult<Self> {
        if !self.requires_grad() {
            return self.sqrt();
        }
        let is_zero = self.eq(0)?;
        Self::where_(&is_zero, 0.0, &Self::where_(&is_zero, 1.0, self)?.sqrt()?)
    }
}
