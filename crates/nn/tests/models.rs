//! Modules as PyTorch's users have them: names, states loaded under other names, hooks, containers, copies, vectors of
//! parameters, and conversions beside an optimiser.

extern crate rustorch_nn as rustorch;

use std::sync::{Arc, Mutex};

use rustorch::amp::GradScaler;
use rustorch::nn::{
    self, BatchNorm1d, Forward, Hooked, Layer, Linear, MSELoss, Module, ReLU, RemovableHandle,
    Sequential, Tanh, Visit, sequential,
};
use rustorch::optim::swa_utils::{AveragedModel, Averaging};
use rustorch::optim::{
    Adam, AdamOptions, AdamW, AdamWOptions, LBFGS, LBFGSOptions, Optimizer, Rule, SGD, SGDOptions,
};
use rustorch::train::TrainStep;
use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_tensor::nn::ConvOptions;
use rustorch_tensor::{RusTorchResult, Tensor, assert_close, manual_seed, no_grad, tensor};

fn names(module: &impl Module) -> Vec<String> {
    module.state_dict().names().map(str::to_owned).collect()
}

/// The text of what was refused.
#[track_caller]
fn refused<T>(result: RusTorchResult<T>) -> String {
    match result {
        Ok(_) => panic!("not refused"),
        Err(error) => error.to_string(),
    }
}

#[track_caller]
fn assert_says<T>(result: RusTorchResult<T>, expected: &str) {
    let error = refused(result);
    assert!(error.ends_with(expected), "{error}");
    assert!(error.contains(file!()), "{error}");
    assert!(!error.contains('\n'), "{error}");
}

#[derive(Module)]
struct Projections {
    query: Linear,
    #[module(rename = "in")]
    input: Option<Linear>,
}

#[derive(Module)]
struct Attention {
    #[module(rename = "self")]
    own: Projections,
    r#type: Linear,
    #[module(rename = "r")]
    r#in: nn::ParameterList,
}

