//! Steps that are recorded once and run often: the numbers of steps made one by one, bit by bit, and what they are
//! not for.

extern crate rustorch_nn as rustorch;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch::nn::{
    self, BatchNorm1d, CrossEntropyLoss, Dropout, Forward, GELU, LayerNorm, Linear, MSELoss,
    Module, Sequential, sequential,
};
use rustorch::optim::lr_scheduler::{CosineAnnealingLR, LrScheduler};
use rustorch::optim::{
    ASGDOptions, AdafactorOptions, AdamOptions, AdamW, AdamWOptions, NAdamOptions, Optimizer,
    RAdamOptions, RpropOptions, Rule, SGD, SGDOptions,
};
use rustorch::train::{StepMemory, TrainStep};
use rustorch_cpu::Cpu;
use rustorch_ir::DType;
use rustorch_reference::Reference;
use rustorch_runtime::{Backend, Routing, Runtime};
use rustorch_tensor::amp::autocast;
use rustorch_tensor::{
    Generator, RusTorchResult, Tensor, checkpoint, default_generator, eval_all, manual_seed,
    no_grad, tensor, with_runtime,
};
use rustorch_testing::warnings;

/// Held by who draws random numbers, whose generator is the process's.
fn generator() -> MutexGuard<'static, ()> {
    static GENERATOR: Mutex<()> = Mutex::new(());
    GENERATOR.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Result of some steps.
#[derive(PartialEq, Debug)]
struct Trained {
    losses: Vec<u32>,
    state: Vec<(String, Vec<u32>)>,
    /// Number of draws of the generator.
    drawn: u64,
}

impl Trained {
    fn new(losses: &[Tensor], net: &impl Module) -> RusTorchResult<Self> {
        let bits = |x: &Tensor| -> RusTorchResult<Vec<u32>> {
            let numbers = x.to_dtype(DType::F32)?.flatten(0, -1)?.to_vec::<f32>()?;
            Ok(numbers.into_iter().map(f32::to_bits).collect())
        };
        let state = net.state_dict();
        let state = state.iter().map(|(n, x)| Ok((n.to_owned(), bits(x)?)));
        Ok(Self {
            losses: losses
                .iter()
                .map(|loss| Ok(bits(loss)?[0]))
                .collect::<RusTorchResult<_>>()?,
            state: state.collect::<RusTorchResult<_>>()?,
            drawn: default_generator().state().drawn,
        })
    }
}

fn network() -> RusTorchResult<Sequential> {
    Ok(sequential![
        Linear::new(3, 8)?,
        BatchNorm1d::new(8)?,
        GELU::default(),
        Dropout::new(0.2)?,
        LayerNorm::new(8)?,
        nn::spectral_norm(Linear::new(8, 8)?, 1, 1e-12)?,
        Linear::new(8, 1)?,
    ])
}

fn loss(net: &Sequential, x: &Tensor, y: &Tensor) -> RusTorchResult<Tensor> {
    MSELoss::default().forward(&net.forward(x)?, y)
}

/// Batches of a seed's own.
fn batches(count: usize) -> RusTorchResult<Vec<[Tensor; 2]>> {
    let generator = Generator::new(5);
    let batch = |_| {
        let x = generator.randn([4, 3], DType::F32)?;
        let y = x.sum(1, true)?;
        x.eval()?;
        y.eval()?;
        Ok([x, y])
    };
    (0..count).map(batch).collect()
}

/// Steps one by one, or as programs; an update for every so many batches.
fn train<R: Rule + 'static>(
    options: R,
    steps: usize,
    every: usize,
    is_program: bool,
) -> RusTorchResult<Trained> {
    manual_seed(3);
    let net = network()?;
    let mut optimizer = Optimizer::new(net.named_parameters(), options)?;
    let mut scheduler = LrScheduler::new(&mut optimizer, CosineAnnealingLR::new(20usize))?;
    let batches = batches(steps)?;
    let mut losses = Vec::new();
    if is_program {
        let step = TrainStep::new(net, optimizer, |net, batch| loss(net, &batch[0], &batch[1]));
        let mut train = step.clip_grad_norm(0.5, 2.0)?.accumulate(every)?;
        for (i, [x, y]) in batches.iter().enumerate() {
            losses.push(train.step(&[x, y])?);
            if (i + 1) % every == 0 {
                assert!(
                    train
                        .grad_norm()
                        .is_some_and(|norm| norm.item().unwrap() > 0.0)
                );
                scheduler.step(train.optimizer_mut())?;
            }
        }
        return Trained::new(&losses, train.module());
    }
    for (i, [x, y]) in batches.iter().enumerate() {
        let value = loss(&net, x, y)?;
        value.div(every as f64)?.backward()?;
        losses.push(value.detach());
        // Before the next batch writes over what the spectral norm reads.
        let gradients: Vec<Tensor> = net.parameters().iter().filter_map(Tensor::grad).collect();
        eval_all(&gradients.iter().chain([&value]).collect::<Vec<_>>())?;
        if (i + 1) % every == 0 {
            nn::clip_grad_norm_(&net.parameters(), 0.5, 2.0, false)?;
            optimizer.step()?;
            optimizer.zero_grad();
            scheduler.step(&mut optimizer)?;
        }
    }
    Trained::new(&losses, &net)
}

