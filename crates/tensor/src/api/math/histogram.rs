//! Counts of elements in bins.

use rustorch_ir::ops::{Scatter, ScatterMode};
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::random::wide;
use crate::args::numbers::require_held;
use crate::error::{RusTorchResult, require};

/// The bins of a [`Tensor::histogram`].
#[derive(Clone)]
pub enum Bins {
    /// Number of bins of equal width.
    Count(usize),
    /// Edges of the bins, in rising order.
    Edges(Tensor),
}

impl From<usize> for Bins {
    fn from(count: usize) -> Self {
        Self::Count(count)
    }
}

impl From<&Tensor> for Bins {
    fn from(edges: &Tensor) -> Self {
        Self::Edges(edges.clone())
    }
}

/// A mode of adding up.
const ADD: Scatter = Scatter {
    dim: 0,
    mode: ScatterMode::Add,
};

#[track_calls]
impl Tensor {
    /// Counts each of 0, 1, 2, … in this vector of integers, or adds up its `weights`. The result
    /// covers the largest element, and at least `minlength` numbers. The shape depends on the
    /// elements, so they are computed at once. `i64`; `f32` for `f32` weights, else `f64`.
    ///
    /// # Errors
    /// Fails for an unsupported dtype or rank, a negative element, or weights of another shape.
    /// Also fails if evaluation fails.
    pub fn bincount(&self, weights: Option<&Self>, minlength: usize) -> RusTorchResult<Self> {
        const NAME: &str = "bincount";
        let legal = self.rank() == 1 && self.dtype().is_int();
        require(NAME, legal, "a vector of integers", self.ty())?;
        let places = self.cast(NAME, DType::I64)?;
        let mut size = minlength;
        if self.numel() > 0 {
            let ends = Self::stack(&[&places.min(0, false)?, &places.max(0, false)?], 0)?;
            let ends = ends.to_vec::<i64>()?;
            require(
                NAME,
                ends[0] >= 0,
                "elements that are not negative",
                ends[0],
            )?;
            size = size.max(ends[1] as usize + 1);
        }
        let source = match weights {
            None => Self::ones([self.numel()], DType::I64)?,
            Some(weights) => {
                let expected = format_args!("weights {}", self.ty().shape);
                require(
                    NAME,
                    weights.shape() == self.shape(),
                    expected,
                    weights.ty(),
                )?;
                let is_single = weights.dtype() == DType::F32;
                weights.cast(NAME, if is_single { DType::F32 } else { DType::F64 })?
            }
        };
        let zeros = Self::zeros([size], source.dtype())?;
        Self::apply(NAME, ADD, &[&zeros, &places, &source])
    }

    /// The number of elements in each of `bins` bins of equal width from `low` to `high`, both
    /// included. The result has this float dtype. Equal bounds stand for the smallest and largest
    /// element, which are computed at once. NaN and elements outside are not counted.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, 0 bins, or bounds that are not finite or not in order. Also
    /// fails if evaluation fails.
    pub fn histc(&self, bins: usize, low: f64, high: f64) -> RusTorchResult<Self> {
        const NAME: &str = "histc";
        self.require_float(NAME)?;
        require(NAME, bins > 0, "at least one bin", bins)?;
        // Places of more bins than a half-precision number counts.
        let x = self.ravel()?.cast(NAME, wide(self.dtype()))?;
        let [low, high] = match low == high {
            true => x.bounds(NAME, 1.0)?,
            false => {
                for bound in [low, high] {
                    require_held(NAME, bound.into(), self.dtype())?;
                }
                checked_bounds(NAME, [low, high])?
            }
        };
        let place = x.sub(low)?.mul(bins as f64)?.div(high - low)?;
        // The last bin has its upper end, too.
        let place = place
            .floor()?
            .cast(NAME, DType::I64)?
            .minimum(bins as i64 - 1)?;
        let inside = x.ge(low)?.logical_and(&x.le(high)?)?;
        let ones = inside.cast(NAME, x.dtype())?;
        counted(NAME, &place, &inside, &ones, bins)?.cast(NAME, self.dtype())
    }

