//! Images sampled at a grid of coordinates: [Jaderberg et al.](https://arxiv.org/abs/1506.02025)

use rustorch_ir::DType;
use rustorch_ir::ops::Gather;
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::IntoShape;
use crate::args::setting::{Converted, setters};
use crate::error::{RusTorchResult, require};

/// Interpolation of [`Tensor::grid_sample`] between elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GridSampleMode {
    /// Linear between neighbours: PyTorch's `'bilinear'`, for volumes as well.
    #[default]
    Bilinear,
    /// The nearest element.
    Nearest,
    /// Cubic, through four neighbours.
    Bicubic,
}

impl Converted for GridSampleMode {}

/// The padding outside an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum GridSamplePadding {
    /// Zeros.
    #[default]
    Zeros,
    /// The nearest element of the border.
    Border,
    /// The image mirrored at its border.
    Reflection,
}

impl Converted for GridSamplePadding {}

/// The optional arguments of [`Tensor::grid_sample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GridSampleOptions {
    /// Interpolation between elements.
    pub mode: GridSampleMode,
    /// Values outside of the image.
    #[doc(alias = "padding_mode")]
    pub padding: GridSamplePadding,
    /// Whether −1 and 1 mean the centres of the outer elements, not their outer edges.
    pub align_corners: bool,
}

setters!(GridSampleOptions {
    mode: GridSampleMode,
    padding: GridSamplePadding,
    align_corners: bool
});

#[track_calls]
impl Tensor {
    /// The elements of `self` `[n, c, h, w]` or `[n, c, d, h, w]` at coordinates `grid` `[n, h', w', 2]` or
    /// `[n, d', h', w', 3]`. The grid's last dimension begins with the coordinate along `w`, from −1 to 1.
    /// The result is `[n, c, h', w']` or `[n, c, d', h', w']`. Takes floats of one dtype.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes, or an empty tensor.
    pub fn grid_sample(&self, grid: &Self, options: &GridSampleOptions) -> RusTorchResult<Self> {
        const NAME: &str = "grid_sample";
        self.require_float(NAME)?;
        let dims = self.rank().saturating_sub(2);
        let got = format_args!("{} and {}", self.ty(), grid.ty());
        let fits = matches!(dims, 2 | 3)
            && grid.rank() == self.rank()
            && grid.shape()[0] == self.shape()[0]
            && grid.shape()[dims + 1] == dims
            && grid.dtype() == self.dtype();
        let expected = "x [n, c, h, w] and a grid [n, h', w', 2], or x [n, c, d, h, w] and a grid \
                        [n, d', h', w', 3], of one dtype";
        require(NAME, fits, expected, got)?;
        let is_there = self.shape()[2..].iter().all(|&size| size > 0);
        require(NAME, is_there, "dimensions with elements", self.ty())?;

        let (n, c) = (self.shape()[0], self.shape()[1]);
        let to = &grid.shape()[1..=dims];
        let places: usize = to.iter().product();
        let coordinates = grid.widened(NAME)?.reshape([n, places, dims])?;
        let x = self
            .widened(NAME)?
            .reshape([n, c, self.shape()[2..].iter().product()])?;
        // What elements along each dimension count, in all combinations.
        let mut corners: Vec<Tap> = Vec::new();
        let mut stride = 1;
        for dim in (0..dims).rev() {
            let size = self.shape()[2 + dim];
            let along = coordinates.select(2, (dims - 1 - dim) as isize)?;
            let middle = match options.align_corners {
                true => along.add(1.0)?.mul((size as f64 - 1.0) / 2.0)?,
                false => along.add(1.0)?.mul(size as f64)?.sub(1.0)?.mul(0.5)?,
            };
            let taps = taps(&middle, size, options)?;
            corners = match corners.is_empty() {
                true => taps,
                false => combined(&taps, &corners, stride)?,
            };
            stride *= size as i64;
        }
        let sum = sampled(NAME, &x, &corners)?.cast(NAME, self.dtype())?;
        sum.reshape(&[&[n, c], to].concat()[..])
    }

