//! Elements read by the host.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::{Tensor, tensor};

use crate::{Outcome, error};

#[test]
fn a_number_read_whatever_its_dtype() -> Outcome {
    for dtype in [
        DType::F64,
        DType::F32,
        DType::F16,
        DType::BF16,
        DType::F8E4M3,
    ] {
        assert_eq!(Tensor::full([1, 1], -1.5, dtype)?.item()?, -1.5, "{dtype}");
    }
    for dtype in [DType::I64, DType::I32, DType::I16, DType::I8] {
        assert_eq!(Tensor::scalar(-7, dtype)?.item()?, -7.0, "{dtype}");
    }
    for dtype in [DType::U64, DType::U32, DType::U16, DType::U8, DType::Bool] {
        assert_eq!(Tensor::scalar(1, dtype)?.item()?, 1.0, "{dtype}");
    }
    let odd = tensor!((1i64 << 53) + 1);
    assert_eq!(
        error(odd.item()),
        "item: expected a number that f64 holds exactly (to_scalar::<i64>, or u64, reads all), \
         got 9007199254740993"
    );
    assert_eq!(odd.to_scalar::<i64>()?, (1 << 53) + 1);
    assert_eq!(tensor!(i64::MIN).item()?, -(2f64.powi(63)));
    assert!(tensor!(i64::MAX).item().is_err());
    let refused = error(tensor!(Complex::new(1.0f32, 2.0)).item());
    assert!(refused.contains("to_scalar::<Complex<f32>>"), "{refused}");
    assert_eq!(
        error(tensor![1.0, 2.0].item()),
        "item: expected one element (to_vec reads several), got f32[2]"
    );
    assert_eq!(
        error(tensor!(1.0).to_scalar::<i64>()),
        "to_scalar: expected a tensor of i64 (to_dtype(DType::I64) makes it one), got f32[]"
    );
    Ok(())
}

#[test]
fn a_number_fetched_is_the_number_read() -> Outcome {
    let x = tensor![1.0, 2.5];
    let sum = x.sum(0, false)?;
    let fetched = sum.fetch_item()?;
    let later = sum.add(1.0)?;
    assert_eq!(fetched.item()?, 3.5);
    assert_eq!(later.item()?, 4.5);
    // One element of memory that has more.
    assert_eq!(x.select(0, 1)?.fetch_item()?.item()?, 2.5);
    assert!(error(x.fetch_item().map(|_| ())).contains("one element"));
    Ok(())
}
