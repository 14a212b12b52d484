//! Boxes and deformed windows of images, by the names and defaults of `torchvision.ops`.
//!
//! Boxes are `[x1, y1, x2, y2]`, in pixels, with `x1 ≤ x2` and `y1 ≤ y2`.

use std::ops;

use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::api::nn::sampling::{Tap, combined, sampled, taps};
use crate::api::nn::{GridSampleOptions, GridSamplePadding};
use crate::args::element::Element;
use crate::args::setting::setters;
use crate::args::windowed::PerDim;
use crate::error::{RusTorchResult, require};
use crate::{Patches, Tensor};

/// The indices, `i64`, of the boxes `[n, 4]` that are kept, best `scores` `[n]` first. A box is
/// dropped if its intersection with a better one, over their union, is above `iou_threshold`. It is
/// computed at once, since their number depends on the values. Takes floats.
///
/// # Errors
/// Fails for unsupported shapes or dtypes, or if the boxes or scores cannot be computed.
#[track_calls(vision)]
pub fn nms(boxes: &Tensor, scores: &Tensor, iou_threshold: f64) -> RusTorchResult<Tensor> {
    const NAME: &str = "vision.nms";
    boxes.require_float(NAME)?;
    scores.require_float(NAME)?;
    let fits = boxes.rank() == 2 && boxes.shape()[1] == 4 && *scores.shape() == boxes.shape()[..1];
    let got = format_args!("{} and {}", boxes.ty(), scores.ty());
    require(NAME, fits, "boxes [n, 4] and scores [n]", got)?;
    let order: Vec<i64> = scores.argsort(0, true)?.to_vec()?;
    let kept = match boxes.dtype() {
        DType::F64 => apart(&boxes.to_vec::<f64>()?, &order, iou_threshold),
        _ => apart(
            &boxes.cast(NAME, DType::F32)?.to_vec::<f32>()?,
            &order,
            iou_threshold,
        ),
    };
    let count = kept.len();
    Tensor::from_vec(kept, [count])
}

/// The boxes, in order, that do not overlap an earlier one too much.
fn apart<T>(boxes: &[T], order: &[i64], iou_threshold: f64) -> Vec<i64>
where
    T: Element + PartialOrd + Default + Into<f64>,
    T: ops::Add<Output = T> + ops::Sub<Output = T> + ops::Mul<Output = T> + ops::Div<Output = T>,
{
    let (boxes, _) = boxes.as_chunks::<4>();
    let smaller = |a: T, b: T| if b < a { b } else { a };
    let larger = |a: T, b: T| if b > a { b } else { a };
    let area = |[x1, y1, x2, y2]: [T; 4]| (x2 - x1) * (y2 - y1);
    let overlaps = |a: [T; 4], b: [T; 4]| {
        let side = |i: usize| {
            larger(
                T::default(),
                smaller(a[i + 2], b[i + 2]) - larger(a[i], b[i]),
            )
        };
        let both = side(0) * side(1);
        let share = both / (area(a) + area(b) - both);
        share.into() > iou_threshold
    };
    let mut kept: Vec<i64> = Vec::new();
    for &i in order {
        let own = boxes[i as usize];
        if !kept
            .iter()
            .any(|&better| overlaps(boxes[better as usize], own))
        {
            kept.push(i);
        }
    }
    kept
}

/// The optional arguments of [`roi_align`].
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RoiAlignOptions {
    /// Pixels of the images in a unit of the boxes' coordinates.
    pub spatial_scale: f64,
    /// Number of points along each dimension of a bin that are averaged. `None`: its number of
    /// pixels, rounded up.
    pub sampling_ratio: Option<usize>,
    /// Puts pixel centres at halves instead of whole numbers, and never enlarges boxes.
    pub aligned: bool,
}

setters!(RoiAlignOptions { spatial_scale: f64, sampling_ratio: Option<usize>, aligned: bool });

impl Default for RoiAlignOptions {
    fn default() -> Self {
        Self {
            spatial_scale: 1.0,
            sampling_ratio: None,
            aligned: false,
        }
    }
}

/// The parts of images `x` `[n, c, h, w]` that `boxes` `[k, 5]` show, in `output_size` bins. A box's first
/// number is the image's index. Each bin is the mean of points between pixels: `[k, c, height, width]`
/// ([Mask R-CNN](https://arxiv.org/abs/1703.06870)). Takes floats of one dtype. Without a `sampling_ratio`
/// the boxes are computed at once.
///
/// # Errors
/// Fails for unsupported shapes or dtypes, a size or `sampling_ratio` of 0, or empty images. Evaluation fails for an
/// index outside the images.
#[track_calls(vision)]
pub fn roi_align(
    x: &Tensor,
    boxes: &Tensor,
    output_size: impl PerDim<2>,
    options: &RoiAlignOptions,
) -> RusTorchResult<Tensor> {
    let bins = output_size.per_dim();
    aligned("vision.roi_align", x, boxes, bins, options, Pooled::Mean)
}

