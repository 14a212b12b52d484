//! `torchvision.ops`, by its answers.

use rustorch_ir::DType;
use rustorch_tensor::vision::{self, DeformConvOptions, RoiAlignOptions};
use rustorch_tensor::{RusTorchResult, Tensor, tensor};

use crate::{Outcome, assert_close_rows, assert_rows, error};

/// `(torch.arange(n) * step).sin().reshape(shape)`
fn wave<const N: usize>(shape: [usize; N], step: f64) -> RusTorchResult<Tensor> {
    let count: usize = shape.iter().product();
    let line = Tensor::arange_with(0.0, count as f64, 1.0, DType::F32)?;
    line.mul(step)?.sin()?.reshape(shape)
}

#[test]
fn boxes_that_overlap_better_ones_are_left_out() -> Outcome {
    let boxes = tensor![
        [0.0, 0.0, 10.0, 10.0],
        [1.0, 1.0, 11.0, 11.0],
        [0.0, 0.0, 10.0, 5.0],
        [20.0, 20.0, 30.0, 30.0],
        [5.0, 0.0, 15.0, 10.0]
    ];
    let scores = tensor![0.9, 0.8, 0.7, 0.95, 0.6];
    let kept = |threshold| vision::nms(&boxes, &scores, threshold);
    // A third is larger in single precision, which the overlap has.
    assert_rows::<i64>(&[
        ("nms(boxes, scores, 0.1)", kept(0.1)?, &[2], &[3, 0]),
        ("nms(boxes, scores, 1/3)", kept(1.0 / 3.0)?, &[2], &[3, 0]),
        ("nms(boxes, scores, 0.5)", kept(0.5)?, &[4], &[3, 0, 2, 4]),
        (
            "nms(boxes, scores, 0.7)",
            kept(0.7)?,
            &[5],
            &[3, 0, 1, 2, 4],
        ),
    ]);
    let none = vision::nms(&boxes.narrow(0, 0, 0)?, &scores.narrow(0, 0, 0)?, 0.5)?;
    assert_eq!(none.shape(), [0]);
    let message = error(vision::nms(&boxes, &scores.narrow(0, 0, 4)?, 0.5));
    assert!(message.contains("boxes [n, 4] and scores [n]"), "{message}");
    Ok(())
}

#[test]
fn parts_of_images() -> Outcome {
    let x = wave([2, 1, 5, 6], 0.37)?;
    let boxes = tensor![
        [0.0, 0.5, 0.5, 4.5, 3.0],
        [1.0, -2.0, 1.0, 7.0, 5.5],
        [0.0, 2.0, 2.0, 2.2, 2.1]
    ];
    let plain = RoiAlignOptions::default();
    let even = RoiAlignOptions {
        sampling_ratio: Some(2),
        ..plain
    };
    let aligned = RoiAlignOptions {
        aligned: true,
        spatial_scale: 0.5,
        ..plain
    };
    let seen = |options| vision::roi_align(&x, &boxes, [2, 3], options);
    assert_close_rows(&[
        (
            "roi_align(x, boxes, (2, 3))",
            seen(&plain)?,
            &[3, 1, 2, 3],
            &[
                0.1437552, -0.0995409, -0.3184416, -0.3387437, -0.1327428, 0.1057906, -0.0587801,
                -0.1522875, -0.0848341, 0.2659191, 0.4306358, 0.1401904, -0.412809, -0.3488097,
                -0.2848105, 0.4723988, 0.515458, 0.5585172,
            ],
        ),
        (
            "roi_align(x, boxes, (2, 3), sampling_ratio=2)",
            seen(&even)?,
            &[3, 1, 2, 3],
            &[
                0.1437552, -0.0995409, -0.3184416, -0.3387437, -0.1327428, 0.1057906, -0.0453422,
                -0.1322841, -0.0471281, 0.3815377, 0.7469474, 0.1405996, -0.412809, -0.3488098,
                -0.2848105, 0.4723988, 0.515458, 0.5585173,
            ],
        ),
        (
            "roi_align(x, boxes, (2, 3), aligned=True, spatial_scale=0.5)",
            seen(&aligned)?,
            &[3, 1, 2, 3],
            &[
                0.0766172, 0.2912718, 0.484961, 0.5414426, 0.4918736, 0.4156142, -0.0251019,
                0.0749601, 0.2968861, 0.1643865, 0.1888391, -0.1091474, 0.4271603, 0.428381,
                0.4296017, 0.4388835, 0.4395758, 0.440268,
            ],
        ),
    ]);
    let none = vision::roi_align(&x, &boxes.narrow(0, 0, 0)?, 2, &plain)?;
    assert_eq!(none.shape(), [0, 1, 2, 2]);
    assert!(vision::roi_align(&x, &boxes, 0, &plain).is_err());
    let message = error(vision::roi_align(&x, &boxes.narrow(1, 1, 4)?, 2, &plain));
    assert!(message.contains("boxes [k, 5]"), "{message}");
    let beyond = boxes
        .narrow(0, 0, 1)?
        .add(tensor![2.0, 0.0, 0.0, 0.0, 0.0])?;
    let message = error(vision::roi_align(&x, &beyond, 2, &plain)?.eval());
    assert!(message.contains("index"), "{message}");
    Ok(())
}

