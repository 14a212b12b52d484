//! Loss scaling, so that gradients of `f16` do not vanish: `torch.amp.GradScaler`.

use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor, eval_all, no_grad};

use crate::error::{require, unexpected};
use crate::optim::{Optimizer, OptimizerId, Rule};

/// Scales losses so that `f16` can hold small gradients. If gradients overflow, it skips the update
/// and lowers the scale. `bf16` needs none.
///
/// Its scale and counters are tensors that are updated on the device. In a
/// [`TrainStep`](crate::train::TrainStep) it is part of the recorded program.
///
/// ```
/// # extern crate rustorch_nn as rustorch;
/// use rustorch::amp::GradScaler;
/// use rustorch::nn::{Forward, Linear, Module};
/// use rustorch::optim::{SGD, SGDOptions};
/// use rustorch_ir::DType;
/// use rustorch_tensor::amp::autocast;
/// use rustorch_tensor::{RusTorchResult, tensor};
///
/// # fn main() -> RusTorchResult<()> {
/// let net = Linear::new(2, 1)?;
/// let mut sgd = SGD::new(net.named_parameters(), SGDOptions::default().lr(0.1))?;
/// let mut scaler = GradScaler::new()?;
/// let x = tensor![[1.0, 2.0]];
/// let loss = autocast(DType::F16, || net.forward(&x)?.square()?.sum_all())?;
/// scaler.scale(&loss)?.backward()?;
/// // 65536 is not a number of `f16`: the first scale is too large for this loss, and nothing is updated.
/// assert!(!scaler.step(&mut sgd)?);
/// scaler.update()?;
/// sgd.zero_grad();
/// assert_eq!((scaler.get_scale()?, scaler.skipped()?), (32768.0, 1));
/// # Ok(())
/// # }
/// ```
pub struct GradScaler {
    growth_factor: f64,
    backoff_factor: f64,
    growth_interval: u32,
    /// `f32`.
    scale: Tensor,
    /// Updates since the scale changed, `i64`.
    growth_tracker: Tensor,
    /// Updates that were left out, `i64`.
    skipped: Tensor,
    /// Optimisers whose gradients are unscaled, since the last update.
    unscaled: Vec<Unscaled>,
}

/// An optimiser whose gradients are unscaled.
struct Unscaled {
    optimizer: OptimizerId,
    /// Whether one of them is infinite or NaN: `bool` of rank 0.
    found_inf: Tensor,
    has_stepped: bool,
}

/// Names of a scaler's saved state.
const STATE: [&str; 3] = ["scale", "growth_tracker", "skipped"];

fn in_memory(value: f64, dtype: DType) -> RusTorchResult<Tensor> {
    let number = Tensor::scalar(value, dtype)?;
    number.eval()?;
    Ok(number)
}

#[track_calls(GradScaler)]
impl GradScaler {
    /// A scaler with PyTorch's defaults. The scale begins at 2¹⁶, doubles after 2000 updates, and
    /// halves after a skipped update.
    ///
    /// # Errors
    /// Fails if the host is out of memory.
    pub fn new() -> RusTorchResult<Self> {
        Ok(Self {
            growth_factor: 2.0,
            backoff_factor: 0.5,
            growth_interval: 2000,
            scale: in_memory(65536.0, DType::F32)?,
            growth_tracker: in_memory(0.0, DType::I64)?,
            skipped: in_memory(0.0, DType::I64)?,
            unscaled: Vec::new(),
        })
    }

    /// Sets the first scale.
    ///
    /// # Errors
    /// Fails for a scale that is infinite or not above 0.
    pub fn init_scale(mut self, scale: f64) -> RusTorchResult<Self> {
        let fits = scale > 0.0 && scale.is_finite();
        require("GradScaler", fits, "a scale above 0", scale)?;
        self.scale = in_memory(scale, DType::F32)?;
        Ok(self)
    }

