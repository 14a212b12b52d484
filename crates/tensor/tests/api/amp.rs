//! Automatic mixed precision: the dtypes of results are those that PyTorch 2.15 gives on CUDA by its lists.

use rustorch_ir::DType;
use rustorch_tensor::amp::{autocast, autocast_dtype};
use rustorch_tensor::nn::{
    AvgPoolOptions, ConvOptions, ConvTransposeOptions, MaxPoolOptions, Reduction,
};
use rustorch_tensor::{
    AttentionOptions, RusTorchResult, Tensor, assert_close, checkpoint, eval_all,
};

type Function = fn(&Tensor) -> RusTorchResult<Tensor>;

type Function2 = fn(&Tensor, &Tensor) -> RusTorchResult<Tensor>;

/// The functions of `scripts/autocast-goldens.py`, on matrices 4 x 4.
const FUNCTIONS: &[(&str, Function2)] = &[
    ("matmul", |x, y| x.matmul(y)),
    ("mm", |x, y| x.mm(y)),
    ("mv", |x, y| x.mv(&y.select(0, 0)?)),
    ("bmm", |x, y| x.unsqueeze(0)?.bmm(&y.unsqueeze(0)?)),
    ("linear", |x, y| x.linear(y, Some(&y.select(0, 0)?))),
    ("addmm", |x, y| x.addmm(x, y, 1, 1)),
    ("addmv", |x, y| {
        x.select(0, 0)?.addmv(x, &y.select(0, 0)?, 1, 1)
    }),
    ("baddbmm", |x, y| {
        let (x, y) = (x.unsqueeze(0)?, y.unsqueeze(0)?);
        x.baddbmm(&x, &y, 1, 1)
    }),
    ("conv1d", |x, y| {
        let (x, y) = (x.unsqueeze(0)?, y.unsqueeze(0)?);
        x.conv1d(&y, None, &ConvOptions::default())
    }),
    ("conv2d", |x, y| {
        let (x, y) = (x.reshape([1, 1, 4, 4])?, y.reshape([1, 1, 4, 4])?);
        x.conv2d(&y, None, &ConvOptions::default())
    }),
    ("conv_transpose2d", |x, y| {
        let (x, y) = (x.reshape([1, 1, 4, 4])?, y.reshape([1, 1, 4, 4])?);
        x.conv_transpose2d(&y, None, &ConvTransposeOptions::default())
    }),
    ("prelu", |x, y| x.prelu(&y.select(0, 0)?)),
    ("scaled_dot_product_attention", |x, y| {
        let (x, y) = (x.reshape([1, 1, 4, 4])?, y.reshape([1, 1, 4, 4])?);
        x.scaled_dot_product_attention(&y, &y, AttentionOptions::default())
    }),
    ("acos", |x, _| x.acos()),
    ("asin", |x, _| x.asin()),
    ("cosh", |x, _| x.cosh()),
    ("erfinv", |x, _| x.erfinv()),
    ("exp", |x, _| x.exp()),
    ("expm1", |x, _| x.expm1()),
    ("log", |x, _| x.log()),
    ("log10", |x, _| x.log10()),
    ("log2", |x, _| x.log2()),
    ("log1p", |x, _| x.log1p()),
    ("reciprocal", |x, _| x.reciprocal()),
    ("rsqrt", |x, _| x.rsqrt()),
    ("sinh", |x, _| x.sinh()),
    ("tan", |x, _| x.tan()),
    ("pow_scalar", |x, _| x.pow(2)),
    ("pow", |x, y| x.pow(y)),
    ("softplus", |x, _| x.softplus(1.0, 20.0)),
    ("softmax", |x, _| x.softmax(-1)),
    ("log_softmax", |x, _| x.log_softmax(-1)),
    ("logsumexp", |x, _| x.logsumexp(-1, false)),
    ("layer_norm", |x, _| x.layer_norm([4], None, None, 1e-5)),
    ("group_norm", |x, _| x.group_norm(2, None, None, 1e-5)),
    ("norm", |x, _| x.norm(2.0, None, false)),
    ("sum", |x, _| x.sum(0, false)),
    ("prod", |x, _| x.prod(0, false)),
    ("cumsum", |x, _| x.cumsum(0)),
    ("cumprod", |x, _| x.cumprod(0)),
    ("dist", |x, y| x.dist(y, 2.0)),
    ("cosine_similarity", |x, y| x.cosine_similarity(y, 1, 1e-8)),
    ("mse_loss", |x, y| x.mse_loss(y, None, Reduction::Mean)),
    ("l1_loss", |x, y| x.l1_loss(y, None, Reduction::Mean)),
    ("smooth_l1_loss", |x, y| {
        x.smooth_l1_loss(y, 1.0, Reduction::Mean)
    }),
    ("huber_loss", |x, y| {
        x.huber_loss(y, 1.0, None, Reduction::Mean)
    }),
    ("kl_div", |x, y| x.kl_div(y, false, Reduction::Mean)),
    ("soft_margin_loss", |x, y| {
        x.soft_margin_loss(y, Reduction::Mean)
    }),
    ("poisson_nll_loss", |x, y| {
        x.poisson_nll_loss(y, true, false, 1e-8, Reduction::Mean)
    }),
    ("binary_cross_entropy_with_logits", |x, y| {
        x.binary_cross_entropy_with_logits(y, None, None, Reduction::Mean)
    }),
    ("addcmul", |x, y| x.addcmul(y, y, 1)),
    ("addcdiv", |x, y| x.addcdiv(y, y, 1)),
    ("atan2", |x, y| x.atan2(y)),
    ("cat", |x, y| Tensor::cat(&[x, y], 0)),
    ("stack", |x, y| Tensor::stack(&[x, y], 0)),
    ("tensordot", |x, y| x.tensordot(y, &[1], &[0])),
    ("add", |x, y| x.add(y)),
    ("mul", |x, y| x.mul(y)),
    ("maximum", |x, y| x.maximum(y)),
    ("where", |x, y| Tensor::where_(&x.ge(0)?, x, y)),
    ("relu", |x, _| x.relu()),
    ("gelu", |x, _| x.gelu()),
    ("silu", |x, _| x.silu()),
    ("sigmoid", |x, _| x.sigmoid()),
    ("tanh", |x, _| x.tanh()),
    ("sqrt", |x, _| x.sqrt()),
    ("abs", |x, _| x.abs()),
    ("mean", |x, _| x.mean(0, false)),
    ("var", |x, _| x.var(0, 1.0, false)),
    ("amax", |x, _| x.amax(0, false)),
    ("max_pool2d", |x, _| {
        x.unsqueeze(0)?
            .max_pool2d([2, 2], &MaxPoolOptions::default())
    }),
    ("avg_pool2d", |x, _| {
        x.unsqueeze(0)?
            .avg_pool2d([2, 2], &AvgPoolOptions::default())
    }),
];

