//! Optimisers: groups, state, what they refuse, how often they plan. Their numbers are compared with PyTorch's by
//! `replay --optimizers` of `rustorch-conformance`.

use rustorch_files::Tensors;
use rustorch_files::pt::{self, Value};
use rustorch_ir::DType;
use rustorch_nn::nn::parameter;
use rustorch_nn::optim::{
    ASGDOptions, AdadeltaOptions, Adafactor, AdafactorOptions, AdagradOptions, Adam, AdamOptions,
    AdamW, AdamWOptions, AdamaxOptions, LBFGS, LBFGSOptions, Muon, MuonOptions, NAdamOptions,
    Optimizer, RAdamOptions, RMSpropOptions, RpropOptions, Rule, SGD, SGDOptions,
    SparseAdamOptions,
};
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{
    RusTorchResult, Tensor, assert_close, eval_all, host, no_grad, tensor, with_runtime,
};

/// The gradient of `Σ (x - 1)²`.
fn pull(_: &str, x: &Tensor) -> Option<Tensor> {
    x.detach().sub(1).and_then(|x| x.mul(2)).ok()
}

fn weights() -> RusTorchResult<Vec<(String, Tensor)>> {
    Ok(vec![
        (
            "weight".to_owned(),
            parameter(tensor![[3.0, -2.0], [0.5, 4.0]])?,
        ),
        ("other".to_owned(), parameter(tensor![[1.0, -1.0]])?),
    ])
}

#[test]
fn steps_write_over_the_parameters_memory() -> RusTorchResult<()> {
    let named = weights()?;
    let handle = named[0].1.clone();
    handle.eval()?;
    let mut sgd = SGD::new(named, SGDOptions::default().lr(0.25))?;
    sgd.step_with(pull)?;
    assert_close!(handle.detach(), tensor![[2.0, -0.5], [0.75, 2.5]]);
    assert!(handle.requires_grad() && handle.is_leaf());
    // A parameter without a gradient stays.
    sgd.step_with(|name, x| (name == "other").then(|| x.detach()))?;
    assert_close!(handle.detach(), tensor![[2.0, -0.5], [0.75, 2.5]]);
    Ok(())
}

#[test]
fn groups_have_options_of_their_own() -> RusTorchResult<()> {
    let [first, second] = <[_; 2]>::try_from(weights()?).ok().unwrap();
    let (a, b) = (first.1.clone(), second.1.clone());
    let mut sgd = SGD::new(vec![first], SGDOptions::default().lr(0.25))?;
    sgd.add_param_group(vec![second], SGDOptions::default().lr(0.5))?;
    sgd.step_with(pull)?;
    assert_close!(a.detach(), tensor![[2.0, -0.5], [0.75, 2.5]]);
    assert_close!(b.detach(), tensor![[1.0, 1.0]]);
    sgd.param_groups_mut()[0].options.lr = 0.5;
    sgd.step_with(pull)?;
    assert_close!(a.detach(), tensor![[1.0, 1.0], [1.0, 1.0]]);
    Ok(())
}