/// [`roi_align`] with a maximum in place of the mean. A bin's maximum is over the four pixels around each point, each
/// multiplied by its weight. This differs from the maximum of the points' own values. It is what [ONNX's
/// `RoiAlign`](https://onnx.ai/onnx/operators/onnx__RoiAlign.html) defines as `mode='max'`. A bin without points is 0.
///
/// # Errors
/// The same errors as [`roi_align`].
#[track_calls(vision)]
pub fn roi_align_max(
    x: &Tensor,
    boxes: &Tensor,
    output_size: impl PerDim<2>,
    options: &RoiAlignOptions,
) -> RusTorchResult<Tensor> {
    let bins = output_size.per_dim();
    aligned("vision.roi_align_max", x, boxes, bins, options, Pooled::Max)
}

/// The reduction of a bin's points.
#[derive(Clone, Copy, PartialEq)]
enum Pooled {
    Mean,
    Max,
}

fn aligned(
    name: &'static str,
    x: &Tensor,
    boxes: &Tensor,
    bins: [usize; 2],
    options: &RoiAlignOptions,
    pooled: Pooled,
) -> RusTorchResult<Tensor> {
    x.require_float(name)?;
    let fits =
        x.rank() == 4 && boxes.rank() == 2 && boxes.shape()[1] == 5 && boxes.dtype() == x.dtype();
    let got = format_args!("{} and {}", x.ty(), boxes.ty());
    let expected = "images [n, c, h, w] and boxes [k, 5] of one dtype";
    require(name, fits, expected, got)?;
    let is_there = bins.iter().chain(&x.shape()[2..]).all(|&size| size > 0);
    let got = format_args!("{bins:?} bins of {}", x.ty());
    require(name, is_there, "at least one bin and one pixel", got)?;
    let legal = options.sampling_ratio != Some(0);
    require(name, legal, "a sampling_ratio of at least 1", 0)?;

    let &[n, c, h, w] = x.shape() else {
        return Ok(x.clone());
    };
    let count = boxes.shape()[0];
    if count == 0 {
        return Tensor::zeros([0, c, bins[0], bins[1]], x.dtype());
    }
    let columns = boxes.widened(name)?.unbind(1)?;
    let along = |i: usize, size: usize| {
        let ends = [&columns[i], &columns[i + 2]];
        points(ends, bins[2 - i], size, options, pooled)
    };
    let (across, down) = (along(1, w)?, along(2, h)?);
    let (high, wide) = (down.most, across.most);
    let rows = shaped(down.taps, [count, bins[0] * high, 1])?;
    let lines = shaped(across.taps, [count, 1, bins[1] * wide])?;
    let image = columns[0].to_dtype(DType::I64)?.mul((h * w) as i64)?;
    let image = image.reshape([count, 1, 1])?;
    let mut corners = combined(&rows, &lines, w as i64)?;
    for corner in &mut corners {
        corner.place = corner.place.add(&image)?;
    }
    // As elements of one image: all points of all boxes, of the channels of all images.
    let corners = shaped(corners, [1, count * bins[0] * high * bins[1] * wide])?;
    let pixels = x
        .widened(name)?
        .transpose(0, 1)?
        .reshape([1, c, n * h * w])?;
    let apart = [c, count, bins[0], high, bins[1], wide];
    let pooled = match pooled {
        Pooled::Mean => {
            let seen = sampled(name, &pixels, &corners)?.reshape(apart)?;
            seen.sum([3, 5], false)?
        }
        Pooled::Max => {
            let mut parts = corners.chunks(1).map(|one| sampled(name, &pixels, one));
            let first = parts.next().unwrap_or_else(|| Ok(pixels.clone()))?;
            let largest = parts.try_fold(first, |largest, part| largest.maximum(&part?))?;
            let is_point = down
                .is_point
                .reshape([count, 1, high, 1, 1])?
                .logical_and(&across.is_point.reshape([count, 1, 1, 1, wide])?)?;
            let largest = Tensor::where_(&is_point, &largest.reshape(apart)?, f64::NEG_INFINITY)?;
            let any = is_point.any([2, 4], false)?;
            Tensor::where_(&any, &largest.max([3, 5], false)?, 0.0)?
        }
    };
    pooled.transpose(0, 1)?.cast(name, x.dtype())
}

