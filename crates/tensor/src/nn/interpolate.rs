//! Images in other sizes.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use rustorch_ir::ops::{IndexSelect, Resample};
use rustorch_ir::{DType, OpError, TensorType};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::error::{RusTorchError, RusTorchResult, require};
use crate::setting::{Converted, setters};
use crate::tensor::check_type;

/// The size that [`Tensor::interpolate`] gives: of each dimension behind the channels, or of all of
/// them by one number.
#[derive(Clone, PartialEq, Debug)]
pub enum InterpolateSize {
    /// These sizes.
    Size(Vec<usize>),
    /// These times the operand's sizes, rounded down.
    Scale(Vec<f64>),
    /// Sizes, and the scales that say how far apart their elements are.
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

/// How elements between others are found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum InterpolateMode {
    /// They are the element before, as in OpenCV's `INTER_NEAREST`.
    #[default]
    Nearest,
    /// They are the nearest element.
    NearestExact,
    /// On lines between neighbours: PyTorch's linear, bilinear and trilinear.
    Linear,
    /// On cubics through four neighbours
    /// ([Keys 1981](https://doi.org/10.1109/TASSP.1981.1163711)). Images alone.
    Bicubic,
    /// They are the mean of what they cover: adaptive pooling.
    Area,
}

impl Converted for InterpolateMode {}

/// The optional arguments of [`Tensor::interpolate`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InterpolateOptions {
    /// How elements between others are found.
    pub mode: InterpolateMode,
    /// Are the outer elements at the same place, not the outer edges of all? Of linear and bicubic.
    pub align_corners: bool,
    /// Is the distance of elements that of the sizes, not of the scale that they come from?
    pub recompute_scale_factor: bool,
    /// Do shrunk images have all elements count? Of linear and bicubic images.
    pub antialias: bool,
}

setters!(InterpolateOptions {
    mode: InterpolateMode,
    align_corners: bool,
    recompute_scale_factor: bool,
    antialias: bool,
});

/// Elements that a new one is made of, along one dimension: `weights[tap][i]` times the one at
/// `places[tap][i]`, for each tap.
struct Taps {
    places: Vec<Vec<i64>>,
    weights: Vec<Vec<f64>>,
}

impl Taps {
    /// The places `[taps, len]` and the weights, in single precision if that is `dtype` and in double
    /// precision if it is another.
    fn tables(&self, dtype: DType) -> RusTorchResult<[Tensor; 2]> {
        let shape = [self.places.len(), self.places.first().map_or(0, Vec::len)];
        let places = self.places.iter().flatten().map(|&place| place as i32);
        let places = Tensor::from_vec(places.collect(), shape)?;
        let weights = self.weights.iter().flatten().copied();
        let weights = match dtype {
            DType::F32 => Tensor::from_vec(weights.map(|weight| weight as f32).collect(), shape)?,
            _ => Tensor::from_vec(weights.collect::<Vec<f64>>(), shape)?,
        };
        Ok([places, weights])
    }
}

/// What tables follow from: a dimension, the mode, whether shrunk images have all elements count, and
/// the dtype of the image.
type Key = (Line, InterpolateMode, bool, DType);

/// The tables that were made last, with the copies that devices have made of them: images mostly come
/// in the sizes of those before.
static KEPT: Mutex<VecDeque<(Key, [Tensor; 2])>> = Mutex::new(VecDeque::new());

/// How many are kept, and the elements of the largest.
const KEPT_TABLES: usize = 32;
const LARGEST_TABLE: usize = 1 << 16;

/// One dimension.
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

