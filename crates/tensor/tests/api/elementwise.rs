//! Functions of each element: values, broadcasting, promotion.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor, tensor};

use crate::{Outcome, assert_close, error};

#[test]
fn promotion_follows_torch() -> Outcome {
    use DType::*;
    let of = |dtype: DType, rank: usize| Tensor::ones(&vec![2; rank][..], dtype);
    // (dtype, rank) of each operand, dtype of their sum by torch.result_type.
    for (a, b, expected) in [
        ((I64, 1), (F32, 1), F32),
        ((F16, 1), (BF16, 1), F32),
        ((U8, 1), (I8, 1), I16),
        ((F32, 1), (F64, 1), F64),
        ((F32, 1), (F64, 0), F32),
        ((I32, 1), (I64, 0), I32),
        ((I32, 1), (F64, 0), F64),
        ((I32, 1), (F16, 0), F16),
        ((Bool, 1), (I32, 0), I32),
        ((F64, 1), (Complex64, 0), Complex128),
        ((BF16, 1), (Complex128, 0), Complex64),
        ((F32, 0), (F64, 0), F64),
        ((Complex64, 1), (F64, 1), Complex128),
    ] {
        let (x, y) = (of(a.0, a.1)?, of(b.0, b.1)?);
        assert_eq!(x.add(&y)?.dtype(), expected, "{a:?} {b:?}");
        assert_eq!(y.add(&x)?.dtype(), expected, "{b:?} {a:?}");
    }
    for (dtype, with_int, with_float) in [
        (Bool, I64, F32),
        (U8, U8, F32),
        (I32, I32, F32),
        (F16, F16, F16),
        (F64, F64, F64),
        (Complex64, Complex64, Complex64),
    ] {
        assert_eq!(of(dtype, 1)?.add(2)?.dtype(), with_int, "{dtype}");
        assert_eq!(of(dtype, 0)?.mul(0.5)?.dtype(), with_float, "{dtype}");
    }
    assert_eq!(
        of(F16, 1)?
            .mul(rustorch_ir::Scalar::Complex(0.0.into(), 1.0.into()))?
            .dtype(),
        Complex64
    );
    assert_eq!(tensor![7, 8].div(&tensor![2, 3])?.dtype(), F32);
    assert_eq!(of(Bool, 1)?.div(&of(Bool, 1)?)?.dtype(), F32);
    assert_eq!(tensor![1, 2].exp()?.dtype(), F32);
    Ok(())
}

#[test]
fn arithmetic() -> Outcome {
    let (a, b) = (tensor![[7.0], [-7.0]], tensor![2.0, -2.0]);
    assert_close(&a.add(&b)?, &[9.0, 5.0, -5.0, -9.0]);
    assert_close(&a.sub(&b)?, &[5.0, 9.0, -9.0, -5.0]);
    assert_close(&a.mul(&b)?, &[14.0, -14.0, -14.0, 14.0]);
    assert_close(&a.div(&b)?, &[3.5, -3.5, -3.5, 3.5]);
    assert_close(&a.floor_divide(&b)?, &[3.0, -4.0, -4.0, 3.0]);
    assert_close(&a.remainder(&b)?, &[1.0, -1.0, 1.0, -1.0]);
    assert_close(&a.pow(2)?, &[49.0, 49.0]);
    assert_close(&a.maximum(&b)?, &[7.0, 7.0, 2.0, -2.0]);
    assert_close(&a.minimum(0)?, &[0.0, -7.0]);
    let (m, n) = (tensor![7, -7], tensor![2, -2]);
    assert_eq!(m.floor_divide(2)?.to_vec::<i64>()?, [3, -4]);
    assert_eq!(m.remainder(&n)?.to_vec::<i64>()?, [1, -1]);
    assert_eq!(m.pow(3)?.to_vec::<i64>()?, [343, -343]);
    let negative = tensor![-1, -1];
    assert_eq!(n.pow(&negative)?.to_vec::<i64>()?, [0, 0]);
    assert!(error(n.pow(-1)).contains("not negative"));
    assert_eq!(m.div(2)?.to_vec::<f32>()?, [3.5, -3.5]);
    assert_eq!(
        tensor![200u8, 100].add(100)?.to_vec::<u8>()?,
        [44, 200],
        "integers wrap"
    );
    let flags = tensor![true, false];
    assert_eq!(flags.add(&flags)?.to_vec::<bool>()?, [true, false]);
    assert_eq!(
        flags.mul(&tensor![true, true])?.to_vec::<bool>()?,
        [true, false]
    );
    assert!(error(flags.sub(&flags)).starts_with("sub: expected a dtype that Sub is defined for"));
    assert_eq!(
        error(tensor![1.0, 2.0].add(&tensor![1.0, 2.0, 3.0])),
        "add: expected shapes that broadcast, got [2] and [3]"
    );
    Ok(())
}

