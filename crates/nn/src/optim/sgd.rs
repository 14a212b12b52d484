//! Gradient descent and its elementwise variants: SGD, ASGD, Rprop, RMSprop, Adagrad, Adadelta.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::options::{at_least_zero, options};
use super::{Optimizer, Rule, State};
use crate::error::require;

options! {
    /// Options of [`SGD`].
    SGDOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Momentum: share of the last step that is added to the next one.
        momentum: f64 = 0.0,
        /// Dampening: share of the gradient that is not added to the momentum.
        dampening: f64 = 0.0,
        /// Weight decay: share of the parameter that is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Whether to use Nesterov's momentum.
        nesterov: bool = false,
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
    /// Options of [`ASGD`].
    ASGDOptions {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// Decay.
        lambd: f64 = 1e-4,
        /// The exponent of the learning rate's decay.
        alpha: f64 = 0.75,
        /// The step from which on averages are taken.
        t0: f64 = 1e6,
        /// Weight decay: share of the parameter that is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
    /// Options of [`Rprop`].
    RpropOptions {
        /// The first steps.
        lr: f64 = 1e-2,
        /// The step factors for gradients that change or keep their sign.
        etas: [f64; 2] = [0.5, 1.2],
        /// The smallest and the largest step.
        step_sizes: [f64; 2] = [1e-6, 50.0],
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
    /// Options of [`RMSprop`].
    RMSpropOptions {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// Decay rate of the mean of squares: share that stays.
        alpha: f64 = 0.99,
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// Weight decay: share of the parameter that is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Momentum: share of the last step that is added to the next one.
        momentum: f64 = 0.0,
        /// Whether the gradient is divided by its standard deviation.
        centered: bool = false,
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
    /// Options of [`Adagrad`].
    AdagradOptions {
        /// Learning rate.
        lr: f64 = 1e-2,
        /// Decay rate of the learning rate.
        lr_decay: f64 = 0.0,
        /// Weight decay: share of the parameter that is added to the gradient.
        weight_decay: f64 = 0.0,
        /// The first sum of squares.
        initial_accumulator_value: f64 = 0.0,
        /// Added to the denominator.
        eps: f64 = 1e-10,
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
    /// Options of [`Adadelta`].
    AdadeltaOptions {
        /// The learning rate.
        lr: f64 = 1.0,
        /// Decay rate of the mean of squares: share that stays.
        rho: f64 = 0.9,
        /// Added before roots.
        eps: f64 = 1e-6,
        /// Weight decay: share of the parameter that is added to the gradient.
        weight_decay: f64 = 0.0,
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
}

/// Stochastic gradient descent, optionally with momentum.
pub type SGD = Optimizer<SGDOptions>;

/// Averaged stochastic gradient descent (Polyak and Juditsky 1992, doi 10.1137/0330046); averages are its state `ax`.
pub type ASGD = Optimizer<ASGDOptions>;

/// Resilient backpropagation (Riedmiller and Braun 1993, doi 10.1109/ICNN.1993.298623).
pub type Rprop = Optimizer<RpropOptions>;

/// Steps divided by the root of the mean of squares
/// ([Hinton](https://www.cs.toronto.edu/~tijmen/csc321/slides/lecture_slides_lec6.pdf)).
pub type RMSprop = Optimizer<RMSpropOptions>;

/// Steps divided by the root of the sum of squares ([Duchi et al.](https://jmlr.org/papers/v12/duchi11a.html)).
pub type Adagrad = Optimizer<AdagradOptions>;

/// Steps scaled by the root mean square of earlier steps
/// ([Zeiler](https://arxiv.org/abs/1212.5701)).
pub type Adadelta = Optimizer<AdadeltaOptions>;

/// The direction to go, as a gradient to go down by: with the sign for the objective, and the parameter's decay.
pub(super) fn descent(
    gradient: &Tensor,
    maximize: bool,
    parameter: &Tensor,
    weight_decay: f64,
) -> RusTorchResult<Tensor> {
    let gradient = if maximize {
        gradient.neg()?
    } else {
        gradient.clone()
    };
    match weight_decay == 0.0 {
        true => Ok(gradient),
        false => gradient.add(&parameter.mul(weight_decay)?),
    }
}

/// `a + weight · (b - a)`, from the nearer end.
pub(super) fn lerp(a: &Tensor, b: &Tensor, weight: f64) -> RusTorchResult<Tensor> {
    let way = b.sub(a)?;
    match weight.abs() < 0.5 {
        true => a.add(&way.mul(weight)?),
        false => b.sub(&way.mul(1.0 - weight)?),
    }
}

/// `factor · mean + (1 - factor) · x²`.
pub(super) fn mean_of_squares(mean: &Tensor, x: &Tensor, factor: f64) -> RusTorchResult<Tensor> {
    mean.mul(factor)?.add(&x.square()?.mul(1.0 - factor)?)
}

impl Rule for SGDOptions {
    const NAME: &'static str = "SGD";

    fn check(&self) -> RusTorchResult<()> {
        let Self {
            momentum,
            dampening,
            ..
        } = *self;
        at_least_zero!(Self::NAME, self: lr, momentum, weight_decay)?;
        let fits = !self.nesterov || momentum > 0.0 && dampening == 0.0;
        let got = format_args!("momentum {momentum} and dampening {dampening}");
        require(
            Self::NAME,
            fits,
            "a momentum and no dampening, for nesterov",
            got,
        )
    }

    fn update(&self, _: f64, p: &Tensor, g: &Tensor, state: &mut State) -> RusTorchResult<Tensor> {
        let mut step = descent(g, self.maximize, p, self.weight_decay)?;
        if self.momentum != 0.0 {
            let buffer = match state.get("momentum_buffer") {
                Some(buffer) => buffer
                    .mul(self.momentum)?
                    .add(&step.mul(1.0 - self.dampening)?)?,
                None => step.clone(),
            };
            state.set("momentum_buffer", &buffer);
            step = match self.nesterov {
                true => step.add(&buffer.mul(self.momentum)?)?,
                false => buffer,
            };
        }
        p.sub(&step.mul(self.lr)?)
    }
}

impl Rule for ASGDOptions {
    const NAME: &'static str = "ASGD";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, lambd, alpha, weight_decay)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        let g = descent(g, self.maximize, p, self.weight_decay)?;
        // Numbers of the last step, which had another learning rate perhaps.
        let number = |value: f64| Tensor::scalar(value, DType::F32);
        let eta = state.get_or("eta", || number(self.lr))?;
        let mu = state.get_or("mu", || number(1.0))?;
        let (eta, mu) = (eta.to_dtype(p.dtype())?, mu.to_dtype(p.dtype())?);
        let kept = eta.mul(-self.lambd)?.add(1.0)?;
        let next = p.mul(&kept)?.sub(&g.mul(&eta)?)?;
        let ax = state.get_or_zeros("ax", p)?;
        let moved = ax.add(&next.sub(&ax)?.mul(&mu)?)?;
        state.set("ax", &Tensor::where_(&mu.eq(1.0)?, &next, &moved)?);
        let decay = (1.0 + self.lambd * self.lr * step).powf(self.alpha);
        state.set("eta", &number(self.lr / decay)?);
        state.set("mu", &number(1.0 / (step - self.t0).max(1.0))?);
        Ok(next)
    }
}

impl Rule for RpropOptions {
    const NAME: &'static str = "Rprop";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr)?;
        let [minus, plus] = self.etas;
        let fits = 0.0 < minus && minus < 1.0 && 1.0 < plus;
        require(
            Self::NAME,
            fits,
            "etas below and above 1",
            format_args!("{:?}", self.etas),
        )
    }

    fn update(&self, _: f64, p: &Tensor, g: &Tensor, state: &mut State) -> RusTorchResult<Tensor> {
        let g = descent(g, self.maximize, p, 0.0)?;
        let [minus, plus] = self.etas;
        let [least, most] = self.step_sizes;
        let product = g.mul(&state.get_or_zeros("prev", p)?)?;
        let (stays, turns) = (product.gt(0.0)?, product.lt(0.0)?);
        let grown = Tensor::where_(&stays, plus, &p.ones_like()?)?;
        let factor = Tensor::where_(&turns, minus, &grown)?;
        let size = state.get_or("step_size", || p.full_like(self.lr))?;
        let size = size.mul(&factor)?.clamp(least, most)?;
        let g = Tensor::where_(&turns, 0.0, &g)?;
        state.set("step_size", &size);
        state.set("prev", &g);
        p.sub(&g.sign()?.mul(&size)?)
    }
}

impl Rule for RMSpropOptions {
    const NAME: &'static str = "RMSprop";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, eps, momentum, weight_decay, alpha)
    }

    fn update(&self, _: f64, p: &Tensor, g: &Tensor, state: &mut State) -> RusTorchResult<Tensor> {
        let g = descent(g, self.maximize, p, self.weight_decay)?;
        let square = mean_of_squares(&state.get_or_zeros("square_avg", p)?, &g, self.alpha)?;
        state.set("square_avg", &square);
        let variance = match self.centered {
            true => {
                let mean = lerp(&state.get_or_zeros("grad_avg", p)?, &g, 1.0 - self.alpha)?;
                state.set("grad_avg", &mean);
                square.sub(&mean.square()?)?
            }
            false => square,
        };
        let root = variance.sqrt()?.add(self.eps)?;
        if self.momentum == 0.0 {
            return p.sub(&g.mul(self.lr)?.div(&root)?);
        }
        let buffer = state.get_or_zeros("momentum_buffer", p)?;
        let buffer = buffer.mul(self.momentum)?.add(&g.div(&root)?)?;
        state.set("momentum_buffer", &buffer);
        p.sub(&buffer.mul(self.lr)?)
    }
}

impl Rule for AdagradOptions {
    const NAME: &'static str = "Adagrad";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, lr_decay, weight_decay, initial_accumulator_value, eps)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        let g = descent(g, self.maximize, p, self.weight_decay)?;
        let sum = state.get_or("sum", || p.full_like(self.initial_accumulator_value))?;
        let sum = sum.add(&g.square()?)?;
        state.set("sum", &sum);
        let lr = self.lr / (1.0 + (step - 1.0) * self.lr_decay);
        p.sub(&g.mul(lr)?.div(&sum.sqrt()?.add(self.eps)?)?)
    }
}

impl Rule for AdadeltaOptions {
    const NAME: &'static str = "Adadelta";

    fn check(&self) -> RusTorchResult<()> {
        let Self { rho, .. } = *self;
        at_least_zero!(Self::NAME, self: lr, eps, weight_decay)?;
        require(
            Self::NAME,
            (0.0..=1.0).contains(&rho),
            "rho from 0 to 1",
            rho,
        )
    }

    fn update(&self, _: f64, p: &Tensor, g: &Tensor, state: &mut State) -> RusTorchResult<Tensor> {
        let g = descent(g, self.maximize, p, self.weight_decay)?;
        let square = mean_of_squares(&state.get_or_zeros("square_avg", p)?, &g, self.rho)?;
        state.set("square_avg", &square);
        let delta = state.get_or_zeros("acc_delta", p)?;
        let root = |x: &Tensor| x.add(self.eps)?.sqrt();
        let step = root(&delta)?.div(&root(&square)?)?.mul(&g)?;
        state.set("acc_delta", &mean_of_squares(&delta, &step, self.rho)?);
        p.sub(&step.mul(self.lr)?)
    }
}
