//! Resizing of images.

use std::collections::VecDeque;
use std::sync::{LazyLock, Mutex, PoisonError};

use rustorch_ir::ops::{IndexSelect, Resample};
use rustorch_ir::{DType, DeviceType, OpError, TensorType};
use rustorch_macros::track_calls;
use rustorch_runtime::{Routing, Runtime};

use crate::args::setting::{Converted, setters};
use crate::device::devices::{host, with_runtime};
use crate::device::manager::with_device;
use crate::error::{RusTorchResult, require};
use crate::tensor::check_type;
use crate::{Element, Tensor};

/// The size of the result of [`Tensor::interpolate`]: one for each dimension after the channels, or
/// one for all.
#[derive(Clone, PartialEq, Debug)]
pub enum InterpolateSize {
    /// These sizes.
    Size(Vec<usize>),
    /// Factors of the operand's sizes, rounded down.
    Scale(Vec<f64>),
    /// Sizes, and the scales that set the distance of elements.
    SizeAndScale(Vec<usize>, Vec<f64>),
}

impl Converted for InterpolateSize {}

impl<const N: usize> From<[usize; N]> for InterpolateSize {
    fn from(size: [usize; N]) -> Self {
        Self::Size(size.into())
    }
}

impl<const N: usize> From<[f64; N]> for InterpolateSize {
    fn from(scale: [f64; N]) -> Self {
        Self::Scale(scale.into())
    }
}

impl From<(usize, usize)> for InterpolateSize {
    fn from(size: (usize, usize)) -> Self {
        <[usize; 2]>::from(size).into()
    }
}

impl From<(usize, usize, usize)> for InterpolateSize {
    fn from(size: (usize, usize, usize)) -> Self {
        <[usize; 3]>::from(size).into()
    }
}

/// Interpolation between elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InterpolateMode {
    /// The nearest element, as in OpenCV's `INTER_NEAREST`.
    #[default]
    Nearest,
    /// Nearest element.
    NearestExact,
    /// Linear: PyTorch's linear, bilinear and trilinear.
    Linear,
    /// Cubic, through four neighbours ([Keys 1981](https://doi.org/10.1109/TASSP.1981.1163711)).
    /// Images alone.
    Bicubic,
    /// Mean of the covered elements: adaptive pooling.
    Area,
}

impl Converted for InterpolateMode {}

/// The optional arguments of [`Tensor::interpolate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterpolateOptions {
    /// Interpolation between elements.
    pub mode: InterpolateMode,
    /// Aligns the centres of the corner elements, not their outer edges. For linear and bicubic
    /// interpolation.
    pub align_corners: bool,
    /// Computes the distance of elements from the sizes, not from the given scale.
    pub recompute_scale_factor: bool,
    /// Antialiasing: all elements count when an image shrinks. For linear and bicubic
    /// interpolation.
    pub antialias: bool,
}

setters!(InterpolateOptions {
    mode: InterpolateMode,
    align_corners: bool,
    recompute_scale_factor: bool,
    antialias: bool,
});

/// Elements that new ones are made of, along one dimension: `[taps, len]` places, `i32`, and weights in the dtype that
/// places are computed in. They follow from a rule: recording costs the same for any number of them.
type Tables = [Tensor; 2];

/// The parameters of tables: a dimension, the mode, and whether shrunk images have all elements count.
type Key = (Line, InterpolateMode, bool);

/// The small tables that were made last, with the copies that devices have made of them: images mostly come
/// in the sizes of those before.
static KEPT: Mutex<VecDeque<(Key, Tables)>> = Mutex::new(VecDeque::new());

/// Computes the small tables: devices may lack double precision.
static PROCESSOR: LazyLock<Runtime> = LazyLock::new(|| Runtime::new(host(1)));

/// Number of kept tables, and the elements of the largest.
const KEPT_TABLES: usize = 32;
const LARGEST_TABLE: usize = 1 << 16;

/// Sizes along one dimension.
#[derive(Clone, Copy, PartialEq)]
struct Line {
    from: usize,
    to: usize,
    /// The scale that sizes come from, if they do.
    scale: Option<f64>,
    /// Are places computed in single precision, as PyTorch does for floats but `f64`?
    single: bool,
    align_corners: bool,
}

/// The name that errors say.
const NAME: &str = "interpolate";