#[test]
fn what_cannot_be_trained_is_refused() -> RusTorchResult<()> {
    let error = |result: RusTorchResult<SGD>| result.err().unwrap().to_string();
    let [first, second] = <[_; 2]>::try_from(weights()?).ok().unwrap();
    for lr in [f64::NAN, -1.0] {
        let message = error(SGD::new(vec![first.clone()], SGDOptions::default().lr(lr)));
        assert!(
            message.contains("SGD: expected lr of 0 or more, got "),
            "{message}"
        );
    }
    // Later, too: nothing is changed by it.
    let mut sgd = SGD::new(vec![first.clone()], SGDOptions::default())?;
    sgd.param_groups_mut()[0].options.lr = f64::NAN;
    assert!(sgd.step_with(pull).is_err());
    assert_close!(first.1.detach(), tensor![[3.0, -2.0], [0.5, 4.0]]);
    // In two groups; twice in one is once.
    let mut sgd = SGD::new(vec![second.clone(), second.clone()], SGDOptions::default())?;
    assert_eq!(sgd.param_groups()[0].named_parameters().count(), 1);
    let twice = sgd.add_param_group(vec![second.clone()], SGDOptions::default());
    let twice = twice.unwrap_err().to_string();
    let expected = "SGD: expected each parameter in one group, got other, which is in another, too";
    assert!(twice.ends_with(expected), "{twice}");
    let named = ("weight".to_owned(), first.1.clone());
    let names_two = SGD::new(
        vec![named, ("weight".to_owned(), second.1.clone())],
        SGDOptions::default(),
    );
    assert!(error(names_two).contains("weight, which names two"));
    let computed = ("x".to_owned(), first.1.mul(2)?);
    assert!(
        error(SGD::new(vec![computed], SGDOptions::default())).contains("was computed from others")
    );
    let integers = ("x".to_owned(), tensor![1, 2]);
    assert!(
        error(SGD::new(vec![integers], SGDOptions::default())).contains("parameters of floats")
    );
    let vector = vec![parameter(tensor![1.0, 2.0])?];
    let message = Muon::new(vector, MuonOptions::default())
        .err()
        .unwrap()
        .to_string();
    let expected = "Muon: expected matrices (others are for AdamW), got 0 [2]";
    assert!(message.ends_with(expected), "{message}");
    let nesterov = SGDOptions::default().nesterov(true);
    assert!(error(SGD::new(vec![first.clone()], nesterov)).contains("for nesterov"));
    // A gradient that is another's.
    let mut sgd = SGD::new(vec![first], SGDOptions::default())?;
    let message = sgd
        .step_with(|_, _| Some(tensor![1.0,]))
        .unwrap_err()
        .to_string();
    let expected = "SGD: expected a gradient f32[2, 2] of weight, got f32[1]";
    assert!(message.ends_with(expected), "{message}");
    Ok(())
}

/// Five steps, or two, a state that is saved and loaded by another, and three.
fn resumes<R: Rule>(options: R) -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let whole = weights()?;
    let mut optimizer = Optimizer::new(whole.clone(), options.clone())?;
    for _ in 0..5 {
        optimizer.step_with(pull)?;
    }
    let parts = weights()?;
    let mut optimizer = Optimizer::new(parts.clone(), options)?;
    for _ in 0..2 {
        optimizer.step_with(pull)?;
    }
    for name in ["state.safetensors", "state.pt"] {
        let path = folder.path().join(name);
        rustorch_files::save(&path, &optimizer.state_dict()?)?;
        // The optimiser has other options, which loading replaces.
        optimizer = Optimizer::new(parts.clone(), R::default())?;
        optimizer.load_state_dict(&rustorch_files::load(&path)?)?;
    }
    for _ in 0..3 {
        optimizer.step_with(pull)?;
    }
    for ((name, a), (_, b)) in whole.iter().zip(&parts) {
        assert!(a.detach().equal(&b.detach())?, "{} {name}", R::NAME);
        let distance = a.detach().sub(1)?.abs()?.sum_all()?.item()?;
        assert!(distance.is_finite(), "{} {name}", R::NAME);
    }
    Ok(())
}

#[test]
fn state_is_saved_and_loaded_by_name() -> Result<(), Box<dyn std::error::Error>> {
    resumes(SGDOptions::default().lr(0.1).momentum(0.9).nesterov(true))?;
    resumes(ASGDOptions::default().t0(1.0))?;
    resumes(RpropOptions::default())?;
    resumes(RMSpropOptions::default().centered(true).momentum(0.5))?;
    resumes(AdagradOptions::default().initial_accumulator_value(0.5))?;
    resumes(AdadeltaOptions::default())?;
    resumes(AdamOptions::default().amsgrad(true))?;
    resumes(AdamWOptions::default())?;
    resumes(AdamaxOptions::default())?;
    resumes(NAdamOptions::default())?;
    resumes(RAdamOptions::default().betas([0.9, 0.6]))?;
    resumes(SparseAdamOptions::default())?;
    resumes(AdafactorOptions::default().eps1(0.001))?;
    resumes(MuonOptions::default())
}

/// Checkpoints of `scripts/optimizer-goldens.py`.
fn of_pytorch() -> Result<Value, Box<dyn std::error::Error>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/goldens");
    Ok(pt::load_value(format!("{folder}/optimizers.pt"))?)
}

/// The parameters of a checkpoint, in two groups of an optimiser of default options.
fn grouped<R: Rule>(
    checkpoint: &Value,
) -> Result<(Vec<Tensor>, Optimizer<R>), Box<dyn std::error::Error>> {
    let [first, second] = [0, 1].map(|at| {
        let tensor = checkpoint["model"][at].as_tensor()?.copy()?;
        Ok::<_, Box<dyn std::error::Error>>(parameter(tensor)?)
    });
    let tensors = vec![first?, second?];
    let named = |name: &str, at: usize| vec![(name.to_owned(), tensors[at].clone())];
    let mut optimizer = Optimizer::new(named("weight", 0), R::default())?;
    optimizer.add_param_group(named("other", 1), R::default())?;
    Ok((tensors, optimizer))
}

