//! Calls that are seldom made: PyTorch's answers.

use rustorch_ir::DType;
use rustorch_runtime::{DeviceType, Routing, Runtime};
use rustorch_tensor::nn::{EmbeddingBagOptions, InterpolateOptions, InterpolateSize, Reduction};
use rustorch_tensor::{Indexing, Interpolation, Tensor, backends, tensor, with_runtime};

use crate::{Outcome, assert_close, error};

#[test]
fn operands_of_several_dtypes() -> Outcome {
    // The sum is one of floats, and factors are not cut.
    let sum = Tensor::full([2, 2], 1, DType::I64)?.addr(
        &tensor![0.5, 1.5],
        &tensor![1.0, 2.0],
        0.5,
        0.25,
    )?;
    assert_close(&sum, &[0.625, 0.75, 0.875, 1.25]);
    assert!(tensor![1.0, 2.0].equal(&tensor![1, 2])?);
    assert!(!tensor![1.5].equal(&tensor![1])?);
    assert!(!tensor![1.0].equal(&tensor![[1.0]])?);
    let (x, doubles) = (
        tensor![[0.5, 1.0]],
        tensor![[0.25, 2.0]].to_dtype(DType::F64)?,
    );
    let mean = Reduction::Mean;
    for loss in [
        x.gaussian_nll_loss(&x, &doubles, false, 1e-6, mean)?,
        x.cosine_embedding_loss(&doubles, &Tensor::ones([1], DType::F32)?, 0.0, mean)?,
        x.triplet_margin_loss(&x, &doubles, &Default::default())?,
    ] {
        assert_eq!(loss.dtype(), DType::F64);
    }
    let grid = Tensor::meshgrid(&[&tensor![1.0], &tensor![1]], Indexing::Ij);
    assert!(error(grid).contains("one dtype"));
    Ok(())
}

#[test]
fn numbers_that_are_none_or_far_outside() -> Outcome {
    let x = tensor![-2.0, 0.5];
    let all = x.hardtanh(f64::NAN, 1.0)?;
    assert!(all.isnan()?.all(None, false)?.to_scalar::<bool>()?);
    assert!(x.hardtanh(1.0, -1.0).is_err());
    for q in [f32::NAN, 1.5] {
        let quantile = x.quantile(&tensor![q], None, false, Interpolation::Linear)?;
        assert!(quantile.to_vec::<f32>().is_err(), "{q}");
    }
    assert!(x.diff(0, 0, Some(&tensor![[1.0]]), None).is_err());
    let table = Tensor::ones([3, 2], DType::F32)?;
    let bag = |padding_idx| {
        let options = EmbeddingBagOptions {
            padding_idx: Some(padding_idx),
            ..Default::default()
        };
        table.embedding_bag(&tensor![[0, 2]], &options)
    };
    assert!(bag(-3).is_ok());
    for padding_idx in [3, -4] {
        assert!(error(bag(padding_idx)).contains("padding_idx of one of 3 rows"));
    }
    // Neither is begun.
    let image = Tensor::ones([1, 1, 2, 2], DType::F32)?;
    for scale in [1e15, 1e30, f64::INFINITY] {
        let size = InterpolateSize::Scale(vec![scale]);
        assert!(
            image
                .interpolate(size, &InterpolateOptions::default())
                .is_err(),
            "{scale}"
        );
    }
    Ok(())
}

