//! Gradients of layers: for a linear function `f` and its gradient `b`, `<g, f(x)> = <b(g), x>`.

use rustorch_ir::DType;
use rustorch_tensor::nn::backward::{
    adaptive_avg_pool2d_backward, avg_pool2d_backward, convolution_backward,
    embedding_dense_backward, log_softmax_backward_data, max_pool2d_with_indices_backward,
    native_dropout_backward, native_group_norm_backward, native_layer_norm_backward,
    softmax_backward_data,
};
use rustorch_tensor::nn::{AvgPoolOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions};
use rustorch_tensor::{RusTorchResult, Tensor, tensor};

use crate::{Outcome, assert_close, error};

/// Different numbers between −1 and 1, the same in every run.
fn numbers(shape: &[usize], seed: f64) -> RusTorchResult<Tensor> {
    let count = shape.iter().product::<usize>() as i64;
    let places = Tensor::arange_with(1, count + 1, 1, DType::F64)?;
    places.mul(seed)?.sin()?.reshape(shape)
}

/// The sum of products of all elements.
fn inner(a: &Tensor, b: &Tensor) -> f64 {
    assert_eq!(a.shape(), b.shape());
    a.mul(b)
        .unwrap()
        .sum(None, false)
        .unwrap()
        .to_scalar()
        .unwrap()
}

#[track_caller]
fn assert_same(a: f64, b: f64) {
    assert!((a - b).abs() <= 1e-9 * a.abs().max(1.0), "{a} and {b}");
}

/// The gradient that central differences of `<g, f(x)>` give along `way`.
fn slope(
    f: impl Fn(&Tensor) -> RusTorchResult<Tensor>,
    g: &Tensor,
    x: &Tensor,
    way: &Tensor,
) -> RusTorchResult<f64> {
    let step = way.mul(1e-5)?;
    let (after, before) = (f(&x.add(&step)?)?, f(&x.sub(&step)?)?);
    Ok((inner(g, &after) - inner(g, &before)) / 2e-5)
}

#[track_caller]
fn assert_slope(expected: f64, got: f64) {
    let near = (expected - got).abs() <= 1e-6 * expected.abs().max(1.0);
    assert!(near, "{got}, should be {expected}");
}

#[test]
fn softmax_by_its_result() -> Outcome {
    let (x, g, way) = (
        numbers(&[2, 3, 4], 1.3)?,
        numbers(&[2, 3, 4], 2.1)?,
        numbers(&[2, 3, 4], 0.7)?,
    );
    let grad = softmax_backward_data(&g, &x.softmax(1)?, 1)?;
    assert_slope(slope(|x| x.softmax(1), &g, &x, &way)?, inner(&grad, &way));
    let grad = log_softmax_backward_data(&g, &x.log_softmax(-1)?, -1)?;
    assert_slope(
        slope(|x| x.log_softmax(-1), &g, &x, &way)?,
        inner(&grad, &way),
    );
    let number = softmax_backward_data(&tensor![2.0].squeeze(0)?, &tensor![1.0].squeeze(0)?, 0)?;
    assert_eq!(number.shape(), [0usize; 0]);
    assert!(error(softmax_backward_data(&g, &tensor![1.0], 0)).contains("in the shape"));
    Ok(())
}

