//! Calls that are seldom made: PyTorch's answers.

use rustorch_ir::DType;
use rustorch_runtime::{DeviceType, Routing, Runtime};
use rustorch_tensor::nn::{
    BatchNormOptions, ConvTransposeOptions, CrossEntropyOptions, EmbeddingBagMode,
    EmbeddingBagOptions, InterpolateOptions, InterpolateSize, Reduction,
};
use rustorch_tensor::{
    AttentionOptions, Indexing, Interpolation, Patches, ScatterReduce, Tensor, backends, tensor,
    with_runtime,
};

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
    // Numbers within the range are differentiated as without the check.
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

#[test]
fn bags_by_offsets() -> Outcome {
    let table = Tensor::arange_with(0.0, 12.0, 1.0, DType::F32)?.reshape([4, 3])?;
    let (none, ids) = (Tensor::zeros([0], DType::I64)?, tensor![0i64, 1, 3]);
    let bags = |ids: &Tensor, offsets: &Tensor, mode, include_last_offset| {
        let options = EmbeddingBagOptions {
            offsets: Some(offsets),
            mode,
            include_last_offset,
            ..Default::default()
        };
        table.embedding_bag(ids, &options)
    };
    for mode in [
        EmbeddingBagMode::Sum,
        EmbeddingBagMode::Mean,
        EmbeddingBagMode::Max,
    ] {
        let empty = bags(&none, &tensor![0i64, 0], mode, false)?;
        assert_close(&empty, &[0.0; 6]);
        assert_eq!(bags(&none, &none, mode, false)?.shape(), [0, 3]);
        // Elements behind the last offset belong to no bag.
        assert_close(
            &bags(&ids, &tensor![0i64, 1], mode, true)?,
            &[0.0, 1.0, 2.0],
        );
        for (ids, offsets) in [
            (&none, tensor![0i64, 1]),
            (&none, tensor![1i64,]),
            (&ids, tensor![1i64, 2]),
            (&ids, tensor![0i64, 4]),
        ] {
            for last in [false, true] {
                assert!(bags(ids, &offsets, mode, last)?.eval().is_err());
            }
        }
        let message = error(bags(&ids, &none, mode, true));
        assert!(message.contains("with the last one"), "{message}");
    }
    let message = error(bags(&none, &tensor![1i64,], EmbeddingBagMode::Sum, false)?.eval());
    assert!(
        message.contains("the element at [0] is 1, not from 0 to 0"),
        "{message}"
    );
    let counts = tensor![[1i64, 2], [3, 4], [5, 6]].embedding(&tensor![[2i64], [0]])?;
    assert_eq!(
        (counts.dtype(), counts.shape()),
        (DType::I64, &[2, 1, 2][..])
    );
    assert_eq!(counts.to_vec::<i64>()?, [5, 6, 1, 2]);
    Ok(())
}

#[test]
fn attention_of_heads_that_broadcast() -> Outcome {
    let even = |shape: &[usize], step: f64| {
        let count: usize = shape.iter().product();
        Tensor::arange_with(0.0, count as f64, 1.0, DType::F32)?
            .mul(step)?
            .reshape(shape)
    };
    let (q, k) = (even(&[1, 3, 2], 0.1)?, even(&[2, 2, 2], 0.2)?);
    let v = tensor![[[1.0], [2.0]], [[3.0], [5.0]]];
    let y = q.scaled_dot_product_attention(&k, &v, AttentionOptions::default())?;
    assert_eq!(y.shape(), [2, 3, 1]);
    assert_close(
        &y,
        &[
            1.5070705, 1.5352967, 1.5632982, 4.014141, 4.070593, 4.1265965,
        ],
    );
    let (q, k) = (q.expand([2, 3, 2])?, k.narrow(0, 0, 1)?);
    let same = q.scaled_dot_product_attention(&k, &v, AttentionOptions::default())?;
    assert_close(
        &same,
        &[
            1.5070705, 1.5352967, 1.5632982, 4.014141, 4.070593, 4.1265965,
        ],
    );
    Ok(())
}

#[test]
fn indices_of_a_dimension_without_elements() -> Outcome {
    let (x, y) = (
        Tensor::zeros([5, 0], DType::F32)?,
        Tensor::zeros([5, 3], DType::F32)?,
    );
    let index = Tensor::zeros([5, 3], DType::I64)?;
    for outcome in [
        x.gather(1, &index),
        x.index_select(1, &tensor![0i64, 1]),
        x.take_along_dim(&index, 1),
        x.scatter(1, &index, &y),
        x.scatter_add(1, &index, &y),
        x.scatter_reduce(1, &index, &y, ScatterReduce::Amax, true),
        x.index_add(1, &tensor![0i64, 1, 1], &y, 1),
        x.put(&tensor![0i64], &tensor![1.0], false),
    ] {
        let message = error(outcome);
        assert!(message.contains("element"), "{message}");
    }
    assert_eq!(x.gather(1, &index.narrow(1, 0, 0)?)?.shape(), [5, 0]);
    assert!(error(tensor![1i64,].one_hot(0)).contains("has no element"));
    Ok(())
}