#[derive(Module)]
struct Pair<A, B>(#[module(rename = "first")] A, B);

#[test]
fn fields_have_the_names_that_they_are_given() -> RusTorchResult<()> {
    let linear = || Ok::<_, rustorch_tensor::RusTorchError>(Linear::new(2, 2)?.without_bias());
    let attention = Attention {
        own: Projections {
            query: linear()?,
            input: Some(linear()?),
        },
        r#type: linear()?,
        r#in: vec![nn::parameter(tensor![1.0])?],
    };
    let expected = ["self.query.weight", "self.in.weight", "type.weight", "r.0"];
    assert_eq!(names(&attention), expected);
    let parameters = attention.named_parameters();
    assert_eq!(
        parameters.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        expected
    );
    let pair = Pair(linear()?, attention);
    assert_eq!(names(&pair)[..2], ["first.weight", "1.self.query.weight"]);
    Ok(())
}

#[test]
fn states_are_loaded_under_other_names() -> RusTorchResult<()> {
    let new = || RusTorchResult::Ok(sequential![Linear::new(2, 3)?, ReLU, BatchNorm1d::new(3)?]);
    let (saved, mut net) = (new()?, new()?);
    let state = saved.state_dict();
    let is_loaded = |net: &Sequential| net[0].parameters()[0].equal(&saved[0].parameters()[0]);

    let parallel = state.add_prefix("module.");
    net.load_state_dict(&parallel.strip_prefix("module.").expect("names"), true)?;
    assert!(is_loaded(&net)?);

    let mut net = new()?;
    let whole: Tensors = parallel
        .into_iter()
        .chain(state.add_prefix("other."))
        .collect();
    net.load_state_dict(&whole.under("module."), true)?;
    assert!(is_loaded(&net)?);

    let mut net = new()?;
    let mapped = net.load_state_dict_with(&whole, true, |name| {
        name.strip_prefix("other.").map(str::to_owned)
    })?;
    assert_eq!(mapped, nn::Unmatched::default());
    assert!(is_loaded(&net)?);

    let unmatched = net.load_state_dict_with(&state, false, |name| Some(format!("x{name}")))?;
    assert_eq!(
        (unmatched.missing.len(), unmatched.unexpected.len()),
        (7, 7)
    );
    Ok(())
}

#[test]
fn all_that_does_not_fit_a_state_is_in_one_error() -> RusTorchResult<()> {
    let mut net = sequential![Linear::new(2, 3)?, ReLU, Linear::new(3, 1)?];
    let before = net[0].parameters()[0].to_vec::<f32>()?;
    let state = net.state_dict();
    let place = "expected a tensor for each of the module's parameters and buffers, got ";

    let parallel = state.add_prefix("module.");
    let found = "none for 0.weight, 0.bias, 2.weight, 2.bias; unknown ones module.0.weight, module.0.bias, \
                 module.2.weight, module.2.bias; strip_prefix(\"module.\") of them would fit";
    assert_says(
        net.load_state_dict(&parallel, true),
        &format!("{place}{found}"),
    );

    let mut deeper = Pair(net, ReLU);
    let found = "add_prefix(\"first.\") to them would fit";
    let error = refused(deeper.load_state_dict(&state, true));
    assert!(error.ends_with(found), "{error}");
    let mut net = deeper.0;

    let mut other = Tensors::new();
    other.insert("0.weight", Tensor::zeros([3, 2], DType::F32)?);
    other.insert("0.bias", Tensor::zeros([4], DType::F32)?);
    other.insert("2.weight", Tensor::zeros([3, 1], DType::F32)?);
    other.insert("head.weight", Tensor::zeros([1], DType::F32)?);
    let found = "none for 2.bias; unknown ones head.weight; 0.bias [4] in place of [3]; \
                 2.weight [3, 1] in place of [1, 3]";
    assert_says(
        net.load_state_dict(&other, true),
        &format!("{place}{found}"),
    );
    // Shapes have to fit where names need not.
    let found = "0.bias [4] in place of [3]; 2.weight [3, 1] in place of [1, 3]";
    assert_says(
        net.load_state_dict(&other, false),
        &format!("{place}{found}"),
    );
    assert_says(
        net.load_state_dict_with(&state, true, |_| Some("0.weight".to_owned())),
        "expected a name of its own for each tensor, got the tensors `0.weight` and `0.bias` both get the name `0.weight`; \
         give each its own",
    );
    assert_eq!(
        net[0].parameters()[0].to_vec::<f32>()?,
        before,
        "nothing is written"
    );
    Ok(())
}

/// A list that hooks write to, and what they have written.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, text: impl Into<String>) {
        self.0.lock().expect("unpoisoned").push(text.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("unpoisoned"))
    }

    /// A hook that notes a name, and the sum of what it sees.
    fn hook<M>(
        &self,
        name: &'static str,
    ) -> impl Fn(&M, &Tensor, &Tensor) -> RusTorchResult<Option<Tensor>> + Send + Sync + 'static
    {
        let log = self.clone();
        move |_, x, y| {
            let [x, y] = [x, y].map(|x| x.sum_all()?.item());
            log.note(format!("{name} {} {}", x?, y?));
            Ok(None)
        }
    }
}

#[derive(Module)]
struct Net {
    body: Hooked<Sequential>,
    head: Hooked<Linear>,
}

impl Forward for Net {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        self.head.forward(&self.body.forward(x)?)
    }
}

/// A layer that multiplies by this.
fn times(factor: f64) -> RusTorchResult<Linear> {
    let mut linear = Linear::new(1, 1)?.without_bias();
    nn::init::constant_(&mut linear.weight, factor)?;
    Ok(linear)
}

#[test]
fn hooks_see_and_change_what_modules_get_and_give() -> RusTorchResult<()> {
    let net = Net {
        body: sequential![times(2.0)?, ReLU].into(),
        head: times(3.0)?.into(),
    };
    assert_eq!(names(&net), ["body.0.weight", "head.weight"]);
    assert_eq!(net.head.weight.shape(), [1, 1]);
    let (x, log) = (tensor![[1.0]], Log::default());
    let _stays = net.head.register_forward_hook(log.hook("head"));
    let of_body = net.body.register_forward_hook(log.hook("body"));
    let of_first = net.body[0].register_forward_hook(log.hook("first"));
    assert_eq!(net.forward(&x)?.item()?, 6.0);
    assert_eq!(log.take(), ["first 1 2", "body 1 2", "head 2 6"]);
    of_body.remove();
    of_first.remove();

    // Each hook goes on with what the one before it gave.
    let plus_one = net
        .head
        .register_forward_pre_hook(|_, x| Ok(Some(x.add(1)?)));
    let doubled = net
        .head
        .register_forward_pre_hook(|_, x| Ok(Some(x.mul(2)?)));
    let negated = net.head.register_forward_hook(|layer, x, y| {
        assert_eq!(layer.weight.item()?, 3.0);
        assert_eq!(y.item()?, 3.0 * x.item()?);
        Ok(Some(y.neg()?))
    });
    assert_eq!(net.forward(&x)?.item()?, -18.0);
    assert_eq!(log.take(), ["head 6 18"]);
    plus_one.remove();
    assert_eq!(net.forward(&x)?.item()?, -12.0);
    negated.remove();
    // A handle that is dropped leaves its hook.
    drop(doubled);
    assert_eq!(net.forward(&x)?.item()?, 12.0);
    Ok(())
}

