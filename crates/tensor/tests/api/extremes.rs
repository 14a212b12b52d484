//! Arguments at the ends of their ranges are errors or have a result; nothing panics.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::nn::{AvgPoolOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions};
use rustorch_tensor::{Tensor, backends, tensor, with_runtime};

use crate::Outcome;

/// Runs `f` on each device, and what that has no kernel for on the next.
fn on_each_device(f: impl Fn() -> Outcome) -> Outcome {
    let runtime = Runtime::new(backends(1));
    for info in runtime.devices() {
        let routing = Routing {
            device: info.device,
            ..Routing::default()
        };
        with_runtime(&runtime, routing, &f)?;
    }
    Ok(())
}

#[test]
fn integers_wrap() -> Outcome {
    on_each_device(|| {
        let (low, high) = (i64::MIN, i64::MAX);
        let x = tensor![low, high];
        let values = |t: Tensor| t.to_vec::<i64>();
        assert_eq!(values(x.add(1)?)?, [low + 1, low]);
        assert_eq!(values(x.sub(tensor![1i64, -1])?)?, [high, low]);
        assert_eq!(values(x.mul(2)?)?, [0, -2]);
        assert_eq!(values(x.neg()?)?, [low, -high]);
        assert_eq!(values(x.abs()?)?, [low, high]);
        assert_eq!(values(x.floor_divide(-1)?)?, [low, -high]);
        assert_eq!(values(x.remainder(-1)?)?, [0, 0]);
        assert_eq!(values(x.pow(2)?)?, [0, 1]);
        assert_eq!(values(x.sum(0, true)?)?, [-1]);
        assert_eq!(values(x.prod(0, true)?)?, [low]);
        assert_eq!(values(tensor![high, 1i64].cumsum(0)?)?, [high, low]);
        assert_eq!(
            values(
                tensor![high, 1i64]
                    .reshape([1, 2])?
                    .matmul(&tensor![1i64, 1])?
            )?,
            [low]
        );
        let bytes = Tensor::arange(254, 258, 1, DType::U8)?.to_vec::<u8>()?;
        assert_eq!(bytes, [254, 255, 0, 1]);
        Ok(())
    })
}

#[test]
fn sizes_and_positions() -> Outcome {
    let x = tensor![1.0, 2.0, 3.0].reshape([1, 3])?;
    let max = usize::MAX;
    assert_eq!(x.slice(1, 0, isize::MAX, max)?.to_vec::<f32>()?, [1.0]);
    assert_eq!(x.slice(1, isize::MIN, isize::MIN, 1)?.numel(), 0);
    for bad in [isize::MIN, isize::MAX] {
        assert!(x.transpose(bad, 0).is_err() && x.select(0, bad).is_err());
        assert!(x.unsqueeze(bad).is_err() && x.sum(bad, false).is_err());
        assert!(x.reshape([bad, -1]).is_err() && x.expand([bad, 3]).is_err());
    }
    assert!(x.narrow(1, max, max).is_err());
    assert!(x.pad([isize::MAX; 2], 0).is_err());
    assert!(x.split(max, 1)?.len() == 1 && x.chunk(max, 1)?.len() == 3);
    assert!(x.topk(max, 1, true).is_err());
    assert!(Tensor::eye(max, DType::F32).is_err());
    assert!(Tensor::linspace(0.0, 1.0, max, DType::F32).is_err());
    assert!(Tensor::rand([max, max], DType::F32).is_err());
    assert!(Tensor::randint(i64::MIN, i64::MAX, [1], DType::I64).is_err());
    assert!(Tensor::placeholder([max, 0, max], DType::F32).is_err());
    // An expansion costs nothing until somebody wants its elements.
    let vast = tensor!(1.0).expand([1usize << 60])?;
    assert!(vast.to_vec::<f32>().is_err());
    assert_eq!(vast.narrow(0, 1 << 59, 2)?.to_vec::<f32>()?, [1.0, 1.0]);
    Ok(())
}

#[test]
fn windows() -> Outcome {
    let max = usize::MAX;
    let x = Tensor::ones([1, 2, 3, 3], DType::F32)?;
    let bias = tensor![1.0,];
    for i in 0..3 {
        let mut conv = ConvOptions::default();
        let mut transposed = ConvTransposeOptions::default();
        match i {
            0 => (conv.groups, transposed.groups) = (max, max),
            1 => (conv.padding, transposed.padding) = ([max; 2].into(), [max; 2]),
            _ => (conv.dilation, transposed.dilation) = ([max; 2], [max; 2]),
        }
        assert!(x.conv2d(&x, Some(&bias), &conv).is_err(), "{conv:?}");
        assert!(
            x.conv_transpose2d(&x, Some(&bias), &transposed).is_err(),
            "{transposed:?}"
        );
    }
    let transposed = ConvTransposeOptions {
        output_padding: [max; 2],
        ..Default::default()
    };
    assert!(x.conv_transpose2d(&x, None, &transposed).is_err());
    assert!(x.max_pool2d([max; 2], &MaxPoolOptions::default()).is_err());
    let still = MaxPoolOptions {
        stride: Some([0; 2]),
        ..Default::default()
    };
    assert!(x.max_pool2d([2; 2], &still).is_err());
    let wide = AvgPoolOptions {
        padding: [max; 2],
        ..Default::default()
    };
    assert!(x.avg_pool2d([2; 2], &wide).is_err());
    Ok(())
}

