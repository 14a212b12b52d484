//! Optimisers for matrices: Adafactor, Muon.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::options::{OptionValue, at_least_zero, options};
use super::sgd::{descent, lerp};
use super::{Optimizer, Rule, State};
use crate::error::require;

/// Factor by which [`Muon`] multiplies the learning rate of a matrix `[a, b]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AdjustLr {
    /// `√max(1, a / b)`: [Jordan](https://kellerjordan.github.io/posts/muon/).
    #[default]
    Original,
    /// `0.2 √max(a, b)`, so that steps are as large as [`AdamW`](super::AdamW)'s:
    /// [Liu et al.](https://arxiv.org/abs/2502.16982)
    MatchRmsAdamw,
    /// `√(a / b)`: [Bernstein](https://jeremybernste.in/writing/deriving-muon).
    SpectralUnclamped,
}

impl rustorch_tensor::Converted for AdjustLr {}

impl OptionValue for AdjustLr {
    fn numbers(&self) -> Vec<f64> {
        vec![*self as u8 as f64]
    }

    fn set_numbers(&mut self, numbers: &[f64]) -> bool {
        let all = [Self::Original, Self::MatchRmsAdamw, Self::SpectralUnclamped];
        // PyTorch's `None` is the original.
        let numbers = if numbers.is_empty() { &[0.0] } else { numbers };
        let found = all.into_iter().find(|kind| kind.numbers() == numbers);
        *self = found.unwrap_or_default();
        found.is_some()
    }
}

options! {
    /// Options of [`Adafactor`].
    AdafactorOptions {
        /// Largest relative step, and the factor of the decay.
        lr: f64 = 1e-2,
        /// The exponent by which less of new squares counts with each step.
        beta2_decay: f64 = -0.8,
        /// The least root of a mean of squares; `None`: the dtype's distance from 1 to the next number.
        eps1: Option<f64> = None,
        /// The least size of a parameter that steps are measured by.
        eps2: f64 = 1e-3,
        /// The largest root of the mean of a step's squares.
        d: f64 = 1.0,
        /// Weight decay.
        weight_decay: f64 = 0.0,
        /// Whether the objective is maximised.
        maximize: bool = false,
    }
    /// Options of [`Muon`].
    MuonOptions {
        /// Learning rate.
        lr: f64 = 1e-3,
        /// Weight decay.
        weight_decay: f64 = 0.1,
        /// Momentum: share of the mean of gradients that stays.
        momentum: f64 = 0.95,
        /// Whether to use Nesterov's momentum.
        nesterov: bool = true,
        /// The iteration of Newton–Schulz: `a x + b x³ + c x⁵`.
        ns_coefficients: [f64; 3] = [3.4445, -4.775, 2.0315],
        /// The least norm that is divided by.
        eps: f64 = 1e-7,
        /// Number of iterations.
        ns_steps: usize = 5,
        /// Factor of a matrix's learning rate.
        adjust_lr_fn: AdjustLr = AdjustLr::Original,
    }
}

/// Keeps means of squares for rows and columns, not for all elements
/// ([Shazeer and Stern](https://arxiv.org/abs/1804.04235)).
pub type Adafactor = Optimizer<AdafactorOptions>;

/// Takes steps along nearly orthogonal matrices
/// ([Jordan](https://kellerjordan.github.io/posts/muon/)). Matrices alone.
pub type Muon = Optimizer<MuonOptions>;

/// The root of the mean of squares.
fn root_mean_square(x: &Tensor) -> RusTorchResult<Tensor> {
    x.norm(2.0, None, false)?.div((x.numel() as f64).sqrt())
}

/// The mean of squares along a dimension.
fn mean_square(x: &Tensor, dim: isize) -> RusTorchResult<Tensor> {
    let size = x.size(dim)? as f64;
    x.norm(2.0, dim, true)?.square()?.div(size)
}

impl Rule for AdafactorOptions {
    const NAME: &'static str = "Adafactor";
    const TAKES_COMPLEX: bool = false;

    fn check(&self) -> RusTorchResult<()> {
        let Self {
            beta2_decay,
            d,
            eps1,
            ..
        } = *self;
        at_least_zero!(Self::NAME, self: lr, eps2, weight_decay)?;
        let eps1 = eps1.unwrap_or(0.0);
        require(Self::NAME, eps1 >= 0.0, "eps1 of 0 or more", eps1)?;
        require(
            Self::NAME,
            beta2_decay <= 0.0,
            "beta2_decay of 0 or less",
            beta2_decay,
        )?;
        require(Self::NAME, d >= 1.0, "d of 1 or more", d)
    }