#[test]
fn gradients_go_through_hooks() -> RusTorchResult<()> {
    let net = sequential![times(2.0)?, times(5.0)?];
    net[0].register_forward_hook(|_, _, y| Ok(Some(y.square()?)));
    net.forward(&tensor![[3.0]])?.sum_all()?.backward()?;
    // 5 (2 x)²
    let gradients = net
        .parameters()
        .into_iter()
        .map(|p| p.grad().expect("one").item());
    assert_eq!(
        gradients.collect::<RusTorchResult<Vec<_>>>()?,
        [180.0, 36.0]
    );
    Ok(())
}

#[test]
fn hooks_may_fail_and_change_the_list_of_hooks() -> RusTorchResult<()> {
    let layer = Arc::new(Hooked::new(times(2.0)?));
    let x = tensor![[1.0]];
    let handle: Arc<Mutex<Option<RemovableHandle>>> = Arc::default();
    let (own, inner) = (handle.clone(), Arc::downgrade(&layer));
    let once = layer.register_forward_pre_hook(move |_, x| {
        if let Some(handle) = own.lock().expect("unpoisoned").take() {
            handle.remove();
        }
        if let Some(layer) = inner.upgrade() {
            layer.register_forward_hook(|_, _, y| Ok(Some(y.add(1)?)));
        }
        Ok(Some(x.mul(10)?))
    });
    *handle.lock().expect("unpoisoned") = Some(once);
    assert_eq!(layer.forward(&x)?.item()?, 21.0);
    assert_eq!(layer.forward(&x)?.item()?, 3.0);

    let failing =
        layer.register_forward_pre_hook(|_, x| Ok(Some(x.matmul(&tensor![[1.0], [2.0]])?)));
    assert_says(layer.forward(&x), "got f32[1, 1] and f32[2, 1]");
    failing.remove();
    assert!(layer.forward(&x).is_ok());
    Ok(())
}

#[test]
fn clones_have_the_hooks_in_lists_of_their_own() -> RusTorchResult<()> {
    let (net, log, x) = (sequential![times(2.0)?], Log::default(), tensor![[1.0]]);
    let handle = net[0].register_forward_hook(log.hook("hook"));
    let (same, copy) = (nn::share(&net), net.clone());
    handle.remove();
    net.forward(&x)?;
    assert!(log.take().is_empty());
    same.forward(&x)?;
    copy.forward(&x)?;
    assert_eq!(log.take(), ["hook 1 2", "hook 1 2"]);
    copy[0].register_forward_hook(log.hook("own"));
    same.forward(&x)?;
    assert_eq!(log.take(), ["hook 1 2"]);
    Ok(())
}

#[test]
fn recorded_steps_have_what_hooks_change() -> RusTorchResult<()> {
    let net = sequential![times(1.0)?];
    net[0].register_forward_hook(|_, _, y| Ok(Some(y.mul(2)?)));
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.1))?;
    let mut train = TrainStep::new(net, sgd, |net: &Sequential, batch| {
        MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
    });
    let (x, y) = (tensor![[1.0]], tensor![[0.0]]);
    assert_eq!(train.step(&[&x, &y])?.item()?, 4.0);
    // 2 x 2 w of the loss (2 w)², so that w is 1 - 0.8.
    assert_close!(
        train.step(&[&x, &y])?,
        Tensor::scalar(0.16, DType::F32)?,
        1e-5,
        1e-6
    );
    Ok(())
}

/// The numbers that layers multiply by, in their order.
fn factors(net: &Sequential) -> RusTorchResult<Vec<f64>> {
    let factors = net.iter().map(|part| match part.downcast_ref::<Linear>() {
        Some(linear) => linear.weight.item(),
        None => Ok(0.0),
    });
    factors.collect()
}

