//! Adam and its variants: means of gradients and of their squares.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::options::{are_betas, at_least_zero, options};
use super::sgd::{descent, lerp, mean_of_squares};
use super::{Optimizer, Rule, State};
use crate::error::require;

/// The common options of all variants.
macro_rules! adams {
    ($($(#[$about:meta])* $Options:ident, lr $lr:literal, weight_decay $decay:literal {
        $($(#[$may:meta])* $option:ident: $Option:ty = $default:expr,)*
    })*) => {
        options! {
            $($(#[$about])*
            $Options {
                /// Learning rate.
                lr: f64 = $lr,
                /// Decay rates of the means of gradients and of their squares.
                betas: [f64; 2] = [0.9, 0.999],
                /// Added to the denominator.
                eps: f64 = 1e-8,
                /// Weight decay.
                weight_decay: f64 = $decay,
                /// Whether the objective is maximised.
                maximize: bool = false,
                $($(#[$may])* $option: $Option = $default,)*
            })*
        }
    };
}

adams! {
    /// Options of [`Adam`].
    AdamOptions, lr 1e-3, weight_decay 0.0 {
        /// Whether the largest mean of squares so far is used.
        amsgrad: bool = false,
        /// Whether weight decay applies to the parameter directly, not through the gradient.
        decoupled_weight_decay: bool = false,
    }
    /// Options of [`AdamW`].
    AdamWOptions, lr 1e-3, weight_decay 1e-2 {
        /// Whether the largest mean of squares so far is used.
        amsgrad: bool = false,
    }
    /// Options of [`Adamax`].
    AdamaxOptions, lr 2e-3, weight_decay 0.0 {}
    /// Options of [`NAdam`].
    NAdamOptions, lr 2e-3, weight_decay 0.0 {
        /// Rate at which the momentum grows.
        momentum_decay: f64 = 4e-3,
        /// Whether weight decay applies to the parameter directly, not through the gradient.
        decoupled_weight_decay: bool = false,
    }
    /// Options of [`RAdam`].
    RAdamOptions, lr 1e-3, weight_decay 0.0 {
        /// Whether weight decay applies to the parameter directly, not through the gradient.
        decoupled_weight_decay: bool = false,
    }
}

options! {
    /// Options of [`SparseAdam`].
    SparseAdamOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Decay rates of the means of gradients and of their squares.
        betas: [f64; 2] = [0.9, 0.999],
        /// Added to the denominator.
        eps: f64 = 1e-8,
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
}

/// [Kingma and Ba](https://arxiv.org/abs/1412.6980).
pub type Adam = Optimizer<AdamOptions>;

/// [`Adam`] with decoupled weight decay
/// ([Loshchilov and Hutter](https://arxiv.org/abs/1711.05101)).
pub type AdamW = Optimizer<AdamWOptions>;

/// [`Adam`] with the maximum norm ([Kingma and Ba](https://arxiv.org/abs/1412.6980)).
pub type Adamax = Optimizer<AdamaxOptions>;

/// [`Adam`] with Nesterov's momentum ([Dozat](https://openreview.net/forum?id=OM0jvwB8jIp57ZJjtNEZ)).
pub type NAdam = Optimizer<NAdamOptions>;

/// [`Adam`] with rectified first steps ([Liu et al.](https://arxiv.org/abs/1908.03265)).
pub type RAdam = Optimizer<RAdamOptions>;

/// [`Adam`] without decay, which skips rows without a gradient. Gradients are dense: a row of zeros
/// counts as no gradient.
pub type SparseAdam = Optimizer<SparseAdamOptions>;

/// A parameter and its gradient with decay, by itself or by the gradient.
fn decayed(
    p: &Tensor,
    g: &Tensor,
    (lr, weight_decay, maximize): (f64, f64, bool),
    is_decoupled: bool,
) -> RusTorchResult<(Tensor, Tensor)> {
    match is_decoupled && weight_decay != 0.0 {
        true => Ok((
            p.mul(1.0 - lr * weight_decay)?,
            descent(g, maximize, p, 0.0)?,
        )),
        false => Ok((p.clone(), descent(g, maximize, p, weight_decay)?)),
    }
}

/// The next means of the gradient and of its square.
fn moments(
    p: &Tensor,
    g: &Tensor,
    betas: [f64; 2],
    state: &mut State,
) -> RusTorchResult<[Tensor; 2]> {
    let mean = lerp(&state.get_or_zeros("exp_avg", p)?, g, 1.0 - betas[0])?;
    let square = mean_of_squares(&state.get_or_zeros("exp_avg_sq", p)?, g, betas[1])?;
    state.set("exp_avg", &mean);
    state.set("exp_avg_sq", &square);
    Ok([mean, square])
}

/// Bias corrections of means that began with 0, for each beta.
fn bias_corrections(betas: [f64; 2], step: f64) -> [f64; 2] {
    betas.map(|beta| 1.0 - beta.powf(step))
}

impl Rule for AdamOptions {
    const NAME: &'static str = "Adam";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, eps, weight_decay)?;
        are_betas(Self::NAME, self.betas)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        let decay = (self.lr, self.weight_decay, self.maximize);
        let (p, g) = decayed(p, g, decay, self.decoupled_weight_decay)?;
        let [mean, mut square] = moments(&p, &g, self.betas, state)?;
        let [first, second] = bias_corrections(self.betas, step);
        if self.amsgrad {
            square = state.get_or_zeros("max_exp_avg_sq", &p)?.maximum(&square)?;
            state.set("max_exp_avg_sq", &square);
        }
        let root = square.sqrt()?.div(second.sqrt())?.add(self.eps)?;
        p.sub(&mean.mul(self.lr / first)?.div(&root)?)
    }
}

impl AdamWOptions {
    /// The same as options of [`Adam`].
    fn adam(&self) -> AdamOptions {
        let Self {
            lr,
            betas,
            eps,
            weight_decay,
            maximize,
            amsgrad,
        } = *self;
        let decoupled_weight_decay = true;
        AdamOptions {
            lr,
            betas,
            eps,
            weight_decay,
            maximize,
            amsgrad,
            decoupled_weight_decay,
        }
    }
}

impl Rule for AdamWOptions {
    const NAME: &'static str = "AdamW";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, eps, weight_decay)?;
        are_betas(Self::NAME, self.betas)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        self.adam().update(step, p, g, state)
    }
}

impl Rule for AdamaxOptions {
    const NAME: &'static str = "Adamax";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, eps, weight_decay)?;
        are_betas(Self::NAME, self.betas)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        let g = descent(g, self.maximize, p, self.weight_decay)?;
        let [beta1, beta2] = self.betas;
        let mean = lerp(&state.get_or_zeros("exp_avg", p)?, &g, 1.0 - beta1)?;
        let largest = state.get_or_zeros("exp_inf", p)?.mul(beta2)?;
        let largest = largest.maximum(&g.abs()?.add(self.eps)?)?;
        state.set("exp_avg", &mean);
        state.set("exp_inf", &largest);
        let [correction, _] = bias_corrections(self.betas, step);
        p.sub(&mean.mul(self.lr / correction)?.div(&largest)?)
    }
}

impl Rule for NAdamOptions {
    const NAME: &'static str = "NAdam";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, eps, weight_decay, momentum_decay)?;
        are_betas(Self::NAME, self.betas)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        let decay = (self.lr, self.weight_decay, self.maximize);
        let (p, g) = decayed(p, g, decay, self.decoupled_weight_decay)?;
        let [mean, square] = moments(&p, &g, self.betas, state)?;
        let [_, second] = bias_corrections(self.betas, step);
        let momentum =
            |step: f64| self.betas[0] * (1.0 - 0.5 * 0.96f64.powf(step * self.momentum_decay));
        let (now, next) = (momentum(step), momentum(step + 1.0));
        let product = state
            .get_or("mu_product", || Tensor::scalar(1.0, DType::F32))?
            .mul(now)?;
        state.set("mu_product", &product);
        let product = product.to_dtype(p.dtype())?;
        let root = square.div(second)?.sqrt()?.add(self.eps)?;
        let of_gradient = product
            .rsub(1.0)?
            .reciprocal()?
            .mul(self.lr * (1.0 - now))?;
        let of_mean = product
            .mul(next)?
            .rsub(1.0)?
            .reciprocal()?
            .mul(self.lr * next)?;
        p.sub(&g.mul(&of_gradient)?.div(&root)?)?
            .sub(&mean.mul(&of_mean)?.div(&root)?)
    }
}

impl Rule for RAdamOptions {
    const NAME: &'static str = "RAdam";

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, eps, weight_decay)?;
        are_betas(Self::NAME, self.betas)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        let decay = (self.lr, self.weight_decay, self.maximize);
        let (p, g) = decayed(p, g, decay, self.decoupled_weight_decay)?;
        let [mean, square] = moments(&p, &g, self.betas, state)?;
        let [first, second] = bias_corrections(self.betas, step);
        let beta2 = self.betas[1];
        let longest = 2.0 / (1.0 - beta2) - 1.0;
        let length = longest - 2.0 * step * beta2.powf(step) / second;
        let size = mean.mul(self.lr / first)?;
        if length <= 5.0 {
            return p.sub(&size);
        }
        let rectified = ((length - 4.0) * (length - 2.0) * longest
            / ((longest - 4.0) * (longest - 2.0) * length))
            .sqrt();
        let root = square.sqrt()?.add(self.eps)?;
        p.sub(&size.mul(second.sqrt() * rectified)?.div(&root)?)
    }
}