/// Three steps behind those of PyTorch give what PyTorch's give.
#[test]
fn pytorch_s_states_are_loaded_and_training_goes_on() -> Result<(), Box<dyn std::error::Error>> {
    fn check<R: Rule>(name: &str, bound: f64) -> Result<(), Box<dyn std::error::Error>> {
        let checkpoint = &of_pytorch()?[name];
        let (tensors, mut optimizer) = grouped::<R>(checkpoint)?;
        optimizer.load_pytorch_state_dict(&checkpoint["optimizer"])?;
        // A state that it saves itself goes on, too.
        let state = optimizer.state_dict()?;
        optimizer.load_state_dict(&state)?;
        for _ in 0..3 {
            optimizer.step_with(pull)?;
        }
        for (at, tensor) in tensors.iter().enumerate() {
            let expected = checkpoint["after"][at as i64].as_tensor()?;
            let distance = tensor.detach().sub(expected)?.abs()?.max_all()?.item()?;
            assert!(distance < bound, "{name}: {distance}");
        }
        Ok(())
    }
    check::<SGDOptions>("SGD", 1e-12)?;
    check::<SGDOptions>("SGD plain", 1e-12)?;
    check::<ASGDOptions>("ASGD", 1e-12)?;
    check::<RpropOptions>("Rprop", 1e-12)?;
    check::<RMSpropOptions>("RMSprop", 1e-12)?;
    check::<AdagradOptions>("Adagrad", 1e-12)?;
    check::<AdadeltaOptions>("Adadelta", 1e-12)?;
    check::<AdamOptions>("Adam", 1e-12)?;
    // PyTorch's Adam goes on as its AdamW.
    check::<AdamOptions>("AdamW", 1e-12)?;
    check::<AdamWOptions>("AdamW", 1e-12)?;
    check::<AdamaxOptions>("Adamax", 1e-12)?;
    check::<NAdamOptions>("NAdam", 1e-12)?;
    check::<RAdamOptions>("RAdam", 1e-12)?;
    check::<AdafactorOptions>("Adafactor", 1e-12)?;
    check::<SparseAdamOptions>("SparseAdam", 1e-12)?;
    // Its matrices are of bf16, which PyTorch rounds elsewhere.
    check::<MuonOptions>("Muon", 1e-5)
}

#[test]
fn pytorch_s_lbfgs_goes_on_here() -> Result<(), Box<dyn std::error::Error>> {
    let checkpoints = of_pytorch()?;
    for name in ["LBFGS", "LBFGS searching"] {
        let checkpoint = &checkpoints[name];
        let tensor = |at: i64| {
            let tensor = checkpoint["model"][at].as_tensor()?.copy()?;
            Ok::<_, Box<dyn std::error::Error>>(parameter(tensor)?)
        };
        let tensors = vec![tensor(0)?, tensor(1)?];
        let mut optimizer = LBFGS::new(tensors.clone(), LBFGSOptions::default())?;
        optimizer.load_pytorch_state_dict(&checkpoint["optimizer"])?;
        assert_eq!(optimizer.options.strong_wolfe, name != "LBFGS");
        let evaluate = || {
            let mut loss = Tensor::scalar(0.0, DType::F64)?;
            for tensor in &tensors {
                tensor.zero_grad();
                let away = tensor.sub(1)?.pow(4)?.sum_all()?;
                loss = loss.add(&away)?.add(&tensor.square()?.sum_all()?)?;
            }
            loss.backward()?;
            Ok(loss)
        };
        for _ in 0..2 {
            optimizer.step(evaluate)?;
        }
        for (at, tensor) in tensors.iter().enumerate() {
            let expected = checkpoint["after"][at as i64].as_tensor()?;
            let distance = tensor.detach().sub(expected)?.abs()?.max_all()?.item()?;
            assert!(distance < 1e-9, "{name}: {distance}");
        }
        let of_adam = &checkpoints["Adam"]["optimizer"];
        let error = optimizer.load_pytorch_state_dict(of_adam).unwrap_err();
        let expected =
            "the state of PyTorch's LBFGS with these parameters, got 2 param_groups, not 1";
        assert!(error.to_string().contains(expected), "{error}");
        let mut fewer = LBFGS::new(tensors[..1].to_vec(), LBFGSOptions::default())?;
        let error = fewer.load_pytorch_state_dict(&checkpoint["optimizer"]);
        let error = error.unwrap_err().to_string();
        let expected =
            "2 parameters in group 0, not 1; direction, which is not a tensor of 6 elements";
        assert!(error.contains(expected), "{error}");
    }
    // A state of no step.
    let tensors = vec![parameter(tensor![1.0])?];
    let group = [("params", Value::List(vec![Value::Int(0)]))];
    let state = Value::dict([
        ("state", Value::Dict(Vec::new())),
        ("param_groups", Value::List(vec![Value::dict(group)])),
    ]);
    LBFGS::new(tensors, LBFGSOptions::default())?.load_pytorch_state_dict(&state)?;
    Ok(())
}