#[test]
fn programs_are_steps_bit_by_bit() -> RusTorchResult<()> {
    fn same(options: impl Rule + 'static, every: usize) -> RusTorchResult<()> {
        let expected = train(options.clone(), 9, every, false)?;
        assert_eq!(train(options, 9, every, true)?, expected);
        Ok(())
    }
    let _alone = generator();
    for every in [1, 3] {
        same(AdamWOptions::default().lr(0.01), every)?;
        let momentum = SGDOptions::default().lr(0.01).momentum(0.9);
        same(momentum.dampening(0.1), every)?;
    }
    // The steps of these are other programs later on, or have numbers that follow from the shape.
    same(RAdamOptions::default(), 1)?;
    same(NAdamOptions::default(), 1)?;
    same(ASGDOptions::default().t0(2.0), 1)?;
    same(RpropOptions::default(), 1)?;
    same(AdafactorOptions::default(), 1)?;
    same(AdamOptions::default().amsgrad(true).weight_decay(0.1), 1)
}

#[test]
fn steps_are_recorded_once_for_a_shape() -> RusTorchResult<()> {
    let _alone = generator();
    let calls = Arc::new(AtomicUsize::new(0));
    let net = Linear::new(3, 1)?;
    let adam = AdamW::new(net.named_parameters(), AdamWOptions::default())?;
    let counted = calls.clone();
    let mut train = TrainStep::new(net, adam, move |net, batch| {
        counted.fetch_add(1, Ordering::Relaxed);
        MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
    });
    let (full, last) = (batches(3)?, Tensor::ones([2, 3], DType::F32)?);
    let target = Tensor::ones([2, 1], DType::F32)?;
    for _ in 0..4 {
        for [x, y] in &full {
            train.step(&[x, y])?;
        }
        train.step(&[&last, &target])?;
    }
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    train.module_mut().eval();
    train.step(&[&last, &target])?;
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    // Loaded state is in other memory.
    let state = train.optimizer().state_dict()?;
    train.optimizer_mut().load_state_dict(&state)?;
    train.step(&[&last, &target])?;
    assert_eq!(calls.load(Ordering::Relaxed), 4);
    Ok(())
}

#[test]
fn ten_thousand_steps_are_planned_once_and_take_no_more_memory() -> RusTorchResult<()> {
    let _alone = generator();
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(1));
    let runtime = Runtime::new([cpu]);
    with_runtime(&runtime, Routing::AUTO, || {
        manual_seed(0);
        let net = sequential![Linear::new(3, 4)?, Dropout::new(0.1)?, Linear::new(4, 1)?];
        let adam = AdamW::new(net.named_parameters(), AdamWOptions::default().lr(1e-3))?;
        let mut train = TrainStep::new(net, adam, |net, batch| loss(net, &batch[0], &batch[1]));
        let mut scheduler =
            LrScheduler::new(train.optimizer_mut(), CosineAnnealingLR::new(10_000usize))?;
        let batch = batches(1)?.remove(0);
        let used = || {
            runtime
                .memory()
                .pools()
                .iter()
                .map(|p| p.in_use)
                .sum::<u64>()
        };
        let mut start = (0, 0);
        for step in 0..10_000 {
            train.step(&[&batch[0], &batch[1]])?;
            scheduler.step(train.optimizer_mut())?;
            if step == 0 {
                let plans = runtime.plans();
                start = (plans.new + plans.outdated + plans.evicted, used());
            }
        }
        let plans = runtime.plans();
        let end = (plans.new + plans.outdated + plans.evicted, used());
        assert_eq!(end, start, "plans and bytes");
        assert!(train.step(&[&batch[0], &batch[1]])?.item()?.is_finite());
        Ok(())
    })
}

