//! ONNX's operators that map each dimension by itself: what comes of a dimension is a matrix times it.

use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use crate::call::{Call, Found, missing};

table! {
    "LpPool", LP_POOL, |c| {
        let (x, p) = (c.input()?, c.float("p")?);
        let powers = x.to_dtype(DType::F64)?.abs()?.pow(p)?;
        let (sums, _) = Windows::of(c)?.sums(&powers)?;
        sums.pow(1.0 / p)?.to_dtype(x.dtype())?
    };
    "Resize", RESIZE, |c| Resize::of(c)?.apply(c.input()?)?;
    "Upsample", "X, scales, mode='nearest'", |c| {
        let x = c.input()?;
        let scales = floats(c, "scales")?;
        let to = x.shape().iter().zip(&scales).map(|(&n, s)| (n as f64 * s) as usize);
        Resize {
            axes: (0..x.rank()).collect(),
            to: to.collect(),
            scales,
            roi: Vec::new(),
            mode: c.text("mode")?.to_owned(),
            coordinates: "asymmetric".to_owned(),
            nearest: "floor".to_owned(),
            cubic: -0.75,
            excludes_outside: false,
            extrapolation: 0.0,
            antialias: false,
        }
        .apply(x)?
    };
}

const LP_POOL: &str = "X, kernel_shape, strides=1, pads=None, dilations=1, ceil_mode=0, p=2, \
     auto_pad='NOTSET'";
const RESIZE: &str = "X, roi=None, scales=None, sizes=None, *, mode='nearest', \
     coordinate_transformation_mode='half_pixel', nearest_mode='round_prefer_floor', \
     cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, antialias=0, axes=None, \
     keep_aspect_ratio_policy='stretch'";

/// `x`, of `f64`, with `matrix` `[to, from]` times its dimension `axis`.
fn mapped(x: &Tensor, axis: usize, matrix: Vec<f64>, to: usize) -> Found<Tensor> {
    let axis = axis as isize;
    let matrix = Tensor::from_vec(matrix, [to, x.size(axis)?])?;
    let rows = x.movedim(axis, -1)?;
    Ok(rows.matmul(&matrix.t()?)?.movedim(-1, axis)?)
}

fn floats(c: &Call, name: &str) -> Found<Vec<f64>> {
    Ok(c.tensor(name)?.to_dtype(DType::F64)?.to_vec()?)
}

/// Windows over the dimensions behind the channels.
pub(super) struct Windows(Vec<Window>);

struct Window {
    size: usize,
    stride: usize,
    dilation: usize,
    /// Before and behind the elements.
    pads: [usize; 2],
    ceil: bool,
}

impl Windows {
    pub(super) fn of(c: &Call) -> Found<Self> {
        let from = &c.input()?.shape()[2..];
        let sizes: Vec<usize> = c.ints("kernel_shape")?;
        let each = |name: &str| -> Found<Vec<usize>> {
            let given = c.ints(name)?;
            Ok(if given.len() == 1 {
                vec![given[0]; sizes.len()]
            } else {
                given
            })
        };
        let (strides, dilations) = (each("strides")?, each("dilations")?);
        let pads = match c.has("pads") {
            true => c.ints("pads")?,
            false => vec![0; 2 * sizes.len()],
        };
        let window = |i: usize| {
            let reach = (from[i].div_ceil(strides[i]) - 1) * strides[i];
            let whole = reach + (sizes[i] - 1) * dilations[i] + 1;
            let total = whole.saturating_sub(from[i]);
            Found::Ok(Window {
                size: sizes[i],
                stride: strides[i],
                dilation: dilations[i],
                pads: match c.text("auto_pad")? {
                    "SAME_UPPER" => [total / 2, total.div_ceil(2)],
                    "SAME_LOWER" => [total.div_ceil(2), total / 2],
                    _ => [pads[i], pads[sizes.len() + i]],
                },
                ceil: c.bool("ceil_mode")?,
            })
        };
        Ok(Self((0..sizes.len()).map(window).collect::<Found<_>>()?))
    }

    /// The sums of windows, and how many elements each has.
    pub(super) fn sums(&self, x: &Tensor) -> Found<(Tensor, Tensor)> {
        let ones = Tensor::ones(&x.shape()[2..], DType::F64)?;
        let (mut sums, mut counts) = (x.clone(), ones);
        for (i, window) in self.0.iter().enumerate() {
            let (matrix, to) = window.matrix(x.shape()[2 + i]);
            sums = mapped(&sums, 2 + i, matrix.clone(), to)?;
            counts = mapped(&counts, i, matrix, to)?;
        }
        Ok((sums, counts))
    }