    /// The coordinates for [`Tensor::grid_sample`] from affine maps `self` `[n, 2, 3]` or
    /// `[n, 3, 4]`. The result's `size` is `[n, c, h, w]` or `[n, c, d, h, w]`. Takes floats.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn affine_grid(&self, size: impl IntoShape, align_corners: bool) -> RusTorchResult<Self> {
        const NAME: &str = "affine_grid";
        self.require_float(NAME)?;
        let size = &size.into_shape()[..];
        let dims = size.len().saturating_sub(2);
        let fits = matches!(dims, 2 | 3) && *self.shape() == [size[0], dims, dims + 1];
        let expected = format_args!("maps for a size {size:?}");
        require(NAME, fits, expected, self.ty())?;
        let any = size.iter().all(|&n| n > 0);
        require(NAME, any, "a size without 0", format!("{size:?}"))?;
        let to = &size[2..];
        let maps = self.widened(NAME)?.transpose(1, 2)?;
        // The last dimension first, and 1.
        let mut points = Vec::with_capacity(dims + 1);
        for (dim, &steps) in to.iter().enumerate().rev() {
            let line = coordinates(NAME, steps, align_corners, maps.dtype())?;
            let mut along = vec![1; dims];
            along[dim] = steps;
            points.push(line.reshape(&along[..])?.expand(to)?);
        }
        points.push(points[0].ones_like()?);
        let points: Vec<&Self> = points.iter().collect();
        let points = Self::stack(&points, -1)?.flatten(0, -2)?;
        let grid = points.matmul(&maps)?.cast(NAME, self.dtype())?;
        grid.reshape(&[&size[..1], to, &[dims]].concat()[..])
    }
}

/// From −1 to 1 in even steps, without the corners' halves unless those are aligned; 0 where there is one alone.
fn coordinates(
    name: &'static str,
    steps: usize,
    align_corners: bool,
    dtype: DType,
) -> RusTorchResult<Tensor> {
    let last = steps.saturating_sub(1) as f64;
    let numbers = Tensor::arange_with(0, steps as i64, 1, DType::I64)?.cast(name, dtype)?;
    let even = match steps {
        1 => numbers,
        _ => numbers.mul(2)?.div(last)?.sub(1)?,
    };
    match align_corners {
        true => Ok(even),
        false => even.mul(last / steps as f64),
    }
}

/// An element that counts, for each place.
pub(crate) struct Tap {
    /// Its index, `i64`.
    pub(crate) place: Tensor,
    /// Whether it is inside. `None`: all are.
    pub(crate) inside: Option<Tensor>,
    /// Weight of the elements; `None` for 1.
    pub(crate) weight: Option<Tensor>,
}

/// The sum `[n, c, places]` of the elements of `x` `[n, c, elements]` that `taps` `[n, places]` name.
pub(crate) fn sampled(name: &'static str, x: &Tensor, taps: &[Tap]) -> RusTorchResult<Tensor> {
    let mut sum: Option<Tensor> = None;
    for tap in taps {
        let places = tap.place.shape()[1];
        let index = tap
            .place
            .unsqueeze(1)?
            .expand([x.shape()[0], x.shape()[1], places])?;
        let element = Tensor::apply(name, Gather { dim: 2 }, &[x, &index])?;
        let element = match &tap.inside {
            Some(inside) => Tensor::where_(&inside.unsqueeze(1)?, &element, 0.0)?,
            None => element,
        };
        let part = match &tap.weight {
            Some(weight) => element.mul(&weight.unsqueeze(1)?)?,
            None => element,
        };
        sum = Some(match sum {
            Some(sum) => sum.add(&part)?,
            None => part,
        });
    }
    Ok(sum.unwrap_or_else(|| x.clone()))
}

