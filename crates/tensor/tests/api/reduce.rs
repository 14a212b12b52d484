//! Elements combined along dimensions.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::autograd::grad;
use rustorch_tensor::{Interpolation, RusTorchError, ScatterReduce, Tensor, tensor};

use crate::{Outcome, assert_close, error};

#[test]
fn sums_and_extremes() -> Outcome {
    let x = tensor![[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]];
    assert_close(&x.sum(None, false)?, &[5.0]);
    assert_close(&x.sum(0, false)?, &[5.0, 3.0, -3.0]);
    assert_eq!(x.sum(-1, true)?.shape(), [2, 1]);
    assert_eq!(x.sum([0, -1], true)?.shape(), [1, 1]);
    assert_close(&x.prod(1, false)?, &[-6.0, -120.0]);
    assert_close(&x.max(0, false)?, &[4.0, 5.0, 3.0]);
    assert_close(&x.min(None, false)?, &[-6.0]);
    let flags = tensor![true, true, false];
    assert_eq!(flags.sum(None, false)?.to_scalar::<i64>()?, 2);
    assert_eq!(tensor![250u8, 250].sum(0, false)?.to_scalar::<i64>()?, 500);
    let empty = Tensor::zeros([0, 2], DType::F32)?;
    assert_close(&empty.sum(0, false)?, &[0.0, 0.0]);
    assert_close(&empty.prod(0, false)?, &[1.0, 1.0]);
    assert!(error(empty.max(0, false)).starts_with("max: expected at least one element"));
    assert_eq!(
        error(x.sum([0, -2], false)),
        "sum: expected each dimension at most once, got [0, -2]"
    );
    assert!(x.sum(2, false).is_err());
    assert!(
        tensor![1.0, f64::NAN]
            .max(None, false)?
            .to_scalar::<f32>()?
            .is_nan()
    );
    Ok(())
}

#[test]
fn moments() -> Outcome {
    let x = tensor![[1.0, 2.0, 3.0, 4.0], [0.0, 0.0, 0.0, 8.0]];
    assert_close(&x.mean(1, false)?, &[2.5, 2.0]);
    assert_close(&x.mean(None, false)?, &[2.25]);
    assert_close(&x.var(1, 1, false)?, &[5.0 / 3.0, 16.0]);
    assert_close(&x.var(-1, 0, true)?, &[1.25, 12.0]);
    assert_close(&x.std(1, 1, false)?, &[1.290_994_4, 4.0]);
    assert!(error(tensor![1, 2].mean(None, false)).contains("to_dtype"));
    assert!(
        tensor![1.0]
            .var(None, 1, false)?
            .to_scalar::<f32>()?
            .is_nan(),
        "one is not a sample"
    );
    assert!(
        Tensor::zeros([0], DType::F32)?
            .mean(None, false)?
            .to_scalar::<f32>()?
            .is_nan()
    );
    let z = Tensor::complex(&tensor![1.0, 3.0], &tensor![2.0, 4.0])?;
    assert_eq!(
        z.mean(0, false)?.to_scalar::<Complex<f32>>()?,
        Complex::new(2.0, 3.0)
    );
    Ok(())
}

#[test]
fn any_and_all() -> Outcome {
    let x = tensor![[0, 2], [0, 0], [1, 3]];
    assert_eq!(x.any(1, false)?.to_vec::<bool>()?, [true, false, true]);
    assert_eq!(x.all(1, false)?.to_vec::<bool>()?, [false, false, true]);
    assert!(x.any(None, false)?.to_scalar::<bool>()?);
    let empty = Tensor::zeros([0], DType::F32)?;
    assert!(!empty.any(None, false)?.to_scalar::<bool>()?);
    assert!(empty.all(None, false)?.to_scalar::<bool>()?);
    Ok(())
}

