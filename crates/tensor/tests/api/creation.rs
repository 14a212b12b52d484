//! New tensors.

use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::{Element, Tensor, tensor};

use crate::{Outcome, error};

fn round_trip<T: Element>(values: [T; 2]) -> Outcome {
    let x = Tensor::from_slice(&values, [2, 1])?;
    assert_eq!((x.shape(), x.dtype()), (&[2, 1][..], T::DTYPE));
    assert_eq!(x.to_vec::<T>()?, values);
    assert_eq!(
        Tensor::from_vec(values.to_vec(), [2])?
            .contiguous()?
            .to_vec::<T>()?,
        values
    );
    // Past a kernel, too.
    assert_eq!(
        Tensor::cat(&[&x, &x], 1)?.select(1, 1)?.to_vec::<T>()?,
        values
    );
    Ok(())
}

#[test]
fn every_element_type() -> Outcome {
    round_trip([1.5f64, -0.0])?;
    round_trip([1.5f32, f32::INFINITY])?;
    round_trip([f16::from_f32(1.5), f16::MAX])?;
    round_trip([bf16::from_f32(1.5), bf16::MIN])?;
    round_trip([i64::MIN, i64::MAX])?;
    round_trip([i32::MIN, i32::MAX])?;
    round_trip([i16::MIN, i16::MAX])?;
    round_trip([i8::MIN, i8::MAX])?;
    round_trip([0u8, u8::MAX])?;
    round_trip([0u32, u32::MAX])?;
    round_trip([true, false])?;
    round_trip([Complex::new(1.0f32, -2.0), Complex::new(0.0, 0.5)])?;
    round_trip([Complex::new(1.0f64, -2.0), Complex::new(0.0, 0.5)])
}

#[test]
fn written_down() -> Outcome {
    let x = tensor![[1, 2, 3], [4, 5, 6]];
    assert_eq!((x.shape(), x.dtype()), (&[2, 3][..], DType::I64));
    assert_eq!(tensor!(2.5).to_scalar::<f32>()?, 2.5);
    assert_eq!(tensor![true, false].to_vec::<bool>()?, [true, false]);
    assert_eq!(tensor![[[1u8; 2]; 3]].shape(), [1, 3, 2]);
    Ok(())
}

#[test]
fn numbers_above_those_with_a_sign() -> Outcome {
    let largest = Tensor::full([2], u64::MAX, DType::U64)?;
    assert_eq!(largest.to_vec::<u64>()?, [u64::MAX; 2]);
    assert_eq!(
        Tensor::scalar(u64::MAX, DType::U64)?.to_scalar::<u64>()?,
        u64::MAX
    );
    assert_eq!(largest.sub(u64::MAX - 1)?.to_vec::<u64>()?, [1; 2]);
    assert_eq!(
        Tensor::full([1], 1u64 << 63, DType::F32)?.to_vec::<f32>()?,
        [9.223372e18]
    );
    let refused = error(Tensor::full([1], 1u64 << 63, DType::I64));
    assert!(refused.ends_with("got 9223372036854775808"), "{refused}");
    Ok(())
}

#[test]
fn filled() -> Outcome {
    assert_eq!(
        Tensor::zeros([2], DType::F16)?.to_vec::<f16>()?,
        [f16::ZERO; 2]
    );
    assert!(Tensor::ones([], DType::Bool)?.to_scalar::<bool>()?);
    let x = Tensor::full([1, 2], -3, DType::I8)?;
    assert_eq!(x.to_vec::<i8>()?, [-3, -3]);
    assert_eq!(x.full_like(7)?.to_vec::<i8>()?, [7, 7]);
    assert_eq!(
        x.zeros_like()?.add(&x.ones_like()?)?.to_vec::<i8>()?,
        [1, 1]
    );
    assert_eq!(
        x.full_like_with(1.5, DType::F64)?.to_vec::<f64>()?,
        [1.5; 2]
    );
    let sum = x
        .zeros_like_with(DType::F32)?
        .add(&x.ones_like_with(DType::F32)?)?;
    assert_eq!(sum.to_vec::<f32>()?, [1.0; 2]);
    let flags = x.empty_like_with(DType::Bool)?;
    assert_eq!((flags.shape(), flags.dtype()), (&[1, 2][..], DType::Bool));
    assert_eq!(
        Tensor::eye(3, DType::F32)?.to_vec::<f32>()?,
        [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]
    );
    assert_eq!(Tensor::eye(0, DType::F32)?.shape(), [0, 0]);
    assert_eq!(Tensor::scalar(2, DType::F64)?.to_scalar::<f64>()?, 2.0);
    Ok(())
}

