//! Lines of PyTorch's tutorials, as its users write them in Rust: they compile as they stand, and give what PyTorch
//! gives.

#![cfg(feature = "nn")]

use std::env::temp_dir;
use std::error::Error;
use std::{fs, process};

use rustorch::nn::{CrossEntropyOptions, Forward, Module, Reduction};
use rustorch::optim::{Adam, AdamOptions, SGD, SGDOptions};
use rustorch::prelude::*;

type Outcome = Result<(), Box<dyn Error>>;

/// One line each: PyTorch's, this library's, and the shape of both.
macro_rules! shapes {
    ($($python:literal, $line:expr => $shape:expr;)*) => {
        $({
            let expected: &[usize] = &$shape;
            assert_eq!($line?.shape(), expected, $python);
        })*
    };
}

/// One line each: PyTorch's, this library's, and the elements of both.
macro_rules! numbers {
    ($($python:literal, $line:expr => $numbers:expr;)*) => {
        $({
            let expected: &[f64] = &$numbers;
            let found = $line?.to_dtype(DType::F64)?.to_vec::<f64>()?;
            assert_eq!(found, expected, $python);
        })*
    };
}

#[test]
fn tensors_are_made() -> Outcome {
    let (rows, x) = (vec![vec![1.0f32, 2.0], vec![3.0, 4.0]], tensor![1.0, 2.0]);
    shapes! {
        "torch.tensor([1., 2.])", Tensor::new([1., 2.]) => [2];
        "torch.tensor(rows)", Tensor::new(&rows) => [2, 2];
        "torch.zeros(2, 3)", Tensor::zeros((2, 3), DType::F32) => [2, 3];
        "torch.ones(3)", Tensor::ones(3, DType::F32) => [3];
        "torch.empty(2, 2)", Tensor::empty([2, 2], DType::F16) => [2, 2];
        "torch.full((2, 3), 7.)", Tensor::full((2, 3), 7., DType::F32) => [2, 3];
        "torch.eye(3)", Tensor::eye(3, DType::F32) => [3, 3];
        "torch.rand(2, 3)", Tensor::rand((2, 3), DType::F32) => [2, 3];
        "torch.randn(2, 3)", Tensor::randn((2, 3), DType::F32) => [2, 3];
        "torch.randint(0, 10, (3,))", Tensor::randint(0, 10, 3, DType::I64) => [3];
        "torch.zeros_like(x)", Tensor::zeros_like(&x) => [2];
        "torch.from_numpy(a)", Tensor::from_vec(vec![0.0f32; 6], (2, 3)) => [2, 3];
    }
    numbers! {
        "torch.arange(0, 4)", Tensor::arange(0, 4) => [0., 1., 2., 3.];
        "torch.arange(0.5, 3)", Tensor::arange(0.5, 3) => [0.5, 1.5, 2.5];
        "torch.arange(0, 1, 0.25)", Tensor::arange_with(0, 1, 0.25, DType::F32) => [0., 0.25, 0.5, 0.75];
        "torch.linspace(0, 1, 3)", Tensor::linspace(0, 1, 3, DType::F32) => [0., 0.5, 1.];
        "torch.tensor([[1, 2], [3, 4]])", Ok::<_, RusTorchError>(tensor![[1, 2], [3, 4]]) => [1., 2., 3., 4.];
    }
    assert_eq!(Tensor::arange(0, 10)?.dtype(), DType::I64);
    assert_eq!(Tensor::arange(0., 10)?.dtype(), DType::F32);
    assert!(Tensor::arange(3, 0).is_err());
    let halves = [rustorch::f16::from_f32(1.5), f16::from_f32(2.5)];
    assert_eq!(Tensor::new(halves)?.dtype(), DType::F16);
    let halves = [rustorch::bf16::from_f32(1.5), bf16::from_f32(2.5)];
    assert_eq!(Tensor::new(halves)?.dtype(), DType::BF16);
    Ok(())
}