#[test]
fn positions() -> Outcome {
    let x = tensor![[1.0, 7.0, 7.0], [9.0, -2.0, 0.0]];
    assert_eq!(x.argmax(1, false)?.to_vec::<i64>()?, [1, 0]);
    assert_eq!(x.argmin(-1, true)?.shape(), [2, 1]);
    assert_eq!(x.argmax(None, false)?.to_scalar::<i64>()?, 3);
    assert_eq!(x.argmin(None, true)?.shape(), [1, 1]);
    let (values, indices) = x.max_dim(1, false)?;
    assert_close(&values, &[7.0, 9.0]);
    assert_eq!(indices.to_vec::<i64>()?, [1, 0]);
    let (values, indices) = x.min_dim(-2, true)?;
    assert_eq!(
        (values.shape(), indices.shape()),
        (&[1, 3][..], &[1, 3][..])
    );
    assert_close(&values, &[1.0, -2.0, 0.0]);
    assert_eq!(indices.to_vec::<i64>()?, [0, 1, 1]);
    let nan = f64::NAN;
    let first_nan = tensor![1.0, nan, nan, 2.0];
    for (values, indices) in [first_nan.max_dim(0, false)?, first_nan.min_dim(0, false)?] {
        assert!(values.to_scalar::<f32>()?.is_nan());
        assert_eq!(indices.to_scalar::<i64>()?, 1);
    }
    let (values, indices) = tensor![[4, 9], [4, -9]].max_dim(0, false)?;
    assert_eq!(values.to_vec::<i64>()?, [4, 9]);
    assert_eq!(indices.to_vec::<i64>()?, [0, 0]);
    let empty = Tensor::zeros([2, 0], DType::F32)?;
    assert!(error(empty.max_dim(1, false)).starts_with("max_dim: expected at least one"));
    let (values, indices) = x.topk(2, 1, true)?;
    assert_close(&values, &[7.0, 7.0, 9.0, 0.0]);
    assert_eq!(indices.to_vec::<i64>()?, [1, 2, 0, 2]);
    let (values, _) = x.topk(1, 0, false)?;
    assert_close(&values, &[1.0, -2.0, 0.0]);
    assert_eq!(
        error(x.topk(4, 1, true)),
        "topk: expected k of at most 3, got 4"
    );
    let x = tensor![[3.0, nan, 1.0, 3.0], [f64::INFINITY, 2.0, -1.0, 0.0]];
    let (values, indices) = x.sort(-1, false)?;
    assert_eq!(indices.to_vec::<i64>()?, [2, 0, 3, 1, 2, 3, 1, 0]);
    let values = values.to_vec::<f32>()?;
    assert_eq!(values[..3], [1.0, 3.0, 3.0]);
    assert!(values[3].is_nan());
    assert_eq!(values[4..], [-1.0, 0.0, 2.0, f32::INFINITY]);
    assert_eq!(
        x.argsort(1, true)?.to_vec::<i64>()?,
        [1, 0, 3, 2, 0, 1, 3, 2]
    );
    let (values, indices) = tensor![[2, 5], [-7, 4]].sort(0, false)?;
    assert_eq!(values.to_vec::<i64>()?, [-7, 4, 2, 5]);
    assert_eq!(indices.to_vec::<i64>()?, [1, 1, 0, 0]);
    assert!(error(x.argsort(2, false)).starts_with("argsort"));
    let x = tensor![[1.0, 7.0, 7.0], [9.0, -2.0, 0.0]];
    assert_eq!(tensor![1, 2, 3].cumsum(0)?.to_vec::<i64>()?, [1, 3, 6]);
    assert_close(&x.cumsum(0)?, &[1.0, 7.0, 7.0, 10.0, 5.0, 7.0]);
    Ok(())
}

#[test]
fn logarithms_and_norms() -> Outcome {
    let x = tensor![[1000.0, 1000.0], [0.0, f64::NEG_INFINITY]];
    assert_close(&x.logsumexp(1, false)?, &[1_000.693_1, 0.0]);
    assert_eq!(x.logsumexp([0, 1], true)?.shape(), [1, 1]);
    let nothing = tensor![f64::NEG_INFINITY, f64::NEG_INFINITY];
    assert_eq!(
        nothing.logsumexp(0, false)?.to_scalar::<f32>()?,
        f32::NEG_INFINITY
    );
    let v = tensor![3.0, 0.0, -4.0];
    for (p, expected) in [
        (2.0, 5.0),
        (1.0, 7.0),
        (0.0, 2.0),
        (3.0, 4.497_941_5),
        (f64::INFINITY, 4.0),
        (f64::NEG_INFINITY, 0.0),
    ] {
        assert_close(&v.norm(p, None, false)?, &[expected]);
    }
    let z = Tensor::complex(&tensor![3.0, 0.0], &tensor![4.0, 12.0])?;
    assert_close(&z.norm(2.0, 0, true)?, &[13.0]);
    Ok(())
}

