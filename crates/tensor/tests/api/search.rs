//! Places in sorted sequences, equal elements, and what is made of places and counts.

use rustorch_ir::DType;
use rustorch_tensor::{Tensor, tensor};

use crate::{Outcome, assert_rows, error};

#[test]
fn as_in_pytorch() -> Outcome {
    let v = tensor![3, 1, 4, 1, 5];
    let m = tensor![[1, 2], [0, 5], [1, 2]];
    let f = tensor![1.0, 2.0, 1.0, f64::NAN, 5.0];
    assert_rows::<i64>(&[
        (
            "torch.searchsorted(torch.tensor([1, 3, 5]), torch.tensor([[0, 3], [5, 9]]), right=True)",
            tensor![1, 3, 5].searchsorted(tensor![[0, 3], [5, 9]], true, None)?,
            &[2, 2],
            &[0, 2, 3, 3],
        ),
        (
            "torch.searchsorted(torch.tensor([1, 3, 5]), 3)",
            tensor![1, 3, 5].searchsorted(3, false, None)?,
            &[],
            &[1],
        ),
        (
            "torch.searchsorted(torch.tensor([1.0, 3.0]), torch.tensor([nan, 3.0]))",
            tensor![1.0, 3.0].searchsorted(tensor![f64::NAN, 3.0], false, None)?,
            &[2],
            &[2, 1],
        ),
        (
            "torch.searchsorted(torch.tensor([[1, 3], [2, 4]]), torch.tensor([[3], [3]]))",
            tensor![[1, 3], [2, 4]].searchsorted(tensor![[3], [3]], false, None)?,
            &[2, 1],
            &[1, 1],
        ),
        (
            "torch.searchsorted(torch.tensor([5, 1, 3]), torch.tensor([3]), sorter=torch.tensor([1, 2, 0]))",
            tensor![5, 1, 3].searchsorted(tensor![3,], false, Some(&tensor![1, 2, 0]))?,
            &[1],
            &[1],
        ),
        (
            "torch.bucketize(v, torch.tensor([2, 4]))",
            v.bucketize(&tensor![2, 4], false)?,
            &[5],
            &[1, 0, 1, 0, 2],
        ),
        (
            "torch.bincount(torch.tensor([1, 3, 1]), minlength=6)",
            tensor![1, 3, 1].bincount(None, 6)?,
            &[6],
            &[0, 2, 0, 1, 0, 0],
        ),
        (
            "torch.bincount(torch.tensor([], dtype=torch.int64))",
            Tensor::zeros([0], DType::I64)?.bincount(None, 0)?,
            &[0],
            &[],
        ),
        (
            "m.unique(dim=0)",
            m.unique(0)?.values,
            &[2, 2],
            &[0, 5, 1, 2],
        ),
        (
            "m.unique(dim=0, return_inverse=True)[1]",
            m.unique(0)?.inverse,
            &[3],
            &[1, 0, 1],
        ),
        (
            "m.unique(dim=0, return_counts=True)[1]",
            m.unique(0)?.counts,
            &[2],
            &[1, 2],
        ),
        ("m.unique()", m.unique(None)?.values, &[4], &[0, 1, 2, 5]),
        (
            "m.unique(return_inverse=True)[1]",
            m.unique(None)?.inverse,
            &[3, 2],
            &[1, 2, 0, 3, 1, 2],
        ),
        (
            "torch.tensor([1, 1, 2, 2, 1]).unique_consecutive()",
            tensor![1, 1, 2, 2, 1].unique_consecutive(None)?.values,
            &[3],
            &[1, 2, 1],
        ),
        (
            "torch.tensor([1, 1, 2, 2, 1]).unique_consecutive(return_inverse=True)[1]",
            tensor![1, 1, 2, 2, 1].unique_consecutive(None)?.inverse,
            &[5],
            &[0, 0, 1, 1, 2],
        ),
        (
            "m[:0].unique(dim=0)",
            m.narrow(0, 0, 0)?.unique(0)?.values,
            &[0, 2],
            &[],
        ),
        (
            "f.unique(return_counts=True)[1]",
            f.unique(None)?.counts,
            &[4],
            &[2, 1, 1, 1],
        ),
        (
            "F.one_hot(torch.tensor([0, 2]))",
            tensor![0, 2].one_hot(None)?,
            &[2, 3],
            &[1, 0, 0, 0, 0, 1],
        ),
        (
            "F.one_hot(torch.zeros(0, dtype=torch.int64), 2)",
            Tensor::zeros([0], DType::I64)?.one_hot(2)?,
            &[0, 2],
            &[],
        ),
        (
            "torch.vander(torch.tensor([1, 2, 3]), increasing=True)",
            tensor![1, 2, 3].vander(None, true)?,
            &[3, 3],
            &[1, 1, 1, 1, 2, 4, 1, 3, 9],
        ),
        (
            "torch.vander(torch.tensor([1, 2, 3]), 2)",
            tensor![1, 2, 3].vander(2, false)?,
            &[3, 2],
            &[1, 1, 2, 1, 3, 1],
        ),
        (
            "torch.cross(torch.tensor([1, 2, 3]), torch.tensor([3, 1, 2]), dim=0)",
            tensor![1, 2, 3].cross(&tensor![3, 1, 2], 0)?,
            &[3],
            &[1, 7, -5],
        ),
        (
            "torch.nonzero_static(torch.tensor([0, 1, 0, 7]), size=3)",
            tensor![0, 1, 0, 7].nonzero_static(3, -1)?,
            &[3, 1],
            &[1, 3, -1],
        ),
        (
            "torch.unravel_index(torch.tensor([5, 3]), (2, 3))[1]",
            tensor![5, 3].unravel_index([2, 3])?[1].clone(),
            &[2],
            &[2, 0],
        ),
        (
            "torch.linspace(1, 2, 4, dtype=torch.int64)",
            Tensor::linspace(1, 2, 4, DType::I64)?,
            &[4],
            &[1, 1, 1, 2],
        ),
        (
            "torch.eye(2, 3, dtype=torch.int64)",
            Tensor::eye_of([2, 3], DType::I64)?,
            &[2, 3],
            &[1, 0, 0, 0, 1, 0],
        ),
        (
            "torch.full((2,), True).long()",
            Tensor::full([2], true, DType::I64)?,
            &[2],
            &[1, 1],
        ),
        (
            "torch.tensor([[0, 1, 2], [10, 11, 12]])",
            Tensor::from_fn([2, 3], |i| (10 * i[0] + i[1]) as i64)?,
            &[2, 3],
            &[0, 1, 2, 10, 11, 12],
        ),
        (
            "torch.tensor([1, 2]).new_tensor([1.5, -2.5])",
            tensor![1i64, 2].new_tensor(&[1.5f32, -2.5], [2])?,
            &[2],
            &[1, -2],
        ),
    ]);
    let values = f.unique(None)?.values.to_vec::<f32>()?;
    assert_eq!(values[..3], [1.0, 2.0, 5.0]);
    assert!(values[3].is_nan());
    let flags = tensor![true, false, true].unique(None)?;
    assert_eq!(flags.values.to_vec::<bool>()?, [false, true]);
    Ok(())
}

