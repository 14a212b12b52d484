//! Other looks at the same elements, and tensors put together.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor, tensor};

use crate::{Outcome, assert_rows, error};

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
        "select: expected an index of dimension 0, of size 3, got 3"
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
    assert!(Tensor::cat(&[] as &[Tensor], 0).is_err());
    let s = Tensor::stack(&[&a, &a.mul(10)?], -1)?;
    assert_eq!(s.shape(), [1, 2, 2]);
    assert_eq!(s.to_vec::<i64>()?, [0, 0, 1, 10]);
    assert!(Tensor::stack(&[&a, &b], 0).is_err());
    assert!(Tensor::stack(&[] as &[Tensor], 0).is_err());
    let padded = a.pad([1, 0, 0, 1], 9)?;
    assert_eq!(padded.shape(), [2, 3]);
    assert_eq!(padded.to_vec::<i64>()?, [9, 0, 1, 9, 9, 9]);
    assert!(a.pad([1], 0).is_err() && a.pad([1; 6], 0).is_err());
    assert!(a.pad([isize::MAX, 1], 0).is_err());
    Ok(())
}

#[test]
fn shapes_and_diagonals_as_in_pytorch() -> Outcome {
    let (x, m, v) = (count([2, 3, 4])?, count([3, 4])?, count([5])?);
    assert_rows::<i64>(&[
        (
            "x.movedim((0, 1), (-1, 0))",
            x.movedim([0, 1], [-1, 0])?,
            &[3, 4, 2],
            &[
                0, 12, 1, 13, 2, 14, 3, 15, 4, 16, 5, 17, 6, 18, 7, 19, 8, 20, 9, 21, 10, 22, 11,
                23,
            ],
        ),
        (
            "x.swapaxes(0, -1)",
            x.swapaxes(0, -1)?,
            &[4, 3, 2],
            &[
                0, 12, 4, 16, 8, 20, 1, 13, 5, 17, 9, 21, 2, 14, 6, 18, 10, 22, 3, 15, 7, 19, 11,
                23,
            ],
        ),
        (
            "m.mT",
            m.mt()?,
            &[4, 3],
            &[0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11],
        ),
        (
            "m.ravel()",
            m.ravel()?,
            &[12],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        ),
        (
            "m.unflatten(1, (2, -1))",
            m.unflatten(1, [2, -1])?,
            &[3, 2, 2],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        ),
        (
            "torch.atleast_3d(v)",
            v.atleast_3d()?,
            &[1, 5, 1],
            &[0, 1, 2, 3, 4],
        ),
        (
            "m.as_strided((2, 3), (1, 2), 1)",
            m.as_strided([2, 3], [1, 2], 1)?,
            &[2, 3],
            &[1, 3, 5, 2, 4, 6],
        ),
        (
            "m.t().as_strided((2, 2), (4, 1))",
            m.t()?.as_strided([2, 2], [4, 1], None)?,
            &[2, 2],
            &[0, 1, 4, 5],
        ),
        (
            "v.unfold(0, 3, 2)",
            v.unfold(0, 3, 2)?,
            &[2, 3],
            &[0, 1, 2, 2, 3, 4],
        ),
        (
            "m.t().unfold(0, 2, 2)",
            m.t()?.unfold(0, 2, 2)?,
            &[2, 3, 2],
            &[0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11],
        ),
        (
            "x.sum_to_size(3, 1)",
            x.sum_to_size([3, 1])?,
            &[3, 1],
            &[60, 92, 124],
        ),
        ("m.diagonal(1)", m.diagonal(1, 0, 1)?, &[3], &[1, 6, 11]),
        (
            "x.diagonal(-1, -1, 0)",
            x.diagonal(-1, -1, 0)?,
            &[3, 2],
            &[1, 14, 5, 18, 9, 22],
        ),
        ("m.diagonal(9)", m.diagonal(9, 0, 1)?, &[0], &[]),
        ("m.diag(-2)", m.diag(-2)?, &[1], &[8]),
        (
            "v[1:3].diag(1)",
            v.narrow(0, 1, 2)?.diag(1)?,
            &[3, 3],
            &[0, 1, 0, 0, 0, 2, 0, 0, 0],
        ),
        (
            "m[:2, :2].diag_embed(-1, 0, 2)",
            m.narrow(0, 0, 2)?.narrow(1, 0, 2)?.diag_embed(-1, 0, 2)?,
            &[3, 2, 3],
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 5, 0],
        ),
        (
            "m[1:2, :2].diagflat(-1)",
            m.narrow(0, 1, 1)?.narrow(1, 0, 2)?.diagflat(-1)?,
            &[3, 3],
            &[0, 0, 0, 4, 0, 0, 0, 5, 0],
        ),
        ("m.trace()", m.trace()?, &[], &[15]),
        (
            "m.tril(-1)",
            m.tril(-1)?,
            &[3, 4],
            &[0, 0, 0, 0, 4, 0, 0, 0, 8, 9, 0, 0],
        ),
        (
            "m.triu(1)",
            m.triu(1)?,
            &[3, 4],
            &[0, 1, 2, 3, 0, 0, 6, 7, 0, 0, 0, 11],
        ),
        (
            "torch.tril_indices(3, 2)",
            Tensor::tril_indices(3, 2, 0)?,
            &[2, 5],
            &[0, 1, 1, 2, 2, 0, 0, 1, 0, 1],
        ),
        (
            "torch.triu_indices(2, 4, 2)",
            Tensor::triu_indices(2, 4, 2)?,
            &[2, 3],
            &[0, 0, 1, 2, 3, 3],
        ),
        (
            "m.diagonal_scatter(torch.tensor([-1, -2, -3]), 1)",
            m.diagonal_scatter(&tensor![-1, -2, -3], 1, 0, 1)?,
            &[3, 4],
            &[0, -1, 2, 3, 4, 5, -2, 7, 8, 9, 10, -3],
        ),
        (
            "m.t().diagonal_scatter(torch.tensor([-1, -2, -3]), -1)",
            m.t()?.diagonal_scatter(&tensor![-1, -2, -3], -1, 0, 1)?,
            &[4, 3],
            &[0, 4, 8, -1, 5, 9, 2, -2, 10, 3, 7, -3],
        ),
    ]);
    Ok(())
}