#[test]
fn equality() -> Outcome {
    let x = tensor![1.0, f64::INFINITY];
    assert!(x.equal(&x.clone())?);
    assert!(x.equal(&x.to_dtype(DType::F64)?)?);
    assert!(!x.equal(&x.unsqueeze(0)?)?);
    assert!(!tensor![f64::NAN].equal(&tensor![f64::NAN])?);
    assert!(x.allclose(&tensor![1.000_001, f64::INFINITY], 1e-5, 1e-8)?);
    assert!(!x.allclose(&tensor![1.001, f64::INFINITY], 1e-5, 1e-8)?);
    assert!(!x.allclose(&tensor![1.0, f64::NEG_INFINITY], 1e-5, 1e-8)?);
    assert!(!x.allclose(&tensor![1.0, 2.0], 1e-5, 1e-8)?);
    assert!(!tensor![f64::NAN].allclose(&tensor![f64::NAN], 1.0, 1.0)?);
    assert!(tensor![5, 6].allclose(&tensor![5, 6], 0.0, 0.0)?);
    assert!(x.allclose(&tensor![1, 2], 1.0, 1.0).is_err());
    Ok(())
}

#[test]
fn scans() -> Outcome {
    let x = tensor![2.0, -1.0, 3.0, 3.0, f64::NAN, 9.0];
    let (values, indices) = x.cummax(0)?;
    assert_close(&values.narrow(0, 0, 4)?, &[2.0, 2.0, 3.0, 3.0]);
    assert_eq!(indices.to_vec::<i64>()?, [0, 0, 2, 3, 4, 4]);
    let (values, indices) = tensor![3, 1, 1, 2].cummin(0)?;
    assert_eq!(values.to_vec::<i64>()?, [3, 1, 1, 1]);
    assert_eq!(indices.to_vec::<i64>()?, [0, 1, 2, 2]);
    assert_eq!(tensor![1, 2, 3].cumprod(0)?.to_vec::<i64>()?, [1, 2, 6]);
    assert_close(
        &tensor![0.0, 0.0, 100.0].logcumsumexp(0)?,
        &[0.0, std::f32::consts::LN_2, 100.0],
    );
    // Results of PyTorch 2.15 for complex numbers that are far apart.
    let (re, im) = (tensor![-1e4, 0.0, 5.0, -3.0], tensor![1.0, 0.0, 3.0, 1.0]);
    let x = Tensor::complex(&re, &im)?.requires_grad_(true)?;
    let y = x.logcumsumexp(0)?;
    assert_close(&y.real()?, &[-1e4, 0.0, 4.993_307_6, 4.993_167_4]);
    assert_close(&y.imag()?, &[1.0, 0.0, 2.999_042_8, 2.998_735_5]);
    y.abs()?.sum_all()?.backward()?;
    let slope = x.grad().expect("a gradient");
    let re = [-1.0, -0.012_506_096, 1.727_323_8, -2.783_816e-4];
    let im = [1e-4, -0.005_260_238, 1.034_804_3, 1.912_778_8e-4];
    assert_close(&slope.real()?, &re);
    assert_close(&slope.imag()?, &im);
    let y = tensor![[1.0, 4.0, 9.0], [0.0, 1.0, 3.0]];
    assert_close(&y.diff(1, -1, None, None)?, &[3.0, 5.0, 1.0, 2.0]);
    assert_close(&y.trapezoid(2.0, -1)?, &[18.0, 5.0]);
    assert_close(&y.trapezoid_at(&tensor![0.0, 1.0, 3.0], 1)?, &[15.5, 4.5]);
    assert_close(&y.cumulative_trapezoid(1.0, 1)?, &[2.5, 9.0, 0.5, 2.5]);
    // A number is a line of one.
    assert_close(&Tensor::scalar(5.0, DType::F32)?.cumsum(0)?, &[5.0]);
    Ok(())
}

