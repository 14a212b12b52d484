//! Unsigned integers of 16 and 64 bits, and 8-bit floats. The expected values are PyTorch's.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::{F8E4M3, F8E5M2, Tensor, tensor};

use crate::{Outcome, error};

const BEYOND: u64 = 1 << 63;

#[test]
fn unsigned_integers_are_computed_with() -> Outcome {
    let x = tensor![u64::MAX, 5, BEYOND];
    assert_eq!(x.dtype(), DType::U64);
    let (sorted, _) = x.sort(0, false)?;
    assert_eq!(sorted.to_vec::<u64>()?, [5, BEYOND, u64::MAX]);
    assert_eq!(x.add(2)?.to_vec::<u64>()?, [1, 7, BEYOND + 2]);
    assert_eq!(x.gt(tensor![6u64])?.to_vec::<bool>()?, [true, false, true]);
    assert_eq!(x.max(None, false)?.to_scalar::<u64>()?, u64::MAX);
    let halves = x.floor_divide(2)?.to_vec::<u64>()?;
    assert_eq!(halves, [u64::MAX / 2, 2, BEYOND / 2]);
    assert_eq!(
        tensor![3u16, 4].mul(30_000)?.to_vec::<u16>()?,
        [24_464, 54_464]
    );
    assert_eq!(tensor![3u16, 4].sum(None, false)?.dtype(), DType::I64);
    let product = tensor![60_000u16, 2].matmul(&tensor![[60_000u16], [3]])?;
    assert_eq!(product.to_vec::<u16>()?, [(60_000u64 * 60_000 + 6) as u16]);
    assert_eq!(
        Tensor::arange_with(65_534, 65_537, 1, DType::U16)?.to_vec::<u16>()?,
        [65_534, 65_535, 0]
    );
    Ok(())
}

#[test]
fn unsigned_integers_are_cast() -> Outcome {
    let large = tensor![u64::MAX, BEYOND];
    assert_eq!(
        large.to_dtype(DType::F64)?.to_vec::<f64>()?,
        [2f64.powi(64), 2f64.powi(63)]
    );
    assert_eq!(large.to_dtype(DType::I64)?.to_vec::<i64>()?, [-1, i64::MIN]);
    assert_eq!(large.to_dtype(DType::Bool)?.to_vec::<bool>()?, [true, true]);
    assert_eq!(large.to_dtype(DType::U16)?.to_vec::<u16>()?, [65_535, 0]);
    assert_eq!(
        tensor![-1, 70_000].to_dtype(DType::U16)?.to_vec::<u16>()?,
        [65_535, 4464]
    );
    assert_eq!(
        tensor![-1].to_dtype(DType::U64)?.to_vec::<u64>()?,
        [u64::MAX]
    );
    // Floats are cut towards zero and saturate.
    let floats = tensor![1e19, 1e30, -5.5, f64::NAN];
    let wide = floats.to_dtype(DType::U64)?.to_vec::<u64>()?;
    assert_eq!(wide, [9_999_999_980_506_447_872, u64::MAX, 0, 0]);
    let narrow = floats.to_dtype(DType::U16)?.to_vec::<u16>()?;
    assert_eq!(narrow, [u16::MAX, u16::MAX, 0, 0]);
    Ok(())
}

#[test]
fn they_are_made_and_printed() -> Outcome {
    assert_eq!(
        Tensor::full([1], -1, DType::U64)?.to_scalar::<u64>()?,
        u64::MAX
    );
    assert_eq!(
        Tensor::full([1], 1e19, DType::U64)?.to_scalar::<u64>()?,
        10_000_000_000_000_000_000
    );
    assert!(error(Tensor::full([1], 70_000, DType::U16)).contains("a value that u16 holds"));
    assert!(Tensor::full([1], 1e20, DType::U64).is_err());
    let half = F8E4M3::from_f32(0.5);
    assert_eq!(
        Tensor::full([2], 0.5, DType::F8E4M3)?.to_vec::<F8E4M3>()?,
        [half, half]
    );
    assert_eq!(
        Tensor::eye(1, DType::F8E5M2)?.to_scalar::<F8E5M2>()?,
        F8E5M2::from_f32(1.0)
    );
    for (tensor, text) in [
        (
            tensor![u64::MAX, 5],
            "tensor([18446744073709551615,                    5], dtype=u64)",
        ),
        (tensor![7u16,], "tensor([7], dtype=u16)"),
        (
            tensor![half, half],
            "tensor([0.5000, 0.5000], dtype=f8e4m3)",
        ),
        (
            tensor![F8E5M2::from_f32(3.0),],
            "tensor([3.], dtype=f8e5m2)",
        ),
    ] {
        assert_eq!(tensor.to_string(), text);
    }
    Ok(())
}

