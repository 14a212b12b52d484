//! Other looks at the same elements, and tensors put together.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor, tensor};

use crate::{Outcome, error};

/// `0, 1, 2, …` in a shape, in memory.
fn count<const N: usize>(shape: [usize; N]) -> RusTorchResult<Tensor> {
    let n = shape.iter().product::<usize>();
    Tensor::from_vec((0..n as i64).collect(), shape)
}

#[test]
fn shapes() -> Outcome {
    let x = count([2, 3, 4])?;
    assert_eq!(x.reshape([-1, 6])?.shape(), [4, 6]);
    assert_eq!(x.reshape(&[24usize][..])?.shape(), [24]);
    assert_eq!(x.flatten(0, -1)?.shape(), [24]);
    assert_eq!(x.flatten(1, 2)?.shape(), [2, 12]);
    assert_eq!(tensor!(1).flatten(0, -1)?.shape(), [1]);
    assert_eq!(x.unsqueeze(0)?.unsqueeze(-1)?.shape(), [1, 2, 3, 4, 1]);
    let ones = count([1, 2, 1])?;
    assert_eq!(ones.squeeze(None)?.shape(), [2]);
    assert_eq!(ones.squeeze(-1)?.shape(), [1, 2]);
    assert_eq!(ones.squeeze([0, 1])?.shape(), [2, 1]);
    assert_eq!((x.rank(), x.ndim(), x.numel(), x.size(-1)?), (3, 3, 24, 4));
    assert_eq!(count([2, 0])?.reshape([0, 5])?.shape(), [0, 5]);
    for bad in [x.reshape([5, -1]), x.reshape([-1, -1]), x.reshape([-2, 12])] {
        assert!(error(bad).starts_with("reshape: expected a shape of 24 elements"));
    }
    assert!(count([0])?.reshape([0, -1]).is_err(), "any size would do");
    assert_eq!(
        error(x.unsqueeze(4)),
        "unsqueeze: expected a dimension of a tensor of rank 4, got dim 4"
    );
    Ok(())
}

#[test]
fn order_of_dimensions() -> Outcome {
    let x = count([2, 3])?;
    assert_eq!(x.t()?.to_vec::<i64>()?, [0, 3, 1, 4, 2, 5]);
    assert_eq!(x.transpose(-1, 0)?.shape(), [3, 2]);
    assert_eq!(count([2, 3, 4])?.permute([-1, 0, 1])?.shape(), [4, 2, 3]);
    assert!(error(x.permute([0, 0])).starts_with("permute: expected each dimension"));
    assert!(x.permute([0]).is_err());
    assert!(count([2, 3, 4])?.t().is_err());
    Ok(())
}

#[test]
fn parts() -> Outcome {
    let x = count([6])?;
    let values = |t: RusTorchResult<Tensor>| t?.to_vec::<i64>();
    assert_eq!(values(x.slice(0, 1, 5, 2))?, [1, 3]);
    assert_eq!(values(x.slice(0, -2, 99, 1))?, [4, 5]);
    assert_eq!(values(x.slice(-1, -99, -4, 1))?, [0, 1]);
    assert_eq!(values(x.slice(0, 4, 2, 1))?, [0i64; 0]);
    assert!(x.slice(0, 0, 1, 0).is_err());
    assert_eq!(values(x.narrow(0, 2, 3))?, [2, 3, 4]);
    assert_eq!(
        error(x.narrow(0, 4, 3)),
        "narrow: expected a part of 6 indices, got 3 from 4 on"
    );
    assert!(x.narrow(0, 1, usize::MAX).is_err());
    let m = count([3, 2])?;
    assert_eq!(values(m.select(0, -1))?, [4, 5]);
    assert_eq!(values(m.select(1, 0))?, [0, 2, 4]);
    assert_eq!(
        error(m.select(0, 3)),
        "select: expected an index of 3, got 3"
    );
    assert!(m.select(0, -4).is_err());
    let sizes = |parts: Vec<Tensor>| parts.iter().map(Tensor::numel).collect::<Vec<_>>();
    assert_eq!(sizes(x.split(4, 0)?), [4, 2]);
    assert_eq!(
        sizes(x.chunk(4, 0)?),
        [2, 2, 2],
        "as PyTorch, parts of equal size"
    );
    assert_eq!(sizes(x.narrow(0, 0, 0)?.split(2, 0)?), [0]);
    assert_eq!(x.split(4, -1)?[1].to_vec::<i64>()?, [4, 5]);
    assert!(x.split(0, 0).is_err() && x.chunk(0, 0).is_err());
    Ok(())
}

#[test]
fn broadcasting() -> Outcome {
    let x = count([2, 1])?;
    assert_eq!(x.expand([2, 3])?.to_vec::<i64>()?, [0, 0, 0, 1, 1, 1]);
    assert_eq!(x.expand([4, -1, 2])?.shape(), [4, 2, 2]);
    assert!(x.expand([2, 3])?.storage()?.bytes() > x.storage()?.bytes());
    assert!(x.broadcast_to([3, 1]).is_err());
    assert!(
        x.expand([-1, 2, 1]).is_err(),
        "a new dimension has no size to keep"
    );
    assert!(x.expand([1, 3]).is_err(), "2 is not broadcast to 1");
    Ok(())
}

#[test]
fn joined() -> Outcome {
    let (a, b) = (count([1, 2])?, tensor![[5.5, 6.5], [7.5, 8.5]]);
    let ab = Tensor::cat(&[&a, &b], 0)?;
    assert_eq!((ab.shape(), ab.dtype()), (&[3, 2][..], DType::F32));
    assert_eq!(ab.to_vec::<f32>()?, [0.0, 1.0, 5.5, 6.5, 7.5, 8.5]);
    assert!(error(Tensor::cat(&[&a, &b], 1)).starts_with("cat: "));
    assert!(Tensor::cat(&[], 0).is_err());
    let s = Tensor::stack(&[&a, &a.mul(10)?], -1)?;
    assert_eq!(s.shape(), [1, 2, 2]);
    assert_eq!(s.to_vec::<i64>()?, [0, 0, 1, 10]);
    assert!(Tensor::stack(&[&a, &b], 0).is_err());
    assert!(Tensor::stack(&[], 0).is_err());
    let padded = a.pad([1, 0, 0, 1], 9)?;
    assert_eq!(padded.shape(), [2, 3]);
    assert_eq!(padded.to_vec::<i64>()?, [9, 0, 1, 9, 9, 9]);
    assert!(a.pad([1], 0).is_err() && a.pad([1; 6], 0).is_err());
    assert!(a.pad([usize::MAX, 1], 0).is_err());
    Ok(())
}