#[test]
fn a_sequential_is_indexed_and_iterated() -> RusTorchResult<()> {
    let mut net = Sequential::new()
        .append(times(1.0)?)
        .add_module("relu", ReLU)
        .append(times(3.0)?);
    assert_eq!(factors(&net)?, [1.0, 0.0, 3.0]);
    let x = tensor![[2.0]];
    assert_eq!(net[2].forward(&x)?.item()?, 6.0);
    assert_eq!(net[-1].forward(&x)?.item()?, 6.0);
    assert_eq!(net["2"].forward(&x)?.item()?, 6.0);
    assert!(net["relu"].downcast_ref::<ReLU>().is_some());
    assert!(net["relu"].downcast_ref::<Tanh>().is_none());
    for at in 0..net.len() {
        assert!(net.get(at).is_some());
    }
    assert!(net.get(3).is_none() && net.get(-4).is_none() && net.get("3").is_none());
    let children: Vec<&str> = net.named_children().map(|(name, _)| name).collect();
    assert_eq!(children, ["0", "relu", "2"]);

    let linear: &mut Linear = net[0].downcast_mut().expect("a Linear");
    nn::init::constant_(&mut linear.weight, 4.0)?;
    for part in &mut net {
        part.eval();
    }
    let mut y = x;
    for part in &net {
        y = part.forward(&y)?;
    }
    assert_eq!(y.item()?, 24.0);
    Ok(())
}

#[test]
fn a_sequential_is_changed_with_pytorchs_names() -> RusTorchResult<()> {
    let new = || RusTorchResult::Ok(sequential![times(1.0)?, ReLU, times(3.0)?]);
    let mut net = new()?;
    let old = net.replace(0, times(5.0)?)?;
    assert_eq!(
        old.downcast_ref::<Linear>()
            .expect("a Linear")
            .weight
            .item()?,
        1.0
    );
    net.replace("1", Tanh)?;
    assert!(net[1].downcast_ref::<Tanh>().is_some());
    assert_eq!(names(&net), ["0.weight", "2.weight"]);

    net.remove(0)?;
    assert_eq!((net.len(), names(&net)), (2, vec!["1.weight".to_owned()]));
    net.insert(0, times(7.0)?)?;
    net.insert(-1, times(8.0)?)?;
    net.insert(4, times(9.0)?)?;
    assert_eq!(factors(&net)?, [7.0, 0.0, 8.0, 3.0, 9.0]);
    assert_eq!(
        names(&net),
        ["0.weight", "2.weight", "3.weight", "4.weight"]
    );

    let net = new()?;
    let mut rest = net.slice(1..)?;
    assert_eq!(names(&rest), ["2.weight"]);
    assert!(rest.parameters()[0].id() == net[2].parameters()[0].id());
    // In PyTorch the name `2` would take the place of the layer that has it.
    rest.push(times(6.0)?);
    assert_eq!(names(&rest), ["2.weight", "3.weight"]);
    assert_eq!(net.slice(..)?.len(), 3);
    assert_eq!(net.slice(1..=1)?.len(), 1);
    assert!(net.slice(3..)?.is_empty());

    let mut net = new()?;
    net.extend(new()?);
    assert_eq!(factors(&net)?, [1.0, 0.0, 3.0, 1.0, 0.0, 3.0]);
    net.extend([times(2.0)?]);
    assert_eq!(
        names(&net),
        ["0.weight", "2.weight", "3.weight", "5.weight", "6.weight"]
    );
    let collected: Sequential = net.into_iter().skip(3).collect();
    assert_eq!(names(&collected), ["0.weight", "2.weight", "3.weight"]);

    let mut named = Sequential::new()
        .add_module("a", times(1.0)?)
        .add_module("b", times(2.0)?);
    assert_says(
        named.insert(0, ReLU),
        "expected modules called by their numbers, got a",
    );
    named.remove("a")?;
    assert_eq!(names(&named), ["0.weight"]);
    Ok(())
}

#[test]
fn places_that_are_not_there_are_refused() -> RusTorchResult<()> {
    let mut net = sequential![ReLU, Tanh];
    assert_says(
        net.replace(2, ReLU),
        "expected a place among 2 modules, got 2",
    );
    assert_says(
        net.insert(3, ReLU),
        "expected a place among 2 modules, got 3",
    );
    assert_says(
        net.insert(-3, ReLU),
        "expected a place among 2 modules, got -3",
    );
    assert_says(net.remove("x"), "expected a place among 2 modules, got x");
    assert_says(net.slice(1..5), "expected a range of 0..2, got 1..5");
    #[expect(clippy::reversed_empty_ranges, reason = "a user's mistake")]
    let reversed = net.slice(2..1);
    assert_says(reversed, "expected a range of 0..2, got 2..1");
    assert_eq!(net.len(), 2);
    Ok(())
}

