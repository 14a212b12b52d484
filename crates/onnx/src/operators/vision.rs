//! ONNX's boxes and deformed windows of images.

use rustorch_dispatch::{Call, Called, missing};
use rustorch_tensor::Tensor;
use rustorch_tensor::vision::{self, DeformConvOptions, RoiAlignOptions};

rustorch_dispatch::table! {
    "DeformConv", DEFORM_CONV, |c| {
        let padding = match c.has("pads") {
            false => [0; 2],
            true => match c.ints("pads")?[..] {
                [top, left, bottom, right] if top == bottom && left == right => [top, left],
                _ => return missing("other padding than the same on both sides of images"),
            },
        };
        let options = DeformConvOptions {
            stride: c.each("strides")?,
            padding,
            dilation: c.each("dilations")?,
            mask: c.optional("mask")?,
        };
        let (offset, weight) = (c.tensor("offset")?, c.tensor("W")?);
        vision::deform_conv2d(c.input()?, offset, weight, c.optional("B")?, &options)?
    };
    "NonMaxSuppression", NON_MAX_SUPPRESSION, |c| kept(c)?;
    "RoiAlign", ROI_ALIGN, |c| {
        let (x, rois) = (c.input()?, c.tensor("rois")?);
        let image = c.tensor("batch_indices")?.to_dtype(rois.dtype())?.unsqueeze(1)?;
        let boxes = Tensor::cat(&[&image, rois], 1)?;
        let options = RoiAlignOptions {
            spatial_scale: c.float("spatial_scale")?,
            sampling_ratio: Some(c.int("sampling_ratio")?).filter(|&ratio| ratio > 0),
            aligned: c.text("coordinate_transformation_mode")? == "half_pixel",
        };
        let size: [usize; 2] = [c.int("output_height")?, c.int("output_width")?];
        match c.text("mode")? {
            "avg" => vision::roi_align(x, &boxes, size, &options)?,
            "max" => vision::roi_align_max(x, &boxes, size, &options)?,
            mode => return missing(format!("mode={mode}")),
        }
    };
}

const DEFORM_CONV: &str = "X, W, offset, B=None, mask=None, *, strides=1, pads=None, dilations=1, \
     group=1, offset_group=1, kernel_shape=None";
const NON_MAX_SUPPRESSION: &str = "boxes, scores, max_output_boxes_per_class=None, \
     iou_threshold=None, score_threshold=None, *, center_point_box=0";
const ROI_ALIGN: &str = "X, rois, batch_indices, *, coordinate_transformation_mode='half_pixel', \
     mode='avg', output_height=1, output_width=1, sampling_ratio=0, spatial_scale=1.0";

/// `[kept, 3]`: image, class and box of each box that is kept, class by class.
fn kept(c: &Call) -> Called<Tensor> {
    let (boxes, scores) = (corners(c)?, c.tensor("scores")?);
    let most = c
        .maybe_int::<usize>("max_output_boxes_per_class")?
        .unwrap_or(0);
    let overlap = c.maybe_float("iou_threshold")?.unwrap_or(0.0);
    let least = c
        .maybe_float("score_threshold")?
        .unwrap_or(f64::NEG_INFINITY);
    let mut rows = Vec::new();
    for image in 0..scores.size(0)? {
        for class in 0..scores.size(1)? {
            let scores = scores
                .select(0, image as isize)?
                .select(0, class as isize)?;
            let good = scores.gt(least)?.nonzero()?.ravel()?;
            let boxes = boxes.select(0, image as isize)?.index_select(0, &good)?;
            let kept = vision::nms(&boxes, &scores.index_select(0, &good)?, overlap)?;
            let kept = good.index_select(0, &kept)?;
            let kept: Vec<i64> = kept.to_vec()?;
            let row = |&at: &i64| [image as i64, class as i64, at];
            rows.extend(kept.iter().take(most).flat_map(row));
        }
    }
    let count = rows.len() / 3;
    Ok(Tensor::from_vec(rows, [count, 3])?)
}

/// Boxes by opposite corners; the first has the smaller coordinates.
fn corners(c: &Call) -> Called<Tensor> {
    let (first, second) = (c.input()?.narrow(2, 0, 2)?, c.input()?.narrow(2, 2, 2)?);
    let (low, high) = match c.bool("center_point_box")? {
        true => {
            let half = second.div(2.0)?;
            (first.sub(&half)?, first.add(&half)?)
        }
        false => (first.minimum(&second)?, first.maximum(&second)?),
    };
    Ok(Tensor::cat(&[&low, &high], 2)?)
}
