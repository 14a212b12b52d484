//! The same elements at other places, joined, continued.

use rustorch_ir::DType;
use rustorch_tensor::{Indexing, PadMode, Tensor, tensor};

use crate::{Outcome, assert_rows, error};

#[test]
fn as_in_pytorch() -> Outcome {
    let count = |n| Tensor::arange_with(0, n, 1, DType::I64);
    let (x, m, v) = (
        count(24)?.reshape([2, 3, 4])?,
        count(12)?.reshape([3, 4])?,
        count(5)?,
    );
    assert_rows::<i64>(&[
        (
            "m.flip(0, 1)",
            m.flip([0, 1])?,
            &[3, 4],
            &[11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
        ),
        (
            "m.fliplr()",
            m.fliplr()?,
            &[3, 4],
            &[3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8],
        ),
        (
            "m.flipud()",
            m.flipud()?,
            &[3, 4],
            &[8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3],
        ),
        ("v.roll(-2, 0)", v.roll([-2], 0)?, &[5], &[2, 3, 4, 0, 1]),
        (
            "m.roll((5, 1), (1, 0))",
            m.roll([5, 1], [1, 0])?,
            &[3, 4],
            &[11, 8, 9, 10, 3, 0, 1, 2, 7, 4, 5, 6],
        ),
        (
            "m.roll(1)",
            m.roll([1], None)?,
            &[3, 4],
            &[11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
        ),
        (
            "m.roll((1, 1), (0, 0))",
            m.roll([1, 1], [0, 0])?,
            &[3, 4],
            &[4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3],
        ),
        (
            "m.rot90(1, (0, 1))",
            m.rot90(1, [0, 1])?,
            &[4, 3],
            &[3, 7, 11, 2, 6, 10, 1, 5, 9, 0, 4, 8],
        ),
        (
            "m.rot90(-1, (0, 1))",
            m.rot90(-1, [0, 1])?,
            &[4, 3],
            &[8, 4, 0, 9, 5, 1, 10, 6, 2, 11, 7, 3],
        ),
        (
            "m.rot90(2, (0, 1))",
            m.rot90(2, [0, 1])?,
            &[3, 4],
            &[11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0],
        ),
        (
            "v[:2].repeat(2, 2)",
            v.narrow(0, 0, 2)?.repeat([2, 2])?,
            &[2, 4],
            &[0, 1, 0, 1, 0, 1, 0, 1],
        ),
        (
            "v[:2].unsqueeze(1).tile(2)",
            v.narrow(0, 0, 2)?.unsqueeze(1)?.tile([2])?,
            &[2, 2],
            &[0, 0, 1, 1],
        ),
        (
            "v[:3].repeat_interleave(2)",
            v.narrow(0, 0, 3)?.repeat_interleave(2, None)?,
            &[6],
            &[0, 0, 1, 1, 2, 2],
        ),
        (
            "m[:, :2].repeat_interleave(torch.tensor([2, 0, 1]), 0)",
            m.narrow(1, 0, 2)?.repeat_interleave(&tensor![2, 0, 1], 0)?,
            &[3, 2],
            &[0, 1, 0, 1, 8, 9],
        ),
        (
            "F.pixel_shuffle(torch.arange(16).reshape(4, 2, 2), 2)",
            Tensor::arange_with(0, 16, 1, DType::I64)?
                .reshape([4, 2, 2])?
                .pixel_shuffle(2)?,
            &[1, 4, 4],
            &[0, 4, 1, 5, 8, 12, 9, 13, 2, 6, 3, 7, 10, 14, 11, 15],
        ),
        (
            "F.pixel_unshuffle(torch.arange(16).reshape(1, 4, 4), 2)",
            Tensor::arange_with(0, 16, 1, DType::I64)?
                .reshape([1, 4, 4])?
                .pixel_unshuffle(2)?,
            &[4, 2, 2],
            &[0, 2, 8, 10, 1, 3, 9, 11, 4, 6, 12, 14, 5, 7, 13, 15],
        ),
        (
            "F.channel_shuffle(torch.arange(6).reshape(1, 6, 1, 1), 2).squeeze(-1)",
            Tensor::arange_with(0, 6, 1, DType::I64)?
                .reshape([1, 6, 1])?
                .channel_shuffle(2)?,
            &[1, 6, 1],
            &[0, 3, 1, 4, 2, 5],
        ),
        (
            "torch.hstack((v, torch.tensor(7)))",
            Tensor::hstack(&[&v, &tensor!(7)])?,
            &[6],
            &[0, 1, 2, 3, 4, 7],
        ),
        (
            "torch.vstack((v, v))",
            Tensor::vstack(&[&v, &v])?,
            &[2, 5],
            &[0, 1, 2, 3, 4, 0, 1, 2, 3, 4],
        ),
        (
            "torch.dstack((v, v))",
            Tensor::dstack(&[&v, &v])?,
            &[1, 5, 2],
            &[0, 0, 1, 1, 2, 2, 3, 3, 4, 4],
        ),
        (
            "torch.column_stack((v, v.unsqueeze(1)))",
            Tensor::column_stack(&[&v, &v.unsqueeze(1)?])?,
            &[5, 2],
            &[0, 0, 1, 1, 2, 2, 3, 3, 4, 4],
        ),
        (
            "torch.block_diag(torch.tensor([[1, 2]]), torch.tensor(3), torch.tensor([4, 5]))",
            Tensor::block_diag(&[&tensor![1, 2], &tensor!(3), &tensor![4, 5]])?,
            &[3, 5],
            &[1, 2, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 4, 5],
        ),
        (
            "torch.cartesian_prod(torch.tensor([1, 2]), torch.tensor([3, 4, 5]))",
            Tensor::cartesian_prod(&[&tensor![1, 2], &tensor![3, 4, 5]])?,
            &[6, 2],
            &[1, 3, 1, 4, 1, 5, 2, 3, 2, 4, 2, 5],
        ),
        (
            "torch.combinations(v, 4)",
            v.combinations(4, false)?,
            &[5, 4],
            &[0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 3, 4, 0, 2, 3, 4, 1, 2, 3, 4],
        ),
        (
            "torch.combinations(v[:3], 2, with_replacement=True)",
            v.narrow(0, 0, 3)?.combinations(2, true)?,
            &[6, 2],
            &[0, 0, 0, 1, 0, 2, 1, 1, 1, 2, 2, 2],
        ),
        (
            "torch.combinations(v[:3], 4)",
            v.narrow(0, 0, 3)?.combinations(4, false)?,
            &[0, 4],
            &[],
        ),
        (
            "torch.meshgrid(torch.tensor([1, 2]), torch.tensor([3, 4, 5]), indexing=xy)[0]",
            Tensor::meshgrid(&[&tensor![1, 2], &tensor![3, 4, 5]], Indexing::Xy)?[0].clone(),
            &[3, 2],
            &[1, 2, 1, 2, 1, 2],
        ),
        (
            "torch.cat((torch.zeros(0, dtype=torch.int64), m), 1)",
            Tensor::cat(&[&Tensor::zeros([0], DType::I64)?, &m], 1)?,
            &[3, 4],
            &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        ),
        (
            "F.pad(m, (-1, 1), value=9)",
            m.pad([-1, 1], 9)?,
            &[3, 4],
            &[1, 2, 3, 9, 5, 6, 7, 9, 9, 10, 11, 9],
        ),
        (
            "F.pad(m.float(), (2, 3), mode=reflect).long()",
            m.pad([2, 3], PadMode::Reflect)?,
            &[3, 9],
            &[
                2, 1, 0, 1, 2, 3, 2, 1, 0, 6, 5, 4, 5, 6, 7, 6, 5, 4, 10, 9, 8, 9, 10, 11, 10, 9, 8,
            ],
        ),
        (
            "F.pad(x.float(), (1, 0, -1, 2), mode=replicate).long()",
            x.pad([1, 0, -1, 2], PadMode::Replicate)?,
            &[2, 4, 5],
            &[
                4, 4, 5, 6, 7, 8, 8, 9, 10, 11, 8, 8, 9, 10, 11, 8, 8, 9, 10, 11, 16, 16, 17, 18,
                19, 20, 20, 21, 22, 23, 20, 20, 21, 22, 23, 20, 20, 21, 22, 23,
            ],
        ),
        (
            "F.pad(m.float(), (4, 1), mode=circular).long()",
            m.pad([4, 1], PadMode::Circular)?,
            &[3, 9],
            &[
                0, 1, 2, 3, 0, 1, 2, 3, 0, 4, 5, 6, 7, 4, 5, 6, 7, 4, 8, 9, 10, 11, 8, 9, 10, 11, 8,
            ],
        ),
    ]);
    Ok(())
}

#[test]
fn rank_0_and_empty() -> Outcome {
    let one = tensor!(7);
    for same in [one.flip(0)?, one.roll([3], None)?, one.repeat([])?] {
        assert_eq!((same.shape(), same.to_scalar::<i64>()?), (&[][..], 7));
    }
    assert_eq!(one.repeat([2, 2])?.to_vec::<i64>()?, [7; 4]);
    assert_eq!(one.repeat_interleave(2, None)?.to_vec::<i64>()?, [7, 7]);
    let none = Tensor::zeros([0, 3], DType::F32)?;
    for same in [
        none.flip([0, 1])?,
        none.roll([1, 1], [0, 1])?,
        none.rot90(2, [0, 1])?,
    ] {
        assert_eq!((same.shape(), same.to_vec::<f32>()?), (&[0, 3][..], vec![]));
    }
    assert_eq!(none.pad([1, 1, 2, 0], 1)?.to_vec::<f32>()?, [1.0; 10]);
    assert_eq!(none.repeat([2, 0])?.shape(), [0, 0]);
    assert_eq!(Tensor::block_diag(&[&none, &tensor![1.0]])?.shape(), [1, 4]);
    assert_eq!(
        tensor![1, 2].repeat_interleave(&tensor![0, 0], 0)?.shape(),
        [0]
    );
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() -> Outcome {
    let m = Tensor::zeros([3, 4], DType::F32)?;
    let got = error(m.pad([4, 0], PadMode::Reflect));
    assert_eq!(
        got,
        "pad: expected a padding less than 4 indices of dimension 1, got 4 and 0"
    );
    assert!(m.pad([5, 0], PadMode::Circular).is_err());
    assert!(m.narrow(1, 0, 0)?.pad([1, 0], PadMode::Replicate).is_err());
    assert!(error(m.pad([-3, -2], 0)).contains("leaves some of the 4 indices"));
    assert!(error(m.repeat([2])).contains("at least 2 counts"));
    assert!(m.repeat([usize::MAX, 2]).is_err() && m.tile([usize::MAX]).is_err());
    assert!(error(m.roll([1], [0, 1])).contains("a shift for each dimension"));
    assert!(m.rot90(1, [0, 0]).is_err() && m.flip([0, 0]).is_err());
    assert!(error(m.repeat_interleave(&tensor![1, 2], 0)).contains("3 counts, or one"));
    assert!(error(m.repeat_interleave(&tensor!(-1), 0)).contains("not negative"));
    assert!(m.pixel_shuffle(2).is_err() && m.channel_shuffle(2).is_err());
    assert!(error(Tensor::cat(&[&tensor!(1.0), &m], 0)).contains("rank 1 or more"));
    assert!(
        Tensor::meshgrid(&[], Indexing::Ij).is_err() && Tensor::hstack(&[] as &[Tensor]).is_err()
    );
    Ok(())
}