#[test]
fn norms_by_their_statistics() -> Outcome {
    let (x, g, way) = (
        numbers(&[2, 4, 3], 1.3)?,
        numbers(&[2, 4, 3], 2.1)?,
        numbers(&[2, 4, 3], 0.7)?,
    );
    let (w, b) = (numbers(&[4, 3], 0.9)?, numbers(&[4, 3], 0.4)?);
    let (_, mean, rstd) = x.native_layer_norm([4, 3], Some(&w), Some(&b), 1e-5)?;
    let (gx, gw, gb) = native_layer_norm_backward(&g, &x, [4, 3], [&mean, &rstd], Some(&w))?;
    let layer = |x: &Tensor, w: &Tensor, b: &Tensor| x.layer_norm([4, 3], Some(w), Some(b), 1e-5);
    assert_slope(slope(|x| layer(x, &w, &b), &g, &x, &way)?, inner(&gx, &way));
    assert_slope(slope(|w| layer(&x, w, &b), &g, &w, &b)?, inner(&gw, &b));
    assert_slope(slope(|b| layer(&x, &w, b), &g, &b, &w)?, inner(&gb, &w));
    let bad = native_layer_norm_backward(&g, &x, [4, 3], [&w, &rstd], Some(&w));
    assert!(error(bad).contains("a mean of floats"));

    let (w, b) = (numbers(&[4], 0.9)?, numbers(&[4], 0.4)?);
    let (y, mean, rstd) = x.native_group_norm(2, Some(&w), Some(&b), 1e-5)?;
    let group = |x: &Tensor, w: &Tensor, b: &Tensor| x.group_norm(2, Some(w), Some(b), 1e-5);
    assert!(
        y.isclose(&group(&x, &w, &b)?, 1e-9, 1e-12, false)?
            .all(None, false)?
            .to_scalar::<bool>()?
    );
    assert_eq!(mean.shape(), [2, 2]);
    let (gx, gw, gb) = native_group_norm_backward(&g, &x, [&mean, &rstd], Some(&w), 2)?;
    assert_slope(slope(|x| group(x, &w, &b), &g, &x, &way)?, inner(&gx, &way));
    assert_slope(slope(|w| group(&x, w, &b), &g, &w, &b)?, inner(&gw, &b));
    assert_slope(slope(|b| group(&x, &w, b), &g, &b, &w)?, inner(&gb, &w));
    assert!(error(x.native_group_norm(3, None, None, 1e-5)).contains("groups divide"));
    Ok(())
}

#[test]
fn pooling() -> Outcome {
    let x = numbers(&[2, 3, 7, 6], 1.3)?;
    let all = AvgPoolOptions {
        stride: Some([2, 3]),
        padding: [1, 0],
        ceil_mode: true,
        ..Default::default()
    };
    let inside = AvgPoolOptions {
        count_include_pad: false,
        ..all
    };
    let by_five = AvgPoolOptions {
        divisor_override: Some(5),
        ..all
    };
    for options in [all, inside, by_five] {
        let y = x.avg_pool2d([3, 2], &options)?;
        let g = numbers(y.shape(), 2.1)?;
        let grad = avg_pool2d_backward(&g, &x, [3, 2], &options)?;
        assert_same(inner(&g, &y), inner(&grad, &x));
    }
    let one = x.select(0, 0)?;
    let g = numbers(&[3, 3, 4], 2.1)?;
    let grad = adaptive_avg_pool2d_backward(&g, &one)?;
    assert_same(
        inner(&g, &one.adaptive_avg_pool2d([Some(3), Some(4)])?),
        inner(&grad, &one),
    );
    let options = MaxPoolOptions {
        stride: Some([2, 1]),
        padding: [1, 1],
        ..Default::default()
    };
    let (y, indices) = x.max_pool2d_with_indices([3, 2], &options)?;
    let g = numbers(y.shape(), 2.1)?;
    let grad = max_pool2d_with_indices_backward(&g, x.shape(), &indices)?;
    assert_same(inner(&g, &y), inner(&grad, &x));
    let halves = g.to_dtype(DType::BF16)?;
    let grad = max_pool2d_with_indices_backward(&halves, x.shape(), &indices)?;
    assert_eq!(grad.dtype(), DType::BF16);
    assert!(error(avg_pool2d_backward(&g, &x, [3, 2], &all)).contains("a gradient [2, 3, 4, 2]"));
    assert!(error(adaptive_avg_pool2d_backward(&g, &one)).contains("rank"));
    let bad = max_pool2d_with_indices_backward(&g, x.shape(), &x);
    assert!(error(bad).contains("indices"));
    Ok(())
}

