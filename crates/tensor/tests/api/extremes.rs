//! Arguments at the ends of their ranges are errors or have a result; nothing panics.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_metal_emulator::Emulator;
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::nn::{
    AvgPoolOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions, Reduction,
};
use rustorch_tensor::{
    Interpolation, RusTorchResult, ScatterReduce, Tensor, backends, tensor, with_runtime,
};

use crate::{Outcome, error};

/// Runs `f` on each device, emulated Metal among them, and what that has no kernel for on the next.
pub(crate) fn on_each_device(f: impl Fn() -> Outcome) -> Outcome {
    on_all(false, f)
}

/// Runs `f` on each device, all of it there.
fn on_each_device_strictly(f: impl Fn() -> Outcome) -> Outcome {
    on_all(true, f)
}

fn on_all(strict: bool, f: impl Fn() -> Outcome) -> Outcome {
    let mut all = backends(1);
    if let Some(emulator) = Emulator::for_tests() {
        all.extend(rustorch_metal::backends(vec![emulator]).expect("a Metal device"));
    }
    let runtime = Runtime::new(all);
    for info in runtime.devices() {
        let routing = Routing {
            device: info.device,
            strict,
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
        let bytes = Tensor::arange_with(254, 258, 1, DType::U8)?.to_vec::<u8>()?;
        assert_eq!(bytes, [254, 255, 0, 1]);
        Ok(())
    })
}