    /// How many elements each window has, those of the padding among them.
    pub(super) fn counts_with_padding(&self, shape: &[usize]) -> Found<Tensor> {
        let widened = |(i, w): (usize, &Window)| shape[2 + i] + w.pads[0] + w.pads[1];
        let sizes: Vec<usize> = self.0.iter().enumerate().map(widened).collect();
        let mut counts = Tensor::ones(&sizes, DType::F64)?;
        for (i, window) in self.0.iter().enumerate() {
            let bare = Window {
                pads: [0; 2],
                ceil: false,
                ..*window
            };
            let to = window.count(shape[2 + i]);
            counts = mapped(&counts, i, bare.rows(sizes[i], to), to)?;
        }
        Ok(counts)
    }
}

impl Window {
    fn count(&self, from: usize) -> usize {
        let reach = (self.size - 1) * self.dilation + 1;
        let left = (from + self.pads[0] + self.pads[1]).saturating_sub(reach);
        let count = match self.ceil {
            true => left.div_ceil(self.stride) + 1,
            false => left / self.stride + 1,
        };
        // None begins in the padding behind.
        let is_behind = self.ceil && (count - 1) * self.stride >= from + self.pads[0];
        count - usize::from(is_behind)
    }

    fn matrix(&self, from: usize) -> (Vec<f64>, usize) {
        let to = self.count(from);
        (self.rows(from, to), to)
    }

    /// `[to, from]`, 1 where an element is in a window.
    fn rows(&self, from: usize, to: usize) -> Vec<f64> {
        let mut rows = vec![0.0; to * from];
        for (at, row) in rows.chunks_exact_mut(from.max(1)).enumerate() {
            for tap in 0..self.size {
                let place = (at * self.stride + tap * self.dilation).checked_sub(self.pads[0]);
                if let Some(x) = place.and_then(|place| row.get_mut(place)) {
                    *x = 1.0;
                }
            }
        }
        rows
    }
}

/// A tensor in other sizes.
struct Resize {
    axes: Vec<usize>,
    to: Vec<usize>,
    scales: Vec<f64>,
    /// The part that counts: where it begins for each axis, then where it ends.
    roi: Vec<f64>,
    mode: String,
    coordinates: String,
    nearest: String,
    cubic: f64,
    excludes_outside: bool,
    extrapolation: f64,
    antialias: bool,
}

impl Resize {
    fn of(c: &Call) -> Found<Self> {
        let x = c.input()?;
        let axes: Vec<usize> = match c.has("axes") {
            true => {
                let axes = c.ints::<isize>("axes")?;
                let rank = x.rank() as isize;
                axes.iter().map(|a| a.rem_euclid(rank) as usize).collect()
            }
            false => (0..x.rank()).collect(),
        };
        let from: Vec<f64> = axes.iter().map(|&axis| x.shape()[axis] as f64).collect();
        let (to, scales) = if c.has("sizes") {
            let sizes: Vec<usize> = c.ints("sizes")?;
            let ratios = sizes.iter().zip(&from).map(|(&to, from)| to as f64 / from);
            let of_all = match c.text("keep_aspect_ratio_policy")? {
                "not_larger" => Some(ratios.clone().fold(f64::INFINITY, f64::min)),
                "not_smaller" => Some(ratios.clone().fold(0.0, f64::max)),
                _ => None,
            };
            match of_all {
                Some(scale) => {
                    let rounded = from.iter().map(|n| (n * scale + 0.5).floor() as usize);
                    (rounded.collect(), vec![scale; from.len()])
                }
                None => (sizes.clone(), ratios.collect()),
            }
        } else {
            let scales = floats(c, "scales")?;
            let sizes = from
                .iter()
                .zip(&scales)
                .map(|(n, s)| (n * s).floor() as usize);
            (sizes.collect::<Vec<_>>(), scales)
        };
        Ok(Self {
            axes,
            to,
            scales,
            roi: if c.has("roi") {
                floats(c, "roi")?
            } else {
                Vec::new()
            },
            mode: c.text("mode")?.to_owned(),
            coordinates: c.text("coordinate_transformation_mode")?.to_owned(),
            nearest: c.text("nearest_mode")?.to_owned(),
            cubic: c.float("cubic_coeff_a")?,
            excludes_outside: c.bool("exclude_outside")?,
            extrapolation: c.float("extrapolation_value")?,
            antialias: c.bool("antialias")?,
        })
    }

