//! ONNX's operators that map each dimension by itself, by a matrix times the dimension.

use rustorch_dispatch::{Call, Called, missing};
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use super::layers::missing_for_same;
use super::positive_each;

rustorch_dispatch::table! {
    "LpPool", LP_POOL, |c| {
        let (x, p) = (c.input()?, c.float("p")?);
        let powers = x.to_dtype(DType::F64)?.abs()?.pow(p)?;
        let (sums, _) = Windows::of(c)?.sums(&powers)?;
        sums.pow(1.0 / p)?.to_dtype(x.dtype())?
    };
    "Resize", RESIZE, |c| Resize::of(c)?.apply(c.input()?)?;
    "Upsample", UPSAMPLE, |c| upsampled(c)?;
}

const LP_POOL: &str = "X, kernel_shape, strides=1, pads=None, dilations=1, ceil_mode=0, p=2, \
     auto_pad='NOTSET'";
pub(super) const UPSAMPLE: &str = "X, scales, mode='nearest'";
const RESIZE: &str = "X, roi=None, scales=None, sizes=None, *, mode='nearest', \
     coordinate_transformation_mode='half_pixel', nearest_mode='round_prefer_floor', \
     cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, antialias=0, axes=None, \
     keep_aspect_ratio_policy='stretch'";

/// The most elements that a matrix of weights has.
const LARGEST: usize = 1 << 28;

/// Other sizes as operator sets before 11 have them.
pub(super) fn upsampled(c: &Call) -> Called<Tensor> {
    let x = c.input()?;
    let scales = floats(c, "scales")?;
    let to = (x.shape().iter().zip(&scales)).map(|(&n, s)| (n as f64 * s) as usize);
    let mode = match c.text("mode")? {
        "bilinear" => "linear",
        mode => mode,
    };
    let resize = Resize {
        axes: (0..x.rank()).collect(),
        to: to.collect(),
        scales,
        roi: Vec::new(),
        mode: mode.to_owned(),
        coordinates: "asymmetric".to_owned(),
        nearest: "floor".to_owned(),
        cubic: -0.75,
        excludes_outside: false,
        extrapolation: 0.0,
        antialias: false,
    };
    resize.apply(x)
}

/// The number of elements of a matrix of weights.
fn weights_of(to: usize, from: usize) -> Called<usize> {
    match to.checked_mul(from).filter(|&count| count <= LARGEST) {
        Some(count) => Ok(count),
        None => missing(format!("{to} windows or places of {from} elements")),
    }
}

/// `x`, of `f64`, with `matrix` `[to, from]` times its dimension `axis`.
fn mapped(x: &Tensor, axis: usize, matrix: Vec<f64>, to: usize) -> Called<Tensor> {
    let axis = axis as isize;
    let matrix = Tensor::from_vec(matrix, [to, x.size(axis)?])?;
    let rows = x.movedim(axis, -1)?;
    Ok(rows.matmul(&matrix.t()?)?.movedim(-1, axis)?)
}

fn floats(c: &Call, name: &str) -> Called<Vec<f64>> {
    Ok(c.tensor(name)?.to_dtype(DType::F64)?.to_vec()?)
}

/// Windows over the dimensions behind the channels.
pub(super) struct Windows(Vec<Window>);

struct Window {
    size: usize,
    stride: usize,
    dilation: usize,
    /// Padding before and behind the elements.
    pads: [usize; 2],
    ceil: bool,
}

