//! Weight averaging: `torch.optim.swa_utils`.

use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor, eval_all, no_grad};

use crate::error::require;
use crate::nn::{Forward, Leaf, LeafMut, Module, Visit, deep_copy};

/// Rule for averaging weights.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub enum Averaging {
    /// All count the same: stochastic weight averaging ([Izmailov et al.](https://arxiv.org/abs/1803.05407)).
    #[default]
    Equal,
    /// Exponential moving average: the previous average is multiplied by this decay.
    Exponential(f64),
}

impl Averaging {
    fn check(self) -> RusTorchResult<()> {
        match self {
            Self::Exponential(decay) => {
                let fits = (0.0..=1.0).contains(&decay);
                require("AveragedModel", fits, "a decay of 0 to 1", decay)
            }
            Self::Equal => Ok(()),
        }
    }
}

/// A model whose weights are averages of another model's weights.
#[derive(Clone)]
pub struct AveragedModel<M> {
    /// The averages.
    pub module: M,
    averaging: Averaging,
    n_averaged: u64,
}

#[track_calls(AveragedModel)]
impl<M: Module + Clone> AveragedModel<M> {
    /// Averages that begin as a copy of the weights of `model`.
    ///
    /// # Errors
    /// Fails for a decay outside `0..=1`, or if the weights cannot be copied.
    pub fn new(model: &M, averaging: Averaging) -> RusTorchResult<Self> {
        averaging.check()?;
        Ok(Self {
            module: deep_copy(model)?,
            averaging,
            n_averaged: 0,
        })
    }
}

#[track_calls(AveragedModel)]
impl<M: Module> AveragedModel<M> {
    /// Averages in the memory of `module`, which has the same structure as `model`. Use it for
    /// modules that are not `Clone`.
    ///
    /// # Errors
    /// Fails for a decay outside `0..=1`, or for a `module` with other weights.
    pub fn with_module(mut module: M, model: &M, averaging: Averaging) -> RusTorchResult<Self> {
        averaging.check()?;
        module.load_state_dict(&model.state_dict(), true)?;
        Ok(Self {
            module,
            averaging,
            n_averaged: 0,
        })
    }

    /// Adds the weights of `model` to the averages, in one evaluation; buffers are copied.
    ///
    /// # Errors
    /// Fails for a model with other weights.
    pub fn update_parameters(&mut self, model: &M) -> RusTorchResult<()> {
        const NAME: &str = "update_parameters";
        let weight = match (self.n_averaged, self.averaging) {
            (0, _) => 1.0,
            (n, Averaging::Equal) => 1.0 / (n + 1) as f64,
            (_, Averaging::Exponential(decay)) => 1.0 - decay,
        };
        let new = tensors(model);
        let mut written = Vec::new();
        let (own, others) = (tensors(&self.module), new.len());
        require(
            NAME,
            own.len() == others,
            format_args!("{} tensors", own.len()),
            others,
        )?;
        for ((mut average, is_parameter), (new, _)) in own.into_iter().zip(new) {
            let got = format_args!("{:?}", new.shape());
            let expected = format_args!("a tensor {:?}", average.shape());
            require(NAME, average.shape() == new.shape(), expected, got)?;
            let next = match is_parameter && weight != 1.0 {
                true => average
                    .detach()
                    .add(&new.sub(average.detach())?.mul(weight)?)?,
                false => new,
            };
            no_grad(|| average.copy_(&next).map(|_| ()))?;
            written.push(average);
        }
        self.n_averaged += 1;
        eval_all(&written.iter().collect::<Vec<_>>())
    }

    /// Number of averaged models.
    pub fn n_averaged(&self) -> u64 {
        self.n_averaged
    }
}

/// Parameters, each once, and buffers; whether each is a parameter.
fn tensors(module: &impl Module) -> Vec<(Tensor, bool)> {
    let parameters = module.parameters().into_iter();
    let parameters = parameters.map(|parameter| (parameter.detach(), true));
    let buffers = module.buffers().into_iter().map(|buffer| (buffer, false));
    parameters.chain(buffers).collect()
}

/// Recomputes the running statistics of all batch norms of `model`, as the mean over `batches`. The model is
/// called in training mode. Use it after averaging, since the averages have no statistics yet. Training mode
/// and momenta are restored.
///
/// ```
/// use rustorch_nn::nn::{BatchNorm1d, Module};
/// use rustorch_nn::optim::swa_utils::update_bn;
/// use rustorch_tensor::tensor;
///
/// # fn main() -> rustorch_tensor::RusTorchResult<()> {
/// let mut norm = BatchNorm1d::new(1)?;
/// norm.eval();
/// update_bn([Ok(tensor![[1.0], [3.0]]), Ok(tensor![[4.0], [8.0]])], &mut norm)?;
/// let running = norm.running.as_ref().expect("statistics");
/// assert_eq!(running.running_mean.get().to_vec::<f32>()?, [4.0]);
/// assert_eq!(running.running_var.get().to_vec::<f32>()?, [5.0]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The first error of the batches. Also fails if the model rejects a batch.
#[track_calls]
pub fn update_bn(
    batches: impl IntoIterator<Item = RusTorchResult<Tensor>>,
    model: &mut impl Forward,
) -> RusTorchResult<()> {
    let (mut momenta, mut modes) = (Vec::new(), Vec::new());
    model.visit_mut("", &mut |name, leaf| match leaf {
        LeafMut::Momentum(momentum) => {
            let norm = name.strip_suffix("momentum").unwrap_or(name);
            momenta.push((norm.to_owned(), momentum.take()));
        }
        LeafMut::Training(training) => {
            modes.push(*training);
            training.0 = true;
        }
        _ => {}
    });
    let result = no_grad(|| {
        reset(model, &momenta)?;
        let mut batches = batches.into_iter();
        batches.try_for_each(|batch| model.forward(&batch?).map(|_| ()))
    });
    let (mut momenta, mut modes) = (momenta.into_iter(), modes.into_iter());
    model.visit_mut("", &mut |_, leaf| match leaf {
        LeafMut::Momentum(own) => *own = momenta.next().and_then(|(_, momentum)| momentum),
        LeafMut::Training(own) => *own = modes.next().unwrap_or_default(),
        _ => {}
    });
    result
}

/// Makes the statistics of norms, by the beginnings of their names, those of no batch.
fn reset(model: &impl Module, norms: &[(String, Option<f64>)]) -> RusTorchResult<()> {
    let mut written = Vec::new();
    for (name, mut tensor) in model.named_buffers() {
        let (norm, part) = name.split_at(name.rfind('.').map_or(0, |at| at + 1));
        let first = match part {
            "running_mean" | "num_batches_tracked" => 0,
            "running_var" => 1,
            _ => continue,
        };
        if norms.iter().any(|(n, _)| n == norm) {
            tensor.fill_(first)?;
            written.push(tensor);
        }
    }
    eval_all(&written.iter().collect::<Vec<_>>())
}

/// Its names have `module.` before them.
impl<M: Module> Visit for AveragedModel<M> {
    fn visit(&self, name: &str, visitor: &mut dyn FnMut(&str, Leaf)) {
        self.module
            .visit(&crate::nn::join_names(name, "module"), visitor);
    }

    fn visit_mut(&mut self, name: &str, visitor: &mut dyn FnMut(&str, LeafMut)) {
        self.module
            .visit_mut(&crate::nn::join_names(name, "module"), visitor);
    }
}

impl<M: Module> Module for AveragedModel<M> {}

#[track_calls(AveragedModel)]
impl<M: Forward> Forward for AveragedModel<M> {
    fn forward(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        self.module.forward(x)
    }
}