#[derive(Module)]
struct Tied {
    first: Sequential,
    again: Sequential,
    layers: nn::ModuleList,
    scale: Tensor,
    frozen: Tensor,
}

#[test]
fn copies_of_all_modules_are_deep() -> RusTorchResult<()> {
    let shared = sequential![Linear::new(2, 2)?, BatchNorm1d::new(2)?];
    let boxed: Box<dyn Layer> = Box::new(Linear::new(2, 1)?);
    let mut frozen = nn::parameter(tensor![1.0])?;
    frozen.requires_grad_(false)?;
    let mut net = Tied {
        first: nn::share(&shared),
        again: shared,
        layers: vec![boxed],
        scale: nn::parameter(tensor![1.0])?,
        frozen,
    };
    net.first[1].eval();
    assert_eq!(net.parameters().len(), 8);
    let copy = net.clone();
    assert_eq!(names(&copy), names(&net));
    assert_eq!(copy.parameters().len(), 8, "tied parameters stay tied");
    let wants = |net: &Tied| {
        net.parameters()
            .iter()
            .map(Tensor::requires_grad)
            .collect::<Vec<_>>()
    };
    assert_eq!(wants(&copy), wants(&net));
    let mut modes = Vec::new();
    copy.visit("", &mut |_, leaf| {
        if let nn::Leaf::Training(mode) = leaf {
            modes.push(mode.is_on());
        }
    });
    assert_eq!(modes, [false, true]);

    // Nothing that is written there is seen here.
    let before = copy.state_dict();
    let before: Vec<Vec<f64>> = before
        .iter()
        .map(|(_, x)| x.double()?.to_vec())
        .collect::<RusTorchResult<_>>()?;
    for (_, mut tensor) in net.state_dict() {
        no_grad(|| tensor.fill_(7.0).map(drop))?;
    }
    let after = copy.state_dict();
    let after: Vec<Vec<f64>> = after
        .iter()
        .map(|(_, x)| x.double()?.to_vec())
        .collect::<RusTorchResult<_>>()?;
    assert_eq!(before, after);
    // Buffers that two places share are shared in the copy, too.
    let mut mean = copy.first[1].named_buffers()[0].1.clone();
    mean.fill_(3.0)?;
    assert_eq!(
        copy.again[1].named_buffers()[0].1.to_vec::<f32>()?,
        [3.0, 3.0]
    );
    Ok(())
}

#[test]
fn a_sequential_is_averaged() -> RusTorchResult<()> {
    let net = sequential![times(1.0)?];
    let mut averages = AveragedModel::new(&net, Averaging::Equal)?;
    averages.update_parameters(&net)?;
    no_grad(|| net.parameters()[0].fill_(3.0).map(drop))?;
    averages.update_parameters(&net)?;
    assert_eq!(factors(&averages.module)?, [2.0]);
    Ok(())
}

#[test]
fn parameters_are_a_vector_and_come_back() -> RusTorchResult<()> {
    let net = sequential![Linear::new(2, 1)?, times(3.0)?];
    let parameters = net.parameters();
    let vector = nn::utils::parameters_to_vector(&parameters)?;
    assert!(vector.requires_grad());
    vector.square()?.sum_all()?.backward()?;
    assert_eq!(parameters[2].grad().expect("one").item()?, 6.0);
    nn::utils::vector_to_parameters(&tensor![1.0, 2.0, 3.0, 4.0], &parameters)?;
    assert_eq!(parameters[0].to_vec::<f32>()?, [1.0, 2.0]);
    assert_eq!(parameters[1].to_vec::<f32>()?, [3.0]);
    assert_eq!(parameters[2].item()?, 4.0);
    // Parts of the parameters themselves, in another order.
    let swapped = nn::utils::parameters_to_vector(&parameters)?.flip(0)?;
    nn::utils::vector_to_parameters(&swapped, &parameters)?;
    assert_eq!(parameters[0].to_vec::<f32>()?, [4.0, 3.0]);
    assert_eq!(parameters[2].item()?, 1.0);
    assert!(parameters.iter().all(|p| p.is_leaf() && p.requires_grad()));

    let write = |vector: Tensor| nn::utils::vector_to_parameters(&vector, &parameters);
    assert_says(
        write(tensor![1.0, 2.0, 3.0]),
        "expected a vector [4], got [3]",
    );
    assert_says(
        write(tensor![1.0, 2.0, 3.0, 4.0, 5.0]),
        "expected a vector [4], got [5]",
    );
    assert_says(
        write(tensor![[1.0, 2.0, 3.0, 4.0]]),
        "expected a vector [4], got [1, 4]",
    );
    assert_says(
        nn::utils::parameters_to_vector(&[]),
        "expected parameters, got none",
    );
    Ok(())
}

