//! Given strides and other sizes, `to`, `fill`, segments, and approximations of low rank.

use rustorch_ir::DType;
use rustorch_runtime::DeviceType;
use rustorch_tensor::{ScatterReduce, Segments, Tensor, tensor};

use crate::{Outcome, assert_close, assert_close_rows, assert_rows, error};

#[test]
fn strides_and_sizes() -> Outcome {
    let x = Tensor::empty_strided([2, 3], [1, 4], DType::I32)?;
    assert_eq!(
        (x.shape(), x.dtype(), x.is_contiguous()),
        (&[2, 3][..], DType::I32, false)
    );
    assert_eq!(x.to_vec::<i32>()?, [0; 6]);
    assert_eq!(
        (x.stride(), x.narrow(1, 1, 2)?.storage_offset()),
        (vec![1, 4], 4)
    );
    assert_eq!(
        (x.add(1)?.stride(), x.add(1)?.storage_offset()),
        (vec![3, 1], 0)
    );
    assert_eq!(
        tensor![true].new_empty_strided([0, 5], [9, 9])?.shape(),
        [0, 5]
    );
    assert!(error(Tensor::empty_strided([2, 3], [1], DType::F32)).contains("a stride for each"));
    let far = Tensor::empty_strided([3, 3], [usize::MAX, 1], DType::F32);
    assert!(error(far).contains("address space"));
    let x = Tensor::empty_permuted([2, 3, 4], [0, 2, -2], DType::F16)?;
    assert_eq!((x.shape(), x.is_contiguous()), (&[2, 3, 4][..], false));
    assert!(x.permute([0, 2, 1])?.is_contiguous());
    for layout in [&[0, 0][..], &[0], &[0, 2]] {
        assert!(
            Tensor::empty_permuted([2, 3], layout, DType::F32).is_err(),
            "{layout:?}"
        );
    }
    let mut x = tensor![[1, 2], [3, 4]];
    let other = x.clone();
    assert_eq!(x.resize_([3])?.to_vec::<i64>()?, [1, 2, 3]);
    assert_eq!(x.resize_([2, 2])?.to_vec::<i64>()?, [1, 2, 3, 0]);
    assert_eq!(x.resize_as_(&tensor![0.0, 1.0])?.shape(), [2]);
    assert_eq!(other.to_vec::<i64>()?, [1, 2, 3, 4]);
    assert_eq!(x.resize_([0])?.numel(), 0);
    assert!(x.resize_([usize::MAX, 2]).is_err());
    Ok(())
}

#[test]
fn filled_and_moved() -> Outcome {
    let x = tensor![[1.5, 2.5], [3.5, 4.5]];
    assert_rows::<f32>(&[
        ("x.fill(7)", x.fill(7)?, &[2, 2], &[7.0; 4]),
        (
            "x.fill(t)",
            x.fill(&Tensor::scalar(2, DType::I64)?)?,
            &[2, 2],
            &[2.0; 4],
        ),
    ]);
    assert!(error(x.fill(&x)).contains("rank 0"));
    assert!(tensor![true, false].to_dtype(DType::I8)?.fill(300).is_err());
    let mut y = tensor![[1.5, 2.5], [3.5, 4.5]];
    assert_eq!(y.fill_(2.0)?.to_vec::<f32>()?, [2.0; 4]);
    assert_eq!(y.zero_()?.to_vec::<f32>()?, [0.0; 4]);

    assert_eq!(x.to(DType::I32)?.to_vec::<i32>()?, [1, 2, 3, 4]);
    let moved = x.to(DeviceType::Cpu)?;
    assert_eq!(moved.device(), Some(DeviceType::Cpu));
    let like = x.to(&tensor![1u8].to(DeviceType::Cpu)?)?;
    assert_eq!(
        (like.dtype(), like.to_vec::<u8>()?),
        (DType::U8, vec![1, 2, 3, 4])
    );
    Ok(())
}