#[track_calls]
impl Tensor {
    /// `self` `[n, c, …]`, with one to three dimensions behind the channels, in another size. Floats,
    /// and `u8`, of which results are rounded.
    ///
    /// # Errors
    /// Another shape or dtype; sizes for other than each dimension, or without elements; a mode that
    /// does not fit.
    pub fn interpolate(
        &self,
        size: impl Into<InterpolateSize>,
        options: &InterpolateOptions,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "interpolate";
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
            "a mode of such tensors, and options of it",
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
                InterpolateMode::Nearest => x.at_places(NAME, 2 + i, &line.nearest(0.0)),
                InterpolateMode::NearestExact => x.at_places(NAME, 2 + i, &line.nearest(0.5)),
                _ if rounds => x.blended_bytes(NAME, 2 + i, &line.taps(options)),
                _ => x.blended(NAME, 2 + i, line.tables(options, x.dtype())?),
            })?;
        resized.cast(NAME, self.dtype())
    }

    /// What becomes of each dimension behind the channels.
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
        // Of each element it is noted where it comes from: there has to be room for that at least.
        for &size in &sizes {
            let room = Vec::<[f64; 2]>::new().try_reserve_exact(size);
            room.map_err(|_| RusTorchError::OutOfMemory {
                op: name,
                bytes: size.saturating_mul(size_of::<[f64; 2]>()),
            })?;
        }
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

    fn at_places(&self, name: &'static str, dim: usize, places: &[i64]) -> RusTorchResult<Self> {
        let index = Self::from_slice(places, [places.len()])?;
        Self::apply(name, IndexSelect { dim }, &[self, &index])
    }

    /// The sum of weighted elements along a dimension.
    fn blended(
        &self,
        name: &'static str,
        dim: usize,
        [places, weights]: [Self; 2],
    ) -> RusTorchResult<Self> {
        let weights = weights.cast(name, self.dtype())?;
        Self::apply(name, Resample { dim }, &[self, &places, &weights])
    }

    /// The sum of weighted bytes along a dimension, by weights of 16 bits, rounded: what PyTorch does.
    fn blended_bytes(&self, name: &'static str, dim: usize, taps: &Taps) -> RusTorchResult<Self> {
        let largest = taps
            .weights
            .iter()
            .flatten()
            .fold(0.0f64, |max, &w| max.max(w));
        let fits = |bits: &i32| 0.5 + largest * f64::from(bits + 1).exp2() < f64::from(1 << 15);
        let bits = (0..22).take_while(fits).count() as i32;
        let unit = f64::from(bits).exp2();
        let sum =
            self.cast(name, DType::I32)?
                .weighted_sum(name, dim, taps, |weights, shape| {
                    let whole = |&w: &f64| (w * unit).round() as i32;
                    Self::from_vec(weights.iter().map(whole).collect(), shape)
                })?;
        let rounded = sum.add((unit / 2.0) as i64)?.floor_divide(unit as i64)?;
        rounded.clamp(0, 255)?.cast(name, DType::U8)
    }

    fn weighted_sum(
        &self,
        name: &'static str,
        dim: usize,
        taps: &Taps,
        weight: impl Fn(&[f64], &[usize]) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        let mut sum: Option<Self> = None;
        for (places, weights) in taps.places.iter().zip(&taps.weights) {
            let mut shape = vec![1; self.rank() - dim];
            shape[0] = weights.len();
            let part = self
                .at_places(name, dim, places)?
                .mul(&weight(weights, &shape)?)?;
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        Ok(sum.unwrap_or_else(|| self.clone()))
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

    /// Where a new element is among the old ones.
    fn source(&self, i: usize) -> f64 {
        let step = self.step();
        match self.align_corners {
            true => self.kept(step * i as f64),
            false => self.kept(self.kept(step * (i as f64 + 0.5)) - 0.5),
        }
    }

    /// The last old element, at the most.
    fn clip(&self, place: f64) -> i64 {
        place.clamp(0.0, (self.from - 1) as f64) as i64
    }

    /// The place of each new element; of those with `shift` 0.5, the nearest.
    fn nearest(&self, shift: f32) -> Vec<i64> {
        // In single precision for all dtypes.
        let step = match self.scale {
            Some(scale) if scale > 0.0 => (1.0 / scale) as f32,
            _ => self.from as f32 / self.to as f32,
        };
        let place = |i: usize| match (shift == 0.0, self.to) {
            (true, to) if to == self.from => i as i64,
            (true, to) if to == 2 * self.from => i as i64 / 2,
            _ => self.clip(f64::from(((i as f32 + shift) * step).floor())),
        };
        (0..self.to).map(place).collect()
    }

    /// The tables of [`Line::taps`] for an image of `dtype`.
    fn tables(&self, options: &InterpolateOptions, dtype: DType) -> RusTorchResult<[Tensor; 2]> {
        let key = (*self, options.mode, options.antialias, dtype);
        let kept = || KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, tables)) = kept().iter().find(|(known, _)| *known == key) {
            return Ok(tables.clone());
        }
        let tables = self.taps(options).tables(dtype)?;
        if tables[0].numel() <= LARGEST_TABLE {
            let mut kept = kept();
            kept.truncate(KEPT_TABLES - 1);
            kept.push_front((key, tables.clone()));
        }
        Ok(tables)
    }

    fn taps(&self, options: &InterpolateOptions) -> Taps {
        match (options.antialias, options.mode) {
            (true, mode) => self.covering(mode),
            (_, InterpolateMode::Linear) => self.linear(),
            _ => self.cubic(),
        }
    }

    fn linear(&self) -> Taps {
        let sources = || (0..self.to).map(|i| self.source(i).max(0.0));
        let first = |x: f64| self.clip(x.floor());
        let second = |x: f64| (first(x) + 1).min(self.from as i64 - 1);
        let part = |x: f64| self.kept(x - first(x) as f64).clamp(0.0, 1.0);
        Taps {
            places: vec![
                sources().map(first).collect(),
                sources().map(second).collect(),
            ],
            weights: vec![
                sources().map(|x| self.kept(1.0 - part(x))).collect(),
                sources().map(part).collect(),
            ],
        }
    }

    fn cubic(&self) -> Taps {
        const A: f64 = -0.75;
        let taps = |tap: i64| {
            let at = |i| self.source(i);
            let place = move |i| self.clip(at(i).floor() + (tap - 1) as f64);
            let weight = move |i| {
                let part = self.kept(at(i) - at(i).floor());
                cubic((part - (tap - 1) as f64).abs(), A)
            };
            (
                (0..self.to).map(place).collect(),
                (0..self.to).map(weight).collect(),
            )
        };
        let (places, weights) = (0..4).map(taps).unzip();
        Taps { places, weights }
    }

    /// All elements that a new one covers, by a filter as wide.
    fn covering(&self, mode: InterpolateMode) -> Taps {
        let step = self.step();
        let (radius, filter): (f64, fn(f64) -> f64) = match mode {
            InterpolateMode::Linear => (1.0, |x| (1.0 - x).max(0.0)),
            _ => (2.0, |x| cubic(x, -0.5)),
        };
        let (support, squeeze) = match step >= 1.0 {
            true => (self.kept(radius * step), self.kept(1.0 / step)),
            false => (radius, 1.0),
        };
        let ranges = (0..self.to).map(|i| {
            let centre = self.kept(step * (i as f64 + 0.5));
            let start = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(self.from);
            let weight = |j: usize| {
                let distance = self.kept(self.kept(j as f64 - centre + 0.5) * squeeze);
                self.kept(filter(distance.abs()))
            };
            let weights: Vec<f64> = (start..end).map(weight).collect();
            let total: f64 = weights.iter().sum();
            let even = |&w: &f64| {
                if total == 0.0 {
                    w
                } else {
                    self.kept(w / total)
                }
            };
            (start, weights.iter().map(even).collect::<Vec<f64>>())
        });
        let ranges: Vec<(usize, Vec<f64>)> = ranges.collect();
        let count = ranges
            .iter()
            .map(|(_, weights)| weights.len())
            .max()
            .unwrap_or(0);
        let place =
            |tap: usize| move |(start, _): &(usize, Vec<f64>)| self.clip((start + tap) as f64);
        let weight = |tap: usize| {
            move |(_, weights): &(usize, Vec<f64>)| weights.get(tap).copied().unwrap_or(0.0)
        };
        Taps {
            places: (0..count)
                .map(|tap| ranges.iter().map(place(tap)).collect())
                .collect(),
            weights: (0..count)
                .map(|tap| ranges.iter().map(weight(tap)).collect())
                .collect(),
        }
    }
}

/// The cubic convolution kernel of parameter `a` at distance `x`.
fn cubic(x: f64, a: f64) -> f64 {
    match x {
        x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        _ => 0.0,
    }
}