    /// Sets the factors of the scale. The scale grows by `growth_factor` after `growth_interval`
    /// updates, and shrinks by `backoff_factor` after a skipped one.
    ///
    /// # Errors
    /// Fails for a growth factor of 1 or less, or a backoff factor outside 0 to 1. Also fails for a
    /// growth interval of 0.
    pub fn factors(
        mut self,
        growth_factor: f64,
        growth_interval: u32,
        backoff_factor: f64,
    ) -> RusTorchResult<Self> {
        let fits = growth_factor > 1.0 && 0.0 < backoff_factor && backoff_factor < 1.0;
        let got = format_args!("{growth_factor} and {backoff_factor}");
        require(
            "GradScaler",
            fits,
            "a growth above 1, and a backoff below",
            got,
        )?;
        let expected = "1 update or more";
        require("GradScaler", growth_interval > 0, expected, growth_interval)?;
        (self.growth_factor, self.backoff_factor) = (growth_factor, backoff_factor);
        self.growth_interval = growth_interval;
        Ok(self)
    }

    /// Multiplies a loss by the scale.
    ///
    /// # Errors
    /// The errors of a multiplication.
    pub fn scale(&self, loss: &Tensor) -> RusTorchResult<Tensor> {
        loss.mul(&self.scale.to_dtype(loss.dtype())?)
    }

    /// Divides the gradients of an optimiser's parameters by the scale, for example before
    /// clipping. Call it at most once for each optimiser before [`GradScaler::update`].
    ///
    /// # Errors
    /// Fails for gradients that were unscaled before.
    pub fn unscale_<R: Rule>(&mut self, optimizer: &Optimizer<R>) -> RusTorchResult<()> {
        const NAME: &str = "unscale_";
        let expected = "gradients that are scaled (update comes after step)";
        require(NAME, self.place(optimizer).is_none(), expected, "others")?;
        let groups = optimizer.param_groups().iter();
        let parameters = groups.flat_map(|group| group.named_parameters().map(|(_, p)| p));
        let mut gradients = Vec::new();
        for parameter in parameters {
            if let Some(gradient) = parameter.grad() {
                let [unscaled] = &self.unscaled(&[gradient.detach()])?[..] else {
                    continue;
                };
                parameter.set_grad(Some(unscaled))?;
                gradients.push(unscaled.clone());
            }
        }
        let found_inf = non_finite(&gradients)?;
        eval_all(&gradients.iter().chain([&found_inf]).collect::<Vec<_>>())?;
        self.unscaled.push(Unscaled {
            optimizer: optimizer.id(),
            found_inf,
            has_stepped: false,
        });
        Ok(())
    }

    /// The optimiser's place among those whose gradients are unscaled.
    fn place<R: Rule>(&self, optimizer: &Optimizer<R>) -> Option<usize> {
        self.unscaled
            .iter()
            .position(|unscaled| unscaled.optimizer == optimizer.id())
    }

    /// Makes the optimiser step, unless gradients are not finite. Returns whether the step was
    /// made.
    ///
    /// # Errors
    /// The same errors as [`Optimizer::step`]. Also fails for a second step of the optimiser before
    /// [`GradScaler::update`].
    pub fn step<R: Rule>(&mut self, optimizer: &mut Optimizer<R>) -> RusTorchResult<bool> {
        if self.place(optimizer).is_none() {
            self.unscale_(optimizer)?;
        }
        let place = self.place(optimizer);
        let Some(unscaled) = place.map(|place| &mut self.unscaled[place]) else {
            return Ok(false);
        };
        let expected = "one step of an optimiser before update";
        require("step", !unscaled.has_stepped, expected, "another")?;
        let is_made = !unscaled.found_inf.to_scalar::<bool>()?;
        if is_made {
            optimizer.step()?;
        }
        unscaled.has_stepped = true;
        Ok(is_made)
    }

    /// Updates the scale after a step of each optimiser.
    ///
    /// # Errors
    /// Fails if there was no step.
    pub fn update(&mut self) -> RusTorchResult<()> {
        let found: Vec<&Tensor> = self
            .unscaled
            .iter()
            .map(|unscaled| &unscaled.found_inf)
            .collect();
        require("update", !found.is_empty(), "a step before it", "none")?;
        let found = Tensor::stack(&found, 0)?.any(None, false)?;
        eval_all(&self.record_update(&found)?.iter().collect::<Vec<_>>())?;
        self.unscaled.clear();
        Ok(())
    }

    /// The current scale.
    ///
    /// # Errors
    /// Fails if the scale was lost with its device.
    pub fn get_scale(&self) -> RusTorchResult<f64> {
        self.scale.item()
    }

    /// Number of skipped updates.
    ///
    /// # Errors
    /// The same errors as [`GradScaler::get_scale`].
    pub fn skipped(&self) -> RusTorchResult<u64> {
        Ok(self.skipped.to_scalar::<i64>()? as u64)
    }