impl Rule for SparseAdamOptions {
    const NAME: &'static str = "SparseAdam";
    const TAKES_COMPLEX: bool = false;

    fn check(&self) -> RusTorchResult<()> {
        let Self { lr, eps, .. } = *self;
        let fits = lr > 0.0 && eps > 0.0;
        let got = format_args!("{lr} and {eps}");
        require(Self::NAME, fits, "lr and eps above 0", got)?;
        are_betas(Self::NAME, self.betas)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        let g = descent(g, self.maximize, p, 0.0)?;
        // Rows of zeros have no gradient.
        let has_gradient = match g.rank() {
            0 | 1 => g.ne(0.0)?,
            _ => {
                let dims: Vec<usize> = (1..g.rank()).collect();
                g.ne(0.0)?.any(&dims[..], true)?.expand(g.shape())?
            }
        };
        let [beta1, beta2] = self.betas;
        let old_mean = state.get_or_zeros("exp_avg", p)?;
        let old_square = state.get_or_zeros("exp_avg_sq", p)?;
        let mean = lerp(&old_mean, &g, 1.0 - beta1)?;
        let square = mean_of_squares(&old_square, &g, beta2)?;
        state.set("exp_avg", &Tensor::where_(&has_gradient, &mean, &old_mean)?);
        state.set(
            "exp_avg_sq",
            &Tensor::where_(&has_gradient, &square, &old_square)?,
        );
        let [first, second] = bias_corrections(self.betas, step);
        let size = self.lr * second.sqrt() / first;
        let moved = p.sub(&mean.div(&square.sqrt()?.add(self.eps)?)?.mul(size)?)?;
        Tensor::where_(&has_gradient, &moved, p)
    }
}
