//! Products of vectors and matrices.

use rustorch_ir::DType;
use rustorch_tensor::{Tensor, tensor};

use crate::{Outcome, assert_close, error};

#[test]
fn products_by_rank() -> Outcome {
    let (a, b) = (
        tensor![[1.0, 2.0], [3.0, 4.0]],
        tensor![[5.0, 6.0], [7.0, 8.0]],
    );
    let v = tensor![1.0, -1.0];
    assert_close(&a.matmul(&b)?, &[19.0, 22.0, 43.0, 50.0]);
    assert_close(&a.mm(&b.t()?)?, &[17.0, 23.0, 39.0, 53.0]);
    assert_close(&a.matmul(&v)?, &[-1.0, -1.0]);
    assert_close(&v.matmul(&a)?, &[-2.0, -2.0]);
    let dot = v.matmul(&v)?;
    assert_eq!((dot.rank(), dot.to_scalar::<f32>()?), (0, 2.0));
    assert_close(&a.mv(&v)?, &[-1.0, -1.0]);
    assert_close(&v.dot(&v)?, &[2.0]);
    let batch = Tensor::stack(&[&a, &b], 0)?;
    let swapped = Tensor::stack(&[&b, &a], 0)?;
    assert_close(
        &batch.bmm(&swapped)?,
        &[19.0, 22.0, 43.0, 50.0, 23.0, 34.0, 31.0, 46.0],
    );
    assert_close(&batch.matmul(&v)?, &[-1.0, -1.0, -1.0, -1.0]);
    let (wide, deep) = (batch.unsqueeze(1)?, b.unsqueeze(0)?);
    assert_eq!(wide.matmul(&deep)?.shape(), [2, 1, 2, 2]);
    assert_eq!(v.matmul(&batch)?.shape(), [2, 2]);
    assert_eq!(
        tensor![[1, 2], [3, 4]]
            .matmul(&tensor![1, 1])?
            .to_vec::<i64>()?,
        [3, 7]
    );
    let empty = Tensor::zeros([2, 0], DType::F32)?;
    assert_close(&empty.matmul(&empty.t()?)?, &[0.0; 4]);
    Ok(())
}

#[test]
fn unfit_operands() -> Outcome {
    let (a, v) = (tensor![[1.0, 2.0], [3.0, 4.0]], tensor![1.0, 2.0, 3.0]);
    assert!(error(a.matmul(&v)).starts_with("matmul: expected equal inner sizes"));
    assert!(error(a.matmul(&tensor!(1.0))).starts_with("matmul: expected operands of rank 1"));
    assert!(error(a.mm(&v)).starts_with("mm: expected operands of rank 2 and 2"));
    let ones = |shape: [usize; 3]| Tensor::ones(shape, DType::F32);
    assert_eq!(
        error(ones([2, 4, 5])?.matmul(&ones([3, 5, 6])?)),
        "matmul: expected batches that broadcast, got f32[2, 4, 5] and f32[3, 5, 6]"
    );
    assert!(a.bmm(&a).is_err() && a.dot(&v).is_err() && v.mv(&a).is_err());
    assert!(
        a.matmul(&tensor![[1, 2], [3, 4]]).is_err(),
        "dtypes are not promoted"
    );
    Ok(())
}

#[test]
fn norms_of_vectors_or_matrices() -> Outcome {
    use rustorch_tensor::linalg::{self, MatrixNorm};
    let x = tensor![[3.0, 0.0], [0.0, -4.0]];
    assert_close(&linalg::norm(&x, None, None, false)?, &[5.0]);
    assert_close(&linalg::norm(&x, MatrixNorm::Nuclear, None, false)?, &[7.0]);
    assert_close(
        &linalg::norm(&x, MatrixNorm::P(1.0), 0, false)?,
        &[3.0, 4.0],
    );
    assert_close(&linalg::norm(&x, MatrixNorm::P(1.0), (0, 1), true)?, &[4.0]);
    let cube = x.unsqueeze(0)?;
    assert_close(&linalg::norm(&cube, None, None, false)?, &[5.0]);
    let message = error(linalg::norm(&cube, MatrixNorm::P(2.0), None, false));
    assert!(message.contains("a vector or a matrix"), "{message}");
    for ord in [None, Some(MatrixNorm::P(2.0))] {
        let message = error(linalg::norm(&cube, ord, (0, 1, 2), false));
        assert!(
            message.contains("linalg.norm") && message.contains("one or two"),
            "{message}"
        );
    }
    let message = error(linalg::norm(&x, MatrixNorm::Frobenius, 1, false));
    assert!(message.contains("two dimensions"), "{message}");
    Ok(())
}