/// Taps of one dimension, `stride` apart, with those of the dimensions behind.
pub(crate) fn combined(taps: &[Tap], others: &[Tap], stride: i64) -> RusTorchResult<Vec<Tap>> {
    type Join = fn(&Tensor, &Tensor) -> RusTorchResult<Tensor>;
    let both = |a: &Option<Tensor>, b: &Option<Tensor>, join: Join| match (a, b) {
        (Some(a), Some(b)) => join(a, b).map(Some),
        (one, other) => Ok(one.as_ref().or(other.as_ref()).cloned()),
    };
    let mut all = Vec::new();
    for tap in taps {
        for other in others {
            all.push(Tap {
                place: tap.place.mul(stride)?.add(&other.place)?,
                inside: both(&tap.inside, &other.inside, |a, b| a.logical_and(b))?,
                weight: both(&tap.weight, &other.weight, |a, b| a.mul(b))?,
            });
        }
    }
    Ok(all)
}

/// The elements along one dimension that places `middle`, counted in elements, need.
pub(crate) fn taps(
    middle: &Tensor,
    size: usize,
    options: &GridSampleOptions,
) -> RusTorchResult<Vec<Tap>> {
    let tap = |place: &Tensor, weight: Option<Tensor>| -> RusTorchResult<Tap> {
        let last = size as i64 - 1;
        let inside = match options.padding {
            GridSamplePadding::Zeros => Some(place.ge(0.0)?.logical_and(&place.le(last as f64)?)?),
            _ => None,
        };
        let place = place.to_dtype(DType::I64)?.clamp(0, last)?;
        Ok(Tap {
            place,
            inside,
            weight,
        })
    };
    match options.mode {
        GridSampleMode::Nearest => Ok(vec![tap(&bounded(middle, size, options)?.round()?, None)?]),
        GridSampleMode::Bilinear => {
            let middle = bounded(middle, size, options)?;
            let first = middle.floor()?;
            let part = middle.sub(&first)?;
            Ok(vec![
                tap(&first, Some(part.neg()?.add(1.0)?))?,
                tap(&first.add(1.0)?, Some(part))?,
            ])
        }
        GridSampleMode::Bicubic => {
            let first = middle.floor()?;
            let part = middle.sub(&first)?;
            (-1i32..3)
                .map(|offset| {
                    let place = bounded(&first.add(f64::from(offset))?, size, options)?;
                    tap(&place, Some(cubic(&part, offset)?))
                })
                .collect()
        }
    }
}

/// Places inside, if the padding is not zeros.
fn bounded(place: &Tensor, size: usize, options: &GridSampleOptions) -> RusTorchResult<Tensor> {
    let last = size as f64 - 1.0;
    match options.padding {
        GridSamplePadding::Zeros => Ok(place.clone()),
        GridSamplePadding::Border => place.clamp(0.0, last),
        GridSamplePadding::Reflection => {
            let (low, span) = match options.align_corners {
                true => (0.0, last),
                false => (-0.5, size as f64),
            };
            if span == 0.0 {
                return place.mul(0.0);
            }
            // A wave of period twice the span.
            let beyond = place.sub(low)?.abs()?;
            let flips = beyond.div(span)?.floor()?;
            let rest = beyond.sub(&flips.mul(span)?)?;
            let is_even = flips.remainder(2.0)?.eq(0.0)?;
            let inside = Tensor::where_(&is_even, &rest, &rest.neg()?.add(span)?)?;
            inside.add(low)?.clamp(0.0, last)
        }
    }
}

/// The weight of the element at `offset` from the one before, for a place `part` behind that one.
fn cubic(part: &Tensor, offset: i32) -> RusTorchResult<Tensor> {
    const A: f64 = -0.75;
    let distance = part.sub(f64::from(offset))?.abs()?;
    let polynomial = |terms: [f64; 4]| -> RusTorchResult<Tensor> {
        let [a, b, c, d] = terms;
        distance
            .mul(a)?
            .add(b)?
            .mul(&distance)?
            .add(c)?
            .mul(&distance)?
            .add(d)
    };
    match offset {
        0 | 1 => polynomial([A + 2.0, -(A + 3.0), 0.0, 1.0]),
        _ => polynomial([A, -5.0 * A, 8.0 * A, -4.0 * A]),
    }
}