#[test]
fn what_is_in_others() -> Outcome {
    let x = tensor![[1, 2], [3, 4]];
    assert_eq!(
        x.isin(tensor![9, 2], false)?.to_vec::<bool>()?,
        [false, true, false, false]
    );
    assert_eq!(
        x.isin(3, true)?.to_vec::<bool>()?,
        [true, true, false, true]
    );
    let none = x.isin(&Tensor::zeros([0], DType::I64)?, false)?;
    assert_eq!(none.to_vec::<bool>()?, [false; 4]);
    // So many that they are sorted; NaN is none of them.
    let many = Tensor::arange_with(2, 40, 2, DType::F32)?;
    let y = tensor![38.0, 39.0, f64::NAN, 2.0, 0.0];
    assert_eq!(
        y.isin(&many, false)?.to_vec::<bool>()?,
        [true, false, false, true, false]
    );
    let others = Tensor::cat(&[&many, &tensor![f64::NAN,]], 0)?;
    assert_eq!(
        y.isin(&others, false)?.to_vec::<bool>()?,
        [true, false, false, true, false]
    );
    Ok(())
}

#[test]
fn what_has_no_place_is_refused() -> Outcome {
    let v = tensor![1, 2, 3];
    assert!(error(tensor!(1).searchsorted(&v, false, None)).contains("rank 1 or more"));
    assert!(error(tensor![[1, 2], [3, 4]].searchsorted(&v, false, None)).contains("equal but"));
    assert!(error(v.searchsorted(&v, false, Some(&tensor![0, 1]))).contains("a sorter i64[3]"));
    assert!(error(v.bucketize(&tensor!(1), false)).contains("rank 1"));
    assert!(error(tensor![-1, 2].bincount(None, 0)).contains("not negative, got -1"));
    assert!(v.bincount(Some(&tensor![1.0]), 0).is_err());
    assert!(error(tensor![1, 3].one_hot(3)?.to_vec::<i64>()).contains("dimension 1"));
    assert!(error(tensor![-1].reshape([1])?.one_hot(None)).contains("not negative"));
    assert!(tensor![1.0].histc(0, 0.0, 1.0).is_err() && v.histc(2, 0.0, 1.0).is_err());
    assert!(error(tensor![1.0, f64::INFINITY].histc(2, 0.0, 0.0)).contains("finite"));
    let points = tensor![[0.0, 1.0], [1.0, 0.0]];
    assert!(error(points.histogramdd(&[2.into()], None, None, false)).contains("2 dimensions"));
    assert!(tensor![[1.0], [2.0]].unique(2).is_err() && v.unravel_index([0]).is_err());
    Ok(())
}