#[track_calls]
impl Tensor {
    /// Resizes `self` `[n, c, …]` with one to three dimensions after the channels. It takes floats,
    /// and `u8`, whose results are rounded.
    ///
    /// # Errors
    /// Fails for an unsupported shape or dtype, or for a mode that does not fit. Also fails unless
    /// each dimension has one size above 0.
    #[doc(alias = "upsample")]
    #[doc(alias = "upsample_nearest")]
    #[doc(alias = "upsample_bilinear")]
    pub fn interpolate(
        &self,
        size: impl Into<InterpolateSize>,
        options: &InterpolateOptions,
    ) -> RusTorchResult<Self> {
        let legal = self.dtype().is_float() || self.dtype() == DType::U8;
        require(NAME, legal, "floats or u8", self.ty())?;
        let dims = self.rank().saturating_sub(2);
        let is_there = self.shape().iter().skip(1).all(|&n| n > 0);
        let fits = matches!(dims, 1..=3) && is_there;
        require(
            NAME,
            fits,
            "a tensor [n, c, ..] of rank 3 to 5 with elements",
            self.ty(),
        )?;
        let is_smooth = matches!(
            options.mode,
            InterpolateMode::Linear | InterpolateMode::Bicubic
        );
        let of_images = options.antialias || options.mode == InterpolateMode::Bicubic;
        let legal = (dims == 2 || !of_images)
            && (is_smooth || !options.antialias && !options.align_corners);
        require(
            NAME,
            legal,
            "a mode for such tensors, and options of that mode",
            format!("{options:?}"),
        )?;
        let lines = self.lines(NAME, &size.into(), options)?;
        if options.mode == InterpolateMode::Area {
            return self.area(&lines);
        }
        let rounds = self.dtype() == DType::U8 && is_smooth;
        let x = self.widened(NAME)?;
        let resized =
            (lines.iter().enumerate().rev()).try_fold(x, |x, (i, line)| match options.mode {
                InterpolateMode::Nearest => x.at_places(NAME, 2 + i, &line.nearest(0.0)?),
                InterpolateMode::NearestExact => x.at_places(NAME, 2 + i, &line.nearest(0.5)?),
                _ if rounds => x.blended_bytes(NAME, 2 + i, &line.tables(options)?),
                _ => x.blended(NAME, 2 + i, &line.tables(options)?),
            })?;
        resized.cast(NAME, self.dtype())
    }

    /// The result of each dimension after the channels.
    fn lines(
        &self,
        name: &'static str,
        size: &InterpolateSize,
        options: &InterpolateOptions,
    ) -> RusTorchResult<Vec<Line>> {
        let from = &self.shape()[2..];
        let one_or_each = |count: usize| count == 1 || count == from.len();
        let (sizes, scales): (Vec<usize>, Vec<Option<f64>>) = match size {
            InterpolateSize::Size(sizes) if one_or_each(sizes.len()) => {
                let sizes = sizes.iter().copied().cycle().take(from.len());
                (sizes.collect(), vec![None; from.len()])
            }
            InterpolateSize::Scale(scales) if one_or_each(scales.len()) => {
                let scales: Vec<f64> = scales.iter().copied().cycle().take(from.len()).collect();
                let sizes = from
                    .iter()
                    .zip(&scales)
                    .map(|(&n, scale)| (n as f64 * scale) as usize);
                let kept = |&scale: &f64| (!options.recompute_scale_factor).then_some(scale);
                (sizes.collect(), scales.iter().map(kept).collect())
            }
            InterpolateSize::SizeAndScale(sizes, scales)
                if sizes.len() == from.len() && scales.len() == from.len() =>
            {
                (sizes.clone(), scales.iter().copied().map(Some).collect())
            }
            _ => {
                let expected =
                    format_args!("a size or scale for each of {} dimensions", from.len());
                return Err(OpError::new(name, expected, format!("{size:?}")).into());
            }
        };
        let is_there = sizes.iter().all(|&size| size > 0);
        require(
            name,
            is_there,
            "sizes with elements",
            format_args!("{sizes:?}"),
        )?;
        let whole = [&self.shape()[..2], &sizes].concat();
        check_type(name, &TensorType::new(&whole[..], self.dtype()))?;
        let line = |((&from, &to), &scale): ((&usize, &usize), &Option<f64>)| Line {
            from,
            to,
            scale,
            single: !matches!(self.dtype(), DType::F64 | DType::U8),
            align_corners: options.align_corners,
        };
        Ok(from.iter().zip(&sizes).zip(&scales).map(line).collect())
    }

    fn area(&self, lines: &[Line]) -> RusTorchResult<Self> {
        let size = |i: usize| Some(lines[i].to);
        match lines.len() {
            1 => self.adaptive_avg_pool1d([size(0)]),
            2 => self.adaptive_avg_pool2d([size(0), size(1)]),
            _ => self.adaptive_avg_pool3d([size(0), size(1), size(2)]),
        }
    }

    fn at_places(&self, name: &'static str, dim: usize, index: &Self) -> RusTorchResult<Self> {
        Self::apply(name, IndexSelect { dim }, &[self, index])
    }

