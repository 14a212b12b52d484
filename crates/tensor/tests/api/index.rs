//! Elements chosen or placed by index.

use rustorch_tensor::tensor;

use crate::{Outcome, assert_close, error};

#[test]
fn gathered_and_scattered() -> Outcome {
    let x = tensor![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]];
    let index = tensor![[2, 0], [1, 1]];
    assert_close(&x.gather(1, &index)?, &[3.0, 1.0, 5.0, 5.0]);
    assert_close(
        &x.gather(-2, &tensor![[1, 0, 1]].reshape([1, 3])?)?,
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
    assert!(error(x.gather(1, &index.to_dtype(rustorch_ir::DType::F32)?)).starts_with("gather: "));
    assert!(x.gather(0, &tensor![1, 1]).is_err(), "of the same rank");
    assert!(
        x.scatter(1, &index, &tensor![[1, 2], [3, 4]]).is_err(),
        "of the same dtype"
    );
    Ok(())
}

#[test]
fn selected() -> Outcome {
    let x = tensor![[1, 2, 3], [4, 5, 6]];
    let picked = x.index_select(-1, &tensor![2, 2, 0])?;
    assert_eq!(picked.to_vec::<i64>()?, [3, 3, 1, 6, 6, 4]);
    assert_eq!(
        x.index_select(0, &tensor!([1i64]).narrow(0, 0, 0)?)?
            .shape(),
        [0, 3]
    );
    assert!(x.index_select(0, &tensor![[0, 1], [1, 0]]).is_err());
    Ok(())
}
