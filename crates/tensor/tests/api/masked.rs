//! Functions of what a mask lets count, by `torch.masked`'s answers.

use rustorch_ir::DType;
use rustorch_tensor::{Tensor, masked, tensor};

use crate::{Outcome, assert_close_rows, assert_rows, error};

/// Three columns, of which the middle one does not count; or of the first row the outer ones, and nothing of the
/// second.
fn given() -> (Tensor, Tensor, Tensor) {
    let x = tensor![[1.0f32, -2.0, 3.0], [4.0, 5.0, -6.0]];
    let columns = tensor![true, false, true];
    let rows = tensor![[true, false, true], [false, false, false]];
    (x, columns, rows)
}

#[test]
fn what_does_not_count_changes_nothing() -> Outcome {
    let (x, columns, rows) = given();
    let (columns, rows) = (Some(&columns), Some(&rows));
    let inf = f32::INFINITY;
    assert_rows::<f32>(&[
        ("sum", masked::sum(&x, 1, false, rows)?, &[2], &[4.0, 0.0]),
        ("prod", masked::prod(&x, 1, false, rows)?, &[2], &[3.0, 1.0]),
        (
            "amax",
            masked::amax(&x, 1, false, rows)?,
            &[2],
            &[3.0, -inf],
        ),
        (
            "amin",
            masked::amin(&x, 1, true, columns)?,
            &[2, 1],
            &[1.0, -6.0],
        ),
        (
            "argmax",
            masked::argmax(&x, 1, false, columns)?,
            &[2],
            &[2.0, 0.0],
        ),
        (
            "argmin",
            masked::argmin(&x, 1, false, columns)?,
            &[2],
            &[0.0, 2.0],
        ),
        ("mean", masked::mean(&x, .., false, columns)?, &[], &[0.5]),
        (
            "cumsum",
            masked::cumsum(&x, 1, columns)?,
            &[2, 3],
            &[1.0, 1.0, 4.0, 4.0, 4.0, -2.0],
        ),
        (
            "cumprod",
            masked::cumprod(&x, 1, columns)?,
            &[2, 3],
            &[1.0, 1.0, 3.0, 4.0, 4.0, -24.0],
        ),
        (
            "norm(-inf)",
            masked::norm(&x, f64::NEG_INFINITY, 1, false, columns)?,
            &[2],
            &[1.0, 4.0],
        ),
        (
            "var",
            masked::var(&x, 1, 1, false, columns)?,
            &[2],
            &[2.0, 50.0],
        ),
        (
            "var(unbiased=False)",
            masked::var(&x, .., 0, false, rows)?,
            &[],
            &[1.0],
        ),
    ]);
    assert_close_rows(&[
        (
            "std",
            masked::std(&x, 1, 1, false, columns)?,
            &[2],
            &[2f32.sqrt(), 7.071068],
        ),
        (
            "norm",
            masked::norm(&x, 2.0, 1, false, columns)?,
            &[2],
            &[3.1622777, 7.2111025],
        ),
        (
            "normalize",
            masked::normalize(&x, 2.0, 1, 1e-12, columns)?,
            &[2, 3],
            &[0.31622776, 0.0, 0.94868326, 0.5547002, 0.0, -0.8320503],
        ),
        (
            "softmax",
            masked::softmax(&x, 1, columns)?,
            &[2, 3],
            &[0.11920292, 0.0, 0.880797, 0.9999546, 0.0, 4.539787e-5],
        ),
        (
            "softmin",
            masked::softmin(&x, 1, columns)?,
            &[2, 3],
            &[0.880797, 0.0, 0.11920292, 4.539787e-5, 0.0, 0.9999546],
        ),
        (
            "log_softmax",
            masked::log_softmax(&x, 1, columns)?.exp()?,
            &[2, 3],
            &[0.11920292, 0.0, 0.880797, 0.9999546, 0.0, 4.539787e-5],
        ),
        (
            "logsumexp",
            masked::logsumexp(&x, 1, false, rows)?.exp()?,
            &[2],
            &[22.80382, 0.0],
        ),
    ]);
    for nothing in [
        masked::mean(&x, 1, false, rows)?,
        masked::median(&x, 1, false, rows)?,
    ] {
        let [one, none] = nothing.to_vec::<f32>()?[..] else {
            panic!("{nothing}")
        };
        assert!(one > 0.0 && none.is_nan(), "{nothing}");
    }
    let both = masked::logaddexp(
        &x.i(0)?,
        &x.i(1)?,
        columns,
        Some(&tensor![true, false, true]),
    )?;
    assert_eq!(both.to_vec::<f32>()?[1], -inf);
    Ok(())
}

#[test]
fn integers_keep_their_dtype_where_pytorch_keeps_it() -> Outcome {
    let (_, columns, rows) = given();
    let (columns, rows) = (Some(&columns), Some(&rows));
    let n = tensor![[3, 1, 2], [7, 9, 8]].to_dtype(DType::I8)?;
    assert_rows::<i8>(&[
        ("amax", masked::amax(&n, 1, false, rows)?, &[2], &[3, -128]),
        ("amin", masked::amin(&n, 1, false, rows)?, &[2], &[2, 127]),
        (
            "cumsum",
            masked::cumsum(&n, 1, columns)?,
            &[2, 3],
            &[3, 3, 5, 7, 7, 15],
        ),
        (
            "argmax",
            masked::argmax(&n, 1, false, columns)?,
            &[2],
            &[0, 2],
        ),
    ]);
    assert_rows::<i64>(&[("sum", masked::sum(&n, 1, false, rows)?, &[2], &[5, 0])]);
    assert!(error(masked::median(&n, 1, false, rows)).contains("at least one selected element"));
    assert!(error(masked::mean(&n, 1, false, None)).contains("masked.mean"));
    let wide = tensor![true, false];
    assert!(masked::sum(&n, 1, false, Some(&wide)).is_err());
    Ok(())
}

#[test]
fn gradients_flow_to_what_counts() -> Outcome {
    let (x, columns, _) = given();
    let mut x = x;
    x.requires_grad_(true)?;
    masked::sum(&x.square()?, .., false, Some(&columns))?.backward()?;
    let gradient = x.grad().expect("a gradient").to_vec::<f32>()?;
    assert_eq!(gradient, [2.0, 0.0, 6.0, 8.0, 0.0, -12.0]);
    Ok(())
}