#[test]
fn medians_modes_and_quantiles() -> Outcome {
    let x = tensor![[3.0, 1.0, 2.0, 4.0], [f64::NAN, 5.0, 7.0, 6.0]];
    let (values, indices) = x.median_dim(1, false)?;
    let values = values.to_vec::<f32>()?;
    assert!(values[0] == 2.0 && values[1].is_nan(), "{values:?}");
    assert_eq!(indices.to_vec::<i64>()?, [2, 0]);
    assert_close(&x.nanmedian_dim(1, false)?.0, &[2.0, 6.0]);
    assert_eq!(tensor![4, 1, 3].median()?.to_scalar::<i64>()?, 3);
    let (values, indices) = tensor![[5, 2, 2, 5], [1, 3, 3, 3]].mode(1, false)?;
    assert_eq!(values.to_vec::<i64>()?, [2, 3]);
    assert_eq!(indices.to_vec::<i64>()?, [2, 3]);
    let (value, index) = tensor![9, 4, 7].kthvalue(2, 0, false)?;
    assert_eq!(
        (value.to_scalar::<i64>()?, index.to_scalar::<i64>()?),
        (7, 2)
    );
    let line = tensor![0.0, 1.0, 2.0, 10.0];
    let q = tensor![0.25, 0.9];
    for (how, expected) in [
        (Interpolation::Linear, [0.75, 7.6]),
        (Interpolation::Lower, [0.0, 2.0]),
        (Interpolation::Higher, [1.0, 10.0]),
        (Interpolation::Midpoint, [0.5, 6.0]),
        (Interpolation::Nearest, [1.0, 10.0]),
    ] {
        assert_close(&line.quantile(&q, None, false, how)?, &expected);
    }
    // The nearest number to 1/3 in single precision is above it.
    let third = Tensor::scalar(1.0 / 3.0, DType::F32)?;
    let squares = tensor![0.0, 1.0, 4.0, 9.0];
    let with_nan = tensor![0.0, f64::NAN, 1.0, 4.0, 9.0];
    for (how, expected) in [
        (Interpolation::Lower, 1.0),
        (Interpolation::Higher, 4.0),
        (Interpolation::Midpoint, 2.5),
    ] {
        assert_close(&squares.quantile(&third, None, false, how)?, &[expected]);
        assert_close(
            &with_nan.nanquantile(&third, None, false, how)?,
            &[expected],
        );
    }
    let linear = Interpolation::Linear;
    assert_eq!(x.quantile(&q, 1, true, linear)?.shape(), [2, 2, 1]);
    let half = Tensor::scalar(0.5, DType::F32)?;
    assert_close(&x.nanquantile(&half, 1, false, linear)?, &[2.5, 6.0]);
    Ok(())
}

#[test]
fn what_reductions_of_other_kinds_give() -> Outcome {
    let x = tensor![[1.0, f64::NAN, 0.0], [4.0, 5.0, 0.0]];
    assert_close(&x.nansum(1, false)?, &[1.0, 9.0]);
    assert_close(&x.nanmean(1, false)?, &[0.5, 3.0]);
    assert_eq!(x.count_nonzero(0)?.to_vec::<i64>()?, [2, 2, 0]);
    let (least, most) = tensor![3, -1, 2].aminmax(None, false)?;
    assert_eq!(
        (least.to_scalar::<i64>()?, most.to_scalar::<i64>()?),
        (-1, 3)
    );
    assert_eq!(tensor![2u8, 0].any(None, false)?.dtype(), DType::U8);
    let none = Tensor::zeros([0], DType::F32)?;
    assert_eq!(
        none.logsumexp(0, false)?.to_scalar::<f32>()?,
        f32::NEG_INFINITY
    );
    assert!(none.median()?.to_scalar::<f32>()?.is_nan());
    let (var, mean) = tensor![1.0, 2.0, 6.0].var_mean(None, 0.5, false)?;
    assert_close(&var, &[5.6]);
    assert_close(&mean, &[3.0]);
    for (p, expected) in [
        (0.0, 2.0),
        (1.0, 7.0),
        (2.0, 5.0),
        (3.0, 4.497_941_4),
        (-1.0, 0.0),
        (f64::INFINITY, 4.0),
        (f64::NEG_INFINITY, 0.0),
    ] {
        assert_close(&tensor![-3.0, 0.0, 4.0].norm(p, None, false)?, &[expected]);
    }
    let number = Tensor::scalar(-2.0, DType::F32)?;
    assert_close(&number.sum(-1, true)?, &[-2.0]);
    assert_eq!(number.argmax(0, true)?.shape(), [0usize; 0]);
    Ok(())
}