/// The points of boxes along one dimension.
struct Points {
    /// Their weights for the reduction, `[k, bins, points]`.
    taps: Vec<Tap>,
    /// Largest number of points of a bin.
    most: usize,
    /// Has the box's bins this point? `[k, 1, points]`.
    is_point: Tensor,
}

/// The points of boxes from `start` to `end` `[k]` along one dimension of `size` pixels: of a mean
/// each by its share of its bin.
fn points(
    [start, end]: [&Tensor; 2],
    bins: usize,
    size: usize,
    options: &RoiAlignOptions,
    pooled: Pooled,
) -> RusTorchResult<Points> {
    let shift = if options.aligned { 0.5 } else { 0.0 };
    let pixel = |x: &Tensor| {
        x.mul(options.spatial_scale)?
            .sub(shift)?
            .reshape([-1, 1, 1])
    };
    let start = pixel(start)?;
    let length = pixel(end)?.sub(&start)?;
    let length = match options.aligned {
        true => length,
        false => length.maximum(1.0)?,
    };
    let bin = length.div(bins as f64)?;
    let (each, most) = match options.sampling_ratio {
        Some(ratio) => (bin.full_like(ratio as f64)?, ratio),
        None => {
            let each = bin.ceil()?.maximum(0.0)?;
            let most = each.max_all()?.item()?;
            (each, most.max(1.0) as usize)
        }
    };
    let line = |n: usize| Tensor::arange_with(0.0, n as f64, 1.0, start.dtype());
    let (of_bin, point) = (line(bins)?.unsqueeze(1)?, line(most)?);
    let inside = point.add(0.5)?.mul(&bin)?.div(&each)?;
    let place = start.add(&of_bin.mul(&bin)?)?.add(&inside)?;
    // Points a pixel or more outside are zeros, others those of the border.
    let is_seen = place.ge(-1.0)?.logical_and(&place.le(size as f64)?)?;
    let is_point = point.lt(&each)?;
    let counts = is_seen.logical_and(&is_point)?;
    let share = match pooled {
        Pooled::Mean => each.reciprocal()?,
        Pooled::Max => each.ones_like()?,
    };
    let share = Tensor::where_(&counts, &share, 0.0)?;
    let place = Tensor::where_(&counts, &place, 0.0)?;
    let border = GridSampleOptions {
        padding: GridSamplePadding::Border,
        ..GridSampleOptions::default()
    };
    let mut taps = taps(&place, size, &border)?;
    for tap in &mut taps {
        tap.weight = match &tap.weight {
            Some(weight) => Some(weight.mul(&share)?),
            None => Some(share.clone()),
        };
    }
    Ok(Points {
        taps,
        most,
        is_point,
    })
}

/// The taps in another shape. All are inside.
fn shaped<const N: usize>(taps: Vec<Tap>, shape: [usize; N]) -> RusTorchResult<Vec<Tap>> {
    let shaped = |tap: Tap| {
        Ok(Tap {
            place: tap.place.reshape(shape)?,
            weight: tap.weight.map(|weight| weight.reshape(shape)).transpose()?,
            ..tap
        })
    };
    taps.into_iter().map(shaped).collect()
}

/// The optional arguments of [`deform_conv2d`].
#[derive(Clone, Copy)]
pub struct DeformConvOptions<'a> {
    /// Distance between windows.
    pub stride: [usize; 2],
    /// Zeros around the operand.
    pub padding: [usize; 2],
    /// Distance between the elements of a window.
    pub dilation: [usize; 2],
    /// The factor of each element of a window, `[n, offset groups · kh · kw, h', w']`.
    pub mask: Option<&'a Tensor>,
}

impl Default for DeformConvOptions<'_> {
    fn default() -> Self {
        Self {
            stride: [1; 2],
            padding: [0; 2],
            dilation: [1; 2],
            mask: None,
        }
    }
}