#[test]
fn pytorch_s_states_of_others_are_refused() -> Result<(), Box<dyn std::error::Error>> {
    let checkpoints = of_pytorch()?;
    let adam = &checkpoints["AdamW"];
    let refused = |optimizer: &mut AdamW, state: &Value, expected: &str| {
        let error = optimizer.load_pytorch_state_dict(state).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("optimizers.rs:"), "{error}");
        assert!(error.contains(expected), "{error}");
        assert_eq!(optimizer.param_groups()[0].options, AdamWOptions::default());
    };
    let (_, mut optimizer) = grouped::<AdamWOptions>(adam)?;
    let sgd = &checkpoints["SGD"]["optimizer"];
    refused(
        &mut optimizer,
        sgd,
        "an unknown option param_groups.0.momentum",
    );
    let of_adam = &checkpoints["Adam"]["optimizer"];
    let expected = "an unknown option param_groups.0.decoupled_weight_decay";
    refused(&mut optimizer, of_adam, expected);
    refused(
        &mut optimizer,
        &adam["model"],
        "0 param_groups, not 2; no state",
    );
    refused(
        &mut optimizer,
        &Value::None,
        "the state of PyTorch's AdamW with these parameters",
    );
    let mut one = AdamW::new(weights()?, AdamWOptions::default())?;
    refused(
        &mut one,
        &adam["optimizer"],
        "2 param_groups, not 1; 1 parameters in group 0, not 2",
    );
    let mut small = AdamW::new(vec![parameter(tensor![1.0, 2.0])?], AdamWOptions::default())?;
    small.add_param_group(vec![parameter(tensor![1.0,])?], AdamWOptions::default())?;
    let expected = "state.0.exp_avg [2, 3] for a parameter [2]";
    refused(&mut small, &adam["optimizer"], expected);
    Ok(())
}

#[test]
fn lbfgs_goes_on_where_it_was_saved() -> Result<(), Box<dyn std::error::Error>> {
    for search in [false, true] {
        let new = || -> RusTorchResult<(Vec<(String, Tensor)>, LBFGS)> {
            let weights = weights()?;
            let options = LBFGSOptions::default()
                .max_iter(3usize)
                .strong_wolfe(search);
            let optimizer = LBFGS::new(weights.clone(), options)?;
            Ok((weights, optimizer))
        };
        let step = |weights: &[(String, Tensor)], optimizer: &mut LBFGS| {
            let evaluate = || {
                weights.iter().for_each(|(_, weight)| weight.zero_grad());
                let mut loss = Tensor::scalar(0.0, DType::F32)?;
                for (_, weight) in weights {
                    let away = weight.sub(0.3)?;
                    loss = loss.add(&away.pow(4)?.add(&away.square()?)?.sum_all()?)?;
                }
                loss.backward()?;
                Ok(loss)
            };
            optimizer.step(evaluate).map(drop)
        };
        let (weights, mut optimizer) = new()?;
        for _ in 0..2 {
            step(&weights, &mut optimizer)?;
        }
        let state = optimizer.state_dict()?;
        let (others, mut other) = new()?;
        no_grad(|| {
            let pairs = weights.iter().zip(&others);
            pairs.into_iter().try_for_each(|((_, from), (_, to))| {
                let mut to = to.clone();
                to.copy_(&from.detach())?.eval().map(drop)
            })
        })?;
        eval_all(&others.iter().map(|(_, other)| other).collect::<Vec<_>>())?;
        other.load_state_dict(&state)?;
        for _ in 0..2 {
            step(&weights, &mut optimizer)?;
            step(&others, &mut other)?;
        }
        for ((_, a), (_, b)) in weights.iter().zip(&others) {
            assert_eq!(a.to_vec::<f32>()?, b.to_vec::<f32>()?);
        }
        let of_sgd = SGD::new(weights.clone(), SGDOptions::default())?.state_dict()?;
        let error = other.load_state_dict(&of_sgd).unwrap_err().to_string();
        assert!(
            error.contains("no param_groups.0.max_iter")
                && error.contains("an unknown param_groups.0.momentum"),
            "{error}"
        );
    }
    let nan = LBFGSOptions::default().lr(f64::NAN);
    assert!(LBFGS::new(weights()?, nan).is_err());
    Ok(())
}