    /// The smallest and the largest element, which are computed at once; 0 and 1 for an empty tensor.
    fn bounds(&self, name: &'static str, margin: f64) -> RusTorchResult<[f64; 2]> {
        if self.numel() == 0 {
            return Ok([0.0, 1.0]);
        }
        let ends = Self::stack(&[&self.min(None, false)?, &self.max(None, false)?], 0)?;
        let ends = ends.cast(name, DType::F64)?.to_vec::<f64>()?;
        Ok(widened(checked_bounds(name, [ends[0], ends[1]])?, margin))
    }

    /// The number of elements in each bin, or the sum of their `weight`, which has the same shape.
    /// Also the edges of the bins.
    ///
    /// # Errors
    /// Fails for an unsupported dtype, 0 bins, or edges that are not a vector of this dtype. Also
    /// fails for an invalid range, an unsupported weight, or if evaluation fails.
    pub fn histogram(
        &self,
        bins: impl Into<Bins>,
        range: Option<[f64; 2]>,
        weight: Option<&Self>,
        density: bool,
    ) -> RusTorchResult<(Self, Self)> {
        const NAME: &str = "histogram";
        if let Some(weight) = weight {
            let expected = format_args!("a weight {}", self.ty());
            require(NAME, weight.ty() == self.ty(), expected, weight.ty())?;
        }
        let weight = weight.map(Self::ravel).transpose()?;
        let points = self.reshape([self.numel(), 1])?;
        let range = range.map(|range| vec![range]);
        let bins = [bins.into()];
        let (hist, edges) =
            points.histogram_of(NAME, &bins, range.as_deref(), weight.as_ref(), density)?;
        Ok((hist, edges[0].clone()))
    }

    /// [`Tensor::histogram`] of points `[…, d]`, by bins of each dimension and, if given, a range of
    /// each; `weight` has the shape of the points without `d`. The counts `[bins…]`, and the edges
    /// of each dimension.
    ///
    /// # Errors
    /// The same errors as [`Tensor::histogram`]. Also fails unless each dimension has its bins and
    /// its range.
    pub fn histogramdd(
        &self,
        bins: &[Bins],
        range: Option<&[[f64; 2]]>,
        weight: Option<&Self>,
        density: bool,
    ) -> RusTorchResult<(Self, Vec<Self>)> {
        const NAME: &str = "histogramdd";
        let Some((&dims, lead)) = self.shape().split_last() else {
            return Err(OpError::new(NAME, "points [.., d]", self.ty()).into());
        };
        if let Some(weight) = weight {
            let fits = weight.shape() == lead && weight.dtype() == self.dtype();
            let expected = format_args!("a weight {}{lead:?}", self.dtype());
            require(NAME, fits, expected, weight.ty())?;
        }
        let points = self.reshape([lead.iter().product(), dims])?;
        let weight = weight.map(Self::ravel).transpose()?;
        points.histogram_of(NAME, bins, range, weight.as_ref(), density)
    }