#[test]
fn arguments_that_pytorch_refuses_at_once() -> Outcome {
    let (x, row) = (tensor![[1.0, 2.0], [3.0, 5.0]], tensor![1.0, 2.0]);
    let norm = |training, eps| {
        let options = BatchNormOptions {
            training,
            eps,
            ..Default::default()
        };
        x.batch_norm(Some(&row), Some(&row), &options)
    };
    let probabilities = tensor![[0.5, 0.5], [1.0, 0.0]];
    let entropy = |label_smoothing, ignore_index| {
        let options = CrossEntropyOptions {
            label_smoothing,
            ignore_index,
            ..Default::default()
        };
        x.cross_entropy(&probabilities, &options)
    };
    let none = Tensor::zeros([0, 2, 3], DType::F32)?;
    let (number, cube) = (tensor!(1.0), Tensor::zeros([2, 2, 2], DType::F32)?);
    let window = Patches {
        kernel: [1; 2],
        dilation: [1; 2],
        padding: [1; 2],
        stride: [1; 2],
    };
    let bias = tensor![1.0, 2.0, 3.0];
    for (outcome, expected) in [
        (x.celu(0.0), "an alpha other than 0"),
        (x.softshrink(f64::INFINITY), "a finite lambda"),
        (x.rrelu(0.0, f64::INFINITY, true), "finite bounds"),
        (x.cosine_similarity(&x, 1, -1.0), "an eps from 0 on"),
        (norm(true, 0.0), "an eps above 0"),
        (norm(false, -1.0), "an eps from 0 on"),
        (entropy(1.5, -100), "a label_smoothing from 0 to 1"),
        (entropy(f64::NAN, -100), "a label_smoothing from 0 to 1"),
        (entropy(0.0, 1), "no ignored class"),
        (
            tensor![[1.0]].group_norm(1, None, None, 1e-5),
            "more than one value",
        ),
        (
            none.instance_norm(None, Some(&row), None, 1e-5),
            "samples and channels, or neither",
        ),
        (x.bilinear(&x, &cube, Some(&bias)), "a bias [2]"),
        (number.flatten(1, -1), "dimensions 0 or -1"),
        (
            Tensor::zeros([2, 0, 4, 4], DType::F32)?.im2col(window),
            "channels and pixels",
        ),
        (
            x.as_strided_scatter(&x, [2, 2], [0, 1], None),
            "strides other than 0",
        ),
        (Tensor::full([1], -0.5, DType::U8), "a value that u8 holds"),
        (
            x.cov(1, None, Some(&tensor![0.0, 0.0])),
            "whose sum is not 0",
        ),
        (x.ormqr(&bias, &x, true, false), "reflections"),
        (
            cube.lp_pool1d(0.0, [2], None, false),
            "a norm_type other than 0",
        ),
        (
            tensor![[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]].affine_grid([1, 1, 0, 2], false),
            "a size without 0",
        ),
    ] {
        let message = error(outcome);
        assert!(message.contains(expected), "{expected}: {message}");
    }
    assert!(error(none.unique(1)).contains("elements in the dimensions beside 1"));
    let (lu, pivots, _) = rustorch_tensor::linalg::lu_factor_ex(&x, false)?;
    assert!(error(lu.lu_unpack(&pivots.unsqueeze(0)?)).contains("pivots [2]"));
    let target = tensor![[0i64, 2], [1, -1]];
    let loss = x.multilabel_margin_loss(&target, Reduction::Mean)?;
    assert!(error(loss.eval()).contains("from -1 to 1"));
    // These arguments are odd, but have an answer.
    for k in [0, 1] {
        let (value, index) = number.topk(k, 0, true)?;
        assert_eq!((value.item()?, index.item()?, value.rank()), (1.0, 0.0, 0));
    }
    assert_eq!(
        none.instance_norm(None, None, None, 1e-5)?.shape(),
        [0, 2, 3]
    );
    assert_eq!(Tensor::full([1], -1, DType::U8)?.to_vec::<u8>()?, [255]);
    let doubles = x.cross_entropy(&probabilities.to_dtype(DType::F64)?, &Default::default())?;
    assert_eq!(doubles.dtype(), DType::F64);
    Ok(())
}

#[test]
fn gradients_where_more_is_behind_than_strides() -> Outcome {
    let line = |from: f64, to: f64| Tensor::arange_with(from, to, 1.0, DType::F32);
    let x = line(1.0, 7.0)?
        .reshape([1, 1, 2, 3])?
        .requires_grad_(true)?;
    let w = line(1.0, 5.0)?
        .reshape([1, 1, 2, 2])?
        .requires_grad_(true)?;
    let options = ConvTransposeOptions {
        stride: [1, 2],
        padding: [1, 1],
        output_padding: [2, 3],
        dilation: [3, 4],
        groups: 1,
    };
    let y = x.conv_transpose2d(&w, None, &options)?;
    assert_eq!(y.shape(), [1, 1, 5, 10]);
    y.mul(&line(0.0, 50.0)?.reshape(y.shape())?)?
        .sum_all()?
        .backward()?;
    // By PyTorch.
    let gradient = |x: &Tensor| x.grad().expect("a gradient");
    assert_close(&gradient(&w), &[23.0, 79.0, 464.0, 683.0]);
    assert_close(&gradient(&x), &[92.0, 163.0, 177.0, 138.0, 244.0, 264.0]);
    Ok(())
}
