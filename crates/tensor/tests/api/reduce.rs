//! Elements combined along dimensions.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::{Tensor, tensor};

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
    assert_eq!(flags.sum(None, false)?.item::<i64>()?, 2);
    assert_eq!(tensor![250u8, 250].sum(0, false)?.item::<i64>()?, 500);
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
            .item::<f32>()?
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
        tensor![1.0].var(None, 1, false)?.item::<f32>()?.is_nan(),
        "one is no sample"
    );
    assert!(
        Tensor::zeros([0], DType::F32)?
            .mean(None, false)?
            .item::<f32>()?
            .is_nan()
    );
    let z = Tensor::complex(&tensor![1.0, 3.0], &tensor![2.0, 4.0])?;
    assert_eq!(
        z.mean(0, false)?.item::<Complex<f32>>()?,
        Complex::new(2.0, 3.0)
    );
    Ok(())
}

#[test]
fn any_and_all() -> Outcome {
    let x = tensor![[0, 2], [0, 0], [1, 3]];
    assert_eq!(x.any(1, false)?.to_vec::<bool>()?, [true, false, true]);
    assert_eq!(x.all(1, false)?.to_vec::<bool>()?, [false, false, true]);
    assert!(x.any(None, false)?.item::<bool>()?);
    let empty = Tensor::zeros([0], DType::F32)?;
    assert!(!empty.any(None, false)?.item::<bool>()?);
    assert!(empty.all(None, false)?.item::<bool>()?);
    Ok(())
}

#[test]
fn positions() -> Outcome {
    let x = tensor![[1.0, 7.0, 7.0], [9.0, -2.0, 0.0]];
    assert_eq!(x.argmax(1, false)?.to_vec::<i64>()?, [1, 0]);
    assert_eq!(x.argmin(-1, true)?.shape(), [2, 1]);
    assert_eq!(x.argmax(None, false)?.item::<i64>()?, 3);
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
        assert!(values.item::<f32>()?.is_nan());
        assert_eq!(indices.item::<i64>()?, 1);
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
        nothing.logsumexp(0, false)?.item::<f32>()?,
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
    assert!(!x.equal(&x.to_dtype(DType::F64)?)?);
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