#[test]
fn states_of_others_are_refused() -> RusTorchResult<()> {
    let mut adam = Adam::new(weights()?, AdamOptions::default())?;
    adam.step_with(pull)?;
    let state = adam.state_dict()?;
    assert_eq!(state.get("state.weight.exp_avg").unwrap().shape(), [2, 2]);
    assert_eq!(
        state.get("param_groups.0.betas").unwrap().to_vec::<f64>()?,
        [0.9, 0.999]
    );
    let refused = |state: &Tensors| {
        let mut adam = Adam::new(weights()?, AdamOptions::default().lr(0.5))?;
        let error = adam.load_state_dict(state).unwrap_err().to_string();
        assert_eq!(adam.param_groups()[0].options.lr, 0.5);
        RusTorchResult::Ok(error)
    };
    let changed = |name: &str, tensor: Tensor| {
        let mut state = state.clone();
        state.insert(name, tensor);
        state
    };
    assert!(
        refused(&changed("version", tensor!(2.0)))?
            .contains("version 2, where this is for version 1")
    );
    assert!(
        refused(&changed("state.fc.exp_avg", tensor!(2.0)))?.contains("unknown state.fc.exp_avg")
    );
    let misshapen = refused(&changed("state.weight.exp_avg", tensor![1.0,]))?;
    assert!(
        misshapen.contains("state.weight.exp_avg [1] for a parameter [2, 2]"),
        "{misshapen}"
    );
    assert!(refused(&changed("param_groups.1.lr", tensor![1.0,]))?.contains("unknown group"));
    assert!(refused(&changed("param_groups.0.rate", tensor![1.0,]))?.contains("unknown option"));
    assert!(
        refused(&changed("param_groups.0.lr", tensor![f64::NAN,]))?.contains("lr of 0 or more")
    );
    let empty = refused(&Tensors::new())?;
    assert!(
        empty.contains("no version") && empty.contains("no param_groups.0.lr"),
        "{empty}"
    );
    // Another optimiser's.
    let mut sgd = SGD::new(weights()?, SGDOptions::default())?;
    assert!(
        sgd.load_state_dict(&state)
            .unwrap_err()
            .to_string()
            .contains("param_groups.0.betas")
    );
    Ok(())
}

/// Numbers of steps and learning rates are data.
#[test]
fn later_steps_are_planned_once() -> RusTorchResult<()> {
    let runtime = Runtime::new(host(1));
    with_runtime(&runtime, Routing::AUTO, || {
        let parameters = [parameter(Tensor::ones([3, 5], DType::F32)?)?];
        let mut adafactor = Adafactor::new(parameters, AdafactorOptions::default())?;
        let gradient = Tensor::ones([3, 5], DType::F32)?.mul(0.5)?;
        gradient.eval()?;
        let step = |optimizer: &mut Adafactor| optimizer.step_with(|_, _| Some(gradient.clone()));
        // From the third step on less than half of new squares counts.
        for _ in 0..3 {
            step(&mut adafactor)?;
        }
        let before = runtime.plans().new;
        for i in 0..20 {
            adafactor.param_groups_mut()[0].options.lr = 0.01 / (f64::from(i) + 1.5);
            step(&mut adafactor)?;
        }
        assert_eq!(runtime.plans().new, before);
        Ok(())
    })
}