#[test]
fn parts_are_taken() -> Outcome {
    let x = Tensor::arange(0, 6)?.reshape((2, 3))?;
    numbers! {
        "x[0]", x.i(0) => [0., 1., 2.];
        "x[:, 1]", x.i((.., 1)) => [1., 4.];
        "x[..., -1]", x.i((Ellipsis, -1)) => [2., 5.];
        "x[:, 1:3]", x.i((.., 1..3)) => [1., 2., 4., 5.];
        "x[x > 3]", x.i(&x.gt(3)?) => [4., 5.];
        "x[:, [0, 2]]", x.i((.., &tensor![0, 2])) => [0., 2., 3., 5.];
        "x.select(1, 0)", x.select(1, 0) => [0., 3.];
        "x.narrow(1, 1, 2)", x.narrow(1, 1, 2) => [1., 2., 4., 5.];
        "x[:, :2]", x.slice(1, None, 2, 1) => [0., 1., 3., 4.];
        "x[:, -2:]", x.slice(-1, -2, None, 1) => [1., 2., 4., 5.];
        "x[:, ::2]", x.slice(1, None, None, 2) => [0., 2., 3., 5.];
        "x.gather(1, i)", x.gather(1, &tensor![[2], [0]]) => [2., 3.];
    }
    assert_eq!(x.i((.., NewAxis))?.shape(), [2, 1, 3]);
    assert_eq!(x.i((0, 1))?.item()?, 1.0);
    let parts = |parts: Vec<Tensor>| -> Vec<usize> { parts.iter().map(|x| x.shape()[1]).collect() };
    assert_eq!(parts(x.split([1, 2], 1)?), [1, 2]);
    assert_eq!(parts(x.split([2, 1], 1)?), [2, 1]);
    assert_eq!(parts(x.split(vec![3], 1)?), [3]);
    assert_eq!(parts(x.split(2, 1)?), [2, 1]);
    assert_eq!(parts(x.chunk(3, 1)?), [1, 1, 1]);
    let error = x.split([1, 1], 1).unwrap_err().to_string();
    assert!(
        error.contains("sizes that add up to 3, got [1, 1]"),
        "{error}"
    );
    x.i(0)?.fill_(7)?;
    x.i((1, 0))?.zero_()?;
    assert_eq!(x.to_vec::<i64>()?, [7, 7, 7, 0, 4, 5]);
    Ok(())
}

#[test]
fn dimensions_are_reduced() -> Outcome {
    let x = tensor![[1.0, 2.0], [3.0, 6.0]];
    numbers! {
        "x.sum()", x.sum((), false) => [12.];
        "x.mean()", x.mean((), false) => [3.];
        "x.sum(1)", x.sum(1, false) => [3., 9.];
        "x.mean(dim=0)", x.mean(0, false) => [2., 4.];
        "x.mean((0, 1))", x.mean((0, 1), false) => [3.];
        "x.max()", x.max((), false) => [6.];
        "x.amin(-1)", x.amin(-1, false) => [1., 3.];
        "x.prod()", x.prod((), false) => [36.];
        "x.var(0)", x.var(0, 1, false) => [2., 8.];
        "x.argmax(1)", x.argmax(1, false) => [1., 1.];
        "x.cumsum(0)", x.cumsum(0) => [1., 2., 4., 8.];
        "x.norm(1)", x.norm(1, (), false) => [12.];
        "(x > 0).all()", x.gt(0)?.all((), false) => [1.];
        "(x > 9).any()", x.gt(9)?.any((), false) => [0.];
        "torch.sum(x)", Tensor::sum(&x, (), false) => [12.];
    }
    shapes! {
        "x.sum(1, keepdim=True)", x.sum(1, true) => [2, 1];
        "x.mean(keepdim=True)", x.mean((), true) => [1, 1];
    }
    let (values, indices) = x.max_dim(1, false)?;
    assert_eq!((values.shape(), indices.shape()), (&[2][..], &[2][..]));
    Ok(())
}

#[test]
fn shapes_are_changed() -> Outcome {
    let x = Tensor::zeros((2, 1, 3), DType::F32)?;
    let y = Tensor::zeros((2, 3), DType::F32)?;
    shapes! {
        "x.view(-1)", x.view(-1) => [6];
        "x.view(2, -1)", x.view((2, -1)) => [2, 3];
        "x.reshape(3, 2)", x.reshape((3, 2)) => [3, 2];
        "y.t()", y.t() => [3, 2];
        "x.transpose(0, 2)", x.transpose(0, 2) => [3, 1, 2];
        "x.permute(2, 0, 1)", x.permute((2, 0, 1)) => [3, 2, 1];
        "x.squeeze()", x.squeeze(()) => [2, 3];
        "x.squeeze(1)", x.squeeze(1) => [2, 3];
        "y.unsqueeze(-1)", y.unsqueeze(-1) => [2, 3, 1];
        "x.flatten(1)", x.flatten(1, -1) => [2, 3];
        "x.expand(2, 4, 3)", x.expand((2, 4, 3)) => [2, 4, 3];
        "y.repeat(2, 1)", y.repeat((2, 1)) => [4, 3];
        "torch.cat([y, y], 1)", Tensor::cat(&[&y, &y], 1) => [2, 6];
        "torch.stack([y, y])", Tensor::stack(&[y.clone(), y.clone()], 0) => [2, 2, 3];
    }
    Ok(())
}