#[test]
fn elements_that_meet_at_a_place() -> Outcome {
    let x = tensor![1.0, 10.0, 100.0];
    let (index, source) = (tensor![0, 0, 1, 1], tensor![2.0, 4.0, 5.0, 7.0]);
    for (how, with, without) in [
        (ScatterReduce::Sum, [7.0, 22.0, 100.0], [6.0, 12.0, 100.0]),
        (ScatterReduce::Prod, [8.0, 350.0, 100.0], [8.0, 35.0, 100.0]),
        (
            ScatterReduce::Mean,
            [7.0 / 3.0, 22.0 / 3.0, 100.0],
            [3.0, 6.0, 100.0],
        ),
        (ScatterReduce::Amax, [4.0, 10.0, 100.0], [4.0, 7.0, 100.0]),
        (ScatterReduce::Amin, [1.0, 5.0, 100.0], [2.0, 5.0, 100.0]),
    ] {
        assert_close(&x.scatter_reduce(0, &index, &source, how, true)?, &with);
        assert_close(&x.scatter_reduce(0, &index, &source, how, false)?, &without);
        assert_close(&x.index_reduce(0, &index, &source, how, false)?, &without);
    }
    let few = tensor![1.0];
    assert!(error(x.scatter_reduce(0, &index, &few, ScatterReduce::Sum, true)).contains("smaller"));
    Ok(())
}

#[test]
fn a_number_has_one_dimension_to_reduce() -> Outcome {
    let x = tensor!(3.0);
    for dim in [0, -1] {
        for y in [x.sum(dim, false)?, x.mean(dim, true)?, x.max(dim, true)?] {
            assert_eq!((y.shape(), y.to_scalar::<f32>()?), (&[][..], 3.0));
        }
        let (values, indices) = x.topk(1, dim, true)?;
        assert_eq!((values.shape(), values.to_scalar::<f32>()?), (&[][..], 3.0));
        assert_eq!((indices.shape(), indices.to_scalar::<i64>()?), (&[][..], 0));
        assert_eq!(x.sort(dim, true)?.1.to_scalar::<i64>()?, 0);
        assert_eq!(x.max_dim(dim, true)?.0.shape(), [0usize; 0]);
        assert_eq!(x.argmin(dim, true)?.to_scalar::<i64>()?, 0);
        assert_eq!(x.softmax(dim)?.to_scalar::<f32>()?, 1.0);
        assert_eq!(x.log_softmax(dim)?.to_scalar::<f32>()?, 0.0);
    }
    assert!(x.sum(1, false).is_err() && x.softmax(1).is_err() && x.topk(1, -2, true).is_err());
    assert!(x.sum([0, -1], false).is_err() && x.topk(2, 0, true).is_err());
    Ok(())
}

#[test]
fn reductions_of_all_dtypes() -> Outcome {
    let half = Tensor::full([4], 300.0, DType::F16)?;
    assert_eq!(
        half.norm(2.0, None, false)?
            .to_dtype(DType::F32)?
            .to_scalar::<f32>()?,
        600.0
    );
    assert_eq!(
        half.var(None, 0, false)?
            .to_dtype(DType::F32)?
            .to_scalar::<f32>()?,
        0.0
    );
    let z = tensor![Complex::new(1.0f64, 2.0), Complex::new(3.0, -2.0)];
    assert_eq!(
        z.var(None, 0, false)?
            .to_dtype(DType::F64)?
            .to_scalar::<f64>()?,
        5.0
    );
    assert_eq!(
        tensor![true, false].max_dim(0, false)?.0.dtype(),
        DType::Bool
    );
    assert_eq!(
        tensor![true, false].sort(0, false)?.1.to_vec::<i64>()?,
        [1, 0]
    );
    let bytes = Tensor::from_slice(&[0u8, 7], [2])?;
    assert_eq!(bytes.any(None, false)?.to_scalar::<u8>()?, 1);
    assert_eq!(bytes.all(None, false)?.to_scalar::<u8>()?, 0);
    assert_close(&tensor![0, 0].logsumexp(0, false)?, &[2f32.ln()]);
    let none = Tensor::zeros([0, 2], DType::F32)?;
    assert_eq!(
        none.logsumexp(0, false)?.to_vec::<f32>()?,
        [f32::NEG_INFINITY; 2]
    );
    assert_eq!(none.softmax(0)?.shape(), [0, 2]);
    Ok(())
}

