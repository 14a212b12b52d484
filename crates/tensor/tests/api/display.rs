//! Printing.

use half::f16;
use num_complex::Complex;
use rustorch_ir::{BlockFormat, DType};
use rustorch_runtime::{HostBuffer, Storage};
use rustorch_tensor::{RusTorchResult, Tensor, tensor};

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
    let x = Tensor::arange_with(0, 8, 1, DType::I64)?.reshape([2, 2, 2])?;
    let text = "tensor([[[0, 1],\n         [2, 3]],\n\n        [[4, 5],\n         [6, 7]]])";
    assert_eq!(x.to_string(), text);
    let long = Tensor::arange_with(0, 40, 1, DType::I64)?.to_string();
    let lines: Vec<&str> = long.lines().collect();
    assert_eq!(lines.len(), 3);
    assert!(
        lines[0].starts_with("tensor([ 0,  1,") && lines[0].ends_with(" 17,"),
        "{long}"
    );
    assert!(lines[1].starts_with("        18, 19,"), "{long}");
    let large = Tensor::arange_with(0, 1001, 1, DType::I64)?;
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

/// Tensors that no memory could hold are printed: only the elements that are shown are made.
#[test]
fn constants_are_not_computed_whole() -> Outcome {
    let huge = 1 << 24;
    let ones = |size: usize| Tensor::ones([size, size], DType::F32);
    let text = ones(2000)?.to_string();
    assert_eq!(ones(huge)?.to_string(), text);
    assert_eq!(ones(huge)?.t()?.to_string(), text);
    assert_eq!(ones(huge)?.reshape([huge / 2, huge * 2])?.to_string(), text);
    let part = ones(huge)?.narrow(0, 5, 2)?.narrow(1, 7, 2)?.add(1)?;
    assert_eq!(part.to_vec::<f32>()?, [2.0; 4]);
    let line = Tensor::arange_with(0, 1i64 << 40, 1, DType::F64)?;
    assert_eq!(
        line.to_string(),
        "tensor([0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 1.0995e+12, 1.0995e+12,\n        \
         1.0995e+12], dtype=f64)"
    );
    let steps = Tensor::arange_with(7, -(1i64 << 41), -2, DType::I64)?;
    let chosen = steps.slice(0, 10, 1_isize << 39, 1 << 38)?.add(1)?;
    assert_eq!(chosen.to_vec::<i64>()?, [-12, -12 - (1 << 39)]);
    Ok(())
}

/// Elementwise operations on constants are done only for the elements that are shown.
#[test]
fn operations_on_constants_are_not_computed_whole() -> Outcome {
    let huge = 1 << 24;
    let text_of = |make: fn(usize) -> RusTorchResult<Tensor>| -> Outcome {
        assert_eq!(make(huge)?.to_string(), make(2000)?.eval()?.to_string());
        Ok(())
    };
    text_of(|n| Tensor::ones([n, n], DType::F32)?.mul(2.5))?;
    text_of(|n| {
        Tensor::full([n, n], 3, DType::I64)?
            .add(1)?
            .to_dtype(DType::F64)
    })?;
    text_of(|n| {
        let line = Tensor::full([n, 1], 0.5, DType::F64)?;
        line.exp()?.add(Tensor::ones([n], DType::F64)?)?.gt(1.5)
    })?;
    text_of(|n| Tensor::ones([2, n, 3, n], DType::F32)?.add(1)?.sqrt())?;
    let many = |n| (0..60).try_fold(Tensor::ones(n, DType::F64)?, |x, _| x.add(&x));
    let text = many(huge * huge)?.to_string();
    assert_eq!(text, many(2000)?.eval()?.to_string());
    let eye = "tensor([[1., 0., 0.,  ..., 0., 0., 0.],\n        [0., 1., 0.,  ..., 0., 0., 0.],\n        \
               [0., 0., 1.,  ..., 0., 0., 0.],\n        ...,\n        \
               [0., 0., 0.,  ..., 1., 0., 0.],\n        [0., 0., 0.,  ..., 0., 1., 0.],\n        \
               [0., 0., 0.,  ..., 0., 0., 1.]])";
    assert_eq!(Tensor::eye(huge, DType::F32)?.to_string(), eye);
    assert_eq!(Tensor::eye(2000, DType::F32)?.eval()?.to_string(), eye);
    let mistake = Tensor::ones([huge, huge], DType::I64)?.floor_divide(0)?;
    assert!(mistake.to_string().contains("floor_divide at"), "{mistake}");
    Ok(())
}

/// Only the rows of blocks that are shown are converted.
#[test]
fn blocks_are_printed_by_rows() -> Outcome {
    let q8_0 = DType::Block(BlockFormat::Q8_0);
    let row = |i: u16| {
        let mut row = f16::from_f32(f32::from(i % 97)).to_le_bytes().to_vec();
        row.extend([i as u8 % 100; 32]);
        row
    };
    for shape in [
        &[500, 32][..],
        &[10, 5, 10, 64],
        &[9, 9, 32],
        &[3, 32],
        &[6400],
    ] {
        let blocks = shape.iter().product::<usize>() / 32;
        let bytes: Vec<u8> = (0..blocks as u16).flat_map(row).collect();
        let buffer = HostBuffer::copy_of(&bytes).expect("there is room");
        let x = Tensor::from_storage(Storage::from_host(buffer), shape, q8_0)?;
        let whole = x.to_dtype(DType::F32)?.to_string();
        let text = x.to_string();
        let text = text.replace(&format!(", dtype={}", q8_0.name()), "");
        assert_eq!(text, whole, "{shape:?}");
    }
    Ok(())
}
