//! Elements without those that are equal to others.

use std::cmp::Ordering;

use rustorch_ir::DType;
use rustorch_ir::ops::{Scatter, ScatterMode};
use rustorch_ir::order::order;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::OptionalDim;
use crate::error::{RusTorchResult, require, require_dtype};

/// The results of [`Tensor::unique`]. Results that are not requested are not computed.
#[derive(Clone)]
pub struct Unique {
    /// The elements, or indices of a dimension, each once.
    pub values: Tensor,
    /// The index in `values` of each element, or of each index of a dimension, `i64`: PyTorch's `return_inverse`.
    pub inverse: Tensor,
    /// Number of times that each value comes, `i64`: PyTorch's `return_counts`.
    pub counts: Tensor,
}

#[track_calls]
impl Tensor {
    /// The elements in rising order, each once, or the indices of `dim` that differ, in the order of their
    /// elements. A NaN equals no other, as in PyTorch. Takes real numbers and booleans. They are computed
    /// at once, since the shape depends on them; indices of a dimension are compared by the host.
    ///
    /// # Errors
    /// Fails for a complex dtype or a block format, or if the dimension does not exist. Also fails
    /// if the computation fails.
    pub fn unique(&self, dim: impl OptionalDim) -> RusTorchResult<Unique> {
        const NAME: &str = "unique";
        let (x, dtype) = (self.comparable(NAME)?, self.dtype());
        let Some(dim) = dim.to_dim() else {
            let (sorted, order) = x.ravel()?.sort(0, false)?;
            return sorted
                .runs(NAME, 0, Some(&order))?
                .shaped(NAME, dtype, Some(self.shape()));
        };
        let dim = self.dim(NAME, dim)?;
        self.require_elements_beside(NAME, dim)?;
        let order = x.order_of(NAME, dim)?;
        let sorted = x.picked(NAME, dim, &order)?;
        sorted
            .runs(NAME, dim, Some(&order))?
            .shaped(NAME, dtype, None)
    }

    /// The elements in row-major order, or the indices of `dim`, without those that are equal to
    /// the one before. Otherwise as [`Tensor::unique`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::unique`].
    pub fn unique_consecutive(&self, dim: impl OptionalDim) -> RusTorchResult<Unique> {
        const NAME: &str = "unique_consecutive";
        let (x, dtype) = (self.comparable(NAME)?, self.dtype());
        match dim.to_dim() {
            None => x
                .ravel()?
                .runs(NAME, 0, None)?
                .shaped(NAME, dtype, Some(self.shape())),
            Some(dim) => {
                let dim = self.dim(NAME, dim)?;
                self.require_elements_beside(NAME, dim)?;
                x.runs(NAME, dim, None)?.shaped(NAME, dtype, None)
            }
        }
    }

    /// Fails unless the other dimensions have elements, so that those of `dim` can be compared.
    fn require_elements_beside(&self, name: &'static str, dim: usize) -> RusTorchResult<()> {
        let mut others = self.shape().iter().enumerate().filter(|&(d, _)| d != dim);
        let any = others.all(|(_, &size)| size > 0);
        let expected = format_args!("elements in the dimensions beside {dim}");
        require(name, any, expected, self.ty())
    }

    /// The elements as a dtype that has an order.
    fn comparable(&self, name: &'static str) -> RusTorchResult<Self> {
        let dtype = match self.dtype() {
            DType::Bool => DType::U8,
            other => other,
        };
        let legal = dtype.is_float() || dtype.is_int();
        require_dtype(name, legal, "real numbers or booleans", self.ty())?;
        self.cast(name, dtype)
    }

    /// Indices of `dim` in the order of their elements, sorted by the host; equal ones keep their
    /// order.
    fn order_of(&self, name: &'static str, dim: usize) -> RusTorchResult<Self> {
        let size = self.shape()[dim];
        let rows = self.movedim(dim as isize, 0)?;
        let order = match self.dtype() {
            DType::U64 => sorted_rows(&rows.to_vec::<u64>()?, size, Ord::cmp),
            d if d.is_int() => {
                let elements = rows.cast(name, DType::I64)?.to_vec::<i64>()?;
                sorted_rows(&elements, size, Ord::cmp)
            }
            _ => {
                let elements = rows.cast(name, DType::F64)?.to_vec::<f64>()?;
                sorted_rows(&elements, size, |a, b| {
                    let by_value = a.partial_cmp(b);
                    by_value.unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
                })
            }
        };
        Self::from_vec(order, [size])
    }

    /// Runs of equal indices of `dim`, each once. `order` says which index each was before.
    fn runs(&self, name: &'static str, dim: usize, order: Option<&Self>) -> RusTorchResult<Unique> {
        let size = self.shape()[dim];
        if size == 0 {
            let none = Self::zeros([0], DType::I64)?;
            let (inverse, counts) = (none.clone(), none);
            let values = self.clone();
            return Ok(Unique {
                values,
                inverse,
                counts,
            });
        }
        let part = |start| self.narrow(dim as isize, start, size - 1);
        let differs = part(1)?.ne(&part(0)?)?.movedim(dim as isize, 0)?;
        let width: usize = differs.shape()[1..].iter().product();
        let differs = differs.reshape([size - 1, width])?.any(1, false)?;
        let starts_run = Self::cat(&[&Self::ones([1], DType::Bool)?, &differs], 0)?;
        let starts = starts_run.set_places(name)?;
        let ends = starts[1..].iter().copied().chain([size as i64]);
        let counts: Vec<i64> = ends.zip(&starts).map(|(end, start)| end - start).collect();
        let runs = starts.len();
        let values = self.picked(name, dim, &Self::from_vec(starts, [runs])?)?;
        let run = starts_run.cumsum(0)?.sub(1)?;
        let inverse = match order {
            None => run,
            Some(order) => {
                let op = Scatter {
                    dim: 0,
                    mode: ScatterMode::Set,
                };
                Self::apply(name, op, &[&run.zeros_like()?, order, &run])?
            }
        };
        Ok(Unique {
            values,
            inverse,
            counts: Self::from_vec(counts, [runs])?,
        })
    }
}

impl Unique {
    /// With the tensor's own dtype, and the inverse in its shape.
    fn shaped(
        mut self,
        name: &'static str,
        dtype: DType,
        shape: Option<&[usize]>,
    ) -> RusTorchResult<Self> {
        self.values = self.values.cast(name, dtype)?;
        if let Some(shape) = shape {
            self.inverse = self.inverse.reshape(shape)?;
        }
        Ok(self)
    }
}

/// The order of `count` rows of equal length.
fn sorted_rows<T>(elements: &[T], count: usize, compare: impl Fn(&T, &T) -> Ordering) -> Vec<i64> {
    let width = elements.len() / count.max(1);
    let row = |i: usize| &elements[i * width..][..width];
    let order = order(count, &|a, b| {
        let mut pairs = row(a).iter().zip(row(b)).map(|(a, b)| compare(a, b));
        pairs.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    });
    order.into_iter().map(|i| i as i64).collect()
}