/// Steps of a network in which values share memory, and in which they do not.
fn same_without_sharing<M: Module>(
    net: impl Fn() -> RusTorchResult<M>,
    loss: impl Fn(&M, &[Tensor]) -> RusTorchResult<Tensor> + Clone + Send + Sync + 'static,
    batch: &[&Tensor],
) -> RusTorchResult<()> {
    let steps = |cpu: Cpu| {
        let cpu: Arc<dyn Backend> = Arc::new(cpu);
        with_runtime(
            &Runtime::new([cpu]),
            Routing::AUTO,
            || -> RusTorchResult<_> {
                manual_seed(7);
                let net = net()?;
                let adam = AdamW::new(net.named_parameters(), AdamWOptions::default())?;
                let train = TrainStep::new(net, adam, loss.clone());
                let mut train = train.clip_grad_norm(1.0, 2.0)?.accumulate(2)?;
                let losses = (0..4).map(|_| train.step(batch));
                let losses: Vec<Tensor> = losses.collect::<RusTorchResult<_>>()?;
                let working = train.memory(batch)?.working[0].bytes;
                Ok((Trained::new(&losses, train.module())?, working))
            },
        )
    };
    let (shared, bytes) = steps(Cpu::new(1))?;
    let (unshared, all) = steps(Cpu::new(1).with_unshared_values())?;
    assert_eq!(shared, unshared);
    assert!(
        bytes < all,
        "{bytes} bytes, and {all} bytes where none are shared"
    );
    Ok(())
}

#[test]
fn values_that_share_memory_are_the_same_bit_by_bit() -> RusTorchResult<()> {
    let _alone = generator();
    let [x, y] = batches(1)?.remove(0);
    let mse = |net: &Sequential, batch: &[Tensor]| loss(net, &batch[0], &batch[1]);
    same_without_sharing(network, mse, &[&x, &y])?;
    let mixed = move |net: &Sequential, batch: &[Tensor]| {
        autocast(DType::BF16, || loss(net, &batch[0], &batch[1]))
    };
    same_without_sharing(network, mixed, &[&x, &y])?;

    let images = Tensor::from_fn([2, 3, 8, 8], |i| ((i[1] + 3 * i[2] + 5 * i[3]) % 7) as f32)?;
    let convolutions = || {
        let around = nn::ConvOptions::default().padding(1);
        Ok(sequential![
            nn::Conv2d::new(3, 8, 3, around)?,
            nn::BatchNorm2d::new(8)?,
            nn::ReLU,
            nn::MaxPool2d::new(2, nn::MaxPoolOptions::default()),
            nn::Conv2d::new(8, 8, 3, around)?,
            nn::GroupNorm::new(2, 8)?,
            nn::SiLU,
            nn::Flatten::default(),
            Linear::new(128, 4)?,
        ])
    };
    let classes = |net: &Sequential, batch: &[Tensor]| {
        CrossEntropyLoss::default().forward(&net.forward(&batch[0])?, &batch[1])
    };
    same_without_sharing(convolutions, classes, &[&images, &tensor![1i64, 3]])?;

    let sequence = Tensor::from_fn([5, 2, 8], |i| (i[0] as f32 - i[2] as f32) / 4.0)?;
    let lstm = || {
        nn::LSTM::new(
            8,
            6,
            nn::RNNOptions {
                num_layers: 2,
                ..Default::default()
            },
        )
    };
    let squares =
        |net: &nn::LSTM, batch: &[Tensor]| net.forward(&batch[0], None)?.0.square()?.mean_all();
    same_without_sharing(lstm, squares, &[&sequence])?;
    let options = nn::TransformerOptions {
        dim_feedforward: 16,
        ..Default::default()
    };
    let transformer = || nn::TransformerEncoderLayer::new(8, 2, options);
    let squares = |net: &nn::TransformerEncoderLayer, batch: &[Tensor]| {
        let y = net.forward(&batch[0], nn::SequenceMasks::default())?;
        y.sub(1.0)?.square()?.mean_all()
    };
    same_without_sharing(transformer, squares, &[&sequence])
}