#[test]
fn ranges() -> Outcome {
    assert_eq!(
        Tensor::arange_with(2, 11, 3, DType::I32)?.to_vec::<i32>()?,
        [2, 5, 8]
    );
    assert_eq!(
        Tensor::arange_with(3, 0, -2, DType::I64)?.to_vec::<i64>()?,
        [3, 1]
    );
    assert_eq!(
        Tensor::arange_with(0.5, 2.0, 0.5, DType::F32)?.to_vec::<f32>()?,
        [0.5, 1.0, 1.5]
    );
    assert_eq!(Tensor::arange_with(1, 1, 1, DType::F32)?.numel(), 0);
    for (start, end, step) in [(0, 1, 0), (0, 1, -1), (1, 0, 1)] {
        assert!(
            error(Tensor::arange_with(start, end, step, DType::F32)).starts_with("arange_with: ")
        );
    }
    assert!(Tensor::arange_with(0.0, f64::INFINITY, 1.0, DType::F32).is_err());
    assert!(
        Tensor::arange_with(i64::MIN, i64::MAX, 1, DType::I64).is_err(),
        "no memory holds that"
    );
    let line = Tensor::linspace(0.1, 0.7, 7, DType::F64)?.to_vec::<f64>()?;
    assert_eq!((line[0], line[6]), (0.1, 0.7));
    assert!((line[3] - 0.4).abs() < 1e-15);
    assert_eq!(
        Tensor::linspace(3.0, -3.0, 3, DType::F32)?.to_vec::<f32>()?,
        [3.0, 0.0, -3.0]
    );
    assert_eq!(
        Tensor::linspace(3.0, 5.0, 1, DType::F32)?.to_vec::<f32>()?,
        [3.0]
    );
    assert_eq!(Tensor::linspace(3.0, 5.0, 0, DType::F32)?.numel(), 0);
    Ok(())
}

#[test]
fn random() -> Outcome {
    let draw = |seed| Tensor::randn_seeded([1000], DType::F32, seed)?.to_vec::<f32>();
    assert_eq!(draw(7)?, draw(7)?);
    assert_ne!(draw(7)?, draw(8)?);
    // A key is a seed, and how many blocks of four numbers come before.
    let key = tensor![7i64, 0];
    assert_eq!(
        draw(7)?,
        Tensor::randn_keyed([1000], DType::F32, &key)?.to_vec::<f32>()?
    );
    let later = Tensor::randn_keyed([996], DType::F32, &key.add(tensor![0i64, 1])?)?;
    assert_eq!(draw(7)?[4..], later.to_vec::<f32>()?);
    assert!(Tensor::rand_keyed([3], DType::F32, &tensor![7i64]).is_err());
    let x = Tensor::randn_seeded([10_000], DType::F64, 1)?;
    assert!(x.mean(None, false)?.to_scalar::<f64>()?.abs() < 0.05);
    assert!((x.std(None, 1, false)?.to_scalar::<f64>()? - 1.0).abs() < 0.05);
    let u = Tensor::rand_seeded([1000], DType::F32, 3)?;
    assert!(
        u.ge(0)?
            .logical_and(&u.lt(1)?)?
            .all(None, false)?
            .to_scalar::<bool>()?
    );
    let dice = Tensor::randint_seeded(1, 7, [600], DType::I64, 5)?.to_vec::<i64>()?;
    for face in 1..=6 {
        let count = dice.iter().filter(|&&d| d == face).count();
        assert!((60..140).contains(&count), "{face}: {count}");
    }
    assert!(dice.iter().all(|d| (1..7).contains(d)));
    assert!(Tensor::randint(3, 3, [1], DType::I64).is_err());
    assert!(Tensor::rand([1], DType::I64).is_err());
    assert_eq!(
        Tensor::randn([10, 10], DType::Complex64)?.eval()?.dtype(),
        DType::Complex64
    );
    Ok(())
}

#[test]
fn of_storages() -> Outcome {
    // One block of Q8_0 is an f16 scale and 32 bytes.
    let mut bytes = vec![0u8; 34];
    bytes[..2].copy_from_slice(&f16::from_f32(0.5).to_bits().to_le_bytes());
    bytes[2] = 4;
    bytes[33] = 0xff;
    let storage = Storage::from_host(HostBuffer::copy_of(&bytes).expect("memory"));
    let q8_0 = DType::Block(BlockFormat::Q8_0);
    let x = Tensor::from_storage(storage.clone(), [1, 32], q8_0)?;
    let values = x.to_dtype(DType::F32)?.to_vec::<f32>()?;
    assert_eq!((values[0], values[1], values[31]), (2.0, 0.0, -0.5));
    assert!(x.reshape([32])?.storage()?.same_as(&storage));
    assert!(x.reshape([2, 16]).is_err(), "rows of blocks stay whole");
    assert!(x.narrow(1, 0, 16).is_err());
    assert!(error(Tensor::from_storage(storage, [32], DType::F32)).contains("34 bytes"));
    Ok(())
}

#[test]
fn values_are_in_range() -> Outcome {
    for (value, dtype) in [(300.0, DType::U8), (-256.0, DType::U8), (1e300, DType::F32)] {
        let message = error(Tensor::full([1], value, dtype));
        assert!(
            message.starts_with("full: expected a value that"),
            "{message}"
        );
    }
    for value in [f64::NAN, f64::INFINITY, 1e19] {
        assert!(Tensor::full([], value, DType::I64).is_err(), "{value}");
    }
    assert!(Tensor::full([1], 300, DType::U8).is_err());
    assert_eq!(Tensor::full([1], -1, DType::U8)?.to_scalar::<u8>()?, 255);
    assert_eq!(Tensor::full([1], 2.7, DType::I32)?.to_scalar::<i32>()?, 2);
    assert_eq!(
        Tensor::full([1], i64::MIN, DType::I64)?.to_scalar::<i64>()?,
        i64::MIN
    );
    assert_eq!(
        Tensor::full([1], 7e4, DType::F16)?.to_scalar::<f16>()?,
        f16::INFINITY
    );
    Ok(())
}