#[test]
fn hashes_are_the_exclusive_or_of_bits() -> Outcome {
    let (two, three) = (2f64.to_bits(), 3f64.to_bits());
    let x = tensor![[1.0, 2.0], [1.0, 3.0], [1.0, 3.0]];
    let hash = |x: &Tensor| x.hash_tensor(None, false)?.to_scalar::<u64>();
    assert_eq!(hash(&x)?, 1f64.to_bits() ^ two);
    assert_eq!(
        x.hash_tensor(0, false)?.to_vec::<u64>()?,
        [1f64.to_bits(), two]
    );
    let rows = x.t()?.hash_tensor(-2, true)?;
    assert_eq!(rows.shape(), [1, 3]);
    assert_eq!(rows.to_vec::<u64>()?[1], 1f64.to_bits() ^ three);
    assert_eq!(hash(&tensor![-1i32, 0, 0])?, u64::MAX);
    assert_eq!(hash(&tensor![true, true, true])?, 1);
    let nothing = Tensor::zeros([0, 2], DType::F32)?;
    assert!(error(nothing.hash_tensor(None, false)).contains("dimensions with elements"));
    assert_eq!(nothing.hash_tensor(1, false)?.shape(), [0]);
    assert!(
        Tensor::zeros([1], DType::Complex64)?
            .hash_tensor(None, false)
            .is_err()
    );
    Ok(())
}

/// Nearly, relative to `expected`, or the same infinity, or both NaN.
#[track_caller]
fn assert_relative(got: f64, expected: f64, what: &str) {
    let is_same = got == expected || (got.is_nan() && expected.is_nan());
    let is_near = (got - expected).abs() <= 1e-5 * expected.abs();
    assert!(is_same || is_near, "{what}: {got}, not {expected}");
}

#[test]
fn spreads_near_the_ends_of_single_precision() -> Outcome {
    const INF: f64 = f64::INFINITY;
    // Elements, variance and deviation by PyTorch 2.15, which computes them in double precision.
    let rows: [(&[f64], f64, f64); 9] = [
        (
            &[8.5e19, 9.25e19, 1e20, 1.075e20, 1.15e20],
            1.40625e38,
            1.1858541e19,
        ),
        (&[1e30, -1e30, 3e30], INF, 2e30),
        (&[1e-30, -1e-30, 3e-30], 0.0, 2e-30),
        (&[3e38, 3e38, 3e38, 3e38], 0.0, 0.0),
        (&[3e38, -3e38, 3e38, -3e38], INF, INF),
        (&[1.5e38, -1.5e38, 1.5e38, -1.5e38], INF, 1.7320508e38),
        (&[0.0, 0.0, 0.0, 1e30], INF, 5e29),
        (&[1e30, 0.0, 1e-30, 0.0], INF, 5e29),
        (&[16777216.0, 16777217.0 + 1.0, 16777220.0], 4.0, 2.0),
    ];
    crate::extremes::on_each_device(|| {
        for (x, var, std) in &rows {
            let f: Vec<f32> = x.iter().map(|&x| x as f32).collect();
            let n = f.len();
            let mean = f.iter().map(|&x| f64::from(x)).sum::<f64>() / n as f64;
            let long = f.repeat(3000);
            for (times, x) in [
                (1, Tensor::from_slice(&f, [n, 1])?),
                (3000, Tensor::from_slice(&long, [3000 * n, 1])?),
            ] {
                // Squares of all copies, shared among all but one of their elements.
                let share = (times * (n - 1)) as f64 / (times * n - 1) as f64;
                for dims in [&[0][..], &[0, 1]] {
                    let what = format!("{f:?} times {times} over {dims:?}");
                    let (got, m) = x.var_mean(dims, 1.0, false)?;
                    assert_relative(got.item()?, var * share, &what);
                    if mean != 0.0 {
                        assert_relative(m.item()?, mean, &what);
                    }
                    assert_relative(x.var(dims, 1.0, false)?.item()?, var * share, &what);
                    assert_relative(x.std(dims, 1.0, false)?.item()?, std * share.sqrt(), &what);
                    let (got, _) = x.std_mean(dims, 1.0, false)?;
                    assert_relative(got.item()?, std * share.sqrt(), &what);
                }
            }
        }
        // Also of several lines, by rows and by columns, and of doubles.
        let lines = tensor![[1e30, 1.0, 1e-30], [-1e30, 2.0, -1e-30], [3e30, 3.0, 3e-30]];
        for (dim, lines) in [(0, lines.clone()), (1, lines.t()?)] {
            let std = lines.std(dim, 1.0, false)?.to_vec::<f32>()?;
            for (got, expected) in std.iter().zip([2e30, 1.0, 2e-30]) {
                assert_relative((*got).into(), expected, "std of lines");
            }
        }
        Ok(())
    })
}