#[test]
fn a_budget_has_values_computed_again_and_the_same_losses() -> RusTorchResult<()> {
    let _alone = generator();
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(1));
    let device = cpu.info().device;
    let runtime = Runtime::new([cpu]);
    with_runtime(&runtime, Routing::AUTO, || {
        let x = Tensor::from_fn([64, 32], |i| ((3 * i[0] + i[1]) % 11) as f32 / 11.0)?;
        eval_all(&[&x])?;
        // Random numbers of these layers have to be the same when they are computed again.
        let new = |budget: Option<usize>| {
            manual_seed(1);
            let mut net = Sequential::new();
            for _ in 0..6 {
                net = net.append(Linear::new(32, 32)?).append(LayerNorm::new(32)?);
                net = net.append(nn::SiLU).append(Dropout::new(0.1)?);
            }
            let adam = AdamW::new(net.named_parameters(), AdamWOptions::default())?;
            let train = TrainStep::new(net, adam, |net: &Sequential, batch| {
                net.forward(&batch[0])?.square()?.mean_all()
            });
            let train = match budget {
                Some(bytes) => train.memory_budget(bytes),
                None => train,
            };
            RusTorchResult::Ok(train)
        };
        let losses = |budget| -> RusTorchResult<(Vec<u32>, StepMemory)> {
            let mut train = new(budget)?;
            let memory = train.memory(&[&x])?;
            let mut losses = Vec::new();
            for _ in 0..4 {
                losses.push(train.step(&[&x])?.to_vec::<f32>()?[0].to_bits());
            }
            Ok((losses, memory))
        };
        let (expected, whole) = losses(None)?;
        let kept = whole.module + whole.states;
        let working = whole.peak() - kept;
        // Everything fits, so nothing is computed again.
        assert_eq!(losses(Some(whole.peak()))?.1.peak(), whole.peak());
        for part in [0.9, 0.75, 0.6] {
            let budget = kept + (part * working as f64) as usize;
            let (own, memory) = losses(Some(budget))?;
            assert_eq!(own, expected, "{part}");
            assert!(memory.peak() <= budget, "{memory} for {budget}");
        }
        // The error of a budget that is too small names the least one.
        let mut train = new(Some(kept + 1))?;
        assert!(!train.fits(&[&x])?);
        let error = train.step(&[&x]).unwrap_err().to_string();
        for part in [
            "a step within a memory budget of ",
            "at the least, with values computed again",
        ] {
            assert!(error.contains(part), "{error}");
        }
        // If a step does not fit, the error names a budget.
        let mut train = new(None)?;
        let taken = runtime.memory().pools()[0].in_use;
        runtime
            .memory()
            .set_limit(device, taken + (0.8 * working as f64) as u64);
        let error = train.step(&[&x]).unwrap_err().to_string();
        assert!(
            error.contains("a memory budget of ") && error.contains("batches of"),
            "{error}"
        );
        Ok(())
    })
}

#[test]
fn a_step_that_does_not_fit_is_told_before_it_is_made() -> RusTorchResult<()> {
    let _alone = generator();
    let cpu: Arc<dyn Backend> = Arc::new(Cpu::new(1));
    let device = cpu.info().device;
    let runtime = Runtime::new([cpu]);
    with_runtime(&runtime, Routing::AUTO, || {
        let net = sequential![
            Linear::new(64, 64)?,
            nn::Tanh,
            Linear::new(64, 64)?,
            nn::Tanh
        ];
        let sgd = SGD::new(net.named_parameters(), SGDOptions::default().momentum(0.9))?;
        let before = net.named_parameters()[0].1.to_vec::<f32>()?;
        let mut train = TrainStep::new(net, sgd, |net, batch| {
            net.forward(&batch[0])?.square()?.mean_all()
        });
        let x = |n: usize| Tensor::ones([n, 64], DType::F32)?.contiguous();
        let (large, small) = (x(4096)?, x(1024)?);
        eval_all(&[&large, &small])?;
        let memory = train.memory(&[&large])?;
        let parameters = 2 * (64 * 64 + 64) * 4;
        // The first step makes the momentum.
        assert_eq!((memory.module, memory.states), (parameters, 0));
        // One layer's values at least have to be kept for the gradients.
        let one = 4096 * 64 * 4;
        assert!(
            memory.peak() > parameters + one && memory.peak() < 12 * one,
            "{memory}"
        );
        assert!(memory.to_string().contains("of values on cpu"), "{memory}");
        train.module_mut();
        let taken = runtime.memory().pools()[0].in_use;
        runtime
            .memory()
            .set_limit(device, taken + memory.peak() as u64 / 2);
        let error = train.step(&[&large]).unwrap_err().to_string();
        let expected = "a step that fits in memory (batches of 1024 in place of 4096 do";
        assert!(error.contains(expected), "{error}");
        assert!(!train.fits(&[&large])? && train.fits(&[&small])?);
        assert_eq!(train.module().parameters()[0].to_vec::<f32>()?, before);
        train.step(&[&small])?;
        train.step(&[&small])?;
        assert_eq!(train.memory(&[&small])?.states, parameters);
        Ok(())
    })
}