    fn apply(&self, x: &Tensor) -> Found<Tensor> {
        let mut y = x.to_dtype(DType::F64)?;
        for (i, &axis) in self.axes.iter().enumerate() {
            let from = x.shape()[axis];
            let places: Vec<Option<f64>> = (0..self.to[i])
                .map(|at| self.place(i, at as f64, from as f64))
                .collect::<Found<_>>()?;
            if places.len() == from
                && places
                    .iter()
                    .zip(0..)
                    .all(|(p, at)| *p == Some(f64::from(at)))
            {
                continue;
            }
            let rows = places.iter().map(|place| match place {
                Some(place) => self.weights(*place, self.scales[i], from),
                None => Ok(vec![0.0; from]),
            });
            let rows: Vec<Vec<f64>> = rows.collect::<Found<_>>()?;
            y = mapped(&y, axis, rows.concat(), self.to[i])?;
            let outside: Vec<bool> = places.iter().map(Option::is_none).collect();
            if outside.contains(&true) {
                let mut shape = vec![1; y.rank()];
                shape[axis] = self.to[i];
                y = y.masked_fill(&Tensor::from_vec(outside, shape)?, self.extrapolation)?;
            }
        }
        Ok(y.to_dtype(x.dtype())?)
    }

    /// Where a new element is among the old ones; `None` outside of the part that counts.
    fn place(&self, i: usize, at: f64, from: f64) -> Found<Option<f64>> {
        let scale = self.scales[i];
        let to = scale * from;
        Ok(Some(match self.coordinates.as_str() {
            "half_pixel" => (at + 0.5) / scale - 0.5,
            "half_pixel_symmetric" => {
                let adjusted = self.to[i] as f64 / to;
                from / 2.0 * (1.0 - adjusted) + (at + 0.5) / scale - 0.5
            }
            "pytorch_half_pixel" if to == 1.0 => -0.5,
            "pytorch_half_pixel" => (at + 0.5) / scale - 0.5,
            "align_corners" if to == 1.0 => 0.0,
            "align_corners" => at * (from - 1.0) / (to - 1.0),
            "asymmetric" => at / scale,
            "tf_crop_and_resize" => {
                let [start, end] = [self.roi[i], self.roi[self.axes.len() + i]];
                let place = match to == 1.0 {
                    true => (start + end) * (from - 1.0) / 2.0,
                    false => start * (from - 1.0) + at * (end - start) * (from - 1.0) / (to - 1.0),
                };
                return Ok((0.0..=from - 1.0).contains(&place).then_some(place));
            }
            other => return missing(format!("coordinates of {other}")),
        }))
    }

    /// What each old element counts at a place.
    fn weights(&self, place: f64, scale: f64, from: usize) -> Found<Vec<f64>> {
        let ratio = match place.fract() == 0.0 {
            true => 1.0,
            false => place - place.floor(),
        };
        let taps = self.taps(ratio, scale)?;
        // As many neighbours as there are taps: the nearest, of two as near the first.
        let reach = taps.len() as i64;
        let first = (place.floor() as i64 - reach..).take(3 * taps.len());
        let mut near: Vec<i64> = first.collect();
        near.sort_by(|&a, &b| {
            let distance = |at: i64| (place - at as f64).abs();
            distance(a).total_cmp(&distance(b)).then(a.cmp(&b))
        });
        near.truncate(taps.len());
        near.sort_unstable();
        let mut weights = vec![0.0; from];
        let last = from as i64 - 1;
        for (&at, tap) in near.iter().zip(taps) {
            if !self.excludes_outside || (0..=last).contains(&at) {
                weights[at.clamp(0, last) as usize] += tap;
            }
        }
        if self.excludes_outside {
            let sum: f64 = weights.iter().sum();
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        Ok(weights)
    }

    /// The weights of neighbours, `ratio` behind the one before.
    fn taps(&self, ratio: f64, scale: f64) -> Found<Vec<f64>> {
        let scale = if self.antialias { scale.min(1.0) } else { 1.0 };
        let spread = |reach: f64, weight: &dyn Fn(f64) -> f64| -> Vec<f64> {
            let start = (-reach / scale).floor() as i64 + 1;
            let taps = (start..2 - start).map(|tap| weight((tap as f64 - ratio) * scale));
            let taps: Vec<f64> = taps.collect();
            let sum: f64 = taps.iter().sum();
            taps.iter().map(|tap| tap / sum).collect()
        };
        let a = self.cubic;
        Ok(match self.mode.as_str() {
            "linear" => spread(1.0, &|x| (1.0 - x.abs()).clamp(0.0, 1.0)),
            "cubic" => spread(2.0, &|x| {
                let x = x.abs();
                match x {
                    x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
                    x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
                    _ => 0.0,
                }
            }),
            "nearest" => {
                let is_second = match self.nearest.as_str() {
                    _ if ratio == 1.0 => true,
                    "round_prefer_floor" => ratio > 0.5,
                    "round_prefer_ceil" => ratio >= 0.5,
                    "ceil" => true,
                    _ => false,
                };
                let second = f64::from(u8::from(is_second));
                vec![1.0 - second, second]
            }
            other => return missing(format!("mode={other}")),
        })
    }
}