    /// The sum of weighted elements along a dimension.
    fn blended(
        &self,
        name: &'static str,
        dim: usize,
        [places, weights]: &Tables,
    ) -> RusTorchResult<Self> {
        Self::apply(name, Resample { dim }, &[self, places, weights])
    }

    /// The sum of weighted bytes along a dimension, by weights of 16 bits, rounded as in PyTorch.
    fn blended_bytes(
        &self,
        name: &'static str,
        dim: usize,
        [places, weights]: &Tables,
    ) -> RusTorchResult<Self> {
        let powers: Vec<f64> = (1..=22).map(|bits| f64::from(bits).exp2()).collect();
        let powers = Self::from_vec(powers, [22])?;
        let largest = weights.max(None, false)?;
        let fits = powers.mul(&largest)?.add(0.5)?.lt(f64::from(1 << 15))?;
        let unit = Self::where_(&fits, &powers, 1.0)?.max(None, false)?;
        let whole = weights.mul(&unit)?;
        let half = Self::where_(&whole.lt(0)?, -0.5, 0.5)?;
        let whole = whole.add(&half)?.trunc()?.cast(name, DType::I32)?;
        let unit = unit.cast(name, DType::I32)?;
        let x = self.cast(name, DType::I32)?;
        let mut column = vec![1; self.rank() - dim];
        column[0] = whole.shape()[1];
        let mut sum = unit.floor_divide(2)?;
        for tap in 0..places.shape()[0] {
            let weight = whole.select(0, tap)?.reshape(&column[..])?;
            let part = x.at_places(name, dim, &places.select(0, tap)?)?;
            sum = part.mul(&weight)?.add(&sum)?;
        }
        sum.floor_divide(&unit)?
            .clamp(0, 255)?
            .cast(name, DType::U8)
    }
}

impl Line {
    /// A number as it is kept.
    fn kept(&self, x: f64) -> f64 {
        match self.single {
            true => f64::from(x as f32),
            false => x,
        }
    }

    /// The distance of new elements, in old ones.
    fn step(&self) -> f64 {
        match (self.align_corners, self.scale) {
            (true, _) if self.to > 1 => self.kept((self.from - 1) as f64 / (self.to - 1) as f64),
            (true, _) => 0.0,
            (_, Some(scale)) if scale > 0.0 => self.kept(1.0 / scale),
            _ => self.kept(self.from as f64 / self.to as f64),
        }
    }

    /// The dtype that places are computed in.
    fn dtype(&self) -> DType {
        match self.single {
            true => DType::F32,
            false => DType::F64,
        }
    }

    /// The number of each new element.
    fn numbers(&self, dtype: DType) -> RusTorchResult<Tensor> {
        Tensor::arange_with(0, self.to as i64, 1, DType::I64)?.cast(NAME, dtype)
    }

    /// The place of each new element among the old ones.
    fn sources(&self) -> RusTorchResult<Tensor> {
        let numbers = self.numbers(self.dtype())?;
        match self.align_corners {
            true => numbers.mul(self.step()),
            false => numbers.add(0.5)?.mul(self.step())?.sub(0.5),
        }
    }

    /// Old elements, the outer ones at the most.
    fn clip(&self, places: &Tensor) -> RusTorchResult<Tensor> {
        places
            .cast(NAME, DType::I64)?
            .clamp(0, self.from as i64 - 1)
    }

    /// The place of each new element; of those with `shift` 0.5, the nearest.
    fn nearest(&self, shift: f64) -> RusTorchResult<Tensor> {
        // In single precision for all dtypes.
        let step = match self.scale {
            Some(scale) if scale > 0.0 => (1.0 / scale) as f32,
            _ => self.from as f32 / self.to as f32,
        };
        match (shift == 0.0, self.to) {
            (true, to) if to == self.from => self.numbers(DType::I64),
            (true, to) if to == 2 * self.from => self.numbers(DType::I64)?.floor_divide(2),
            _ => {
                let places = self.numbers(DType::F32)?.add(shift)?.mul(step)?;
                self.clip(&places.floor()?)
            }
        }
    }