#[test]
fn a_step_that_does_not_fit_goes_down_the_chain() -> RusTorchResult<()> {
    let _alone = generator();
    let losses = |limit: &dyn Fn(&Runtime, u64)| {
        let devices: [Arc<dyn Backend>; 2] = [Arc::new(Cpu::new(1)), Arc::new(Reference::new())];
        let runtime = Runtime::new(devices);
        let losses = with_runtime(&runtime, Routing::AUTO, || {
            let net = sequential![Linear::new(8, 8)?, nn::Tanh, Linear::new(8, 1)?];
            for (_, mut parameter) in net.named_parameters() {
                no_grad(|| parameter.fill_(0.1)?.eval())?;
            }
            let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.1))?;
            let mut train = TrainStep::new(net, sgd, |net, batch| {
                net.forward(&batch[0])?.sub(1.0)?.square()?.mean_all()
            });
            let x = Tensor::ones([256, 8], DType::F32)?.contiguous()?;
            x.eval()?;
            let memory = train.memory(&[&x])?;
            train.module_mut();
            limit(&runtime, memory.peak() as u64 * 5 / 8);
            let losses = (0..3).map(|_| train.step(&[&x])?.item());
            losses.collect::<RusTorchResult<Vec<f64>>>()
        });
        (losses, runtime)
    };
    let limited = |count: usize| {
        move |runtime: &Runtime, part: u64| {
            let pools = runtime.memory().pools();
            for pool in &pools[..count] {
                runtime.memory().set_limit(pool.device, pool.in_use + part);
            }
        }
    };
    let (whole, _) = losses(&limited(0));
    let (lower, runtime) = losses(&limited(1));
    for (whole, lower) in whole?.iter().zip(lower?) {
        assert!((whole - lower).abs() < 1e-6, "{whole} and {lower}");
    }
    let told: Vec<String> = (runtime.fallbacks().iter())
        .map(ToString::to_string)
        .collect();
    let goes_on = |told: &String| told.contains("in memory: ") && told.contains("now on reference");
    assert!(told.iter().any(goes_on), "{told:?}");
    // Nowhere: also the last of the chain is counted.
    let refused = losses(&limited(2)).0.unwrap_err().to_string();
    let expected = "a step that fits in memory (batches of 1";
    assert!(refused.contains(expected), "{refused}");
    assert!(refused.contains("reference: a run works in "), "{refused}");
    Ok(())
}

#[test]
fn checkpointed_layers_draw_the_same_numbers_twice() -> RusTorchResult<()> {
    let _alone = generator();
    #[derive(Module)]
    struct Net {
        hidden: Linear,
        dropout: Dropout,
        output: Linear,
    }
    impl Forward for Net {
        fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
            let hidden = self.dropout.forward(&self.hidden.forward(x)?)?;
            self.output.forward(&hidden)
        }
    }
    let steps = |is_checkpointed: bool| {
        manual_seed(1);
        let net = Net {
            hidden: Linear::new(3, 8)?,
            dropout: Dropout::new(0.5)?,
            output: Linear::new(8, 1)?,
        };
        let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.1))?;
        let mut train = TrainStep::new(net, sgd, move |net, batch| {
            let again = nn::share(net);
            let y = match is_checkpointed {
                true => checkpoint(move |x| again.forward(x[0]), &[&batch[0]])?,
                false => net.forward(&batch[0])?,
            };
            MSELoss::default().forward(&y, &batch[1])
        });
        let losses = batches(4)?;
        let losses = losses.iter().map(|[x, y]| train.step(&[x, y]));
        let losses: Vec<Tensor> = losses.collect::<RusTorchResult<_>>()?;
        Trained::new(&losses, train.module())
    };
    assert_eq!(steps(true)?, steps(false)?);
    Ok(())
}