impl Windows {
    pub(super) fn of(c: &Call) -> Called<Self> {
        let Some(from) = c.input()?.shape().get(2..) else {
            return missing("other than images");
        };
        let each = |name: &str| positive_each(c, name, from.len());
        let (sizes, strides) = (each("kernel_shape")?, each("strides")?);
        let dilations = each("dilations")?;
        let pads: Vec<usize> = match c.has("pads") {
            true => c.ints("pads")?,
            false => vec![0; 2 * sizes.len()],
        };
        if pads.len() != 2 * sizes.len() {
            return missing(format!("pads={pads:?}"));
        }
        let window = |i: usize| {
            let total = missing_for_same(from[i], sizes[i], strides[i], dilations[i]);
            Called::Ok(Window {
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
        Ok(Self((0..sizes.len()).map(window).collect::<Called<_>>()?))
    }

    /// The sums of windows, and how many elements each has.
    pub(super) fn sums(&self, x: &Tensor) -> Called<(Tensor, Tensor)> {
        let ones = Tensor::ones(&x.shape()[2..], DType::F64)?;
        let (mut sums, mut counts) = (x.clone(), ones);
        for (i, window) in self.0.iter().enumerate() {
            let (matrix, to) = window.matrix(x.shape()[2 + i])?;
            sums = mapped(&sums, 2 + i, matrix.clone(), to)?;
            counts = mapped(&counts, i, matrix, to)?;
        }
        Ok((sums, counts))
    }

    /// Number of elements of each window, those of the padding among them.
    pub(super) fn counts_with_padding(&self, shape: &[usize]) -> Called<Tensor> {
        let widened = |(i, w): (usize, &Window)| w.padded(shape[2 + i]);
        let sizes: Vec<usize> = self.0.iter().enumerate().map(widened).collect();
        let mut counts = Tensor::ones(&sizes, DType::F64)?;
        for (i, window) in self.0.iter().enumerate() {
            let bare = Window {
                pads: [0; 2],
                ceil: false,
                ..*window
            };
            let to = window.count(shape[2 + i]);
            counts = mapped(&counts, i, bare.rows(sizes[i], to)?, to)?;
        }
        Ok(counts)
    }
}

impl Window {
    /// So many elements and the padding.
    fn padded(&self, from: usize) -> usize {
        from.saturating_add(self.pads[0])
            .saturating_add(self.pads[1])
    }

    fn count(&self, from: usize) -> usize {
        let reach = (self.size - 1)
            .saturating_mul(self.dilation)
            .saturating_add(1);
        let left = self.padded(from).saturating_sub(reach);
        let count = match self.ceil {
            true => left.div_ceil(self.stride).saturating_add(1),
            false => (left / self.stride).saturating_add(1),
        };
        // None begins in the padding behind.
        let is_behind = self.ceil
            && (count - 1).saturating_mul(self.stride) >= from.saturating_add(self.pads[0]);
        count - usize::from(is_behind)
    }

    fn matrix(&self, from: usize) -> Called<(Vec<f64>, usize)> {
        let to = self.count(from);
        Ok((self.rows(from, to)?, to))
    }

    /// `[to, from]`, 1 where an element is in a window.
    fn rows(&self, from: usize, to: usize) -> Called<Vec<f64>> {
        let mut rows = vec![0.0; weights_of(to, from)?];
        for (at, row) in rows.chunks_exact_mut(from.max(1)).enumerate() {
            let end = from.saturating_add(self.pads[0]);
            let start = at.saturating_mul(self.stride);
            let places = (start..end).step_by(self.dilation).take(self.size);
            for place in places.filter_map(|place| place.checked_sub(self.pads[0])) {
                row[place] = 1.0;
            }
        }
        Ok(rows)
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
    fn of(c: &Call) -> Called<Self> {
        let x = c.input()?;
        let axes = super::axes(c, x.rank())?;
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

    /// Refuses sizes and scales that do not fit together.
    fn check(&self, x: &Tensor) -> Called<()> {
        let count = self.axes.len();
        if self.to.len() != count || self.scales.len() != count {
            return missing(format!("other than {count} sizes or scales"));
        }
        for ((&axis, &to), &scale) in self.axes.iter().zip(&self.to).zip(&self.scales) {
            weights_of(to, x.shape()[axis])?;
            if to > 0 && !(scale.is_finite() && scale > 0.0) {
                return missing(format!("a scale of {scale}"));
            }
        }
        Ok(())
    }

    fn apply(&self, x: &Tensor) -> Called<Tensor> {
        self.check(x)?;
        let mut y = x.to_dtype(DType::F64)?;
        for (i, &axis) in self.axes.iter().enumerate() {
            let from = x.shape()[axis];
            let places: Vec<Option<f64>> = (0..self.to[i])
                .map(|at| self.place(i, at as f64, from as f64))
                .collect::<Called<_>>()?;
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
            let rows: Vec<Vec<f64>> = rows.collect::<Called<_>>()?;
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

    /// Place of a new element among the old ones; `None` outside of the part that counts.
    fn place(&self, i: usize, at: f64, from: f64) -> Called<Option<f64>> {
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
                let ends = [i, self.axes.len() + i].map(|at| self.roi.get(at).copied());
                let [Some(start), Some(end)] = ends else {
                    return missing("a region of fewer dimensions");
                };
                let place = match to == 1.0 {
                    true => (start + end) * (from - 1.0) / 2.0,
                    false => start * (from - 1.0) + at * (end - start) * (from - 1.0) / (to - 1.0),
                };
                return Ok((0.0..=from - 1.0).contains(&place).then_some(place));
            }
            other => return missing(format!("coordinates of {other}")),
        }))
    }

    /// Weight of each old element at a place.
    fn weights(&self, place: f64, scale: f64, from: usize) -> Called<Vec<f64>> {
        let ratio = match place.fract() == 0.0 {
            true => 1.0,
            false => place - place.floor(),
        };
        let taps = self.taps(ratio, scale)?;
        // The nearest elements, one for each tap. At the same distance, the first one is nearer.
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
    fn taps(&self, ratio: f64, scale: f64) -> Called<Vec<f64>> {
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
