//! Elements reduced by index.

use rustorch_ir::DType;
use rustorch_ir::ops::{Scatter, ScatterMode};
use rustorch_macros::track_calls;

use crate::api::math::elementwise::RoundingMode;
use crate::api::promote::AsOperand;
use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require};
use crate::{Operand, Tensor};

/// The reduction of [`Tensor::scatter_reduce`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScatterReduce {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The mean; rounded down for integers.
    Mean,
    /// The largest; NaN if one is NaN.
    Amax,
    /// The smallest; NaN if one is NaN.
    Amin,
}

#[track_calls]
impl Tensor {
    /// A copy in which `out[i][index[i][j][k]][k]`, for `dim` 1, is the reduction of all `source[i][j][k]` that
    /// go there. With `include_self` it includes the old element. `index` is as for
    /// [`Tensor::gather`]. `source` is a number, or has `self`'s dtype and is at least as large as
    /// `index`. Takes numbers.
    ///
    /// # Errors
    /// Fails for unsupported operands, or for an ordering of complex numbers. Evaluation fails for
    /// an index outside `dim`.
    pub fn scatter_reduce(
        &self,
        dim: impl Integer,
        index: &Self,
        source: impl AsOperand,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "scatter_reduce";
        let [x, index] = [self, index].map(Self::as_line);
        let (x, index) = (x?, index?);
        let source = match source.as_operand()? {
            Operand::Tensor(source) => source.as_line()?,
            number => number
                .as_element(NAME, self.dtype())?
                .expand(index.shape())?,
        };
        let result =
            x.scattered_together(NAME, dim.to_isize(), &index, &source, reduce, include_self)?;
        result.reshape(self.shape())
    }

    /// A tensor of rank 0 as one of rank 1.
    fn as_line(&self) -> RusTorchResult<Self> {
        match self.rank() {
            0 => self.reshape([1usize]),
            _ => Ok(self.clone()),
        }
    }

    /// [`Tensor::scatter_reduce`] of whole slices: slice `i` of `source` along `dim` is reduced
    /// into index `index[i]`, an `i64` or `i32` `[n]`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::scatter_reduce`].
    pub fn index_reduce(
        &self,
        dim: impl Integer,
        index: &Self,
        source: &Self,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> RusTorchResult<Self> {
        let dim = dim.to_isize();
        const NAME: &str = "index_reduce";
        if self.rank() == 0 {
            self.wrap_dim(NAME, dim)?;
            let (x, index, source) = (self.as_line()?, index.as_line()?, source.as_line()?);
            let result = x.scattered_together(NAME, dim, &index, &source, reduce, include_self)?;
            return result.reshape(self.shape());
        }
        let index = index.as_line()?;
        let d = self.dim(NAME, dim)?;
        require(
            NAME,
            index.rank() == 1,
            "an index of rank 0 or 1",
            index.ty(),
        )?;
        let wanted = self.ty().shape.clone().with_dim(d, index.numel());
        let expected = format_args!("a source of shape {wanted}");
        require(NAME, *source.shape() == *wanted, expected, source.ty())?;
        let mut shape = vec![1; source.rank()];
        shape[d] = index.numel();
        let index = index.reshape(shape)?.expand(source.shape())?;
        self.scattered_together(NAME, dim, &index, source, reduce, include_self)
    }

    fn scattered_together(
        &self,
        name: &'static str,
        dim: isize,
        index: &Self,
        source: &Self,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> RusTorchResult<Self> {
        let source = source.leading(name, index)?;
        self.require_places(name, self.dim(name, dim)?, index)?;
        let scatter = |x: &Self, source: &Self, mode| {
            let dim = x.dim(name, dim)?;
            Self::apply(name, Scatter { dim, mode }, &[x, index, source])
        };
        let mode = match reduce {
            // As numbers, booleans add by or and multiply by and.
            ScatterReduce::Sum if self.dtype() == DType::Bool => ScatterMode::Max,
            ScatterReduce::Prod if self.dtype() == DType::Bool => ScatterMode::Min,
            ScatterReduce::Sum | ScatterReduce::Mean => ScatterMode::Add,
            ScatterReduce::Prod => ScatterMode::Prod,
            ScatterReduce::Amax => ScatterMode::Max,
            ScatterReduce::Amin => ScatterMode::Min,
        };
        let ones = Self::ones(source.shape(), DType::I64)?;
        let counts = || {
            let none = Self::full(self.shape(), i64::from(include_self), DType::I64)?;
            scatter(&none, &ones, ScatterMode::Add)
        };
        let base = match include_self {
            true => self.clone(),
            // What is to be written over does not count, but what nothing goes to stays.
            false => {
                let neutral = match mode {
                    ScatterMode::Add => self.zeros_like()?,
                    ScatterMode::Prod => self.ones_like()?,
                    // One of the new elements, unless it would share in their gradient.
                    _ if !self.dtype().is_float() => scatter(self, &source, ScatterMode::Set)?,
                    ScatterMode::Max => self.full_like(f64::NEG_INFINITY)?,
                    _ => self.full_like(f64::INFINITY)?,
                };
                Self::where_(&counts()?.eq(0)?, self, &neutral)?
            }
        };
        let combined = scatter(&base, &source, mode)?;
        match reduce {
            ScatterReduce::Mean => {
                let counts = counts()?.clamp_min(1)?.cast(name, self.dtype())?;
                match self.dtype().is_int() {
                    true => combined.div_mode(Operand::from(&counts), RoundingMode::Floor),
                    false => combined.div(&counts),
                }
            }
            _ => Ok(combined),
        }
    }

    /// The first elements along each dimension, in the sizes of `index`.
    fn leading(&self, name: &'static str, index: &Self) -> RusTorchResult<Self> {
        let sizes = || self.shape().iter().zip(index.shape());
        let fits = self.rank() == index.rank() && sizes().all(|(size, part)| size >= part);
        require(
            name,
            fits,
            format!("a source no smaller than {}", index.ty()),
            self.ty(),
        )?;
        let mut x = self.clone();
        for (d, &part) in index.shape().iter().enumerate() {
            x = x.narrow(d as isize, 0, part)?;
        }
        Ok(x)
    }
}