/// A step of training by an optimiser that was made before.
fn trained<R: Rule>(net: &Linear, optimizer: &mut Optimizer<R>) -> RusTorchResult<()> {
    let x = Tensor::ones([1, 2], net.weight.dtype())?;
    optimizer.zero_grad();
    net.forward(&x)?.sum_all()?.backward()?;
    optimizer.step()
}

/// Held by tests that seed the process's generator, or that a seed in between would fail.
static SEEDING: Mutex<()> = Mutex::new(());

#[test]
fn to_dtype_after_an_optimiser_was_made_is_refused_by_its_step() -> RusTorchResult<()> {
    let _alone = SEEDING.lock().expect("unpoisoned");
    let refusal = "expected weight as it was when the optimiser was made, got one with other data \
                   (make the optimiser after to_dtype)";
    let mut net = Linear::new(2, 1)?;
    let mut sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
    net.to_dtype(DType::F64)?;
    let before = net.weight.to_vec::<f64>()?;
    assert_says(trained(&net, &mut sgd), refusal);
    assert_eq!(net.weight.to_vec::<f64>()?, before);

    let mut net = Linear::new(2, 1)?;
    let mut adam = Adam::new(net.named_parameters(), AdamOptions::default())?;
    trained(&net, &mut adam)?;
    net.to_dtype(DType::F64)?;
    assert_says(trained(&net, &mut adam), refusal);
    // Back again it is other memory still.
    net.to_dtype(DType::F32)?;
    assert_says(trained(&net, &mut adam), refusal);
    let mut adam = Adam::new(net.named_parameters(), AdamOptions::default())?;
    trained(&net, &mut adam)?;

    let mut net = Linear::new(2, 1)?;
    let mut sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
    let mut scaler = GradScaler::new()?;
    net.to_dtype(DType::F64)?;
    scaler
        .scale(&net.forward(&Tensor::ones([1, 2], DType::F64)?)?.sum_all()?)?
        .backward()?;
    assert!(scaler.step(&mut sgd).is_err());

    let mut net = Linear::new(2, 1)?;
    let mut lbfgs = LBFGS::new(net.named_parameters(), LBFGSOptions::default())?;
    net.to_dtype(DType::F64)?;
    assert_says(lbfgs.step(|| lbfgs_loss(&net)), refusal);

    let net = Linear::new(2, 1)?;
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
    let mut train = TrainStep::new(net, sgd, |net: &Linear, batch| {
        net.forward(&batch[0])?.sum_all()
    });
    train.step(&[&Tensor::ones([1, 2], DType::F32)?])?;
    train.module_mut().to_dtype(DType::F64)?;
    assert_says(train.step(&[&Tensor::ones([1, 2], DType::F64)?]), refusal);
    Ok(())
}

fn lbfgs_loss(net: &Linear) -> RusTorchResult<Tensor> {
    let loss = net.forward(&Tensor::ones([1, 2], DType::F64)?)?.sum_all()?;
    loss.backward()?;
    Ok(loss)
}

#[test]
fn to_device_after_an_optimiser_was_made_goes_on_training() -> RusTorchResult<()> {
    let _alone = SEEDING.lock().expect("unpoisoned");
    let steps = |moved: bool| {
        manual_seed(4);
        let mut net = Linear::new(2, 1)?;
        let mut adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(0.1))?;
        trained(&net, &mut adam)?;
        for _ in 0..3 {
            if moved {
                net.to_device("cpu")?;
            }
            trained(&net, &mut adam)?;
        }
        net.weight.to_vec::<f32>()
    };
    assert_eq!(steps(true)?, steps(false)?);
    // A recorded step goes on training, too.
    let net = Linear::new(2, 1)?;
    let before = net.weight.to_vec::<f32>()?;
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.5))?;
    let mut train = TrainStep::new(net, sgd, |net: &Linear, batch| {
        net.forward(&batch[0])?.sum_all()
    });
    train.module_mut().to_device("cpu")?;
    train.step(&[&Tensor::ones([1, 2], DType::F32)?])?;
    let after = train.module().weight.to_vec::<f32>()?;
    assert_eq!(after, before.iter().map(|w| w - 0.5).collect::<Vec<_>>());
    Ok(())
}