#[test]
fn losses_of_classes_and_frozen_layers() -> RusTorchResult<()> {
    let _alone = generator();
    manual_seed(0);
    let mut net = sequential![Linear::new(3, 8)?, nn::Tanh, Linear::new(8, 3)?];
    let frozen = net.named_parameters().remove(0).1.to_vec::<f32>()?;
    let mut count = 0;
    net.change_parameters(&mut |parameter| {
        count += 1;
        parameter.requires_grad_(count > 2)?;
        Ok(())
    })?;
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.5))?;
    let mut train = TrainStep::new(net, sgd, |net, batch| {
        CrossEntropyLoss::default().forward(&net.forward(&batch[0])?, &batch[1])
    });
    let x = Tensor::eye(3, DType::F32)?;
    let first = train.step(&[&x, &tensor![0i64, 1, 2]])?.item()?;
    for _ in 0..50 {
        train.step(&[&x, &tensor![0i64, 1, 2]])?;
    }
    assert!(train.step(&[&x, &tensor![0i64, 1, 2]])?.item()? < 0.5 * first);
    assert_eq!(train.module().parameters()[0].to_vec::<f32>()?, frozen);
    // A class that there is none of fails before anything is written.
    let before = Trained::new(&[], train.module())?.state;
    let error = train.step(&[&x, &tensor![0i64, 1, 7]]).unwrap_err();
    assert!(error.to_string().contains('7'), "{error}");
    assert_eq!(Trained::new(&[], train.module())?.state, before);
    Ok(())
}