#[test]
fn operators() -> Outcome {
    let (x, y) = (tensor![1.0, 2.0], tensor![4.0, 8.0]);
    assert_close(&(&x + &y)?, &[5.0, 10.0]);
    assert_close(&(&x - y.clone())?, &[-3.0, -6.0]);
    assert_close(&(x.clone() * &y)?, &[4.0, 16.0]);
    assert_close(&(y.clone() / x.clone())?, &[4.0, 4.0]);
    assert_close(&(&x * 3)?, &[3.0, 6.0]);
    assert_close(&(1.0 - &x)?, &[0.0, -1.0]);
    assert_close(&(8 / y.clone())?, &[2.0, 1.0]);
    assert_close(&(-&x)?, &[-1.0, -2.0]);
    assert_close(&(2.0 * (-(x + 1.0)?)?)?, &[-4.0, -6.0]);
    let whole = (7 - tensor![1, 2])?;
    assert_eq!(whole.to_vec::<i64>()?, [6, 5]);
    assert_eq!((0.5 + tensor![1, 2])?.to_vec::<f32>()?, [1.5, 2.5]);
    assert!((&whole + &tensor![1, 2, 3]).is_err());
    Ok(())
}

#[test]
fn functions() -> Outcome {
    let x = tensor![-1.5, 0.0, 0.5, 2.5];
    assert_close(&x.neg()?, &[1.5, 0.0, -0.5, -2.5]);
    assert_close(&x.abs()?, &[1.5, 0.0, 0.5, 2.5]);
    assert_close(&x.sign()?, &[-1.0, 0.0, 1.0, 1.0]);
    assert_close(&x.square()?, &[2.25, 0.0, 0.25, 6.25]);
    assert_close(&x.floor()?, &[-2.0, 0.0, 0.0, 2.0]);
    assert_close(&x.ceil()?, &[-1.0, 0.0, 1.0, 3.0]);
    assert_close(&x.round()?, &[-2.0, 0.0, 0.0, 2.0]);
    assert_close(&x.trunc()?, &[-1.0, 0.0, 0.0, 2.0]);
    assert_close(&x.exp()?, &[0.223_130_16, 1.0, 1.648_721_3, 12.182_494]);
    assert_close(&x.sin()?, &[-0.997_495, 0.0, 0.479_425_55, 0.598_472_1]);
    assert_close(&x.cos()?, &[0.070_737_2, 1.0, 0.877_582_55, -0.801_143_6]);
    assert_close(&x.tan()?, &[-14.101_42, 0.0, 0.546_302_5, -0.747_022_3]);
    assert_close(&x.tanh()?, &[-0.905_148_27, 0.0, 0.462_117_16, 0.986_614_3]);
    assert_close(&x.erf()?, &[-0.966_105_16, 0.0, 0.520_499_9, 0.999_593]);
    assert_close(&x.relu()?, &[0.0, 0.0, 0.5, 2.5]);
    assert_close(
        &x.sigmoid()?,
        &[0.182_425_52, 0.5, 0.622_459_35, 0.924_141_8],
    );
    assert_close(&x.silu()?, &[-0.273_638_27, 0.0, 0.311_229_67, 2.310_354_5]);
    assert_close(&x.gelu()?, &[-0.100_210_8, 0.0, 0.345_731_23, 2.484_475_9]);
    assert_close(
        &x.gelu_tanh()?,
        &[-0.100_428_42, 0.0, 0.345_714, 2.484_915_6],
    );
    let y = tensor![4.0, 0.25];
    assert_close(&y.sqrt()?, &[2.0, 0.5]);
    assert_close(&y.rsqrt()?, &[0.5, 2.0]);
    assert_close(&y.reciprocal()?, &[0.25, 4.0]);
    assert_close(&y.log()?, &[1.386_294_4, -1.386_294_4]);
    assert_close(&tensor![4, 9].sqrt()?, &[2.0, 3.0]);
    assert_eq!(tensor![-4, 9].relu()?.to_vec::<i64>()?, [0, 9]);
    assert_eq!(tensor![-4, 9].round()?.to_vec::<i64>()?, [-4, 9]);
    assert!(error(tensor![true].neg()).starts_with("neg: "));
    assert!(error(tensor![1, 2].silu()).starts_with("silu: expected a floating-point tensor"));
    assert_close(&x.clamp(-1, 1.0)?, &[-1.0, 0.0, 0.5, 1.0]);
    assert_close(
        &x.clamp(&tensor![0.0, 1.0, 0.0, 0.0], 2)?,
        &[0.0, 1.0, 0.5, 2.0],
    );
    Ok(())
}