#[test]
fn conversions_keep_what_is_known_of_parameters() -> RusTorchResult<()> {
    let mut net = sequential![Linear::new(2, 1)?];
    net.forward(&tensor![[1.0, 2.0]])?.sum_all()?.backward()?;
    let mut bias = net.parameters()[1].clone();
    bias.requires_grad_(false)?;
    net.to_dtype(DType::F64)?;
    let parameters = net.parameters();
    assert!(parameters.iter().all(Tensor::is_leaf));
    assert_eq!(
        parameters[0].grad().expect("one").to_vec::<f64>()?,
        [1.0, 2.0]
    );
    assert!(parameters[0].requires_grad() && !parameters[1].requires_grad());
    // A hook of a parameter from before a conversion is called after it.
    let seen = Log::default();
    let log = seen.clone();
    parameters[0].register_hook(move |gradient| {
        log.note(gradient.dtype().to_string());
        Ok(None)
    })?;
    net.to_dtype(DType::F32)?;
    net.zero_grad();
    net.forward(&tensor![[1.0, 2.0]])?.sum_all()?.backward()?;
    assert_eq!(seen.take(), ["f32"]);
    Ok(())
}

#[test]
fn a_leaf_takes_other_data() -> RusTorchResult<()> {
    let mut weight = nn::parameter(tensor![1.0, 2.0])?;
    let old = weight.clone();
    assert_eq!(weight.data_changes(), 0);
    weight.set_data(&tensor![[3.0], [4.0], [5.0]])?;
    assert_eq!((weight.data_changes(), old.data_changes()), (1, 1));
    assert!(weight.is_leaf() && weight.requires_grad());
    weight.square()?.sum_all()?.backward()?;
    let gradient = weight.grad().expect("one");
    assert_eq!(gradient.to_vec2::<f32>()?, [[6.0], [8.0], [10.0]]);
    // The leaf is one, whatever its handles show.
    assert_eq!(old.grad().expect("one").shape(), [3, 1]);
    assert_eq!(old.to_vec::<f32>()?, [1.0, 2.0]);
    let mut plain = tensor![1.0];
    plain.set_data(&weight)?;
    assert!(!plain.requires_grad());
    assert_says(
        weight.set_data(&tensor![1, 2]),
        "expected a floating-point or complex dtype, got i64",
    );
    let mut made = weight.mul(2)?;
    assert_says(made.set_data(&weight), "expected a leaf, got f32[3, 1]");
    Ok(())
}

/// Fails if a write to one of the modules shows in the other.
#[track_caller]
fn assert_apart(net: &impl Module, copy: &impl Module) -> RusTorchResult<()> {
    let numbers = |module: &dyn Fn() -> Tensors| -> RusTorchResult<Vec<Vec<f64>>> {
        let state = module();
        let all = state.iter().map(|(_, x)| x.to_dtype(DType::F64)?.to_vec());
        all.collect()
    };
    let before = numbers(&|| net.state_dict())?;
    assert!(!before.is_empty());
    assert_eq!(names(net), names(copy));
    assert_eq!(before, numbers(&|| copy.state_dict())?);
    for (_, mut tensor) in net.state_dict() {
        tensor.fill_(7)?;
    }
    assert_eq!(numbers(&|| copy.state_dict())?, before);
    for (_, mut tensor) in copy.state_dict() {
        tensor.fill_(9)?;
    }
    let mut elements = numbers(&|| net.state_dict())?.into_iter().flatten();
    assert!(elements.all(|element| element == 7.0));
    Ok(())
}

#[test]
fn clones_of_every_kind_of_module_are_deep() -> RusTorchResult<()> {
    fn check<M: Module + Clone>(module: M) -> RusTorchResult<()> {
        assert_apart(&module, &module.clone())?;
        assert_apart(&nn::share(&module), &nn::deep_copy(&module)?)
    }
    let lazy = nn::LazyLinear::new(2);
    lazy.forward(&tensor![[1.0, 2.0]])?;
    let conv = || nn::Conv2d::new(2, 2, 3, ConvOptions::default());
    let encoder = nn::TransformerEncoderLayer::new(4, 2, Default::default())?;
    let boxed: Box<dyn Layer> = Box::new(Linear::new(2, 2)?);
    check(Linear::new(2, 2)?)?;
    check(conv()?)?;
    check(nn::Embedding::new(3, 2)?)?;
    check(BatchNorm1d::new(2)?)?;
    check(nn::LayerNorm::new(2)?)?;
    check(nn::PReLU::new(2)?)?;
    check(nn::LSTM::new(2, 2, Default::default())?)?;
    check(nn::GRUCell::new(2, 2)?)?;
    check(nn::MultiheadAttention::new(4, 2, Default::default())?)?;
    check(nn::TransformerEncoder::new(&encoder, 2, None)?)?;
    check(nn::weight_norm(Linear::new(2, 2)?, 0)?)?;
    check(nn::spectral_norm(conv()?, 1, 1e-12)?)?;
    check(lazy)?;
    check(Hooked::new(sequential![Linear::new(2, 2)?, ReLU]))?;
    check(vec![boxed])?;
    check(AveragedModel::new(&Linear::new(2, 2)?, Averaging::Equal)?)?;
    Ok(())
}