    /// The elements that new ones are made of, and their weights.
    fn tables(&self, options: &InterpolateOptions) -> RusTorchResult<Tables> {
        let key = (*self, options.mode, options.antialias);
        let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tables)) = kept().iter().find(|(known, _)| *known == key) {
            return Ok(tables.clone());
        }
        let tables = || match (options.antialias, options.mode) {
            (true, mode) => self.covering(mode, self.taps(options)),
            (_, InterpolateMode::Linear) => self.linear(),
            _ => self.cubic(),
        };
        if self.taps(options).saturating_mul(self.to) > LARGEST_TABLE {
            return tables();
        }
        let computed = || with_device(DeviceType::Auto, || in_memory(&tables()?))?;
        let tables = with_runtime(&PROCESSOR, Routing::AUTO, computed)?;
        let mut kept = kept();
        kept.truncate(KEPT_TABLES - 1);
        kept.push_front((key, tables.clone()));
        Ok(tables)
    }

    /// How many elements each new one is made of.
    fn taps(&self, options: &InterpolateOptions) -> usize {
        match (options.antialias, options.mode) {
            (true, mode) => ((2.0 * self.support(mode)).ceil() as usize).clamp(1, self.from),
            (_, InterpolateMode::Linear) => 2,
            _ => 4,
        }
    }

    /// How far from its centre a new element covers old ones.
    fn support(&self, mode: InterpolateMode) -> f64 {
        let radius = match mode {
            InterpolateMode::Linear => 1.0,
            _ => 2.0,
        };
        self.kept(radius * self.step().max(1.0))
    }

    fn linear(&self) -> RusTorchResult<Tables> {
        let sources = self.sources()?.clamp_min(0)?;
        let first = self.clip(&sources.floor()?)?;
        let second = self.clip(&first.add(1)?)?;
        let part = sources.sub(&first.cast(NAME, self.dtype())?)?.clamp(0, 1)?;
        let rest = part.neg()?.add(1)?;
        let places = Tensor::stack(&[&first, &second], 0)?;
        Ok([
            places.cast(NAME, DType::I32)?,
            Tensor::stack(&[&rest, &part], 0)?,
        ])
    }

    fn cubic(&self) -> RusTorchResult<Tables> {
        let sources = self.sources()?;
        let before = sources.floor()?;
        let part = sources.sub(&before)?.cast(NAME, DType::F64)?;
        let taps = Tensor::arange_with(-1, 3, 1, DType::I64)?.unsqueeze(1)?;
        let places = self.clip(&before.cast(NAME, DType::I64)?.add(&taps)?)?;
        let weights = cubic(&part.sub(&taps)?.abs()?, -0.75)?;
        Ok([
            places.cast(NAME, DType::I32)?,
            weights.cast(NAME, self.dtype())?,
        ])
    }

    /// All elements that a new one covers, by a filter as wide.
    fn covering(&self, mode: InterpolateMode, taps: usize) -> RusTorchResult<Tables> {
        let (step, support) = (self.step(), self.support(mode));
        let squeeze = self.kept(1.0 / step.max(1.0));
        let numbers = self.numbers(self.dtype())?;
        let centre = numbers.add(0.5)?.mul(step)?.cast(NAME, DType::F64)?;
        let start = centre.sub(support)?.add(0.5)?.clamp_min(0)?.trunc()?;
        let end = centre.add(support)?.add(0.5)?.trunc()?;
        let end = end.clamp_max(self.from as f64)?;
        let taps = Tensor::arange_with(0, taps as i64, 1, DType::I64)?.unsqueeze(1)?;
        let places = start.add(&taps)?;
        let distance = places.sub(&centre)?.add(0.5)?.cast(NAME, self.dtype())?;
        let distance = distance.mul(squeeze)?.abs()?.cast(NAME, DType::F64)?;
        let filtered = match mode {
            InterpolateMode::Linear => distance.neg()?.add(1)?.clamp_min(0)?,
            _ => cubic(&distance, -0.5)?,
        };
        let weights = Tensor::where_(&places.lt(&end)?, &filtered, 0.0)?;
        let weights = weights.cast(NAME, self.dtype())?.cast(NAME, DType::F64)?;
        let total = weights.sum(0, true)?;
        let weights = weights.div(&Tensor::where_(&total.eq(0)?, 1.0, &total)?)?;
        Ok([
            self.clip(&places)?.cast(NAME, DType::I32)?,
            weights.cast(NAME, self.dtype())?,
        ])
    }
}

/// Tables whose elements are computed, in the host's memory.
fn in_memory([places, weights]: &Tables) -> RusTorchResult<Tables> {
    let weights = match weights.dtype() {
        DType::F32 => copied::<f32>(weights),
        _ => copied::<f64>(weights),
    };
    Ok([copied::<i32>(places)?, weights?])
}

fn copied<T: Element>(x: &Tensor) -> RusTorchResult<Tensor> {
    Tensor::from_vec(x.to_vec::<T>()?, x.shape())
}

/// The cubic convolution kernel of parameter `a` at distances `x`.
fn cubic(x: &Tensor, a: f64) -> RusTorchResult<Tensor> {
    let near = x.mul(a + 2.0)?.sub(a + 3.0)?.mul(x)?.mul(x)?.add(1)?;
    let far = x.mul(a)?.sub(5.0 * a)?.mul(x)?.add(8.0 * a)?.mul(x)?;
    let far = Tensor::where_(&x.lt(2)?, &far.sub(4.0 * a)?, 0.0)?;
    Tensor::where_(&x.le(1)?, &near, &far)
}