#[test]
fn lengths_and_remainders_beside_nan_and_infinity() -> Outcome {
    on_each_device(|| {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        let x = tensor![nan, 0.0f32, nan, 3.0];
        let lengths = x.hypot(tensor![1.0f32, nan, inf, 4.0])?.to_vec::<f32>()?;
        assert!(lengths[0].is_nan() && lengths[1].is_nan());
        assert_eq!(lengths[2..], [inf, 5.0]);
        let x = tensor![1.0f32, 1.0, -1.0, 0.0];
        let by = tensor![inf, -inf, inf, inf];
        assert_eq!(x.remainder(&by)?.to_vec::<f32>()?, [1.0, -inf, inf, 0.0]);
        let quotients = x.floor_divide(&by)?.to_vec::<f32>()?;
        assert_eq!(quotients, [0.0, -1.0, -1.0, 0.0]);
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

/// The elements of a result of integers, as `i64`.
fn whole(result: RusTorchResult<Tensor>) -> RusTorchResult<Vec<i64>> {
    result?.to_dtype(DType::I64)?.to_vec()
}

#[test]
fn bounds_beyond_all_integers_leave_the_elements() -> Outcome {
    on_each_device(|| {
        let i8s = tensor![-100i8, 100];
        assert_eq!(whole(i8s.clamp(-1000, 1000))?, [-100, 100]);
        assert_eq!(whole(i8s.clamp(-1000, 50))?, [-100, 50]);
        assert_eq!(whole(i8s.clamp(-50, 1i64 << 40))?, [-50, 100]);
        assert_eq!(whole(i8s.hardtanh(-1000.0, 1000.0))?, [-100, 100]);
        assert_eq!(whole(i8s.hardtanh(-1.5, 200.0))?, [-1, 100]);
        assert_eq!(whole(i8s.minimum(200))?, [-100, 100]);
        assert_eq!(whole(i8s.maximum(-200))?, [-100, 100]);
        assert_eq!(whole(i8s.fmin(200))?, [-100, 100]);
        let i16s = tensor![i16::MIN, -1, i16::MAX];
        assert_eq!(whole(i16s.clamp(0, 65_535))?, [0, 0, 32_767]);
        let bytes = tensor![0u8, 200, 255];
        assert_eq!(whole(bytes.clamp_max(300))?, [0, 200, 255]);
        assert_eq!(whole(bytes.clamp_min(-1))?, [0, 200, 255]);
        assert_eq!(whole(bytes.clamp_max(255))?, [0, 200, 255]);
        let ints = tensor![i32::MIN, 7, i32::MAX].int()?;
        let ends = [i64::from(i32::MIN), 7, i64::from(i32::MAX)];
        assert_eq!(whole(ints.clamp(i64::MIN, i64::MAX))?, ends);
        let longs = tensor![i64::MIN, i64::MAX];
        assert_eq!(whole(longs.clamp_max(u64::MAX))?, [i64::MIN, i64::MAX]);
        let mut written = tensor![0u8, 200];
        assert_eq!(whole(Ok(written.clamp_(-5, 300)?.clone()))?, [0, 200]);
        Ok(())
    })
}

#[test]
fn bounds_that_would_be_the_result_are_of_the_dtype() -> Outcome {
    let (i8s, bytes) = (tensor![-100i8, 100], tensor![0u8, 200]);
    let halves = tensor![1.0, 2.0].to_dtype(DType::F16)?;
    let singles = tensor![1.0, 2.0];
    for result in [
        i8s.clamp_min(200),
        i8s.clamp(200, 300),
        i8s.clamp(100, -300),
        i8s.clamp_max(-129),
        i8s.maximum(128),
        i8s.fmax(128),
        i8s.hardtanh(200.0, 300.0),
        i8s.hardtanh(-1.0, f64::INFINITY),
        bytes.clamp_max(-1),
        bytes.clamp_min(256),
        bytes.minimum(-1),
        // Floats have no bounds beyond their numbers but infinities.
        halves.clamp(-70_000, 70_000),
        singles.clamp_max(1e300),
        singles.clamp(-1e39, 1),
    ] {
        assert!(error(result).contains("in the range of"));
    }
    // A float beside integers promotes, and infinities bound nothing.
    assert_eq!(bytes.clamp_max(300.5)?.to_vec::<f32>()?, [0.0, 200.0]);
    assert_eq!(
        singles
            .clamp(f64::NEG_INFINITY, f64::INFINITY)?
            .to_vec::<f32>()?,
        [1.0, 2.0]
    );
    Ok(())
}

#[test]
fn elements_that_a_dtype_does_not_hold_are_refused() -> Outcome {
    let (mask, index) = (tensor![true, false], tensor![0]);
    for (x, numbers) in [
        (
            tensor![1u8, 200],
            vec![256.0, 300.0, -256.0, -0.5, f64::NAN, f64::INFINITY],
        ),
        (tensor![1i8, 100], vec![128.0, -129.0, -128.5, f64::NAN]),
        (tensor![1i16, 100], vec![32_768.0, 1e30]),
        (tensor![1, 100].int()?, vec![2f64.powi(31)]),
        (tensor![1i64, 100], vec![2f64.powi(63), f64::NEG_INFINITY]),
        (tensor![1.0, 2.0].half()?, vec![65_505.0, -70_000.0]),
        (tensor![1.0, 2.0].bfloat16()?, vec![3.4e38]),
        (tensor![1.0, 2.0], vec![3.402_823_567_8e38, -1e39]),
    ] {
        for number in numbers {
            let results = [
                x.fill(number),
                x.full_like(number),
                x.masked_fill(&mask, number),
                x.index_fill(0, &index, number),
                x.scatter(0, &index, number),
                x.index_put(&index, number, false),
                x.index_put(&mask, number, false),
                x.pad((1, 1), number),
            ];
            for (at, result) in results.into_iter().enumerate() {
                assert!(result.is_err(), "{number} in {}, call {at}", x.dtype());
            }
        }
    }
    // Integers that are too large: of bytes in `where`, too, which keeps their dtype.
    let bytes = tensor![1u8, 200];
    let got = error(bytes.masked_fill(&mask, 300));
    assert!(
        got.ends_with("expected a value that u8 holds, got 300"),
        "{got}"
    );
    assert!(Tensor::where_(&mask, &bytes, 300).is_err());
    assert!(Tensor::where_(&mask, 1e300, tensor![1.0, 2.0]).is_err());
    assert!(bytes.scatter_add(0, &index, 300).is_err());
    assert!(bytes.add_scaled(&bytes, 300).is_err());
    assert!(bytes.add_scaled(&bytes, 1.5).is_err());
    assert!(bytes.addcmul(&bytes, &bytes, 300).is_err());
    assert!(bytes.index_add(0, &index, &tensor![1u8], 300).is_err());
    assert!(bytes.pow(300).is_err());
    assert!(bytes.pad((1, 1), -1).is_err());
    assert!(tensor![1.0].elu(1e300).is_err());
    assert!(tensor![1.0].lerp(&tensor![2.0], 1e300).is_err());
    assert!(tensor![1.0].histc(4, 0.0, 1e300).is_err());
    assert!(Tensor::linspace(0, 300, 3, DType::U8).is_err());
    assert!(Tensor::randint(-1, 3, 2, DType::U8).is_err());
    assert!(Tensor::randint(0, 129, 2, DType::I8).is_err());
    assert!(Tensor::uniform(-3e38, 3e38, 2, DType::F32).is_err());
    Ok(())
}

/// A function of a tensor with a number as its parameter.
type WithNumber = fn(&Tensor, f64) -> RusTorchResult<Tensor>;

#[test]
fn halves_take_the_parameters_that_pytorch_takes() -> Outcome {
    let refused: [(&str, WithNumber); 14] = [
        ("hardshrink", |x, n| x.hardshrink(n)),
        ("logit", |x, n| x.logit(Some(n))),
        ("addmv, alpha", |x, n| {
            x.select(0, 0)?.addmv(x, &x.select(0, 0)?, 1, n)
        }),
        ("addmv, beta", |x, n| {
            x.select(0, 0)?.addmv(x, &x.select(0, 0)?, n, 1)
        }),
        ("addr, alpha", |x, n| {
            x.addr(&x.select(0, 0)?, &x.select(0, 0)?, 1, n)
        }),
        ("addr, beta", |x, n| {
            x.addr(&x.select(0, 0)?, &x.select(0, 0)?, n, 1)
        }),
        ("add_scaled", |x, n| x.add_scaled(x, n)),
        ("hinge_embedding_loss", |x, n| {
            x.hinge_embedding_loss(&x.ones_like()?, n, Reduction::Mean)
        }),
        ("normalize", |x, n| x.normalize(2.0, 1, n)),
        ("threshold", |x, n| x.threshold(0.0, n)),
        ("clamp_min", |x, n| x.clamp_min(n)),
        ("pow", |x, n| x.pow(n)),
        ("masked_fill", |x, n| x.masked_fill(&x.gt(0)?, n)),
        ("scatter_reduce", |x, n| {
            let index = Tensor::zeros([1, 1], DType::I64)?;
            x.scatter_reduce(0, &index, n, ScatterReduce::Prod, true)
        }),
    ];
    let taken: [(&str, WithNumber); 8] = [
        ("threshold", |x, n| x.threshold(n, 0.0)),
        ("leaky_relu", |x, n| x.leaky_relu(n)),
        ("celu", |x, n| x.celu(n)),
        ("softplus", |x, n| x.softplus(n, 20.0)),
        ("addmm", |x, n| x.addmm(x, x, n, n)),
        ("addcmul", |x, n| x.addcmul(x, x, n)),
        ("lerp", |x, n| x.lerp(x, n)),
        ("cosine_similarity", |x, n| x.cosine_similarity(x, 1, n)),
    ];
    for (dtype, largest, beyond) in [
        (DType::F16, 65_504.0, 65_505.0),
        (DType::BF16, 3e38, 3.4e38),
    ] {
        let x = tensor![[0.5, -1.0], [2.0, 3.0]].to_dtype(dtype)?;
        for (name, f) in refused {
            assert!(
                f(&x, largest)?
                    .to_dtype(DType::F32)?
                    .to_vec::<f32>()
                    .is_ok(),
                "{name}"
            );
            let got = error(f(&x, beyond));
            assert!(
                got.contains("a value that") || got.contains("a number in the range"),
                "{name}: {got}"
            );
        }
        for (name, f) in taken {
            assert!(f(&x, beyond).is_ok(), "{name}");
            assert!(f(&x, 1e39).is_err(), "{name}");
        }
    }
    // The bounds of `logit` are halves: 1e-9 is 0.
    let odds = tensor![0.5, 0.0, 1.0].half()?.logit(Some(1e-9))?;
    let odds = odds.to_dtype(DType::F32)?.to_vec::<f32>()?;
    assert_eq!(odds, [0.0, f32::NEG_INFINITY, f32::INFINITY]);
    Ok(())
}

#[test]
fn elements_are_cut_and_rounded_as_pytorch_does() -> Outcome {
    on_each_device(|| {
        let (mask, index) = (tensor![true, false], tensor![0]);
        let bytes = tensor![1u8, 200];
        assert_eq!(whole(bytes.masked_fill(&mask, 1.5))?, [1, 200]);
        assert_eq!(whole(bytes.masked_fill(&mask, 255.9))?, [255, 200]);
        assert_eq!(whole(bytes.index_fill(0, &index, -1))?, [255, 200]);
        assert_eq!(whole(bytes.addcmul(&bytes, &bytes, 1.5))?, [2, 8]);
        assert_eq!(whole(Tensor::where_(&mask, -1, &bytes))?, [255, 200]);
        // A number that stays one in arithmetic wraps.
        assert_eq!(whole(bytes.add(300))?, [45, 244]);
        let halves = tensor![60_000.0, 2.0].half()?;
        let rounded = Tensor::where_(&mask, 70_000, &halves)?;
        assert_eq!(rounded.float()?.to_vec::<f32>()?, [f32::INFINITY, 2.0]);
        // A factor that a half cannot be keeps its digits.
        for (result, expected) in [
            (halves.mul(1e-8), [60_000.0 * 1e-8, 2e-8]),
            (halves.div(70_000), [60_000.0 / 70_000.0, 2.0 / 70_000.0]),
            (70_000.0 / &halves, [70_000.0 / 60_000.0, 35_000.0]),
        ] {
            let result = result?;
            assert_eq!(result.dtype(), DType::F16);
            for (got, expected) in result.float()?.to_vec::<f32>()?.into_iter().zip(expected) {
                let tolerance = 1e-3 * expected + 6e-8;
                assert!(
                    (f64::from(got) - expected).abs() <= tolerance,
                    "{got} {expected}"
                );
            }
        }
        // All but 0 is true.
        for number in [0.5, -0.5, f64::NAN] {
            for x in [
                Tensor::full(2, number, DType::Bool)?,
                Tensor::zeros(2, DType::Bool)?.masked_fill(&tensor![true, true], number)?,
                Tensor::empty(0, DType::Bool)?.pad((1, 1), number)?,
            ] {
                assert_eq!(x.to_vec::<bool>()?, [true, true]);
            }
        }
        Ok(())
    })
}

/// Devices without double precision among them.
#[test]
fn every_device_has_quantiles_of_single_precision() -> Outcome {
    let count = 1001;
    on_each_device_strictly(|| {
        let x = Tensor::arange_with(0, count, 1, DType::I32)?
            .flip(0)?
            .to_dtype(DType::F32)?;
        // The nearest numbers to 1/3 and 0.1 are above them.
        let q = tensor![0.0, 1e-30, 0.1, 0.25, 1.0 / 3.0, 0.5005, 1.0];
        for (how, expected) in [
            (
                Interpolation::Lower,
                [0.0, 0.0, 100.0, 250.0, 333.0, 500.0, 1000.0],
            ),
            (
                Interpolation::Higher,
                [0.0, 1.0, 101.0, 250.0, 334.0, 501.0, 1000.0],
            ),
            (
                Interpolation::Nearest,
                [0.0, 0.0, 100.0, 250.0, 333.0, 501.0, 1000.0],
            ),
            (
                Interpolation::Midpoint,
                [0.0, 0.5, 100.5, 250.0, 333.5, 500.5, 1000.0],
            ),
        ] {
            let found = x.quantile(&q, None, false, how)?.to_vec::<f32>()?;
            assert_eq!(found, expected, "{how:?}");
        }
        // Halves go to the even one.
        let middle = tensor![0.0, 1.0, 2.0, 3.0].quantile(
            &tensor![0.5],
            None,
            false,
            Interpolation::Nearest,
        )?;
        assert_eq!(middle.to_vec::<f32>()?, [2.0]);
        let q = tensor![0.5].requires_grad_(true)?;
        let x = tensor![[1.0, f32::NAN, 4.0, 2.0], [3.0, 1.0, 9.0, f32::NAN]];
        let linear = x.nanquantile(&q, 1, false, Interpolation::Linear)?;
        assert_eq!(linear.to_vec::<f32>()?, [2.0, 3.0]);
        assert!(
            x.quantile(&q, 1, false, Interpolation::Linear)?
                .isnan()?
                .all(None, false)?
                .to_scalar::<bool>()?
        );
        // The slope between two elements, times what there is of ranks.
        let between =
            tensor![0.0, 1.0, 4.0, 9.0].quantile(&q, None, false, Interpolation::Linear)?;
        between.sum_all()?.backward()?;
        assert_eq!(q.grad().expect("a gradient").to_vec::<f32>()?, [9.0]);
        Ok(())
    })
}