    /// The scale and the counters as named tensors.
    pub fn state_dict(&self) -> Tensors {
        let mut state = Tensors::new();
        for (name, tensor) in STATE.into_iter().zip(self.tensors()) {
            state.insert(name, tensor.clone());
        }
        state
    }

    /// Loads the result of [`GradScaler::state_dict`].
    ///
    /// # Errors
    /// Fails for other tensors, or for a scale that is not above 0.
    pub fn load_state_dict(&mut self, state: &Tensors) -> RusTorchResult<()> {
        *self = self.with_state(state)?;
        Ok(())
    }

    /// The same with a state, in its own memory.
    pub(crate) fn with_state(&self, state: &Tensors) -> RusTorchResult<Self> {
        const NAME: &str = "load_state_dict";
        let names: Vec<&str> = state.names().collect();
        let expected = format!("the state of a scaler, {}", STATE.join(", "));
        let fits = |(name, own): (&str, &Tensor)| {
            let tensor = state.opt(name);
            tensor.is_some_and(|x| x.dtype() == own.dtype() && x.shape() == own.shape())
        };
        let all_fit = STATE.into_iter().zip(self.tensors()).all(fits);
        require(NAME, all_fit, &expected, names.join(", "))?;
        let number = |name: &str| match state.opt(name) {
            Some(tensor) => in_memory(tensor.item()?, tensor.dtype()),
            None => Err(unexpected(NAME, &expected, "none")),
        };
        let [scale, growth_tracker, skipped] = STATE.map(number);
        let value = scale.as_ref().map_or(Ok(1.0), Tensor::item)?;
        let is_scale = value > 0.0 && value.is_finite();
        require(NAME, is_scale, "a scale above 0", value)?;
        Ok(Self {
            scale: scale?,
            growth_tracker: growth_tracker?,
            skipped: skipped?,
            unscaled: Vec::new(),
            ..*self
        })
    }

    /// The tensors that steps overwrite.
    pub(crate) fn tensors(&self) -> [&Tensor; 3] {
        [&self.scale, &self.growth_tracker, &self.skipped]
    }

    /// The gradients without the scale.
    pub(crate) fn unscaled(&self, gradients: &[Tensor]) -> RusTorchResult<Vec<Tensor>> {
        let factor = self.scale.reciprocal()?;
        let unscaled = |gradient: &Tensor| gradient.mul(&factor.to_dtype(gradient.dtype())?);
        gradients.iter().map(unscaled).collect()
    }

    /// Records what follows for the scale, and counts, as `torch._amp_update_scale_`.
    pub(crate) fn record_update(&self, found_inf: &Tensor) -> RusTorchResult<[Tensor; 3]> {
        let made = self.growth_tracker.add(1)?;
        let grows = made.ge(i64::from(self.growth_interval))?;
        let grown = self.scale.mul(self.growth_factor)?;
        let grown = Tensor::where_(&grows.logical_and(&grown.isfinite()?)?, &grown, &self.scale)?;
        let smaller = self.scale.mul(self.backoff_factor)?;
        let next = [
            (&self.scale, Tensor::where_(found_inf, &smaller, &grown)?),
            (
                &self.growth_tracker,
                Tensor::where_(&grows.logical_or(found_inf)?, 0, &made)?,
            ),
            (
                &self.skipped,
                self.skipped.add(&found_inf.to_dtype(DType::I64)?)?,
            ),
        ];
        let written = |(memory, next): (&Tensor, Tensor)| -> RusTorchResult<Tensor> {
            let mut memory = memory.clone();
            no_grad(|| memory.copy_(&next).map(|_| ()))?;
            Ok(memory)
        };
        let [scale, tracker, skipped] = next.map(written);
        Ok([scale?, tracker?, skipped?])
    }
}

/// Is one of these numbers infinite, or none? `bool` of rank 0.
pub(crate) fn non_finite(tensors: &[Tensor]) -> RusTorchResult<Tensor> {
    if tensors.is_empty() {
        return Tensor::zeros([], DType::Bool);
    }
    let found = |x: &Tensor| x.isfinite()?.all(None, false)?.logical_not();
    let found: Vec<Tensor> = tensors.iter().map(found).collect::<RusTorchResult<_>>()?;
    Tensor::stack(&found, 0)?.any(None, false)
}