#[test]
fn comparisons_and_logic() -> Outcome {
    let flags = |t: RusTorchResult<Tensor>| t?.to_vec::<bool>();
    let x = tensor![1.0, 2.0, f64::NAN];
    assert_eq!(flags(x.eq(2))?, [false, true, false]);
    assert_eq!(flags(x.ne(2))?, [true, false, true]);
    assert_eq!(flags(x.lt(&tensor![2.0, 2.0, 2.0]))?, [true, false, false]);
    assert_eq!(flags(x.le(2.0))?, [true, true, false]);
    assert_eq!(flags(x.gt(1))?, [false, true, false]);
    assert_eq!(flags(x.ge(1))?, [true, true, false]);
    assert_eq!(
        flags(tensor![1, 2].gt(1.5))?,
        [false, true],
        "integers meet floats as floats"
    );
    assert_eq!(flags(x.isnan())?, [false, false, true]);
    assert_eq!(flags(tensor![1, 2].isnan())?, [false, false]);
    assert_eq!(flags(tensor![0, 2].logical_not())?, [true, false]);
    let (a, b) = (tensor![true, true, false], tensor![0, 2, 0]);
    assert_eq!(flags(a.logical_and(&b))?, [false, true, false]);
    assert_eq!(flags(a.logical_or(&b))?, [true, true, false]);
    assert_eq!(flags(a.logical_xor(&b))?, [true, false, false]);
    assert_eq!(tensor![6, 5].bitwise_and(3)?.to_vec::<i64>()?, [2, 1]);
    assert_eq!(
        tensor![6, 5].bitwise_or(&tensor![1, 2])?.to_vec::<i64>()?,
        [7, 7]
    );
    assert_eq!(
        flags(a.bitwise_xor(&tensor![true, false, false]))?,
        [false, true, false]
    );
    assert!(x.bitwise_and(1).is_err());
    Ok(())
}