#[test]
fn segments() -> Outcome {
    use ScatterReduce::{Amax, Amin, Mean, Prod, Sum};
    let x = tensor![1.0, 2.0, 3.0, 4.0];
    let (lengths, offsets) = (tensor![1, 0, 3], tensor![0, 1, 1, 4]);
    let of = |reduce, initial| {
        let by_lengths = x.segment_reduce(reduce, Segments::Lengths(&lengths), 0, initial)?;
        let by_offsets = x.segment_reduce(reduce, Segments::Offsets(&offsets), 0, initial)?;
        assert_eq!(format!("{by_lengths}"), format!("{by_offsets}"));
        Ok::<Tensor, rustorch_tensor::RusTorchError>(by_lengths)
    };
    let infinity = f32::INFINITY;
    assert_rows::<f32>(&[
        ("sum", of(Sum, None)?, &[3], &[1.0, 0.0, 9.0]),
        ("prod", of(Prod, Some(2.0))?, &[3], &[2.0, 2.0, 48.0]),
        ("mean", of(Mean, Some(3.0))?, &[3], &[4.0, 3.0, 4.0]),
        ("max", of(Amax, None)?, &[3], &[1.0, -infinity, 4.0]),
        ("min", of(Amin, Some(2.5))?, &[3], &[1.0, 2.5, 2.0]),
    ]);
    assert!(of(Mean, None)?.select(0, 1)?.to_scalar::<f32>()?.is_nan());
    // Elements in no segment do not count, and each row has its own segments.
    let rows = Segments::Offsets(&tensor![[1, 2], [0, 3]]);
    let sums = tensor![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]].segment_reduce(Sum, rows, 1, None)?;
    assert_eq!(
        (sums.shape(), sums.to_vec::<f32>()?),
        (&[2, 1][..], vec![2.0, 15.0])
    );
    assert!(error(x.segment_reduce(Sum, Segments::Lengths(&lengths), 1, None)).contains("dim"));
    let deep = Segments::Lengths(&tensor![[1, 3], [1, 3]]);
    assert!(error(x.segment_reduce(Sum, deep, 0, None)).contains("segments"));
    assert!(
        tensor![1, 2]
            .segment_reduce(Sum, Segments::Lengths(&tensor![2]), 0, None)
            .is_err()
    );
    Ok(())
}

#[test]
fn norms_of_slices() -> Outcome {
    let x = tensor![[3.0, 4.0], [0.3, 0.4]];
    assert_close_rows(&[
        (
            "renorm(2, 0, 1)",
            x.renorm(2.0, 0, 1.0)?,
            &[2, 2],
            &[0.6, 0.8, 0.3, 0.4],
        ),
        (
            "renorm(1, 1, 3.3)",
            x.renorm(1.0, 1, 3.3)?,
            &[2, 2],
            &[3.0, 3.0, 0.3, 0.3],
        ),
    ]);
    assert!(error(tensor![1.0].renorm(2.0, 0, 1.0)).contains("two dimensions"));
    assert!(x.renorm(0.0, 0, 1.0).is_err() && x.renorm(2.0, 0, -1.0).is_err());
    Ok(())
}

#[test]
fn low_rank() -> Outcome {
    let a = tensor![[1.0, 2.0], [0.0, 1.0], [2.0, 0.0], [1.0, 1.0]];
    let b = tensor![[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]];
    let matrix = a.matmul(&b)?;
    for matrix in [matrix.clone(), matrix.t()?] {
        let (u, s, v) = matrix.svd_lowrank(2, 2, None)?;
        let whole = u.mul(&s)?.matmul(&v.t()?)?;
        assert_close(
            &whole
                .sub(&matrix)?
                .abs()?
                .max(None, false)?
                .reshape([1])?
                .add(1.0)?,
            &[1.0],
        );
        let (u, s, v) = matrix.pca_lowrank(2, true, 2)?;
        let centred = matrix.sub(&matrix.mean(0, true)?)?;
        let off = u
            .mul(&s)?
            .matmul(&v.t()?)?
            .sub(&centred)?
            .abs()?
            .max(None, false)?;
        assert!(off.to_scalar::<f32>()? < 1e-5);
    }
    assert!(error(matrix.pca_lowrank(4, true, 2)).contains("components"));
    assert!(tensor![1.0].svd_lowrank(1, 2, None).is_err());
    Ok(())
}

#[test]
fn halves_are_added_up_in_single_precision() -> Outcome {
    // 256 + 1 is not a bf16: the product of each batch is added to the others before it is rounded.
    let ones = Tensor::ones([2, 1, 257], DType::BF16)?;
    let column = Tensor::ones([2, 257, 1], DType::BF16)?;
    let none = Tensor::zeros([1, 1], DType::BF16)?;
    let sum = none.addbmm(&ones, &column, 1, 1)?.to_dtype(DType::F32)?;
    assert_eq!(
        sum.to_vec::<f32>()?,
        [514.0f32].map(|x| half::bf16::from_f32(x).to_f32())
    );
    let yes = tensor![true, false];
    let outer = Tensor::zeros([2, 2], DType::Bool)?.addr(&yes, &yes, 1, 1)?;
    assert_eq!(outer.to_vec::<bool>()?, [true, false, false, false]);
    assert!(error(none.addbmm(&ones, &ones, 1, 1)).contains("batches that fit"));
    assert!(error(none.addbmm(&none, &ones, 1, 1)).contains("two batches"));
    Ok(())
}
