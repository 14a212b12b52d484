//! Printing.

use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_tensor::{Tensor, tensor};

use crate::Outcome;

#[test]
fn as_pytorch_prints() -> Outcome {
    for (x, text) in [
        (tensor!(2.5), "tensor(2.5000)"),
        (tensor!(7), "tensor(7)"),
        (tensor![1.0, -2.0], "tensor([ 1., -2.])"),
        (
            tensor![0.5, 10.0, f64::INFINITY],
            "tensor([ 0.5000, 10.0000,     inf])",
        ),
        (tensor![0.0, f64::NAN], "tensor([0., nan])"),
        (tensor![1.0, 20000.0], "tensor([1.0000e+00, 2.0000e+04])"),
        (tensor![0.00001], "tensor(1.0000e-05)"),
        (tensor![true, false], "tensor([ True, False])"),
        (
            tensor![[1, 20], [300, -4]],
            "tensor([[  1,  20],\n        [300,  -4]])",
        ),
        (tensor![1u8, 2], "tensor([1, 2], dtype=u8)"),
        (Tensor::zeros([0], DType::F32)?, "tensor([])"),
        (
            Tensor::zeros([2, 0], DType::F64)?,
            "tensor([], size=(2, 0), dtype=f64)",
        ),
        (
            tensor![Complex::new(1.0f32, -2.5), Complex::new(-1.0, 0.0)],
            "tensor([ 1.-2.5000j, -1.+0.0000j])",
        ),
    ] {
        assert_eq!(x.to_string(), text);
        assert_eq!(format!("{x:?}"), text);
    }
    Ok(())
}

#[test]
fn higher_dimensions_and_long_lines() -> Outcome {
    let x = Tensor::arange(0, 8, 1, DType::I64)?.reshape([2, 2, 2])?;
    let text = "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])";
    assert_eq!(x.to_string(), text);
    let long = Tensor::arange(0, 40, 1, DType::I64)?.to_string();
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].starts_with("tensor([ 0,  1,") && lines[0].ends_with(" 17,"),
        "{long}"
    );
    assert!(lines[1].starts_with("        18, 19,"), "{long}");
    let large = Tensor::arange(0, 1001, 1, DType::I64)?;
    assert_eq!(
        large.to_string(),
        "tensor([   0,    1,    2,  ...,  998,  999, 1000])"
    );
    let table = Tensor::zeros([1000, 2], DType::F32)?.to_string();
    assert_eq!(table.lines().count(), 7);
    assert_eq!(table.lines().nth(3), Some("        ...,"));
    Ok(())
}

#[test]
fn what_has_no_value_says_why() -> Outcome {
    let x = Tensor::placeholder([2], DType::F32)?;
    let text = x.to_string();
    assert!(
        text.starts_with("tensor(<")
            && text.contains("eval: expected values")
            && text.ends_with(", size=[2], dtype=f32)"),
        "{text}"
    );
    Ok(())
}