#[test]
fn rank_0_and_empty_shapes() -> Outcome {
    let one = tensor!(7);
    for same in [
        one.squeeze(0)?,
        one.transpose(0, -1)?,
        one.expand_as(&one)?,
        one.h()?,
        one.t()?,
        one.movedim([0isize; 0], [0isize; 0])?,
    ] {
        assert_eq!((same.shape(), same.to_scalar::<i64>()?), (&[][..], 7));
    }
    assert_eq!(one.unfold(0, 1, 1)?.shape(), [1]);
    assert_eq!(one.atleast_2d()?.shape(), [1, 1]);
    assert!(one.mt().is_err() && one.tril(0).is_err() && one.unbind(0).is_err());
    let none = count([0, 3])?;
    assert_eq!(none.chunk(2, 0)?.len(), 2, "as in PyTorch");
    assert_eq!(none.diagonal(0, 0, 1)?.shape(), [0]);
    assert_eq!(none.diag_embed(1, 0, 1)?.shape(), [4, 4, 0]);
    assert_eq!(none.unfold(1, 2, 1)?.shape(), [0, 2, 2]);
    assert_eq!(none.tril(0)?.to_vec::<i64>()?, [0i64; 0]);
    Ok(())
}

#[test]
fn sections() -> Outcome {
    let x = count([7])?;
    let sizes = |parts: RusTorchResult<Vec<Tensor>>| -> RusTorchResult<Vec<usize>> {
        Ok(parts?.iter().map(Tensor::numel).collect())
    };
    assert_eq!(sizes(x.tensor_split(3, 0))?, [3, 2, 2]);
    assert_eq!(sizes(x.tensor_split([2, -2, 99], 0))?, [2, 3, 2, 0]);
    assert_eq!(
        sizes(x.tensor_split([5, 2], 0))?,
        [5, 0, 5],
        "as in PyTorch, indices may fall"
    );
    assert_eq!(sizes(x.split_with_sizes([4, 0, 3], 0))?, [4, 0, 3]);
    assert!(error(x.split_with_sizes([4, 4], 0)).contains("add up to 7"));
    assert_eq!(sizes(count([2, 4])?.hsplit(2))?, [4, 4]);
    assert!(error(x.hsplit(2)).contains("divides the 7 indices of dimension 0"));
    assert!(x.vsplit(1).is_err() && count([2, 2])?.dsplit(1).is_err());
    assert_eq!(x.narrow_at(0, &tensor!(2), 3)?.to_vec::<i64>()?, [2, 3, 4]);
    assert!(x.narrow_at(0, &tensor!(5), 3)?.eval().is_err());
    assert_eq!(count([2, 3])?.unbind(-1)?[2].to_vec::<i64>()?, [2, 5]);
    Ok(())
}

#[test]
fn what_is_no_shape_is_refused() -> Outcome {
    let m = count([3, 4])?;
    assert!(error(m.as_strided([3, 4], [4, 2], None)).contains("inside the memory"));
    assert!(error(m.as_strided([2], [1, 1], None)).contains("a stride for each size"));
    assert!(
        m.as_strided([usize::MAX, 2], [usize::MAX, 1], None)
            .is_err()
    );
    assert!(m.as_strided([1], [1], usize::MAX).is_err());
    assert!(m.neg()?.as_strided([3, 4], [4, 2], None).is_err());
    assert!(error(m.unfold(0, 4, 1)).contains("at most 3"));
    assert!(m.unfold(0, 2, 0).is_err() && m.diagonal(0, 1, 1).is_err());
    assert!(m.movedim([0, 1], 0).is_err() && m.movedim([0, 0], [0, 1]).is_err());
    assert!(error(m.sum_to_size([2, 4])).contains("broadcasts to [3, 4]"));
    assert_eq!(Tensor::broadcast_shapes(&[&[3, 1], &[], &[4]])?[..], [3, 4]);
    assert!(Tensor::broadcast_shapes(&[&[3], &[4]]).is_err());
    Ok(())
}