#[test]
fn spreads_of_nothing_one_and_infinities() -> Outcome {
    crate::extremes::on_each_device(|| {
        let none = Tensor::zeros([0], DType::F32)?;
        for (x, correction, expected) in [
            (&none, 1.0, f64::NAN),
            (&none, 0.0, f64::NAN),
            (&tensor![5.0,], 1.0, f64::NAN),
            (&tensor![5.0,], 0.0, 0.0),
            (&tensor![1.0, f64::INFINITY], 1.0, f64::NAN),
            (&tensor![1.0, f64::NAN], 1.0, f64::NAN),
            (&tensor![1.0, 3.0], 2.0, f64::INFINITY),
            (&tensor![1.0, 1.0], 2.0, f64::NAN),
        ] {
            let var = x.var(None, correction, false)?.item()?;
            let std = x.std(None, correction, false)?.item()?;
            assert_relative(var, expected, &format!("var of {x} less {correction}"));
            assert_relative(std, expected, &format!("std of {x} less {correction}"));
        }
        Ok(())
    })
}

#[test]
fn slopes_of_deviations() -> Outcome {
    // Like PyTorch: 0 where all elements are equal.
    for (x, expected) in [
        (vec![2.0f32, 2.0, 2.0], [0.0, 0.0, 0.0]),
        (vec![1.0, 2.0, 3.0], [-0.5, 0.0, 0.5]),
        (vec![1e30, 2e30, 3e30], [-0.5, 0.0, 0.5]),
        (vec![1e-30, 2e-30, 3e-30], [-0.5, 0.0, 0.5]),
    ] {
        let x = Tensor::from_slice(&x, [3])?.requires_grad_(true)?;
        x.std(None, 1.0, false)?.backward()?;
        crate::assert_close(&x.grad().expect("a gradient"), &expected);
        let (_, mean) = x
            .detach()
            .requires_grad_(true)?
            .std_mean(None, 1.0, false)?;
        mean.backward()?;
    }
    // The second derivative of the deviation of 1, 2, 4.
    let x = tensor![1f64, 2.0, 4.0]
        .to_dtype(DType::F64)?
        .requires_grad_(true)?;
    let (std, _) = x.std_mean(None, 1.0, false)?;
    let slope = std.pow(2)?.mul(0.5)?;
    slope.backward()?;
    let half = x.grad().expect("a gradient").to_vec::<f64>()?;
    for (got, expected) in half.iter().zip([-2.0 / 3.0, -1.0 / 6.0, 5.0 / 6.0]) {
        assert!((got - expected).abs() < 1e-12, "{half:?}");
    }
    Ok(())
}

#[test]
fn deviations_of_complex_numbers() -> Outcome {
    let x = Tensor::complex(&tensor![1e30, -1e30, 3e30], &tensor![0.0, 0.0, 0.0])?;
    assert_relative(x.std(None, 1.0, false)?.item()?, 2e30, "std");
    let x = Tensor::complex(&tensor![1.0, 2.0, 3.0], &tensor![0.0, 4.0, 8.0])?;
    let (var, mean) = x.var_mean(None, 1.0, false)?;
    assert_relative(var.item()?, 17.0, "var");
    crate::assert_close(&mean.real()?, &[2.0]);
    crate::assert_close(&mean.imag()?, &[4.0]);
    assert_relative(x.std(None, 1.0, false)?.item()?, 17f64.sqrt(), "std");
    let equal = Tensor::ones([3], DType::Complex64)?.requires_grad_(true)?;
    equal.std(None, 1.0, false)?.backward()?;
    crate::assert_close(&equal.grad().expect("a gradient").real()?, &[0.0; 3]);
    Ok(())
}

