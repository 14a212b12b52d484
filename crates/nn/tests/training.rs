//! Modules and optimisers together: gradients that flow, losses that fall.

extern crate rustorch_nn as rustorch;

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustorch::nn::{self, Forward, Linear, Module, parameter};
use rustorch::optim::swa_utils::{AveragedModel, Averaging};
use rustorch::optim::{Adam, AdamOptions, LBFGS, LBFGSOptions, SGD, SGDOptions};
use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor, assert_close, manual_seed, tensor};

/// Held by who draws random numbers, whose generator is the process's.
fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Points on a plane.
fn points() -> RusTorchResult<(Tensor, Tensor)> {
    let x = Tensor::randn([32, 2], DType::F32)?;
    let y = x.matmul(&tensor![[2.0], [-3.0]])?.add(0.5)?;
    x.eval()?;
    y.eval()?;
    Ok((x, y))
}

#[test]
fn a_plane_is_found() -> RusTorchResult<()> {
    let _alone = generator();
    manual_seed(0);
    let (x, y) = points()?;
    let net = Linear::new(2, 1)?;
    let mut adam = Adam::new(net.named_parameters(), AdamOptions::default().lr(0.1))?;
    let loss = nn::MSELoss::default();
    for _ in 0..300 {
        adam.zero_grad();
        loss.forward(&net.forward(&x)?, &y)?.backward()?;
        adam.step()?;
    }
    assert_close!(net.weight.detach(), tensor![[2.0, -3.0]], 1e-3, 1e-3);
    assert_close!(
        net.bias.as_ref().unwrap().detach(),
        tensor![0.5,],
        1e-3,
        1e-3
    );
    Ok(())
}

#[test]
fn networks_with_norms_and_dropout_learn() -> RusTorchResult<()> {
    let _alone = generator();
    manual_seed(1);
    let (x, y) = points()?;
    let mut net = nn::sequential![
        Linear::new(2, 16)?,
        nn::BatchNorm1d::new(16)?,
        nn::GELU::default(),
        nn::Dropout::new(0.1)?,
        Linear::new(16, 1)?
    ];
    let mut adam = Adam::new(net.named_parameters(), AdamOptions::default().lr(0.02))?;
    let loss = nn::MSELoss::default();
    let first = loss.forward(&net.forward(&x)?, &y)?.item()?;
    for _ in 0..60 {
        adam.zero_grad();
        loss.forward(&net.forward(&x)?, &y)?.backward()?;
        nn::clip_grad_norm_(&net.parameters(), 1.0, 2.0, true)?;
        adam.step()?;
    }
    net.eval();
    let last = loss.forward(&net.forward(&x)?, &y)?.item()?;
    assert!(last < 0.3 * first, "{first} became {last}");
    Ok(())
}

/// Rosenbrock's function, whose minimum is at `[1, 1]`.
#[test]
fn lbfgs_goes_down_a_valley() -> RusTorchResult<()> {
    for strong_wolfe in [false, true] {
        let point = parameter(tensor![-0.5, 1.5].to_dtype(DType::F64)?)?;
        let lr = if strong_wolfe { 1.0 } else { 0.1 };
        let options = LBFGSOptions::default()
            .lr(lr)
            .strong_wolfe(strong_wolfe)
            .max_iter(60usize);
        let mut lbfgs = LBFGS::new([point.clone()], options)?;
        let evaluate = || {
            point.zero_grad();
            let (x, y) = (point.select(0, 0)?, point.select(0, 1)?);
            let valley = y.sub(&x.square()?)?.square()?.mul(100)?;
            let loss = x.sub(1)?.square()?.add(&valley)?;
            loss.backward()?;
            Ok(loss)
        };
        let first = lbfgs.step(evaluate)?.item()?;
        for _ in 0..10 {
            lbfgs.step(evaluate)?;
        }
        let last = lbfgs.step(evaluate)?.item()?;
        assert!(last < 1e-3 * first, "{strong_wolfe}: {first} became {last}");
        if strong_wolfe {
            assert_close!(
                point.detach(),
                tensor![1.0, 1.0].to_dtype(DType::F64)?,
                1e-5,
                1e-5
            );
        }
    }
    Ok(())
}