    fn histogram_of(
        &self,
        name: &'static str,
        bins: &[Bins],
        range: Option<&[[f64; 2]]>,
        weight: Option<&Self>,
        density: bool,
    ) -> RusTorchResult<(Self, Vec<Self>)> {
        self.require_float(name)?;
        let dims = self.shape()[1];
        let ranges = range.map_or(dims, <[_]>::len);
        let got = format_args!("{} bins and {ranges} ranges", bins.len());
        let fits = bins.len() == dims && ranges == dims;
        require(
            name,
            fits,
            format!("bins and range of {dims} dimensions"),
            got,
        )?;
        let mut place = Self::zeros([self.shape()[0]], DType::I64)?;
        let mut inside = Self::ones([self.shape()[0]], DType::Bool)?;
        let (mut all_edges, mut sizes) = (Vec::new(), Vec::new());
        for (dim, bins) in bins.iter().enumerate() {
            let x = self.select(1, dim as isize)?.contiguous()?;
            let edges = x.edges(name, bins, range.map(|range| range[dim]))?;
            let count = edges.numel() - 1;
            let [first, last] = [edges.select(0, 0)?, edges.select(0, count as isize)?];
            let own = edges.places_of(name, (&x).into(), true)?.sub(1)?;
            place = place
                .mul(count as i64)?
                .add(&own.minimum(count as i64 - 1)?)?;
            inside = inside
                .logical_and(&x.ge(&first)?)?
                .logical_and(&x.le(&last)?)?;
            all_edges.push(edges);
            sizes.push(count);
        }
        let total = sizes
            .iter()
            .try_fold(1usize, |n, &size| n.checked_mul(size));
        let overflow = || OpError::new(name, "bins that fit", "an overflow");
        let source = weight
            .cloned()
            .map_or_else(|| Self::ones([1], self.dtype()), Ok)?;
        let source = source.expand([self.shape()[0]])?;
        let total = total.ok_or_else(overflow)?;
        let hist = counted(name, &place, &inside, &source, total)?.reshape(&sizes[..])?;
        match density {
            true => Ok((hist.per_volume(&all_edges)?, all_edges)),
            false => Ok((hist, all_edges)),
        }
    }

    /// The edges of bins for this vector.
    fn edges(
        &self,
        name: &'static str,
        bins: &Bins,
        range: Option<[f64; 2]>,
    ) -> RusTorchResult<Self> {
        match bins {
            Bins::Edges(edges) => {
                let fits = edges.rank() == 1 && edges.numel() > 1 && edges.dtype() == self.dtype();
                let expected = format_args!("two or more edges of {}", self.dtype());
                require(name, fits, expected, edges.ty())?;
                Ok(edges.clone())
            }
            &Bins::Count(count) => {
                require(name, count > 0, "at least one bin", count)?;
                let [low, high] = match range {
                    Some(range) => widened(checked_bounds(name, range)?, 0.5),
                    None => self.bounds(name, 0.5)?,
                };
                Self::linspace(low, high, count.saturating_add(1), self.dtype())
            }
        }
    }

    /// A histogram whose integral over the bins between these edges is 1.
    fn per_volume(&self, edges: &[Self]) -> RusTorchResult<Self> {
        let mut density = self.div(&self.sum(None, false)?)?;
        for (dim, edges) in edges.iter().enumerate() {
            let count = edges.numel() - 1;
            let widths = edges
                .narrow(0, 1, count)?
                .sub(&edges.narrow(0, 0, count)?)?;
            let behind = vec![1; self.rank() - 1 - dim];
            density = density.div(&widths.reshape(&[&[count], &behind[..]].concat()[..])?)?;
        }
        Ok(density)
    }
}

/// A vector of `size` sums of a source by places, as far as they are inside.
fn counted(
    name: &'static str,
    place: &Tensor,
    inside: &Tensor,
    source: &Tensor,
    size: usize,
) -> RusTorchResult<Tensor> {
    let [source, place] = [
        source.kept_where(name, inside)?,
        place.kept_where(name, inside)?,
    ];
    let zeros = Tensor::zeros([size], source.dtype())?;
    Tensor::apply(name, ADD, &[&zeros, &place, &source])
}

/// A range of one number made wider.
fn widened([low, high]: [f64; 2], margin: f64) -> [f64; 2] {
    match low == high {
        true => [low - margin, high + margin],
        false => [low, high],
    }
}

/// Bounds that are finite and rise.
fn checked_bounds(name: &'static str, [low, high]: [f64; 2]) -> RusTorchResult<[f64; 2]> {
    let fits = low.is_finite() && high.is_finite() && low <= high;
    let got = format_args!("{low} to {high}");
    require(name, fits, "a range that is finite and does not fall", got)?;
    Ok([low, high])
}