#[test]
fn convolutions() -> Outcome {
    let x = numbers(&[2, 4, 7, 8], 1.3)?;
    let w = numbers(&[6, 2, 3, 2], 0.9)?;
    let options = ConvTransposeOptions {
        stride: [2, 3],
        padding: [1, 0],
        output_padding: [0, 0],
        dilation: [1, 2],
        groups: 2,
    };
    let forward = ConvOptions {
        stride: options.stride,
        padding: options.padding.into(),
        dilation: options.dilation,
        groups: options.groups,
    };
    let y = x.conv2d(&w, None, &forward)?;
    let g = numbers(y.shape(), 2.1)?;
    let (gx, gw, gb) = convolution_backward(&g, &x, &w, &options, false)?;
    assert_same(inner(&g, &y), inner(&gx, &x));
    assert_same(inner(&g, &y), inner(&gw, &w));
    assert_same(inner(&g, &y.ones_like()?), inner(&gb, &gb.ones_like()?));

    let w = numbers(&[4, 3, 3, 2], 0.9)?;
    let options = ConvTransposeOptions {
        output_padding: [1, 2],
        ..options
    };
    let y = x.conv_transpose2d(&w, None, &options)?;
    let g = numbers(y.shape(), 2.1)?;
    let (gx, gw, gb) = convolution_backward(&g, &x, &w, &options, true)?;
    assert_same(inner(&g, &y), inner(&gx, &x));
    assert_same(inner(&g, &y), inner(&gw, &w));
    assert_eq!(gb.shape(), [6]);

    let (x, w) = (numbers(&[1, 2, 5], 1.3)?, numbers(&[3, 2, 2], 0.9)?);
    let y = x.conv1d(&w, None, &ConvOptions::default())?;
    let g = numbers(y.shape(), 2.1)?;
    let dense = ConvTransposeOptions::<1>::default();
    let (gx, gw, _) = convolution_backward(&g, &x, &w, &dense, false)?;
    assert_same(inner(&g, &y), inner(&gx, &x));
    assert_same(inner(&g, &y), inner(&gw, &w));
    let bad = convolution_backward(&x, &x, &w, &dense, false);
    assert!(error(bad).contains("a gradient [1, 3, 4]"));
    assert!(error(convolution_backward(&g, &x.squeeze(0)?, &w, &dense, false)).contains("rank 3"));
    Ok(())
}

#[test]
fn rows_of_tables_and_what_was_dropped() -> Outcome {
    let (ids, g) = (tensor![[0, 2], [2, 1]], numbers(&[2, 2, 3], 2.1)?);
    let table = numbers(&[4, 3], 1.3)?;
    let grad = embedding_dense_backward(&g, &ids, 4, None, false)?;
    assert_same(inner(&g, &table.embedding(&ids)?), inner(&grad, &table));
    let without = embedding_dense_backward(&g, &ids, 4, Some(-2), false)?;
    assert_same(inner(&without.select(0, 2)?, &table.select(0, 2)?), 0.0);
    let mean = embedding_dense_backward(&g, &ids, 4, None, true)?;
    assert_close(
        &mean
            .select(0, 2)?
            .mul(2)?
            .sub(&grad.select(0, 2)?)?
            .to_dtype(DType::F32)?,
        &[0.0; 3],
    );
    assert!(error(embedding_dense_backward(&table, &ids, 4, None, false)).contains("a gradient"));
    assert!(embedding_dense_backward(&g, &ids, 4, Some(4), false).is_err());

    let x = Tensor::ones([1000], DType::F32)?;
    let (y, kept) = x.native_dropout(0.25, true)?;
    assert_eq!(
        native_dropout_backward(&x, &kept, 1.0 / 0.75)?.to_vec::<f32>()?,
        y.to_vec::<f32>()?
    );
    let (y, kept) = x.native_dropout(0.25, false)?;
    assert!(kept.all(None, false)?.to_scalar::<bool>()? && y.equal(&x)?);
    assert!(error(native_dropout_backward(&x, &x, 1.0)).contains("a mask of bool"));
    assert!(tensor![1, 2].native_dropout(0.5, true).is_err());
    Ok(())
}