#[test]
fn gradients_are_clipped() -> RusTorchResult<()> {
    let [a, b] = [parameter(tensor![3.0, 4.0])?, parameter(tensor![12.0,])?];
    let square = |x: &Tensor| x.square()?.sum(None, false)?.mul(0.5);
    square(&a)?.add(&square(&b)?)?.backward()?;
    let parameters = [a.clone(), b.clone()];
    let norm = nn::clip_grad_norm_(&parameters, 6.5, 2.0, true)?;
    assert_close!(norm, tensor!(13.0));
    assert_close!(a.grad().unwrap(), tensor![1.5, 2.0]);
    assert_close!(b.grad().unwrap(), tensor![6.0,]);
    // It is small enough.
    nn::clip_grad_norm_(&parameters, 100.0, 2.0, false)?;
    assert_close!(b.grad().unwrap(), tensor![6.0,]);
    nn::clip_grad_value_(&parameters, 1.75)?;
    assert_close!(a.grad().unwrap(), tensor![1.5, 1.75]);
    a.set_grad(Some(&tensor![f64::NAN, 1.0]))?;
    assert!(nn::clip_grad_norm_(&parameters, 1.0, 2.0, true).is_err());
    Ok(())
}

#[test]
fn averages_follow_the_weights() -> RusTorchResult<()> {
    let _alone = generator();
    let mut layer = Linear::new(1, 1)?.without_bias();
    let mut set = |value: f64| {
        nn::init::constant_(&mut layer.weight, value)?;
        RusTorchResult::Ok(layer.clone())
    };
    let mut equal = AveragedModel::new(&set(9.0)?, Averaging::Equal)?;
    let mut exponential = AveragedModel::new(&set(9.0)?, Averaging::Exponential(0.75))?;
    for value in [1.0, 2.0, 6.0] {
        let model = set(value)?;
        equal.update_parameters(&model)?;
        exponential.update_parameters(&model)?;
    }
    assert_eq!((equal.n_averaged(), equal.state_dict().len()), (3, 1));
    assert_close!(equal.module.weight.detach(), tensor![[3.0]]);
    assert_close!(
        exponential.module.weight.detach(),
        tensor![[1.25 * 0.75 + 1.5]]
    );
    assert!(
        equal
            .update_parameters(&Linear::new(2, 1)?.without_bias())
            .is_err()
    );
    Ok(())
}

#[test]
fn norms_of_weights_are_parametrised() -> RusTorchResult<()> {
    let _alone = generator();
    manual_seed(2);
    let linear = Linear::new(3, 2)?;
    let x = Tensor::randn([4, 3], DType::F32)?;
    let y = linear.forward(&x)?;
    let normed = nn::weight_norm(linear.clone(), 0)?;
    let state = normed.state_dict();
    let names: Vec<&str> = state.names().collect();
    assert_eq!(
        names,
        [
            "bias",
            "parametrizations.weight.original0",
            "parametrizations.weight.original1"
        ]
    );
    assert_eq!(
        state
            .get("parametrizations.weight.original0")
            .unwrap()
            .shape(),
        [2, 1]
    );
    assert_close!(normed.forward(&x)?.detach(), y.detach(), 1e-5, 1e-6);
    normed.forward(&x)?.sum(None, false)?.backward()?;
    assert!(
        normed
            .parameters()
            .iter()
            .all(|parameter| parameter.grad().is_some())
    );

    let normed = nn::spectral_norm(linear, 1, 1e-12)?;
    for _ in 0..20 {
        normed.forward(&x)?.eval()?;
    }
    let state = normed.state_dict();
    let weight = state.get("parametrizations.weight.original").unwrap();
    let largest = rustorch_tensor::linalg::svdvals(weight)?.max(None, false)?;
    let (u, v) = (
        state.get("parametrizations.weight.0._u").unwrap(),
        state.get("parametrizations.weight.0._v").unwrap(),
    );
    assert_close!(
        u.mul(&weight.matmul(v)?)?.sum(None, false)?,
        largest,
        1e-4,
        1e-5
    );
    normed.forward(&x)?.sum(None, false)?.backward()?;
    assert!(
        normed
            .parameters()
            .iter()
            .all(|parameter| parameter.grad().is_some())
    );
    Ok(())
}

#[test]
fn gradients_add_up_until_they_are_forgotten() -> RusTorchResult<()> {
    let point = parameter(tensor![1.0, -1.0])?;
    let mut sgd = SGD::new(
        [point.clone()],
        SGDOptions::default().lr(0.5).maximize(true),
    )?;
    point.sum(None, false)?.backward()?;
    sgd.step()?;
    assert_close!(point.detach(), tensor![1.5, -0.5]);
    // Gradients are added up until they are forgotten.
    point.sum(None, false)?.backward()?;
    assert_close!(point.grad().unwrap(), tensor![2.0, 2.0]);
    sgd.zero_grad();
    assert!(point.grad().is_none());
    Ok(())
}