#[test]
fn chosen_by_condition() -> Outcome {
    let mask = tensor![[true], [false]];
    let chosen = Tensor::where_(&mask, &tensor![1, 2], 0.5)?;
    assert_close(&chosen, &[1.0, 2.0, 0.5, 0.5]);
    assert!(error(Tensor::where_(&tensor![1, 0], 1, 2)).starts_with("where: expected a bool"));
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    assert_close(
        &x.masked_fill(&mask, f64::NEG_INFINITY)?.exp()?,
        &[0.0, 0.0, 20.085_537, 54.598_15],
    );
    assert!(
        tensor![1, 2]
            .masked_fill(&tensor![true, false], 0.5)
            .is_err()
    );
    assert!(
        tensor![1.0, 2.0].masked_fill(&mask, 0).is_err(),
        "the mask is larger"
    );
    Ok(())
}

#[test]
fn complex_numbers() -> Outcome {
    let z = Tensor::complex(&tensor![3.0, 0.0], &tensor![-4.0, 1.0])?;
    assert_eq!(z.dtype(), DType::Complex64);
    assert_close(&z.abs()?, &[5.0, 1.0]);
    assert_close(&z.real()?, &[3.0, 0.0]);
    assert_close(&z.conj()?.imag()?, &[4.0, -1.0]);
    let i = Complex::new(0.0, 1.0);
    let turned = z.mul(i)?.to_vec::<Complex<f32>>()?;
    assert_eq!(turned, [Complex::new(4.0, 3.0), Complex::new(-1.0, 0.0)]);
    assert_close(&z.mul(&z.conj()?)?.real()?, &[25.0, 1.0]);
    assert_close(&tensor![1.0].conj()?, &[1.0]);
    assert!(tensor![1.0].imag().is_err());
    assert!(z.lt(&z).is_err(), "no order");
    assert_eq!(z.ne(0)?.to_vec::<bool>()?, [true, true]);
    assert_eq!(z.to_dtype(DType::F32)?.to_vec::<f32>()?, [3.0, 0.0]);
    Ok(())
}

#[test]
fn conversions() -> Outcome {
    let x = tensor![-1.9, 0.0, 300.7, f64::NAN];
    assert_eq!(x.to_dtype(DType::I32)?.to_vec::<i32>()?, [-1, 0, 300, 0]);
    assert_eq!(x.to_dtype(DType::I8)?.to_vec::<i8>()?, [-1, 0, 127, 0]);
    assert_eq!(
        x.to_dtype(DType::Bool)?.to_vec::<bool>()?,
        [true, false, true, true]
    );
    assert_eq!(
        tensor![257, -1].to_dtype(DType::U8)?.to_vec::<u8>()?,
        [1, 255]
    );
    assert_eq!(
        tensor![true, false].to_dtype(DType::F64)?.to_vec::<f64>()?,
        [1.0, 0.0]
    );
    let q8_0 = DType::Block(rustorch_ir::BlockFormat::Q8_0);
    assert!(error(Tensor::zeros([32], DType::F32)?.to_dtype(q8_0)).starts_with("to_dtype: "));
    Ok(())
}

#[test]
fn functions_and_their_inverses() -> Outcome {
    let x = tensor![-0.75, 0.0, 0.5];
    assert_close(&x.sinh()?.asinh()?, &[-0.75, 0.0, 0.5]);
    assert_close(&x.cosh()?.acosh()?, &[0.75, 0.0, 0.5]);
    assert_close(&x.tanh()?.atanh()?, &[-0.75, 0.0, 0.5]);
    assert_close(&x.asin()?.sin()?, &[-0.75, 0.0, 0.5]);
    assert_close(&x.acos()?.cos()?, &[-0.75, 0.0, 0.5]);
    assert_close(&x.atan()?.tan()?, &[-0.75, 0.0, 0.5]);
    let y = tensor![1.0, 4.0, 1000.0];
    assert_close(&y.log2()?.exp2()?, &[1.0, 4.0, 1000.0]);
    assert_close(&y.log10()?, &[0.0, 4f32.log10(), 3.0]);
    Ok(())
}
