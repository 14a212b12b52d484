//! Functions of each element: values, broadcasting, promotion.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::{RoundingMode, RusTorchResult, Tensor, tensor};

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
    assert_eq!(tensor![7, 8].div(tensor![2, 3])?.dtype(), F32);
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
        flags.mul(tensor![true, true])?.to_vec::<bool>()?,
        [true, false]
    );
    assert!(
        error(flags.sub(&flags)).starts_with("sub: expected numbers (logical_xor is for booleans)")
    );
    assert_eq!(
        error(tensor![1.0, 2.0].add(tensor![1.0, 2.0, 3.0])),
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
        &x.clamp(tensor![0.0, 1.0, 0.0, 0.0], 2)?,
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
    assert_eq!(flags(x.lt(tensor![2.0, 2.0, 2.0]))?, [true, false, false]);
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
        tensor![6, 5].bitwise_or(tensor![1, 2])?.to_vec::<i64>()?,
        [7, 7]
    );
    assert_eq!(
        flags(a.bitwise_xor(tensor![true, false, false]))?,
        [false, true, false]
    );
    assert!(x.bitwise_and(1).is_err());
    Ok(())
}

#[test]
fn chosen_by_condition() -> Outcome {
    let mask = tensor![[true], [false]];
    let chosen = Tensor::where_(&mask, tensor![1, 2], 0.5)?;
    assert_close(&chosen, &[1.0, 2.0, 0.5, 0.5]);
    assert!(error(Tensor::where_(&tensor![1, 0], 1, 2)).contains("where: expected a bool"));
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    assert_close(
        &x.masked_fill(&mask, f64::NEG_INFINITY)?.exp()?,
        &[0.0, 0.0, 20.085_537, 54.598_15],
    );
    let (ints, first) = (tensor![1, 2], tensor![true, false]);
    assert_eq!(ints.masked_fill(&first, 0.5)?.to_vec::<i64>()?, [0, 2]);
    assert!(ints.masked_fill(&first, tensor!(0.5)).is_err());
    // The mask may be larger.
    assert_eq!(tensor![1.0, 2.0].masked_fill(&mask, 0)?.shape(), [2, 2]);
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
fn complex_numbers_divided_by_0_infinity_and_what_squares_beyond_it() -> Outcome {
    let (inf, nan, big) = (f32::INFINITY, f32::NAN, 1e30);
    // By PyTorch: dividend, divisor, quotient.
    let rows: [[[f32; 2]; 3]; 10] = [
        [[1.0, 1.0], [0.0, 0.0], [inf, inf]],
        [[-1.0, 0.0], [-0.0, 0.0], [-inf, nan]],
        [[0.0, 0.0], [0.0, 0.0], [nan, nan]],
        [[inf, 1.0], [0.0, 0.0], [inf, inf]],
        [[1.0, 1.0], [0.0, inf], [0.0, -0.0]],
        [[1.0, 1.0], [inf, inf], [nan, nan]],
        [[1.0, 1.0], [nan, 0.0], [nan, nan]],
        [[1.0, 1.0], [big, big], [1.0 / big, 0.0]],
        [[1.0, 0.0], [1.0 / big, 1.0 / big], [0.5 * big, -0.5 * big]],
        [[inf, 1.0], [big, big], [inf, -inf]],
    ];
    let numbers = |column: usize, dtype| {
        let part_at = |at: usize| {
            let numbers: Vec<f32> = rows.iter().map(|row| row[column][at]).collect();
            Tensor::from_slice(&numbers, [rows.len()])?.to_dtype(dtype)
        };
        Tensor::complex(&part_at(0)?, &part_at(1)?)
    };
    let parts = |z: &Tensor| -> RusTorchResult<Vec<f32>> {
        z.view_as_real()?.to_dtype(DType::F32)?.to_vec()
    };
    for dtype in [DType::F32, DType::F64] {
        let quotient = numbers(0, dtype)?.div(&numbers(1, dtype)?)?;
        let expected = parts(&numbers(2, dtype)?)?;
        for (at, (found, expected)) in parts(&quotient)?.iter().zip(&expected).enumerate() {
            let is_near = (found - expected).abs() <= 1e-6 * expected.abs();
            let is_it = found == expected || is_near || found.is_nan() && expected.is_nan();
            assert!(is_it, "{dtype}, {:?}: {found}", rows[at / 2]);
        }
    }
    let zero = Tensor::from_slice(&[Complex::new(0.0f32, 0.0)], [1])?;
    let found = parts(&zero.reciprocal()?)?;
    assert!(found[0] == inf && found[1].is_nan(), "{found:?}");
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

#[test]
fn activations() -> Outcome {
    let x = tensor![-3.0, -0.5, 0.0, 0.25, 4.0];
    // By PyTorch.
    for (result, expected) in [
        (x.elu(1.5)?, [-1.4253194, -0.590204, 0.0, 0.25, 4.0]),
        (x.celu(1.5)?, [-1.2969971, -0.425203, 0.0, 0.25, 4.0]),
        (
            x.selu()?,
            [-1.6705687, -0.6917582, 0.0, 0.2626753, 4.202804],
        ),
        (x.leaky_relu(0.1)?, [-0.3, -0.05, 0.0, 0.25, 4.0]),
        (x.rrelu(0.1, 0.3, false)?, [-0.6, -0.1, 0.0, 0.25, 4.0]),
        (x.relu6()?, [0.0, 0.0, 0.0, 0.25, 4.0]),
        (
            x.softplus(2.0, 3.0)?,
            [0.0012378, 0.1566308, 0.3465736, 0.4870385, 4.0],
        ),
        (x.softsign()?, [-0.75, -0.3333333, 0.0, 0.2, 0.8]),
        (x.hardtanh(-0.3, 2.0)?, [-0.3, -0.3, 0.0, 0.25, 2.0]),
        (x.hardsigmoid()?, [0.0, 0.4166667, 0.5, 0.5416667, 1.0]),
        (x.hardswish()?, [0.0, -0.2083333, 0.0, 0.1354167, 4.0]),
        (x.hardshrink(0.3)?, [-3.0, -0.5, 0.0, 0.0, 4.0]),
        (x.softshrink(0.3)?, [-2.7, -0.2, 0.0, 0.0, 3.7]),
        (
            x.tanhshrink()?,
            [-2.0049453, -0.0378828, 0.0, 0.0050813, 3.0006707],
        ),
        (x.threshold(0.1, 7.0)?, [7.0, 7.0, 7.0, 0.25, 4.0]),
        (
            x.mish()?,
            [-0.1456475, -0.2207438, 0.0, 0.1695724, 3.997413],
        ),
        (
            x.logsigmoid()?,
            [
                -3.0485873,
                -0.974077,
                -std::f32::consts::LN_2,
                -0.5759394,
                -0.0181499,
            ],
        ),
        (
            x.logit(Some(0.1))?,
            [-2.1972246, -2.1972246, -2.1972246, -1.0986123, 2.1972244],
        ),
    ] {
        assert_close(&result, &expected);
    }
    let weights = tensor![0.5, 0.1];
    assert_close(
        &tensor![[-2.0, -2.0], [1.0, 1.0]].prelu(&weights)?,
        &[-1.0, -0.2, 1.0, 1.0],
    );
    assert_close(&tensor![1.0, 0.0].glu(-1)?, &[0.5]);
    assert!(error(x.glu(0)).contains("even size"));
    assert!(error(x.rrelu(1.0, 0.0, false)).contains("lower up to upper"));
    Ok(())
}

#[test]
fn functions_of_complex_numbers() -> Outcome {
    let (re, im) = (tensor![1.5, -0.3, 0.2], tensor![-0.5, 2.0, 0.1]);
    let z = Tensor::complex(&re, &im)?;
    // By PyTorch: real parts, then imaginary ones.
    for (result, re, im) in [
        (
            z.log()?,
            [0.458145, 0.704273, -1.497866],
            [-0.321751, 1.719686, 0.463648],
        ),
        (
            z.sqrt()?,
            [1.241197, 0.928002, 0.460221],
            [-0.201419, 1.077584, 0.108643],
        ),
        (
            z.sin()?,
            [1.124801, -1.111805, 0.199664],
            [-0.036861, 3.464872, 0.09817],
        ),
        (
            z.cos()?,
            [0.079765, 3.594163, 0.984971],
            [0.51979, 1.071811, -0.0199],
        ),
        (
            z.tan()?,
            [0.255149, -0.02007, 0.200614],
            [-2.124799, 0.970013, 0.103721],
        ),
        (
            z.sinh()?,
            [1.868618, 0.126725, 0.20033],
            [-1.127805, 0.950524, 0.101837],
        ),
        (
            z.cosh()?,
            [2.064434, -0.435014, 1.014971],
            [-1.020831, -0.2769, 0.0201],
        ),
        (
            z.tanh()?,
            [0.944373, -1.197119, 0.199284],
            [-0.079324, -1.423038, 0.096388],
        ),
        (
            z.asin()?,
            [1.171157, -0.133602, 0.200304],
            [-1.069311, 1.451649, 0.101864],
        ),
        (
            z.acos()?,
            [0.399639, 1.704399, 1.370493],
            [1.069311, -1.451649, -0.101864],
        ),
        (
            z.atan()?,
            [1.017222, -1.474902, 0.199261],
            [-0.146947, 0.530249, 0.096416],
        ),
        (
            z.asinh()?,
            [1.226457, -1.333823, 0.199639],
            [-0.273487, 1.400096, 0.098198],
        ),
        (
            z.acosh()?,
            [1.069311, 1.451649, 0.101864],
            [-0.399639, 1.704399, 1.370493],
        ),
        (
            z.atanh()?,
            [0.641237, -0.059214, 0.200587],
            [-1.276795, 1.114271, 0.103748],
        ),
        (
            z.expm1()?,
            [2.933052, -1.308289, 0.215301],
            [-2.148636, 0.673624, 0.121937],
        ),
        (
            z.log1p()?,
            [0.935901, 0.750926, 0.185782],
            [-0.197396, 1.234122, 0.083141],
        ),
        (
            z.sigmoid()?,
            [0.829611, 0.258007, 0.549958],
            [-0.074215, 0.722592, 0.024772],
        ),
        (
            z.rsqrt()?,
            [0.785002, 0.458867, 2.058171],
            [0.127388, -0.532831, -0.485868],
        ),
        (
            z.sgn()?,
            [0.948683, -0.14834, 0.894427],
            [-0.316228, 0.988936, 0.447214],
        ),
    ] {
        assert_close(&result.real()?, &re);
        assert_close(&result.imag()?, &im);
    }
    assert_close(&z.pow(2)?.real()?, &[2.0, -3.91, 0.03]);
    assert_close(&z.angle()?, &[-0.321751, 1.719686, 0.463648]);
    assert!(z.view_as_real()?.view_as_complex()?.equal(&z)?);
    assert!(Tensor::polar(&z.abs()?, &z.angle()?)?.allclose(&z, 1e-5, 1e-6)?);
    Ok(())
}

#[test]
fn bits_and_whole_quotients() -> Outcome {
    let ints = |x: Tensor| x.to_vec::<i64>();
    let (a, b) = (tensor![7, -7, 12, 0], tensor![2, 2, -8, 5]);
    assert_eq!(ints(a.gcd(&b)?)?, [1, 1, 4, 5]);
    assert_eq!(ints(a.lcm(&b)?)?, [14, 14, 24, 0]);
    assert_eq!(ints(a.fmod(&b)?)?, [1, -1, 4, 0]);
    assert_eq!(ints(a.div_mode(&b, RoundingMode::Trunc)?)?, [3, -3, -1, 0]);
    assert_eq!(ints(a.div_mode(&b, RoundingMode::Floor)?)?, [3, -4, -2, 0]);
    assert_eq!(ints(a.bitwise_not()?)?, [-8, 6, -13, -1]);
    assert_eq!(ints(a.bitwise_left_shift(2)?)?, [28, -28, 48, 0]);
    assert_eq!(ints(a.bitwise_right_shift(1)?)?, [3, -4, 6, 0]);
    // Shifts by as many bits as there are, and by a negative number.
    assert_eq!(ints(a.bitwise_left_shift(64)?)?, [0; 4]);
    assert_eq!(ints(a.bitwise_right_shift(-1)?)?, [0, -1, 0, 0]);
    assert_eq!(tensor![1u8, 255].bitwise_not()?.to_vec::<u8>()?, [254, 0]);
    assert!(a.gcd(0.5).is_err());
    Ok(())
}

#[test]
fn kinds_of_numbers() -> Outcome {
    let x = tensor![f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 1.5];
    let flags = |x: Tensor| x.to_vec::<bool>();
    assert_eq!(flags(x.isinf()?)?, [false, true, true, false, false]);
    assert_eq!(flags(x.isfinite()?)?, [false, false, false, true, true]);
    assert_eq!(flags(x.isneginf()?)?, [false, false, true, false, false]);
    assert_eq!(flags(x.signbit()?)?[2..], [true, true, false]);
    let plain = x.nan_to_num(7.0, None, Some(-9.0))?;
    assert_eq!(plain.to_vec::<f32>()?, [7.0, f32::MAX, -9.0, 0.0, 1.5]);
    assert_eq!(
        x.fmax(2.0)?.to_vec::<f32>()?,
        [2.0, f32::INFINITY, 2.0, 2.0, 2.0]
    );
    assert_close(&tensor![1.0].nextafter(2.0)?, &[1.0 + f32::EPSILON]);
    let (mantissa, exponent) = tensor![0.0, 8.0, -0.3, 1e-40].frexp()?;
    assert_eq!(exponent.to_vec::<i32>()?, [0, 4, -1, -132]);
    assert_close(&mantissa.ldexp(&exponent)?, &[0.0, 8.0, -0.3, 1e-40]);
    assert_close(&tensor![0.5, -2.5].heaviside(&tensor![3.0])?, &[1.0, 0.0]);
    assert_close(&tensor![0.0].lerp(&tensor![10.0], 0.25)?, &[2.5]);
    let sum = tensor![1.0].addcmul(&tensor![2.0], &tensor![3.0], 0.5)?;
    assert_close(&sum, &[4.0]);
    assert!(error(tensor![1].addcdiv(&tensor![2], &tensor![3], 1)).contains("to divide"));
    Ok(())
}

/// Numbers that are not short fractions.
fn thirds(shape: &[usize]) -> RusTorchResult<Tensor> {
    let count: usize = shape.iter().product();
    let number = |i: usize| (i * 37 % 101) as f32 / 3.0 - 15.0;
    Tensor::from_slice(&(0..count).map(number).collect::<Vec<f32>>(), shape)
}

#[test]
fn sums_of_products_are_rounded_step_by_step() -> Outcome {
    let shapes: [&[usize]; 5] = [&[40, 300], &[300], &[40, 1], &[1], &[]];
    let computed = |x: RusTorchResult<Tensor>| -> RusTorchResult<Tensor> { Ok(x?.eval()?.clone()) };
    for shape in shapes {
        let (x, a) = (thirds(&[40, 300])?, thirds(&[40, 300])?.flip([0, 1])?);
        let (b, c) = (thirds(shape)?, thirds(shape)?.add(0.7)?);
        for operand in [&a, &b, &c] {
            operand.eval()?;
        }
        let product = computed(a.mul(&b))?;
        let scaled = computed(product.mul(0.3))?;
        let other = computed(b.mul(&c))?;
        for (together, steps) in [
            (x.addcmul(&a, &b, 0.3)?, x.add(&scaled)?),
            (a.mul(&b)?.add(&x)?, product.add(&x)?),
            (x.add(&b.mul(&a)?)?, x.add(&product)?),
            (c.add(&a.mul(&b)?)?, c.add(&product)?),
            (a.mul(&b)?.add(&b.mul(&c)?)?, product.add(&other)?),
            (
                x.add(&c.mul(&a.mul(&b)?)?)?,
                x.add(&computed(c.mul(&product))?)?,
            ),
        ] {
            assert_eq!(
                together.to_vec::<f32>()?,
                steps.to_vec::<f32>()?,
                "{shape:?}"
            );
        }
        // A product that somebody else reads, too, is still computed.
        let read = a.mul(&b)?;
        let sum = x.add(&read)?;
        assert_eq!(read.sub(&sum)?.neg()?.numel(), x.numel());
        assert_eq!(read.to_vec::<f32>()?, product.to_vec::<f32>()?);
    }
    Ok(())
}

#[test]
fn rows_and_columns() -> Outcome {
    for width in [20, 300, 3000] {
        let (row, column) = (thirds(&[width])?, thirds(&[40, 1])?.add(0.9)?);
        let whole = thirds(&[80, 2 * width])?;
        let (left, odd) = (
            whole
                .slice(1, 1, 1 + width as isize, 1)?
                .slice(0, 0, 80, 2)?,
            whole
                .slice(1, 0, 2 * width as isize, 2)?
                .slice(0, 0, 40, 1)?,
        );
        for x in [&row, &column, &left, &odd] {
            for y in [&row, &column, &left, &odd] {
                let expand = |t: &Tensor| t.expand([40, width])?.contiguous()?.to_vec::<f32>();
                let (a, b) = (expand(x)?, expand(y)?);
                for (got, f) in [
                    (x.add(y)?, (|a, b| a + b) as fn(f32, f32) -> f32),
                    (x.sub(y)?, |a, b| a - b),
                    (x.mul(y)?, |a, b| a * b),
                    (x.div(y)?, |a, b| a / b),
                ] {
                    let got = got.expand([40, width])?.to_vec::<f32>()?;
                    let pairs = got.iter().zip(a.iter().zip(&b));
                    let differ = |&(got, (&a, &b)): &(&f32, (&f32, &f32))| {
                        let want = f(a, b);
                        got.to_bits() != want.to_bits() && !(got.is_nan() && want.is_nan())
                    };
                    assert_eq!(pairs.filter(differ).count(), 0, "{width}");
                }
            }
        }
    }
    Ok(())
}
