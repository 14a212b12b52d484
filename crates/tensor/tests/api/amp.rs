//! Automatic mixed precision: the dtypes of results are those that PyTorch 2.15 gives on CUDA by its lists.

use rustorch_ir::DType;
use rustorch_tensor::amp::{autocast, autocast_dtype};
use rustorch_tensor::nn::{ConvOptions, Reduction};
use rustorch_tensor::{
    AttentionOptions, RusTorchResult, Tensor, assert_close, checkpoint, eval_all,
};

type Function = fn(&Tensor) -> RusTorchResult<Tensor>;

#[test]
fn dtypes_are_those_of_the_lists() -> RusTorchResult<()> {
    let lower: [(&str, Function); 8] = [
        ("matmul", |x| x.matmul(x)),
        ("mm", |x| x.mm(x)),
        ("mv", |x| x.mv(&x.select(0, 0)?)),
        ("bmm", |x| x.unsqueeze(0)?.bmm(&x.unsqueeze(0)?)),
        ("linear", |x| x.linear(x, Some(&x.select(0, 0)?))),
        ("addmm", |x| x.addmm(x, x, 1, 1)),
        ("conv1d", |x| {
            let x = x.unsqueeze(0)?;
            x.conv1d(&x, None, &ConvOptions::default())
        }),
        ("scaled_dot_product_attention", |x| {
            let x = x.reshape([1, 1, 2, 2])?;
            x.scaled_dot_product_attention(&x, &x, AttentionOptions::default())
        }),
    ];
    let single: [(&str, Function); 12] = [
        ("exp", |x| x.exp()),
        ("log", |x| x.log()),
        ("pow", |x| x.pow(2)),
        ("rsqrt", |x| x.rsqrt()),
        ("softmax", |x| x.softmax(-1)),
        ("log_softmax", |x| x.log_softmax(-1)),
        ("layer_norm", |x| x.layer_norm([2], None, None, 1e-5)),
        ("sum", |x| x.sum(0, false)),
        ("cumsum", |x| x.cumsum(0)),
        ("prod", |x| x.prod(0, false)),
        ("norm", |x| x.norm(2.0, None, false)),
        ("mse_loss", |x| x.mse_loss(x, None, Reduction::Mean)),
    ];
    let same: [(&str, Function); 7] = [
        ("add", |x| x.add(x)),
        ("mul", |x| x.mul(2)),
        ("relu", |x| x.relu()),
        ("gelu", |x| x.gelu()),
        ("tanh", |x| x.tanh()),
        ("mean", |x| x.mean(0, false)),
        ("amax", |x| x.amax(0, false)),
    ];
    let x = Tensor::from_slice(&[0.5f32, 1.0, 1.5, 2.0], [2, 2])?;
    for half in [DType::BF16, DType::F16] {
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
            let x = x.to_dtype(dtype)?;
            let check = |list: &[(&str, Function)], expected: DType| {
                for (name, function) in list {
                    let y = autocast(half, || function(&x))?;
                    assert_eq!(y.dtype(), expected, "{name} of {dtype} in {half}");
                    y.eval()?;
                }
                RusTorchResult::Ok(())
            };
            let is_double = dtype == DType::F64;
            check(&lower, if is_double { dtype } else { half })?;
            check(&single, if is_double { dtype } else { DType::F32 })?;
            check(&same, dtype)?;
        }
    }
    // Integers stay what they are, and outside everything does.
    let counts = Tensor::ones([2, 2], DType::I64)?;
    assert_eq!(
        autocast(DType::F16, || counts.sum(0, false))?.dtype(),
        DType::I64
    );
    assert_eq!(x.matmul(&x)?.dtype(), DType::F32);
    Ok(())
}

#[test]
fn losses_of_halves_are_computed_in_single_precision() -> RusTorchResult<()> {
    let x = Tensor::from_slice(&[1.0f32, 3.0, -2.0, 0.5], [2, 2])?.to_dtype(DType::BF16)?;
    let target = Tensor::from_slice(&[1i64, 0], [2])?;
    let loss = autocast(DType::BF16, || {
        x.cross_entropy(&target, &Default::default())
    })?;
    let expected = x
        .to_dtype(DType::F32)?
        .cross_entropy(&target, &Default::default())?;
    assert_eq!(loss.dtype(), DType::F32);
    assert_close!(loss, expected);
    Ok(())
}

#[test]
fn it_ends_where_it_ends() -> RusTorchResult<()> {
    let x = Tensor::ones([2, 2], DType::F32)?;
    autocast(DType::BF16, || {
        assert_eq!(autocast_dtype(), Some(DType::BF16));
        let inner = autocast(DType::F16, || x.matmul(&x))?;
        assert_eq!(inner.dtype(), DType::F16);
        assert_eq!(autocast(None, || x.matmul(&x))?.dtype(), DType::F32);
        assert_eq!(x.matmul(&x)?.dtype(), DType::BF16);
        Ok(())
    })?;
    assert_eq!(autocast_dtype(), None);
    let error = autocast(DType::F64, || Ok(())).unwrap_err().to_string();
    assert_eq!(error, "autocast: expected bf16 or f16, got f64");
    Ok(())
}

/// Gradients are in the parameters' dtype, and flow through what was converted; a parameter is converted once.
#[test]
fn gradients_have_the_dtype_of_parameters() -> RusTorchResult<()> {
    for is_checkpointed in [false, true] {
        let mut w = Tensor::from_slice(&[0.5f32, 1.0, 1.5, 2.0], [2, 2])?;
        w.requires_grad_(true)?;
        let x = Tensor::ones([1, 2], DType::F32)?;
        let loss = autocast(DType::BF16, || {
            let weight = w.clone();
            let f = move |x: &[&Tensor]| x[0].linear(&weight, None)?.relu()?.linear(&weight, None);
            let y = match is_checkpointed {
                true => checkpoint(f, &[&x])?,
                false => f(&[&x])?,
            };
            assert_eq!(y.dtype(), DType::BF16);
            y.sum_all()
        })?;
        assert_eq!(loss.dtype(), DType::F32);
        let casts = |x: &Tensor| {
            let operations = rustorch_tensor::replay::operations(&[x]);
            operations.iter().filter(|o| o.op.name() == "cast").count()
        };
        // The input, the weight, and the result for the sum.
        assert_eq!(casts(&loss), 3);
        loss.backward()?;
        let gradient = w.grad().expect("loss follows from w");
        assert_eq!(gradient.dtype(), DType::F32);
        eval_all(&[&loss, &gradient])?;
        // y = W (W x) of numbers that bf16 holds.
        assert_eq!(loss.item()?, 13.5);
        assert_eq!(gradient.to_vec::<f32>()?, [3.5, 5.5, 4.5, 6.5]);
    }
    Ok(())
}