#[test]
fn what_has_no_room_is_told_with_its_bytes_and_indices_with_their_place() -> Outcome {
    let runtime = Runtime::new(backends(1));
    let is_asked = |device| matches!(device, DeviceType::Cpu | DeviceType::OpenCL(_));
    for device in runtime
        .devices()
        .map(|info| info.device)
        .filter(|&device| is_asked(device))
    {
        let routing = Routing {
            device,
            strict: true,
            ..Routing::default()
        };
        with_runtime(&runtime, routing, || -> Outcome {
            // More bytes than processes have addresses; of OpenCL more than its devices have.
            for power in [45, 38] {
                if power == 38 && device == DeviceType::Cpu {
                    continue;
                }
                let sum = tensor![1.0].expand([1usize << power])?.add(1)?;
                let text = error(sum.eval());
                let bytes = (4usize << power).to_string();
                assert!(
                    text.contains("memory") && text.contains(&bytes),
                    "{device}: {text}"
                );
            }
            let row = tensor![[1.0], [2.0]].index_select(0, &tensor![0i64, 2])?;
            let text = error(row.to_vec::<f32>());
            assert!(text.contains("index 2 at [1]"), "{device}: {text}");
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn values_outside_of_what_is_asked_for_are_refused_when_computed() -> Outcome {
    let half = tensor![0.5, 0.5];
    let (over, none) = (tensor![0.5, 1.5], tensor![f32::NAN, 0.5]);
    let mean = Reduction::Mean;
    for x in [&over, &none] {
        for loss in [
            x.binary_cross_entropy(&half, None, mean)?,
            half.binary_cross_entropy(x, None, mean)?,
            x.bernoulli()?,
        ] {
            let text = error(loss.to_vec::<f32>());
            assert!(
                text.contains("from 0 to 1") && text.contains("odd.rs:"),
                "{text}"
            );
        }
    }
    let text = error(over.binary_cross_entropy(&half, None, mean)?.eval());
    assert!(text.contains("the element at [1] is 1.5"), "{text}");
    let nll = |var: &Tensor| half.gaussian_nll_loss(&half, var, false, 1e-6, mean);
    assert!(error(nll(&tensor![1.0, -1.0])?.eval()).contains("0 or more"));
    assert!(nll(&none)?.to_scalar::<f32>()?.is_nan());
    let normal = Tensor::normal(&half, tensor![1.0, -1.0])?;
    assert!(error(normal.eval()).contains("is -1, not 0 or more"));
    // What is inside is differentiated as if nobody had looked.
    let x = tensor![0.25, 0.75].requires_grad_(true)?;
    let loss = x.binary_cross_entropy(&tensor![1.0, 0.0], None, Reduction::Sum)?;
    loss.backward()?;
    assert_close(&x.grad().expect("a gradient"), &[-4.0, 4.0]);
    Ok(())
}

#[test]
fn quotients_and_gamma_functions_of_special_numbers() -> Outcome {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let a = tensor![1.0, -1.0, -0.5, inf, inf, 1.0, -1.0, 3e38, 7.0];
    let b = tensor![-inf, inf, -inf, 2.0, inf, 0.0, -0.0, 1e-40, -2.0];
    for dtype in [DType::F32, DType::F64] {
        let quotients = a.to_dtype(dtype)?.floor_divide(&b.to_dtype(dtype)?)?;
        let quotients = quotients.to_dtype(DType::F32)?.to_vec::<f32>()?;
        let expected = [-1.0, -1.0, 0.0, nan, nan, inf, inf, inf, -4.0];
        for (i, (x, y)) in quotients.iter().zip(expected).enumerate() {
            assert!(*x == y || x.is_nan() && y.is_nan(), "{i}: {x} for {y}");
        }
    }
    let a = tensor![nan, nan, 0.0, inf, inf, nan, 2.0, 0.0];
    let x = tensor![0.0, inf, nan, nan, inf, 1.0, inf, 0.0];
    let (lower, upper) = (
        a.igamma(&x)?.to_vec::<f32>()?,
        a.igammac(&x)?.to_vec::<f32>()?,
    );
    let expected = [0.0, 1.0, nan, 0.0, nan, nan, 1.0, nan];
    for (i, (x, y)) in lower.iter().zip(expected).enumerate() {
        assert!(*x == y || x.is_nan() && y.is_nan(), "{i}: {x} for {y}");
        assert!(
            upper[i] == 1.0 - y || upper[i].is_nan() && y.is_nan(),
            "{i}"
        );
    }
    assert_eq!(tensor![inf].polygamma(1)?.to_vec::<f32>()?, [0.0]);
    Ok(())
}

#[test]
fn operands_that_are_converted_and_those_that_are_not() -> Outcome {
    let x = Tensor::zeros([2, 2], DType::F32)?;
    let put = x.diagonal_scatter(&tensor![1i64, 2], 0, 0, 1)?;
    assert_close(&put, &[1.0, 0.0, 0.0, 2.0]);
    assert_close(
        &x.select_scatter(&tensor![1i64, 2], 0, 1)?,
        &[0.0, 0.0, 1.0, 2.0],
    );
    let strided = x.as_strided_scatter(&tensor![1i64, 2], [2], [2], 1)?;
    assert_close(&strided, &[0.0, 1.0, 0.0, 2.0]);
    let doubles = tensor![0.5, 0.25].to_dtype(DType::F64)?;
    let mean = Reduction::Mean;
    let x = tensor![0.5, 1.0];
    for loss in [
        x.kl_div(&doubles, false, mean)?,
        x.poisson_nll_loss(&doubles, true, false, 1e-8, mean)?,
        x.binary_cross_entropy_with_logits(&doubles, None, None, mean)?,
    ] {
        assert_eq!(loss.dtype(), DType::F64);
    }
    let bytes = tensor![200i64, 200, 100].to_dtype(DType::U8)?;
    let area = bytes.trapezoid(1.0, 0)?.to_scalar::<f32>()?;
    // The two ends are added up as bytes, as in PyTorch.
    assert_eq!(area, 500.0 - f32::from(200u8.wrapping_add(100)) / 2.0);
    assert_eq!(x.huber_loss(&doubles, 1.0, None, mean)?.dtype(), DType::F32);
    assert_eq!(Tensor::normal(&x, &doubles)?.dtype(), DType::F32);
    let ints = tensor![1i64, 2];
    assert!(
        ints.addmv(&tensor![[1i64, 2], [3, 4]], &ints, 1, 1e30)
            .is_err()
    );
    assert!(
        tensor![1i64]
            .to_dtype(DType::I8)?
            .threshold(1000.0, 2.0)
            .is_err()
    );
    assert_eq!(
        Tensor::cat(&[&Tensor::zeros([0], DType::F32)?], 5)?.shape(),
        [0]
    );
    Ok(())
}