/// `torch.promote_types` and `torch.result_type` of PyTorch 2.15.
#[test]
fn promotion_follows_torch() -> Outcome {
    for unsigned in [DType::U16, DType::U32, DType::U64] {
        let x = Tensor::ones([2], unsigned)?;
        assert_eq!(x.mul(2)?.dtype(), unsigned);
        assert_eq!(x.mul(2.5)?.dtype(), DType::F32);
        assert_eq!(x.mul(Complex::new(0.0, 2.0))?.dtype(), DType::Complex64);
        assert_eq!(x.mul(tensor!(3))?.dtype(), unsigned);
        assert_eq!(
            x.add(&Tensor::ones([2], DType::BF16)?)?.dtype(),
            DType::BF16
        );
        for other in [DType::Bool, DType::U8, DType::I32, DType::Complex64] {
            let message = error(x.add(&Tensor::ones([2], other)?));
            assert_eq!(
                message,
                format!(
                    "add: expected dtypes that promote (to_dtype makes them one), got {unsigned} and {other}"
                )
            );
        }
    }
    Ok(())
}

#[test]
fn floats_of_8_bits_are_cast() -> Outcome {
    let x = tensor![1.3, -500.0, 0.001, f64::NAN, 1e9];
    let narrow = x.to_dtype(DType::F8E4M3)?;
    let wide = narrow.to_dtype(DType::F64)?.to_vec::<f64>()?;
    assert_eq!(wide[..3], [1.25, -448.0, 0.001953125]);
    assert!(wide[3].is_nan() && wide[4] == 448.0);
    assert_eq!(
        narrow.to_dtype(DType::I8)?.to_vec::<i8>()?,
        [1, -128, 0, 0, 127]
    );
    let bools = narrow.to_dtype(DType::Bool)?.to_vec::<bool>()?;
    assert_eq!(bools, [true; 5]);
    let wide = x
        .to_dtype(DType::F8E5M2)?
        .to_dtype(DType::F32)?
        .to_vec::<f32>()?;
    assert_eq!(wide[..3], [1.25, -512.0, 0.0009765625]);
    assert!(wide[3].is_nan() && wide[4] == f32::INFINITY);
    // Rounded once: above the tie between 1 and its neighbour by less than f32 shows.
    let above = Tensor::scalar(1.0 + 0.0625 + 1e-12, DType::F64)?.to_dtype(DType::F8E4M3)?;
    assert_eq!(above.to_scalar::<F8E4M3>()?.to_f32(), 1.125);
    for dtype in DType::FLOATS8 {
        for from in DType::SCALARS {
            let x = Tensor::ones([3], from)?.to_dtype(dtype)?;
            let back = x.to_dtype(from)?.to_dtype(DType::F32)?;
            assert_eq!(back.to_vec::<f32>()?, [1.0; 3], "{from} and {dtype}");
        }
    }
    Ok(())
}