/// Values that PyTorch 2.15 gives; of equal elements the index of the earlier one.
#[test]
fn kth_values_and_medians() -> Outcome {
    let nan = f32::NAN;
    let x = tensor![
        [3.0, nan, 2.0, 2.0, nan, 7.0],
        [5.0, 1.0, 1.0, 9.0, 2.0, 0.0],
        [nan, nan, nan, nan, nan, nan]
    ];
    let check = |(values, indices): (Tensor, Tensor), expected: &[f32], at: &[i64]| -> Outcome {
        let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&values.to_vec::<f32>()?), bits(expected));
        assert_eq!(indices.to_vec::<i64>()?, at);
        Ok(())
    };
    check(x.median_dim(1, false)?, &[nan, 1.0, nan], &[1, 2, 0])?;
    check(x.nanmedian_dim(1, false)?, &[2.0, 1.0, nan], &[3, 2, 0])?;
    check(x.kthvalue(4, 1, false)?, &[7.0, 2.0, nan], &[5, 4, 3])?;
    check(x.median_dim(0, true)?, &[nan; 6], &[2, 0, 2, 2, 0, 2])?;
    let medians = [3.0, 1.0, 1.0, 2.0, 2.0, 0.0];
    check(x.nanmedian_dim(0, true)?, &medians, &[0, 1, 1, 0, 1, 1])?;
    assert_eq!(x.nanmedian_dim(0, true)?.0.shape(), [1, 6]);
    let y = tensor![[3i8, 1, 2, 2], [5, -7, 1, 9]];
    assert_eq!(y.median_dim(1, false)?.0.to_vec::<i8>()?, [2, 1]);
    assert_eq!(y.kthvalue(2, 0, false)?.0.to_vec::<i8>()?, [5, 1, 2, 9]);
    for k in [0, 7] {
        let error = x.kthvalue(k, 1, false).unwrap_err().to_string();
        assert!(error.contains("kthvalue"), "{error}");
    }
    Ok(())
}

#[test]
fn gradients_of_kth_values_go_to_their_elements() -> Outcome {
    let x = tensor![[3.0, 1.0, 2.0, 4.0], [9.0, 5.0, 7.0, 6.0]].requires_grad_(true)?;
    let slope = |(values, _): (Tensor, Tensor)| {
        let loss = values.mul(tensor![1.0, 2.0])?.sum(None, false)?;
        Ok::<_, RusTorchError>(grad(&[&loss], &[&x])?.remove(0))
    };
    let median = slope(x.median_dim(1, false)?)?;
    assert_close(&median, &[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0]);
    let last = slope(x.kthvalue(4, 1, false)?)?;
    assert_close(&last, &[0.0, 0.0, 0.0, 1.0, 2.0, 0.0, 0.0, 0.0]);
    Ok(())
}

/// Lines that threads share, with equal elements, and the values that PyTorch 2.15 gives.
#[test]
fn kth_values_of_long_lines() -> Outcome {
    let count = 200_000;
    let places = Tensor::arange_with(0, count, 1, DType::I64)?;
    let spread = places.mul(7919)?.remainder(100_003)?;
    let x = spread.to_dtype(DType::F32)?.div(8)?.sub(5000)?;
    assert_eq!(x.median()?.item()?, 1249.875);
    for (k, expected) in [(1, -5000.0), (1234, -4923.0), (count as usize, 7500.25)] {
        let (value, index) = x.kthvalue(k, 0, false)?;
        assert_eq!(value.item()?, expected);
        assert_eq!(x.index_select(0, &index.unsqueeze(0)?)?.item()?, expected);
    }
    let double = x.to_dtype(DType::F64)?;
    assert_eq!(double.kthvalue(777, 0, false)?.0.item()?, -4951.5);
    // Equal elements keep their order.
    let same = Tensor::zeros([count as usize], DType::F32)?;
    assert_eq!(same.kthvalue(150_001, 0, false)?.1.item()?, 150_000.0);
    Ok(())
}