#[test]
fn nothing_at_all() -> Outcome {
    on_each_device(|| {
        let none = Tensor::zeros([0, 3], DType::F32)?;
        let row = tensor![1.0, 2.0, 3.0];
        assert_eq!(none.add(&row)?.to_vec::<f32>()?, [0.0f32; 0]);
        assert_eq!(none.softmax(1)?.to_vec::<f32>()?, [0.0f32; 0]);
        assert_eq!(none.linear(&row.reshape([1, 3])?, None)?.shape(), [0, 1]);
        assert_eq!(
            Tensor::cat(&[&none, &row.unsqueeze(0)?], 0)?.to_vec::<f32>()?,
            [1.0, 2.0, 3.0]
        );
        assert_eq!(none.t()?.contiguous()?.to_vec::<f32>()?, [0.0f32; 0]);
        assert_eq!(
            none.eval()?.narrow(0, 0, 0)?.add(1)?.to_vec::<f32>()?,
            [0.0f32; 0]
        );
        let no_rows = row.narrow(0, 3, 0)?.reshape([0, 3])?;
        assert_eq!(no_rows.matmul(&row)?.to_vec::<f32>()?, [0.0f32; 0]);
        assert_eq!(none.sum(0, false)?.to_vec::<f32>()?, [0.0; 3]);
        Ok(())
    })
}

#[test]
fn tensors_of_rank_0_and_images_without_a_batch() -> Outcome {
    on_each_device(|| {
        let x = tensor!(2.0);
        for reduced in [
            x.sum(0, false)?,
            x.mean(-1, true)?,
            x.max(None, false)?,
            x.cumsum(0)?,
            x.logsumexp(0, false)?,
            x.topk(1, 0, true)?.0,
            x.sort(0, false)?.0,
        ] {
            assert_eq!(reduced.rank(), 0);
            assert_eq!(reduced.to_scalar::<f32>()?, 2.0);
        }
        assert_eq!(x.softmax(0)?.to_scalar::<f32>()?, 1.0);
        assert_eq!(x.argmax(0, false)?.to_scalar::<i64>()?, 0);
        assert!(x.sum(1, false).is_err() && x.topk(2, 0, true).is_err());
        let image = Tensor::ones([2, 4, 4], DType::F32)?;
        let weight = Tensor::ones([3, 2, 3, 3], DType::F32)?;
        let seen = image.conv2d(&weight, None, &ConvOptions::default())?;
        assert_eq!(seen.shape(), [3, 2, 2]);
        assert_eq!(seen.to_vec::<f32>()?, [18.0; 12]);
        // An empty vector goes with anything.
        let (none, rows) = (Tensor::zeros([0], DType::F32)?, image.flatten(0, 1)?);
        for dim in [0, 1] {
            assert_eq!(Tensor::cat(&[&none, &rows], dim)?.shape(), rows.shape());
        }
        Ok(())
    })
}

#[test]
fn roots_logarithms_and_powers_of_complex_numbers() -> Outcome {
    on_each_device(|| {
        let z = Tensor::full([1], -4.0, DType::Complex64)?;
        let near = |x: Tensor, re: f32, im: f32| -> Outcome {
            let (found, expected) = (x.to_scalar::<Complex<f32>>()?, Complex::new(re, im));
            let apart = (found - expected).norm_sqr() / expected.norm_sqr();
            assert!(apart < 1e-10, "{found}, not {expected}");
            Ok(())
        };
        near(z.sqrt()?, 0.0, 2.0)?;
        near(z.log()?, 4f32.ln(), std::f32::consts::PI)?;
        near(z.pow(0.5)?, 0.0, 2.0)?;
        near(z.pow(2)?, 16.0, 0.0)
    })
}

#[test]
fn both_whole_shapes_of_products_that_do_not_fit_are_told() -> Outcome {
    let ones = |shape: [usize; 3]| Tensor::ones(shape, DType::F32);
    for told in [
        ones([2, 3, 4])?.matmul(&ones([3, 4, 5])?),
        ones([2, 3, 4])?.bmm(&ones([3, 4, 5])?),
    ] {
        let text = crate::error(told);
        let both = ["f32[2, 3, 4]", "f32[3, 4, 5]"];
        assert!(both.iter().all(|shape| text.contains(shape)), "{text}");
    }
    Ok(())
}