#[test]
fn numbers_are_computed() -> Outcome {
    let (mut x, y) = (tensor![1.0, 4.0], tensor![2.0, 2.0]);
    numbers! {
        "x + y", &x + &y => [3., 6.];
        "x + 1", &x + 1 => [2., 5.];
        "1 - x", 1 - &x => [0., -3.];
        "2. * x", 2. * &x => [2., 8.];
        "8 / x", 8 / &x => [8., 2.];
        "-x", -&x => [-1., -4.];
        "x * 2 + y", &x * 2 + &y => [4., 10.];
        "x % 3", &x % 3 => [1., 1.];
        "x ** 2", x.pow(2) => [1., 16.];
        "x.sqrt()", x.sqrt() => [1., 2.];
        "x @ y", x.matmul(&y) => [10.];
        "torch.exp(x - x)", Tensor::exp(&(&x - &x)?) => [1., 1.];
        "torch.maximum(x, y)", x.maximum(&y) => [2., 4.];
        "x.clamp(2., 3.)", x.clamp(2., 3.) => [2., 3.];
        "x.clamp(min=2)", x.clamp(2, None) => [2., 4.];
        "x.clamp(max=2.)", x.clamp(None, 2.) => [1., 2.];
        "x.clamp(max=y)", x.clamp(None, &y) => [1., 2.];
        "F.relu(x - 2)", (&x - 2)?.relu() => [0., 2.];
    }
    let error = x.clamp(None, None).unwrap_err().to_string();
    assert!(
        error.contains("expected at least one bound, got none"),
        "{error}"
    );
    x += 1;
    x -= &y;
    x *= 2.0;
    assert_eq!(x.to_vec::<f32>()?, [0.0, 6.0]);
    x.clamp_(1, None)?.add_(&y)?;
    assert_eq!(x.to_vec::<f32>()?, [3.0, 8.0]);
    assert_close!(x.softmax(0)?.sum((), false)?, tensor!(1.0));
    Ok(())
}

#[test]
fn numbers_are_compared() -> Outcome {
    let (x, mask) = (tensor![1.0, 2.0], tensor![true, false]);
    numbers! {
        "x == 1", x.eq(1) => [1., 0.];
        "x != 1.", x.ne(1.) => [0., 1.];
        "mask == True", mask.eq(true) => [1., 0.];
        "x == True", x.eq(true) => [1., 0.];
        "mask != False", mask.ne(false) => [1., 0.];
        "x > 1", x.gt(1) => [0., 1.];
        "x <= x.mean()", x.le(&x.mean((), false)?) => [1., 0.];
        "(x > 0) & (x < 2)", x.gt(0)? & x.lt(2)? => [1., 0.];
        "~mask", !&mask => [0., 1.];
        "torch.where(x > 1, x, 0.)", Tensor::where_(&x.gt(1)?, &x, 0.) => [0., 2.];
        "x.masked_fill(mask, 0)", x.masked_fill(&mask, 0) => [0., 2.];
    }
    assert!(x.allclose(&x.copy()?, 1e-5, 1e-8)? && x.equal(&x)?);
    Ok(())
}