    fn update(
        &self,
        step: f64,
        p: &Tensor,
        g: &Tensor,
        state: &mut State,
    ) -> RusTorchResult<Tensor> {
        let g = descent(g, self.maximize, p, 0.0)?;
        let eps1 = self.eps1.unwrap_or_else(|| epsilon(p.dtype()));
        let weight = step.powf(self.beta2_decay);
        let relative = self.lr.min(1.0 / step.sqrt());
        let size = root_mean_square(p)?.maximum(self.eps2)?.mul(relative)?;
        let kept = match self.weight_decay == 0.0 {
            true => p.clone(),
            false => p.mul(1.0 - self.lr * self.weight_decay)?,
        };
        let variance = match g.rank() {
            0 | 1 => {
                let old = state.get_or_zeros("variance", p)?;
                let variance = lerp(&old, &g.square()?, weight)?;
                state.set("variance", &variance);
                variance
            }
            _ => {
                let mut mean = |name, dim| -> RusTorchResult<Tensor> {
                    let mean = mean_square(&g, dim)?;
                    let mean = lerp(&state.get_or_zeros(name, &mean)?, &mean, weight)?;
                    state.set(name, &mean);
                    Ok(mean)
                };
                let (rows, columns) = (mean("row_var", -1)?, mean("col_var", -2)?);
                rows.mul(&columns)?
                    .div(&rows.mean(-2, true)?.maximum(eps1)?)?
            }
        };
        let update = variance.maximum(eps1 * eps1)?.rsqrt()?.mul(&g)?;
        let too_large = root_mean_square(&update)?.div(self.d)?.maximum(1.0)?;
        kept.sub(&update.mul(&size.div(&too_large)?)?)
    }
}

/// The distance from 1 to the next number.
fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        _ => f64::from(f32::EPSILON),
    }
}

impl Rule for MuonOptions {
    const NAME: &'static str = "Muon";
    const TAKES_COMPLEX: bool = false;

    fn check(&self) -> RusTorchResult<()> {
        at_least_zero!(Self::NAME, self: lr, momentum, weight_decay)?;
        require(
            Self::NAME,
            self.ns_steps < 100,
            "fewer than 100 iterations",
            self.ns_steps,
        )
    }

    fn check_parameter(&self, name: &str, parameter: &Tensor) -> RusTorchResult<()> {
        let got = format_args!("{name} {:?}", parameter.shape());
        require(
            Self::NAME,
            parameter.rank() == 2,
            "matrices (others are for AdamW)",
            got,
        )
    }

    fn update(&self, _: f64, p: &Tensor, g: &Tensor, state: &mut State) -> RusTorchResult<Tensor> {
        let buffer = lerp(
            &state.get_or_zeros("momentum_buffer", p)?,
            g,
            1.0 - self.momentum,
        )?;
        state.set("momentum_buffer", &buffer);
        let update = match self.nesterov {
            true => lerp(g, &buffer, self.momentum)?,
            false => buffer,
        };
        let update = self.orthogonalised(&update)?.to_dtype(p.dtype())?;
        let (a, b) = (p.size(0)? as f64, p.size(1)? as f64);
        let ratio = match self.adjust_lr_fn {
            AdjustLr::Original => (a / b).max(1.0).sqrt(),
            AdjustLr::MatchRmsAdamw => 0.2 * a.max(b).sqrt(),
            AdjustLr::SpectralUnclamped => (a / b).sqrt(),
        };
        let kept = p.mul(1.0 - self.lr * self.weight_decay)?;
        kept.sub(&update.mul(self.lr * ratio)?)
    }
}

impl MuonOptions {
    /// A matrix whose singular values are about 1. A polynomial is applied to them repeatedly, in `bf16` as in
    /// PyTorch.
    fn orthogonalised(&self, x: &Tensor) -> RusTorchResult<Tensor> {
        let [a, b, c] = self.ns_coefficients;
        let is_tall = x.size(0)? > x.size(1)?;
        let x = x.to_dtype(DType::BF16)?;
        let mut x = if is_tall { x.t()? } else { x };
        x = x.div(&x.norm(2.0, None, false)?.maximum(self.eps)?)?;
        for _ in 0..self.ns_steps {
            let gram = x.matmul(&x.t()?)?;
            let polynomial = gram.mul(b)?.add(&gram.matmul(&gram)?.mul(c)?)?;
            x = x.mul(a)?.add(&polynomial.matmul(&x)?)?;
        }
        if is_tall { x.t() } else { Ok(x) }
    }
}