/// A complex parameter after three steps, with its state saved and loaded after two.
fn complex_steps<R: Rule>(options: R) -> RusTorchResult<Vec<f64>> {
    let pairs = |values: [f64; 4]| Tensor::from_slice(&values, [2, 2])?.view_as_complex();
    let weight = parameter(pairs([1.0, 2.0, -0.5, 0.25])?)?;
    let gradient = pairs([1.0, -1.0, 0.5, 2.0])?;
    let new = |options| Optimizer::new(vec![("weight".to_owned(), weight.clone())], options);
    let mut optimizer = new(options.clone())?;
    for step in 1..=3 {
        if step == 3 {
            let state = optimizer.state_dict()?;
            optimizer = new(options.clone())?;
            optimizer.load_state_dict(&state)?;
        }
        optimizer.step_with(|_, _| gradient.mul(f64::from(step)).ok())?;
    }
    weight.detach().view_as_real()?.flatten(0, -1)?.to_vec()
}

/// PyTorch 2.15: `p = torch.tensor([1+2j, -0.5+0.25j], dtype=torch.complex128)`, whose gradient in step `t` is
/// `t * [1-1j, 0.5+2j]`.
#[test]
fn complex_parameters_are_pytorch_s() -> RusTorchResult<()> {
    fn check(options: impl Rule, expected: [f64; 4], name: &str) -> RusTorchResult<()> {
        let got = complex_steps(options)?;
        for (got, expected) in got.iter().zip(expected) {
            assert!(
                (got - expected).abs() < 1e-9,
                "{name}: {got}, not {expected}"
            );
        }
        Ok(())
    }
    let sgd = SGDOptions::default().lr(0.1).momentum(0.9);
    check(sgd, [0.049, 2.951, -0.9755, -1.652], "SGD")?;
    let adam = AdamOptions::default().lr(0.1);
    let expected = [
        0.707681677062,
        2.292318322938,
        -0.792318320885,
        -0.042318323965,
    ];
    check(adam, expected, "Adam")?;
    let adam = AdamWOptions::default().lr(0.1);
    let expected = [
        0.704981094262,
        2.286027902738,
        -0.790523402187,
        -0.042771156014,
    ];
    check(adam, expected, "AdamW")?;
    let adam = AdamaxOptions::default().lr(0.1);
    let expected = [
        0.754680522101,
        2.245319477899,
        -0.745319476287,
        0.004680521295,
    ];
    check(adam, expected, "Adamax")?;
    let adam = NAdamOptions::default().lr(0.1);
    let expected = [
        0.701880197423,
        2.298119802577,
        -0.798119800466,
        -0.048119803632,
    ];
    // Its product of momenta is of single precision.
    let got = complex_steps(adam)?;
    let mut pairs = got.iter().zip(expected);
    assert!(
        pairs.all(|(got, expected)| (got - expected).abs() < 1e-6),
        "NAdam: {got:?}"
    );
    let adam = RAdamOptions::default().lr(0.1);
    let expected = [
        0.540357350942,
        2.459642649058,
        -0.729821324529,
        -0.669285298116,
    ];
    check(adam, expected, "RAdam")?;
    let rms = RMSpropOptions::default().lr(0.1);
    let expected = [
        -1.698827294474,
        4.698827294474,
        -3.198827132873,
        -2.448827375274,
    ];
    check(rms, expected, "RMSprop")?;
    let ada = AdagradOptions::default().lr(0.1);
    let expected = [
        0.730378908342,
        2.269621091658,
        -0.769621091641,
        -0.019621091666,
    ];
    check(ada, expected, "Adagrad")?;
    let ada = AdadeltaOptions::default().lr(0.1);
    let expected = [
        0.998792796098,
        2.001207203902,
        -0.50120719011,
        0.24879279265,
    ];
    check(ada, expected, "Adadelta")?;
    let rprop = RpropOptions::default().lr(0.1);
    check(rprop, [0.636, 2.364, -0.864, -0.114], "Rprop")?;
    let weight = parameter(Tensor::from_slice(&[1.0f64, 2.0], [1, 2])?.view_as_complex()?)?;
    let refused = Adafactor::new(vec![weight], AdafactorOptions::default());
    let message = refused.err().unwrap().to_string();
    assert!(message.contains("parameters of floats"), "{message}");
    Ok(())
}

#[test]
fn nothing_to_train_is_refused() {
    let nothing = SGD::new(Vec::<Tensor>::new(), SGDOptions::default());
    let error = nothing.err().unwrap().to_string();
    assert!(
        error.contains(
            "expected parameters to train (a lazy module has them after its first call), got none"
        ),
        "{error}"
    );
}