/// A module inside itself, with a teacher that is no part of it, and with a part that is generic.
#[derive(Module)]
struct Node<M> {
    part: M,
    next: Option<Box<Node<M>>>,
    #[module(skip)]
    teacher: Linear,
}

/// A module with something that is not `Clone`.
#[derive(Module)]
struct Counting {
    layer: Linear,
    #[module(skip)]
    calls: Mutex<usize>,
}

#[test]
fn derived_clones_have_all_fields() -> RusTorchResult<()> {
    let node = |next| {
        RusTorchResult::Ok(Node {
            part: Linear::new(2, 2)?,
            next,
            teacher: Linear::new(2, 2)?,
        })
    };
    let mut chain = node(Some(Box::new(node(None)?)))?;
    // A tie between two levels.
    if let Some(next) = &mut chain.next {
        next.part.weight = chain.part.weight.clone();
    }
    assert_eq!(chain.parameters().len(), 3);
    let copy = chain.clone();
    assert_eq!(copy.parameters().len(), 3);
    assert_apart(&chain.teacher, &copy.teacher)?;
    assert_apart(&chain, &copy)?;
    assert_eq!(
        nn::share(&chain).teacher.weight.id(),
        chain.teacher.weight.id()
    );

    let counting = Counting {
        layer: Linear::new(2, 2)?,
        calls: Mutex::new(0),
    };
    *counting.calls.lock().expect("unpoisoned") += 1;
    assert_eq!(counting.parameters().len(), 2);
    assert_eq!(counting.layer.weight.shape(), [2, 2]);
    Ok(())
}

/// A target network is a clone that keeps its numbers while the first one is trained, and follows by hand.
#[test]
fn a_clone_is_not_trained_with_its_original() -> RusTorchResult<()> {
    manual_seed(3);
    let online = sequential![Linear::new(2, 4)?, ReLU, Linear::new(4, 1)?];
    let mut adam = Adam::new(online.named_parameters(), AdamOptions::default().lr(0.1))?;
    let x = Tensor::randn([8, 2], DType::F32)?;
    let mut step = || {
        adam.zero_grad();
        online.forward(&x)?.square()?.mean_all()?.backward()?;
        adam.step()
    };
    step()?;
    let target = online.clone();
    for parameter in target.parameters() {
        assert!(parameter.is_leaf() && parameter.requires_grad() && parameter.grad().is_none());
    }
    let y = target.forward(&x)?.to_vec::<f32>()?;
    assert_eq!(online.forward(&x)?.to_vec::<f32>()?, y);
    step()?;
    assert_eq!(target.forward(&x)?.to_vec::<f32>()?, y);
    assert_ne!(online.forward(&x)?.to_vec::<f32>()?, y);
    no_grad(|| {
        for (mut t, p) in target.parameters().into_iter().zip(online.parameters()) {
            t *= 0.0;
            t += &p;
        }
    });
    assert!(target.forward(&x)?.equal(&online.forward(&x)?)?);
    // The copy is trained by an optimiser of its own.
    let mut sgd = SGD::new(target.named_parameters(), SGDOptions::default())?;
    target.forward(&x)?.sum_all()?.backward()?;
    sgd.step()?;
    assert!(!target.forward(&x)?.equal(&online.forward(&x)?)?);
    Ok(())
}

/// A copy that a recorded step makes would be trained by none of its runs.
#[test]
fn a_recorded_step_takes_handles_and_no_copies() -> RusTorchResult<()> {
    let net = sequential![Linear::new(2, 1)?];
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
    let mut train = TrainStep::new(net, sgd, |net: &Sequential, batch| {
        nn::deep_copy(net)?.forward(&batch[0])?.sum_all()
    });
    assert_says(
        train.step(&[&tensor![[1.0, 2.0]]]),
        "clone: expected a handle on the module in a recorded step (nn::share gives one), got a copy, which no \
         later step would train",
    );
    Ok(())
}