#[test]
fn what_is_wrong_is_told() -> RusTorchResult<()> {
    let _alone = generator();
    let new = || {
        let net = Linear::new(3, 1)?;
        let sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
        RusTorchResult::Ok((net, sgd))
    };
    let [x, y] = batches(1)?.remove(0);
    let told = |error: RusTorchResult<()>, expected: &str| {
        let error = error.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    let (net, sgd) = new()?;
    let mse = |net: &Linear, batch: &[Tensor]| {
        MSELoss::default().forward(&net.forward(&batch[0])?, &batch[1])
    };
    let mut train = TrainStep::new(net, sgd, mse);
    train.step(&[&x, &y])?;
    train.optimizer_mut().param_groups_mut()[0].options.lr = f64::NAN;
    told(train.step(&[&x, &y]).map(drop), "lr of 0 or more");
    let wrong = |loss: fn(&Linear, &[Tensor]) -> RusTorchResult<Tensor>, expected: &str| {
        let (net, sgd) = new()?;
        told(
            TrainStep::new(net, sgd, loss).step(&[&x]).map(drop),
            expected,
        );
        RusTorchResult::Ok(())
    };
    wrong(
        |net, batch| net.forward(&batch[0]),
        "a loss of one real number",
    )?;
    wrong(|_, batch| batch[0].mean_all(), "follows from parameters")?;
    wrong(
        |net, batch| {
            let noise = Generator::new(0).randn([4, 3], DType::F32)?;
            net.forward(&batch[0].add(&noise)?)?.mean_all()
        },
        "the default generator",
    )?;
    wrong(
        |net, batch| {
            let y = net.forward(&batch[0])?.mean_all()?;
            y.item().and_then(|y| Tensor::scalar(y, DType::F32))
        },
        "a step is recorded here: read the loss that TrainStep::step gives",
    )?;
    wrong(
        |net, batch| match net.forward(&batch[0])?.to_vec::<f32>()?[0] > 0.0 {
            true => net.forward(&batch[0])?.mean_all(),
            false => batch[0].mean_all(),
        },
        "choose by where_ in place of a branch",
    )?;
    let (net, sgd) = new()?;
    told(
        TrainStep::new(net, sgd, mse).accumulate(0).map(drop),
        "1 batch or more",
    );
    let (net, sgd) = new()?;
    let clipped = TrainStep::new(net, sgd, mse).clip_grad_norm(f64::NAN, 2.0);
    told(clipped.map(drop), "a largest norm of 0 or more");
    Ok(())
}

/// A batch of no samples is a step, as in PyTorch, whose mean is NaN; one of no tensors is none.
#[test]
fn empty_batches_do_not_panic() -> RusTorchResult<()> {
    let _alone = generator();
    let net = sequential![
        Linear::new(3, 4)?,
        GELU::default(),
        LayerNorm::new(4)?,
        Linear::new(4, 2)?
    ];
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
    let mut train = TrainStep::new(net, sgd, |net: &Sequential, batch| {
        CrossEntropyLoss::default().forward(&net.forward(&batch[0])?, &batch[1])
    });
    let none = train.step(&[]).unwrap_err().to_string();
    assert!(
        none.contains("expected a batch of tensors, got one of none"),
        "{none}"
    );
    let x = Tensor::zeros([0, 3], DType::F32)?;
    let y = Tensor::zeros([0usize], DType::I64)?;
    assert!(train.step(&[&x, &y])?.item()?.is_nan());
    let rows = Tensor::randn([4, 3], DType::F32)?;
    let wrong = train.step(&[&rows, &y]).unwrap_err().to_string();
    assert!(wrong.contains("cross_entropy"), "{wrong}");
    Ok(())
}

#[test]
fn a_number_that_is_read_while_a_step_is_recorded_is_warned_of() -> RusTorchResult<()> {
    let _alone = generator();
    let x = Tensor::randn([4, 3], DType::F32)?;
    let step = |reads: bool| {
        let net = sequential![Linear::new(3, 4)?, BatchNorm1d::new(4)?, Dropout::new(0.5)?];
        let adam = AdamW::new(net.named_parameters(), AdamWOptions::default())?;
        let loss = move |net: &Sequential, batch: &[Tensor]| {
            let scale = match reads {
                true => net.parameters()[1].select(0, 0)?.item()?,
                false => 0.5,
            };
            net.forward(&batch[0])?.mul(scale)?.square()?.mean_all()
        };
        let mut train = TrainStep::new(net, adam, loss).clip_grad_norm(1.0, 2.0)?;
        train.step(&[&x])?;
        train.step(&[&x])
    };
    let (loss, warned) = warnings(|| step(false));
    assert!(loss.is_ok() && warned.is_empty(), "{warned:?}");
    // Once, when the step is recorded: the second one runs what was.
    let (loss, warned) = warnings(|| step(true));
    assert!(loss.is_ok() && warned.len() == 1, "{warned:?}");
    let place = format!("item at {}:", file!());
    let says = warned[0].contains("every run of the step uses these values");
    assert!(warned[0].starts_with(&place) && says, "{}", warned[0]);
    Ok(())
}

#[test]
fn what_is_written_in_place_is_what_the_next_step_reads() -> RusTorchResult<()> {
    let _alone = generator();
    let net = sequential![Linear::new(2, 3)?, BatchNorm1d::new(3)?, Linear::new(3, 1)?];
    let fill = |net: &Sequential| {
        no_grad(|| {
            let mut state = net.parameters();
            state.extend(net.buffers());
            let floats = state.iter_mut().filter(|tensor| tensor.dtype().is_float());
            floats
                .into_iter()
                .try_for_each(|tensor| tensor.fill_(0.5).map(|_| ()))
        })
    };
    fill(&net)?;
    for parameter in net.parameters() {
        let numbers = parameter.to_vec::<f32>()?;
        assert!(numbers.iter().all(|&number| number == 0.5), "{numbers:?}");
    }
    let sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.1))?;
    let mut train = TrainStep::new(net, sgd, |net: &Sequential, batch: &[Tensor]| {
        net.forward(&batch[0])?.square()?.mean_all()
    });
    let x = tensor![[1.0, 2.0], [-1.0, 0.5]];
    let mut made = || -> RusTorchResult<(f64, Vec<f32>)> {
        let loss = train.step(&[&x])?.item()?;
        let mut numbers = Vec::new();
        for (_, tensor) in train.module().state_dict().iter() {
            numbers.extend(tensor.to_dtype(DType::F32)?.to_vec::<f32>()?);
        }
        fill(train.module())?;
        Ok((loss, numbers))
    };
    let (first, second, third) = (made()?, made()?, made()?);
    assert_eq!(first.0, second.0);
    assert_eq!(first.0, third.0);
    // All but the number of batches.
    let differ = first.1.iter().zip(&second.1).filter(|(a, b)| a != b);
    assert_eq!(differ.count(), 1);
    assert_eq!(first.1.len(), third.1.len());
    Ok(())
}