#[test]
fn windows_whose_elements_are_moved() -> Outcome {
    let x = wave([1, 4, 4, 3], 0.37)?;
    let weight = Tensor::arange_with(0.0, 24.0, 1.0, DType::F32)?;
    let weight = weight.mul(0.7)?.cos()?.reshape([2, 2, 3, 2])?;
    let offset = wave([1, 24, 2, 3], 0.9)?.mul(1.5)?;
    let mask = Tensor::arange_with(0.0, 72.0, 1.0, DType::F32)?;
    let mask = mask.mul(0.3)?.cos()?.reshape([1, 12, 2, 3])?;
    let bias = tensor![0.5, -0.25];
    let plain = DeformConvOptions {
        stride: [2, 1],
        padding: [1, 1],
        dilation: [1, 2],
        mask: None,
    };
    let masked = DeformConvOptions {
        mask: Some(&mask),
        ..plain
    };
    let half = offset.narrow(1, 0, 12)?;
    assert_close_rows(&[
        (
            "deform_conv2d(x, offset, weight, bias, (2, 1), (1, 1), (1, 2), mask)",
            vision::deform_conv2d(&x, &offset, &weight, Some(&bias), &masked)?,
            &[1, 2, 2, 3],
            &[
                1.2101071, 1.4916041, 1.8147769, 0.0103157, -0.4620765, -0.1926007, -0.3425134,
                0.5236256, -0.5464494, -0.0053546, 0.2010049, 0.5772313,
            ],
        ),
        (
            "deform_conv2d(x, offset[:, :12], weight, None, (2, 1), (1, 1), (1, 2))",
            vision::deform_conv2d(&x, &half, &weight, None, &plain)?,
            &[1, 2, 2, 3],
            &[
                -1.6061924, 0.1480233, 0.6707841, 0.9312155, 0.55493, 0.5237, -0.4840548,
                0.1352095, 0.3555933, 1.671529, 1.0920222, 0.4998287,
            ],
        ),
    ]);
    // Without offsets it is a convolution.
    let still = vision::deform_conv2d(&x, &half.zeros_like()?, &weight, None, &plain)?;
    let options = rustorch_tensor::nn::ConvOptions::default()
        .stride([2, 1])
        .padding([1, 1])
        .dilation([1, 2])
        .groups(2usize);
    let expected: Vec<f32> = x.conv2d(&weight, None, &options)?.to_vec()?;
    crate::assert_close(&still, &expected);
    let other = vision::deform_conv2d(&x, &offset.narrow(1, 0, 11)?, &weight, None, &plain);
    assert!(error(other).contains("offsets [1, 2 * 6 * groups, 2, 3]"));
    let unmoved = DeformConvOptions {
        stride: [0, 1],
        ..plain
    };
    assert!(vision::deform_conv2d(&x, &offset, &weight, None, &unmoved).is_err());
    Ok(())
}

#[test]
fn largest_corners_in_parts_of_images() -> Outcome {
    let x = wave([2, 1, 5, 6], 0.37)?;
    let boxes = tensor![
        [0.0, 0.5, 0.5, 4.5, 3.0],
        [1.0, -2.0, 1.0, 7.0, 5.5],
        [0.0, 2.0, 2.0, 2.2, 2.1]
    ];
    let plain = RoiAlignOptions::default();
    let aligned = RoiAlignOptions {
        aligned: true,
        spatial_scale: 0.5,
        sampling_ratio: Some(2),
    };
    let seen = |options| vision::roi_align_max(&x, &boxes, [2, 3], options);
    // By onnx.reference, whose boxes without points are 0.
    assert_close_rows(&[
        (
            "RoiAlign(x, boxes, mode='max')",
            seen(&plain)?,
            &[3, 1, 2, 3],
            &[
                0.354822, 0.139953, 0.155606, 0.389185, 0.570898, 0.549642, 0.427681, 0.311570,
                0.603088, 0.904601, 0.498763, 0.258466, 0.187231, 0.124560, 0.207599, 0.561693,
                0.373678, 0.622797,
            ],
        ),
        (
            "RoiAlign(x, boxes, mode='max', half_pixel, 0.5, 2)",
            seen(&aligned)?,
            &[3, 1, 2, 3],
            &[
                0.174249, 0.331481, 0.393335, 0.672102, 0.405315, 0.331622, 0.577369, 0.665690,
                0.736084, 0.406297, 0.468449, 0.517985, 0.203166, 0.189392, 0.175618, 0.212957,
                0.198519, 0.184081,
            ],
        ),
        (
            "RoiAlign(x, boxes, mode='max', half_pixel, -0.5)",
            seen(&RoiAlignOptions {
                spatial_scale: -0.5,
                sampling_ratio: None,
                ..aligned
            })?,
            &[3, 1, 2, 3],
            &[0.0; 18],
        ),
    ]);
    let message = error(vision::roi_align_max(&x, &boxes, [0, 1], &plain));
    assert!(message.contains("vision.roi_align_max"), "{message}");
    Ok(())
}
