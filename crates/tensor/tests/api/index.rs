//! Elements chosen or placed by index.

use rustorch_ir::DType;
use rustorch_tensor::{Ellipsis, Index, NewAxis, Tensor, tensor};

use crate::{Outcome, assert_close, assert_rows, error};

#[test]
fn gathered_and_scattered() -> Outcome {
    let x = tensor![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let index = tensor![[2, 0], [1, 1]];
    assert_close(&x.gather(1, &index)?, &[3.0, 1.0, 5.0, 5.0]);
    assert_close(
        &x.gather(-2, &tensor![1, 0, 1].reshape([1, 3])?)?,
        &[4.0, 2.0, 6.0],
    );
    let source = tensor![[10.0, 20.0], [30.0, 40.0]];
    let set = x.scatter(1, &index, &source)?;
    assert_close(&set, &[20.0, 2.0, 10.0, 4.0, 40.0, 6.0]);
    let added = x.scatter_add(1, &index, &source)?;
    assert_close(&added, &[21.0, 2.0, 13.0, 4.0, 75.0, 6.0]);
    assert_close(&x, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert!(x.gather(1, &tensor![[3, 0], [0, 0]])?.eval().is_err());
    assert!(
        x.scatter(1, &tensor![[-1, 0], [0, 0]], &source)?
            .eval()
            .is_err()
    );
    assert!(error(x.gather(1, &index.to_dtype(DType::F32)?)).starts_with("gather: "));
    assert!(x.gather(0, &tensor![1, 1]).is_err(), "of the same rank");
    assert!(
        x.scatter(1, &index, tensor![[1, 2], [3, 4]]).is_err(),
        "of the same dtype"
    );
    Ok(())
}

/// A chain of additions in single precision loses every one that is added to 2²⁴.
#[test]
fn many_addends_of_one_place_keep_their_digits() -> Outcome {
    let ones = Tensor::ones([3, 40_000], DType::F32)?;
    let large = Tensor::full([3, 2], 16_777_216.0, DType::F32)?;
    let index = Tensor::arange_with(0, 40_000, 1, DType::I64)?.remainder(2)?;
    let expected = [16_797_216.0; 6];
    let added = large.index_add(1, &index, &ones, 1.0)?;
    assert_eq!(added.to_vec::<f32>()?, expected);
    let index = index.expand([3, 40_000])?;
    let added = large.scatter_add(1, &index, &ones)?;
    assert_eq!(added.to_vec::<f32>()?, expected);
    let of_rows = (large.t()?).scatter_add(0, &index.t()?, &ones.t()?)?;
    assert_eq!(of_rows.to_vec::<f32>()?, expected);
    Ok(())
}

#[test]
fn selected() -> Outcome {
    let x = tensor![[1, 2, 3], [4, 5, 6]];
    let picked = x.index_select(-1, &tensor![2, 2, 0])?;
    assert_eq!(picked.to_vec::<i64>()?, [3, 3, 1, 6, 6, 4]);
    assert_eq!(
        x.index_select(0, &tensor![1i64,].narrow(0, 0, 0)?)?.shape(),
        [0, 3]
    );
    assert!(x.index_select(0, &tensor![[0, 1], [1, 0]]).is_err());
    Ok(())
}

/// `[2, 3, 4]`, `[3, 4]` and `[5]`, counted.
fn operands() -> rustorch_tensor::RusTorchResult<[Tensor; 3]> {
    let count = |n| Tensor::arange_with(0, n, 1, DType::I64);
    Ok([
        count(24)?.reshape([2, 3, 4])?,
        count(12)?.reshape([3, 4])?,
        count(5)?,
    ])
}

#[test]
fn as_in_pytorch() -> Outcome {
    let [x, m, v] = operands()?;
    let (idx, two) = (tensor![[1, -1], [0, 0]], tensor![2, -4]);
    let mask = m.remainder(3)?.eq(0)?;
    assert_rows::<i64>(&[
        (
            "x[:, 1:3, -1]",
            x.index((.., 1..3, -1))?,
            &[2, 2],
            &[7, 11, 19, 23],
        ),
        (
            "x[..., ::2]",
            x.index((Ellipsis, Index::slice(None, None, 2)))?,
            &[2, 3, 2],
            &[0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22],
        ),
        (
            "x[1, None, :2, None]",
            x.index((1, None, ..=1, NewAxis))?,
            &[1, 2, 1, 4],
            &[12, 13, 14, 15, 16, 17, 18, 19],
        ),
        (
            "x[-1, :-1, -3:]",
            x.index((-1, ..-1, -3..))?,
            &[2, 3],
            &[13, 14, 15, 17, 18, 19],
        ),
        (
            "x[idx]",
            x.index(&idx)?,
            &[2, 2, 3, 4],
            &[
                12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 12, 13, 14, 15, 16, 17, 18, 19, 20,
                21, 22, 23, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
                11,
            ],
        ),
        (
            "x[:, idx, 0]",
            x.index((.., &idx, 0))?,
            &[2, 2, 2],
            &[4, 8, 0, 0, 16, 20, 12, 12],
        ),
        (
            "x[idx, :, two]",
            x.index((&idx, .., &two))?,
            &[2, 2, 3],
            &[14, 18, 22, 12, 16, 20, 2, 6, 10, 0, 4, 8],
        ),
        (
            "x[0, :, two]",
            x.index((0, .., &two))?,
            &[3, 2],
            &[2, 0, 6, 4, 10, 8],
        ),
        (
            "x[torch.tensor(1), :, two]",
            x.index((&tensor!(1), .., &two))?,
            &[3, 2],
            &[14, 12, 18, 16, 22, 20],
        ),
        (
            "x[:, torch.tensor([0, 2]), two]",
            x.index((.., &tensor![0, 2], &two))?,
            &[2, 2],
            &[2, 8, 14, 20],
        ),
        (
            "x[torch.tensor([0, 1]), torch.tensor([[2], [0]]), two]",
            x.index((&tensor![0, 1], &tensor![[2], [0]], &two))?,
            &[2, 2],
            &[10, 20, 2, 12],
        ),
        ("m[mask]", m.index(&mask)?, &[4], &[0, 3, 6, 9]),
        (
            "x[:, mask]",
            x.index((.., &mask))?,
            &[2, 4],
            &[0, 3, 6, 9, 12, 15, 18, 21],
        ),
        (
            "x[torch.tensor([True, False]), :, two]",
            x.index((&tensor![true, false], .., &two))?,
            &[2, 3],
            &[2, 6, 10, 0, 4, 8],
        ),
        ("v[True]", v.index(true)?, &[1, 5], &[0, 1, 2, 3, 4]),
        ("v[False, 1:3]", v.index((false, 1..3))?, &[0, 2], &[]),
        (
            "v[torch.tensor(True)]",
            v.index(tensor!(true))?,
            &[1, 5],
            &[0, 1, 2, 3, 4],
        ),
        ("v[5:]", v.index(5..)?, &[0], &[]),
        (
            "x[torch.zeros(0, 2, dtype=torch.int64)]",
            x.index(&Tensor::zeros([0, 2], DType::I64)?)?,
            &[0, 2, 3, 4],
            &[],
        ),
        (
            "m.take(torch.tensor([[-1, 0], [5, 2]]))",
            m.take(&tensor![[-1, 0], [5, 2]])?,
            &[2, 2],
            &[11, 0, 5, 2],
        ),
        (
            "m.put(torch.tensor([-1, 0]), torch.tensor([70, 80]))",
            m.put(&tensor![-1, 0], &tensor![70, 80], false)?,
            &[3, 4],
            &[80, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 70],
        ),
        (
            "m.put(torch.tensor([1, 1]), torch.tensor([70, 80]), True)",
            m.put(&tensor![1, 1], &tensor![70, 80], true)?,
            &[3, 4],
            &[0, 151, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        ),
        (
            "m.take_along_dim(torch.tensor([[3, 0], [1, 1], [-1, 2]]), 1)",
            m.take_along_dim(&tensor![[3, 0], [1, 1], [-1, 2]], 1)?,
            &[3, 2],
            &[3, 0, 5, 5, 11, 10],
        ),
        (
            "m.take_along_dim(torch.tensor([[2, 0, 0, 2]]), 0)[:, :2]",
            m.take_along_dim(&tensor![[2, 0, 0, 2]], 0)?
                .narrow(1, 0, 2)?,
            &[1, 2],
            &[8, 1],
        ),
        (
            "m.take_along_dim(torch.tensor([11, 3]))",
            m.take_along_dim(&tensor![11, 3], None)?,
            &[2],
            &[11, 3],
        ),
        (
            "v.index_add(0, torch.tensor([0, 0, 4]), torch.tensor([1, 2, 3]), alpha=-2)",
            v.index_add(0, &tensor![0, 0, 4], &tensor![1, 2, 3], -2)?,
            &[5],
            &[-6, 1, 2, 3, -2],
        ),
        (
            "m.index_copy(1, torch.tensor([3, 0]), m[:, :2])",
            m.index_copy(1, &tensor![3, 0], &m.narrow(1, 0, 2)?)?,
            &[3, 4],
            &[1, 1, 2, 0, 5, 5, 6, 4, 9, 9, 10, 8],
        ),
        (
            "m.index_fill(0, torch.tensor([-1]), 7)",
            m.index_fill(0, &tensor![-1], 7)?,
            &[3, 4],
            &[0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7, 7],
        ),
        (
            "torch.tensor(3).index_fill(0, torch.tensor(0), 7)",
            tensor!(3).index_fill(0, &tensor!(0), 7)?,
            &[],
            &[7],
        ),
        (
            "v.scatter(0, torch.tensor([1, 3]), 9)",
            v.scatter(0, &tensor![1, 3], 9)?,
            &[5],
            &[0, 9, 2, 9, 4],
        ),
        (
            "v.scatter(0, torch.tensor([1, 3]), torch.tensor([7, 8, 9]))",
            v.scatter(0, &tensor![1, 3], tensor![7, 8, 9])?,
            &[5],
            &[0, 7, 2, 8, 4],
        ),
        (
            "torch.tensor(3).gather(0, torch.tensor([0, 0]))",
            tensor!(3).gather(0, &tensor![0, 0])?,
            &[2],
            &[3, 3],
        ),
        (
            "m.masked_select(torch.tensor([True, False, False, True]))",
            m.masked_select(&tensor![true, false, false, true])?,
            &[6],
            &[0, 3, 4, 7, 8, 11],
        ),
        (
            "m.masked_scatter(mask, torch.tensor([9, 8, 7, 6]))",
            m.masked_scatter(&mask, &tensor![9, 8, 7, 6])?,
            &[3, 4],
            &[9, 1, 2, 8, 4, 5, 7, 7, 8, 6, 10, 11],
        ),
        (
            "((m != 3) & (m < 6)).nonzero()",
            m.ne(3)?.logical_and(&m.lt(6)?)?.nonzero()?,
            &[5, 2],
            &[0, 0, 0, 1, 0, 2, 1, 0, 1, 1],
        ),
        (
            "torch.tensor(2.0).nonzero()",
            tensor!(2.0).nonzero()?,
            &[1, 0],
            &[],
        ),
        (
            "mask.nonzero(as_tuple=True)[1]",
            mask.nonzero_tuple()?[1].clone(),
            &[4],
            &[0, 3, 2, 1],
        ),
        (
            "m.select_scatter(torch.tensor([7, 8, 9]), 1, -2)",
            m.select_scatter(&tensor![7, 8, 9], 1, -2)?,
            &[3, 4],
            &[0, 1, 7, 3, 4, 5, 8, 7, 8, 9, 9, 11],
        ),
        (
            "m.slice_scatter(m[:, :2], 1, -3, 99, 2)",
            m.slice_scatter(&m.narrow(1, 0, 2)?, 1, -3, 99, 2)?,
            &[3, 4],
            &[0, 0, 2, 1, 4, 4, 6, 5, 8, 8, 10, 9],
        ),
        (
            "v.slice_scatter(torch.tensor([8, 9]), 0, 3, 99, 1)",
            v.slice_scatter(&tensor![8, 9], 0, 3, 99, 1)?,
            &[5],
            &[0, 1, 2, 8, 9],
        ),
        (
            "m.as_strided_scatter(torch.tensor([[-1, -2], [-3, -4]]), (2, 2), (5, 2), 1)",
            m.as_strided_scatter(&tensor![[-1, -2], [-3, -4]], [2, 2], [5, 2], 1)?,
            &[3, 4],
            &[0, -1, 2, -2, 4, 5, -3, 7, -4, 9, 10, 11],
        ),
    ]);
    Ok(())
}

#[test]
fn put_as_in_pytorch() -> Outcome {
    let [x, m, v] = operands()?;
    let two = tensor![2, -4];
    let mask = m.remainder(3)?.eq(0)?;
    assert_rows::<i64>(&[
        (
            "v[1:3] = 9",
            v.index_put(1..3, 9, false)?,
            &[5],
            &[0, 9, 9, 3, 4],
        ),
        (
            "v[1:3] += torch.tensor([5, 6])",
            v.index_put(1..3, tensor![5, 6], true)?,
            &[5],
            &[0, 6, 8, 3, 4],
        ),
        (
            "m[:, -1] = torch.tensor([7, 8, 9])",
            m.index_put((.., -1), tensor![7, 8, 9], false)?,
            &[3, 4],
            &[0, 1, 2, 7, 4, 5, 6, 8, 8, 9, 10, 9],
        ),
        (
            "m[0, 1::2] = torch.tensor([7, 8])",
            m.index_put((0, Index::slice(1, None, 2)), tensor![7, 8], false)?,
            &[3, 4],
            &[0, 7, 2, 8, 4, 5, 6, 7, 8, 9, 10, 11],
        ),
        (
            "m[mask] = 0",
            m.index_put(&mask, 0, false)?,
            &[3, 4],
            &[0, 1, 2, 0, 4, 5, 0, 7, 8, 0, 10, 11],
        ),
        (
            "m[mask] = torch.tensor([9, 8, 7, 6])",
            m.index_put(&mask, tensor![9, 8, 7, 6], false)?,
            &[3, 4],
            &[9, 1, 2, 8, 4, 5, 7, 7, 8, 6, 10, 11],
        ),
        (
            "m[1:, torch.tensor([3, 0])] = torch.tensor([[9], [8]])",
            m.index_put((1.., &tensor![3, 0]), tensor![[9], [8]], false)?,
            &[3, 4],
            &[0, 1, 2, 3, 9, 5, 6, 9, 8, 9, 10, 8],
        ),
        (
            "m[torch.tensor([0, 2]), two] = torch.tensor([7, 8])",
            m.index_put((&tensor![0, 2], &two), tensor![7, 8], false)?,
            &[3, 4],
            &[0, 1, 7, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        ),
        (
            "m.index_put_((torch.tensor([0, 0]), torch.tensor([1, 1])), torch.tensor(10), True)",
            m.index_put((&tensor![0, 0], &tensor![1, 1]), 10, true)?,
            &[3, 4],
            &[0, 21, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        ),
        (
            "x[torch.tensor([1, 0]), :, torch.tensor([0, 1])] = torch.tensor([[7, 8, 9]])",
            x.narrow(2, 0, 2)?.index_put(
                (&tensor![1, 0], .., &tensor![0, 1]),
                tensor![7, 8, 9],
                false,
            )?,
            &[2, 3, 2],
            &[0, 7, 4, 8, 8, 9, 7, 13, 8, 17, 9, 21],
        ),
        (
            "m[torch.tensor(1), 0] = 9",
            m.index_put((&tensor!(1), 0), 9, false)?,
            &[3, 4],
            &[0, 1, 2, 3, 9, 5, 6, 7, 8, 9, 10, 11],
        ),
        (
            "x[...] = 6",
            tensor!(5).index_put(Ellipsis, 6, false)?,
            &[],
            &[6],
        ),
    ]);
    let mut y = tensor![1.0, 2.0, 3.0];
    y.index_put_(&y.gt(1)?, 0.5, false)?;
    assert_close(&y, &[1.0, 0.5, 0.5]);
    Ok(())
}

#[test]
fn indices_that_there_are_not_say_so() -> Outcome {
    let [x, m, v] = operands()?;
    assert_eq!(
        error(x.index((0, 3))),
        "index: expected an index of dimension 1, of size 3, got 3"
    );
    assert!(error(v.index((0, 0))).contains("at most 1 indices"));
    assert!(error(v.index(Index::slice(None, None, -1))).contains("flip reverses"));
    assert!(error(x.index((Ellipsis, Ellipsis))).contains("one ellipsis"));
    assert!(error(m.index(tensor![true, false])).contains("a mask [3]"));
    assert!(error(m.index(tensor![1.0])).contains("i64 or i32"));
    assert!(error(m.index((&tensor![0, 1], &tensor![0, 1, 2]))).contains("broadcast"));
    let outside = |result: rustorch_tensor::RusTorchResult<Tensor>| {
        error(result.and_then(|x| x.to_vec::<i64>()))
    };
    for (got, what) in [
        (m.index((.., &tensor![0, 4])), "dimension 1 of i64[3, 4]"),
        (m.index((&tensor![3, 0], &tensor![0, 0])), "dimension 0"),
        (m.index((&tensor![0, -4], &tensor![0, 0])), "dimension 0"),
        (v.take(&tensor!(-6)), "dimension 0 of i64[5]"),
        (
            v.index_add(0, &tensor![-1], &tensor![1], 1),
            "dimension 0 of i64[5]",
        ),
        (v.index_fill(0, &tensor![5], 1), "dimension 0 of i64[5]"),
    ] {
        let got = outside(got);
        assert!(got.contains(what) && got.contains("outside"), "{got}");
    }
    assert!(error(v.index_add(0, &tensor![0], &tensor![1.0], 1)).contains("i64[1]"));
    assert!(v.put(&tensor![0, 1], &tensor![1], false).is_err());
    let all = v.ge(0)?;
    assert!(error(v.masked_scatter(&all, &tensor![1, 2])).contains("at least 5 elements"));
    assert!(v.masked_select(&v).is_err());
    Ok(())
}