/// Known difference: PyTorch's `tensordot` computes in the widest dtype of its operands; here it is a product like any
/// other. PyTorch's `tensordot` computes in the widest dtype of its operands, and is a product as any other here.
const OTHERS: &[&str] = &["tensordot "];

#[test]
fn dtypes_are_pytorch_s() -> RusTorchResult<()> {
    let goldens = include_str!("../goldens/autocast.txt");
    let dtype = |name: &str| {
        let all = [DType::F32, DType::F16, DType::BF16, DType::F64];
        all.into_iter().find(|dtype| dtype.to_string() == name)
    };
    let x = Tensor::full([4, 4], 0.5, DType::F32)?;
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for line in goldens.lines() {
        let [name, first, second, half, expected] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line}");
        };
        // PyTorch computes no bf16 where f16 was asked for, nor the other way.
        let Some(expected) = dtype(expected) else {
            continue;
        };
        let (first, second) = (dtype(first).expect("one"), dtype(second).expect("one"));
        let function = FUNCTIONS.iter().find(|(known, _)| *known == name);
        let (_, function) = function.expect("every function of the file is here");
        let (x, y) = (x.to_dtype(first)?, x.to_dtype(second)?);
        let got = autocast(dtype(half), || function(&x, &y)).map(|y| y.dtype());
        tried += 1;
        if !matches!(got, Ok(got) if got == expected) {
            wrong.push(format!("{line}, got {got:?}"));
        }
    }
    wrong.retain(|line| !OTHERS.iter().any(|other| line.starts_with(other)));
    assert!(wrong.is_empty(), "{} of {tried}: {wrong:#?}", wrong.len());
    Ok(())
}

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

/// Products of a backward pass are computed in the lower precision as well, and so are gradients of attention. Backends
/// sum in single precision.
#[test]
fn gradients_are_computed_as_the_operations_were() -> RusTorchResult<()> {
    let mut w = Tensor::ones([8, 8], DType::F32)?.mul(0.125)?;
    w.requires_grad_(true)?;
    let x = Tensor::arange_with(0, 32, 1, DType::F32)?.reshape([1, 4, 8])?;
    let loss = autocast(DType::BF16, || {
        let heads = x.linear(&w, None)?.reshape([1, 4, 2, 4])?.transpose(1, 2)?;
        let y = heads.scaled_dot_product_attention(&heads, &heads, AttentionOptions::default())?;
        y.transpose(1, 2)?
            .reshape([1, 4, 8])?
            .linear(&w, None)?
            .sum_all()
    })?;
    loss.backward()?;
    let gradient = w.grad().expect("loss follows from w");
    let operations = rustorch_tensor::replay::operations(&[&loss, &gradient]);
    let count = |name: &str| {
        let of_name = operations.iter().filter(|o| o.op.name() == name);
        // The first three operands of an attention are queries, keys and values. Others are its totals.
        let halves =
            of_name.filter(|o| o.operands.iter().take(3).all(|x| x.dtype() == DType::BF16));
        halves.count()
    };
    let is_product = |name: &str| ["matmul", "attention", "attention_backward"].contains(&name);
    let products = operations
        .iter()
        .filter(|o| is_product(o.op.name()))
        .count();
    // Both gradients of a linear layer, one of the first.
    assert_eq!(count("matmul"), 3);
    assert_eq!((count("attention"), count("attention_backward")), (1, 1));
    assert_eq!(products, 5);
    eval_all(&[&loss, &gradient])
}