#[test]
fn dtypes_devices_and_printing() -> Outcome {
    let x = tensor![1.0, 2.5];
    assert!(x.dtype() == DType::F32 && x.float()?.dtype() == DType::F32);
    assert_eq!(x.to(DType::F16)?.dtype(), DType::F16);
    assert_eq!(
        (x.half()?.dtype(), x.long()?.dtype()),
        (DType::F16, DType::I64)
    );
    assert_eq!(x.to("cpu")?.device(), Some(DeviceType::Cpu));
    assert_eq!(x.cpu()?.device(), Some(DeviceType::Cpu));
    let cuda = x.cuda();
    assert_eq!(cuda.is_ok(), x.to("cuda").is_ok());
    assert!(format!("{x}").contains("2.5"));
    assert_eq!(
        format!("{:?} {} {}", x.shape(), x.dtype(), x.numel()),
        "[2] f32 2"
    );
    assert_eq!(x.sum((), false)?.item()?, 3.5);
    assert_eq!(x.to_vec::<f32>()?, [1.0, 2.5]);
    Ok(())
}

#[test]
fn tensors_and_models_are_saved() -> Outcome {
    let folder = temp_dir().join(format!("rustorch-habits-{}", process::id()));
    fs::create_dir_all(&folder)?;
    let x = tensor![[1.0, 2.0], [3.0, 4.0]];
    for name in ["x.pt", "x.npy", "x.npz", "x.safetensors", "x.gguf"] {
        let path = folder.join(name);
        x.save(&path)?;
        assert!(Tensor::load(&path)?.equal(&x)?, "{name}");
    }
    let path = folder.join("model.pt");
    let mut model = nn::Linear::new(2, 3)?;
    rustorch::files::save(&path, &model.state_dict())?;
    model.load_state_dict(&rustorch::files::load(&path)?, true)?;
    let error = Tensor::load(&path).unwrap_err().to_string();
    assert!(
        error.contains("weight") && error.contains("model.pt"),
        "{error}"
    );
    let error = x.save(folder.join("x.txt")).unwrap_err().to_string();
    assert!(error.contains("x.txt"), "{error}");
    fs::remove_dir_all(folder)?;
    Ok(())
}

#[test]
fn models_are_trained() -> Outcome {
    manual_seed(0);
    let options = ConvOptions {
        stride: [2, 2],
        ..ConvOptions::default()
    };
    let picture = Tensor::randn((2, 1, 8, 8), DType::F32)?;
    shapes! {
        "nn.Conv2d(1, 4, 3, padding=1)(x)",
            nn::Conv2d::new(1, 4, 3, ConvOptions::default().padding(1))?.forward(&picture) => [2, 4, 8, 8];
        "nn.Conv2d(1, 4, 3, stride=2)(x)", nn::Conv2d::new(1, 4, 3, options)?.forward(&picture) => [2, 4, 3, 3];
        "nn.MaxPool2d(2)(x)", nn::MaxPool2d::new(2, MaxPoolOptions::default()).forward(&picture) => [2, 1, 4, 4];
        "nn.Flatten()(x)", nn::Flatten::default().forward(&picture) => [2, 64];
        "F.dropout(x, 0.5)", picture.dropout(0.5, true) => [2, 1, 8, 8];
    }
    let mut model = nn::sequential![nn::Linear::new(2, 8)?, nn::ReLU, nn::Linear::new(8, 2)?];
    let (x, y) = (
        Tensor::randn((16, 2), DType::F32)?,
        Tensor::randint(0, 2, 16, DType::I64)?,
    );
    let mut optimizer = Adam::new(model.parameters(), AdamOptions::default().lr(1e-2))?;
    model.train(true);
    let mut losses = Vec::new();
    for _ in 0..20 {
        optimizer.zero_grad();
        let loss = model
            .forward(&x)?
            .cross_entropy(&y, &CrossEntropyOptions::default())?;
        loss.backward()?;
        optimizer.step()?;
        losses.push(loss.item()?);
    }
    assert!(losses[19] < losses[0], "{losses:?}");
    model.eval();
    let predicted = no_grad(|| model.forward(&x))?.argmax(1, false)?;
    assert!(predicted.eq(&y)?.float()?.mean((), false)?.item()? >= 0.5);
    let w = Tensor::ones(2, DType::F32)?.requires_grad_(true)?;
    let mut optimizer = SGD::new([w.clone()], SGDOptions::default().lr(0.1))?;
    w.mse_loss(&tensor![0.0, 1.0], None, Reduction::Sum)?
        .backward()?;
    let gradient = w.grad().ok_or("no gradient")?;
    assert_eq!(gradient.to_vec::<f32>()?, [2.0, 0.0]);
    optimizer.step()?;
    assert_eq!(w.detach().to_vec::<f32>()?, [0.8, 1.0]);
    Ok(())
}