/// Convolution of `x` `[n, c, h, w]` with `weight` `[o, c / groups, kh, kw]` and `bias` `[o]`. The windows' elements
/// are moved by `offset` `[n, offset groups · kh · kw · 2, h', w']` to positions between pixels; outside of the image
/// they are zeros. Offsets along `h` come before those along `w`: `[n, o, h', w']` ([Deformable ConvNets
/// v2](https://arxiv.org/abs/1811.11168)). Takes floats of one dtype.
///
/// # Errors
/// Fails for unsupported shapes or dtypes, or a stride or dilation of 0.
#[track_calls(vision)]
pub fn deform_conv2d(
    x: &Tensor,
    offset: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: &DeformConvOptions,
) -> RusTorchResult<Tensor> {
    const NAME: &str = "vision.deform_conv2d";
    x.require_float(NAME)?;
    for operand in [offset, weight].into_iter().chain(bias).chain(options.mask) {
        let got = format_args!("{} and {}", x.ty(), operand.ty());
        require(
            NAME,
            operand.dtype() == x.dtype(),
            "operands of one dtype",
            got,
        )?;
    }
    let (&[n, c, h, w], &[o, of_group, kh, kw]) = (x.shape(), weight.shape()) else {
        let expected = "x [n, c, h, w] and a weight [o, c / groups, kh, kw]";
        return Err(OpError::new(
            NAME,
            expected,
            format_args!("{} and {}", x.ty(), weight.ty()),
        )
        .into());
    };
    let windows = Patches {
        kernel: [kh, kw],
        dilation: options.dilation,
        padding: options.padding,
        stride: options.stride,
    };
    let [rows, columns] = windows.windows(NAME, [h, w])?;
    let window = kh * kw;
    let divides = |parts: usize, whole: usize| parts > 0 && whole.is_multiple_of(parts);
    let groups = c.checked_div(of_group).unwrap_or(0);
    let fits = divides(of_group, c) && divides(groups, o);
    let got = format_args!("{} and {}", x.ty(), weight.ty());
    require(
        NAME,
        fits,
        "channels of x and of the result in groups of the weight's",
        got,
    )?;
    let moved = offset
        .shape()
        .get(1)
        .map_or(0, |pairs| pairs / (2 * window));
    let is_beside = |operand: &Tensor, each: usize| {
        *operand.shape() == [n, moved * each * window, rows, columns]
    };
    let expected = format_args!(
        "offsets [{n}, 2 * {window} * groups, {rows}, {columns}] of groups of {c} channels"
    );
    require(
        NAME,
        divides(moved, c) && is_beside(offset, 2),
        expected,
        offset.ty(),
    )?;
    if let Some(mask) = options.mask {
        let expected = format_args!("a mask [{n}, {}, {rows}, {columns}]", moved * window);
        require(NAME, is_beside(mask, 1), expected, mask.ty())?;
    }
    if let Some(bias) = bias {
        require(
            NAME,
            *bias.shape() == [o],
            format_args!("a bias [{o}]"),
            bias.ty(),
        )?;
    }

    let wide = x.widened(NAME)?;
    let offset = offset
        .widened(NAME)?
        .reshape([n * moved, kh, kw, 2, rows, columns])?;
    let line = |n: usize, step: usize| {
        Tensor::arange_with(0.0, n as f64, 1.0, wide.dtype())?.mul(step as f64)
    };
    // Where elements along one dimension are: in their windows, those in the image, and both moved.
    let along = |i: usize, inner: &[usize], outer: &[usize]| -> RusTorchResult<Vec<Tap>> {
        let inside = line(windows.kernel[i], windows.dilation[i])?.reshape(inner)?;
        let first = line([rows, columns][i], windows.stride[i])?.sub(windows.padding[i] as f64)?;
        let place = inside
            .add(&first.reshape(outer)?)?
            .add(&offset.select(3, i as isize)?)?;
        let place = place.reshape([n * moved, window * rows * columns])?;
        taps(&place, [h, w][i], &GridSampleOptions::default())
    };
    let down = along(0, &[kh, 1, 1, 1], &[rows, 1])?;
    let across = along(1, &[kw, 1, 1], &[columns])?;
    let corners = combined(&down, &across, w as i64)?;
    let pixels = wide.reshape([n * moved, c / moved, h * w])?;
    let seen = sampled(NAME, &pixels, &corners)?;
    let seen = match options.mask {
        Some(mask) => {
            seen.mul(
                &mask
                    .widened(NAME)?
                    .reshape([n * moved, 1, window * rows * columns])?,
            )?
        }
        None => seen,
    };
    let patches = seen.reshape([n, groups, of_group * window, rows * columns])?;
    let weight = weight
        .widened(NAME)?
        .reshape([groups, o / groups, of_group * window])?;
    let y = weight.matmul(&patches)?.reshape([n, o, rows, columns])?;
    let y = match bias {
        Some(bias) => y.add(&bias.widened(NAME)?.reshape([o, 1, 1])?)?,
        None => y,
    };
    y.cast(NAME, x.dtype())
}