#[test]
fn floats_of_8_bits_are_moved() -> Outcome {
    let x = Tensor::arange_with(0, 6, 1, DType::F32)?
        .to_dtype(DType::F8E4M3)?
        .reshape([2, 3])?;
    let zero = Tensor::zeros([2, 3], DType::F8E4M3)?;
    let mask = tensor![[true, false, true], [false, true, false]];
    for (name, y, expected) in [
        (
            "t",
            x.transpose(0, 1)?.contiguous()?,
            vec![0.0, 3.0, 1.0, 4.0, 2.0, 5.0],
        ),
        ("narrow", x.narrow(1, 1, 2)?, vec![1.0, 2.0, 4.0, 5.0]),
        ("flip", x.flip([1])?, vec![2.0, 1.0, 0.0, 5.0, 4.0, 3.0]),
        (
            "cat",
            Tensor::cat(&[&x, &zero], 0)?.narrow(0, 1, 2)?,
            vec![3.0, 4.0, 5.0, 0.0, 0.0, 0.0],
        ),
        (
            "index_select",
            x.index_select(1, &tensor![2, 0])?,
            vec![2.0, 0.0, 5.0, 3.0],
        ),
        ("gather", x.gather(1, &tensor![[1], [2]])?, vec![1.0, 5.0]),
        (
            "scatter",
            x.scatter(1, &tensor![[1], [2]], &zero)?,
            vec![0.0, 0.0, 2.0, 3.0, 4.0, 0.0],
        ),
        (
            "where",
            Tensor::where_(&mask, &x, &zero)?,
            vec![0.0, 0.0, 2.0, 0.0, 4.0, 0.0],
        ),
        (
            "roll",
            x.roll([1], [1])?,
            vec![2.0, 0.0, 1.0, 5.0, 3.0, 4.0],
        ),
    ] {
        assert_eq!(y.dtype(), DType::F8E4M3, "{name}");
        assert_eq!(y.to_dtype(DType::F32)?.to_vec::<f32>()?, expected, "{name}");
    }
    Ok(())
}

#[test]
fn what_is_no_number_is_found() -> Outcome {
    let x = tensor![f32::NAN, f32::NEG_INFINITY, 1.0].to_dtype(DType::F8E5M2)?;
    assert_eq!(x.isnan()?.to_vec::<bool>()?, [true, false, false]);
    assert_eq!(x.isinf()?.to_vec::<bool>()?, [false, true, false]);
    assert_eq!(x.isfinite()?.to_vec::<bool>()?, [false, false, true]);
    assert_eq!(x.isneginf()?.to_vec::<bool>()?, [false, true, false]);
    assert_eq!(x.isposinf()?.to_vec::<bool>()?, [false; 3]);
    let finite = x.nan_to_num(0.0, None, None)?.to_dtype(DType::F32)?;
    assert_eq!(finite.to_vec::<f32>()?, [0.0, -57_344.0, 1.0]);
    Ok(())
}

/// Bits are kept, of NaN as well.
#[test]
fn bits_of_8_bit_floats_are_kept() -> Outcome {
    let bits: Vec<u8> = (0..=255).collect();
    let numbers: Vec<F8E5M2> = bits.iter().map(|&b| F8E5M2::from_bits(b)).collect();
    let x = Tensor::from_vec(numbers, [16, 16])?
        .transpose(0, 1)?
        .contiguous()?;
    let back = x.transpose(0, 1)?.contiguous()?.to_vec::<F8E5M2>()?;
    assert!(back.iter().map(|x| x.to_bits()).eq(bits));
    Ok(())
}

#[test]
fn floats_of_8_bits_are_not_computed_with() -> Outcome {
    for dtype in DType::FLOATS8 {
        let x = Tensor::ones([2, 2], dtype)?;
        let single = Tensor::ones([2, 2], DType::F32)?;
        for (name, refused) in [
            ("add", x.add(&x)),
            ("add a number", x.add(1)),
            ("mul", x.mul(&single)),
            ("div", x.div(2.0)),
            ("neg", x.neg()),
            ("exp", x.exp()),
            ("abs", x.abs()),
            ("eq", x.eq(&x)),
            ("lt", x.lt(0.5)),
            ("sum", x.sum(None, false)),
            ("mean", x.mean(None, false)),
            ("max", x.max(None, false)),
            ("argmax", x.argmax(0, false)),
            ("cumsum", x.cumsum(0)),
            ("softmax", x.softmax(0)),
            ("matmul", x.matmul(&x)),
            ("relu", x.relu()),
            ("linear", single.linear(&x, None)),
            ("cat", Tensor::cat(&[&x, &single], 0)),
        ] {
            let message = error(refused);
            let advice = "8-bit floats are only stored: cast them first, as to f32";
            assert!(message.contains(advice), "{name}: {message}");
            assert!(message.contains(dtype.name()), "{name}: {message}");
        }
        let sizes = error(Tensor::cat(&[&x, &x.reshape([1, 4])?], 0));
        assert!(!sizes.contains("8-bit"), "{sizes}");
    }
    Ok(())
}
