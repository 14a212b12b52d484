//! Schedules with one rule each.

use std::f64::consts::PI;

use rustorch_tensor::RusTorchResult;

use super::schedule::{Moment, Schedule, Turn};
use crate::error::require;
use crate::optim::optimizer::Scheduled;

/// Fails unless an argument fits.
pub(super) fn argument(
    schedule: &'static str,
    name: &str,
    value: impl std::fmt::Display,
    fits: bool,
    expected: &str,
) -> RusTorchResult<()> {
    let expected = format_args!("{name} {expected}");
    require(schedule, fits, expected, format_args!("{name} = {value}"))
}

/// Fails unless all arguments are finite numbers.
pub(super) fn finite(schedule: &'static str, values: &[(&str, f64)]) -> RusTorchResult<()> {
    values.iter().try_for_each(|&(name, value)| {
        argument(schedule, name, value, value.is_finite(), "to be finite")
    })
}

/// Setters of a schedule's arguments, named like their fields.
macro_rules! arguments {
    ($Schedule:ident { $($option:ident: $Option:ty),* $(,)? }) => {
        impl $Schedule {
            $(
                #[doc = concat!("The same with another `", stringify!($option), "`.")]
                #[must_use]
                pub fn $option(mut self, $option: impl rustorch_tensor::Setting<$Option>) -> Self {
                    self.$option = rustorch_tensor::Setting::setting($option);
                    self
                }
            )*
        }
    };
}
pub(super) use arguments;

/// Defines schedules by documentation, name, required arguments, options with defaults, checks, and the
/// learning rate at a moment.
macro_rules! schedules {
    ($($(#[$about:meta])* $Schedule:ident(
        $($(#[$need:meta])* $needed:ident: $Needed:ty),* $(,)?
    ) {
        $($(#[$may:meta])* $option:ident: $Option:ty = $default:expr,)*
    } fits [$($argument:ident: |$v:ident| $fits:expr, $expected:literal;)*]
    => |$s:ident, $at:ident| $lr:expr;)*) => {
        $(
            $(#[$about])*
            #[derive(Clone, PartialEq, Debug)]
            pub struct $Schedule {
                $($(#[$need])* pub $needed: $Needed,)*
                $($(#[$may])* pub $option: $Option,)*
            }

            impl $Schedule {
                #[doc = concat!("By `", $(stringify!($needed), "`, `",)* "…`, and PyTorch's defaults.")]
                pub fn new($($needed: impl rustorch_tensor::Setting<$Needed>),*) -> Self {
                    Self { $($needed: rustorch_tensor::Setting::setting($needed),)* $($option: $default,)* }
                }

                fn at(&self, $at: &Moment) -> f64 {
                    let $s = self;
                    $lr
                }
            }

            arguments!($Schedule { $($option: $Option),* });

            impl Schedule for $Schedule {
                fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64> {
                    Ok(self.at(&Moment::alone(epoch, base, current)))
                }

                fn check(&self) -> RusTorchResult<()> {
                    $(
                        let ($v, name) = (self.$argument, stringify!($argument));
                        argument(stringify!($Schedule), name, $v, $fits, $expected)?;
                    )*
                    Ok(())
                }

                fn rates(&self, at: &Moment, _: &Scheduled) -> RusTorchResult<(f64, Option<f64>)> {
                    Ok((self.at(at), None))
                }
            }
        )*
    };
}

schedules! {
    /// Multiplies by `gamma` every `step_size` epochs.
    StepLR(
        /// Epochs between.
        step_size: usize,
    ) {
        /// The factor.
        gamma: f64 = 0.1,
    } fits [
        step_size: |n| n > 0, "above 0";
        gamma: |x| x.is_finite(), "to be finite";
    ] => |s, at| match at.epoch > 0 && at.epoch.is_multiple_of(s.step_size.max(1)) {
        true => at.from() * s.gamma,
        false => at.from(),
    };
    /// Multiplies by `gamma` at certain epochs.
    MultiStepLR(
        /// The epochs; one that is there twice counts twice.
        milestones: Vec<usize>,
    ) {
        /// The factor.
        gamma: f64 = 0.1,
    } fits [
        gamma: |x| x.is_finite(), "to be finite";
    ] => |s, at| {
        let times = s.milestones.iter().filter(|&&milestone| milestone == at.epoch).count();
        at.from() * s.gamma.powi(times as i32)
    };
    /// Multiplies by `factor` until an epoch.
    ConstantLR() {
        /// The factor.
        factor: f64 = 1.0 / 3.0,
        /// The epoch from which on it is the first one again.
        total_iters: usize = 5,
    } fits [
        factor: |x| x > 0.0 && x <= 1.0, "above 0, at most 1";
    ] => |s, at| match at.epoch {
        0 if at.turn == Turn::Again && s.total_iters == 0 => at.base,
        0 => at.from() * s.factor,
        epoch if epoch == s.total_iters => at.from() * (1.0 / s.factor),
        _ => at.from(),
    };
    /// Multiplies by a factor that changes linearly until an epoch.
    LinearLR() {
        /// The first factor.
        start_factor: f64 = 1.0 / 3.0,
        /// The last factor.
        end_factor: f64 = 1.0,
        /// The epoch of the last factor.
        total_iters: usize = 5,
    } fits [
        start_factor: |x| x > 0.0 && x <= 1.0, "above 0, at most 1";
        end_factor: |x| (0.0..=1.0).contains(&x), "between 0 and 1";
    ] => |s, at| {
        let (total, way) = (s.total_iters as f64, s.end_factor - s.start_factor);
        match at.epoch {
            0 => at.from() * s.start_factor,
            epoch if epoch > s.total_iters => at.from(),
            epoch => {
                let before = total * s.start_factor + (epoch as f64 - 1.0) * way;
                at.from() * (1.0 + way / before)
            }
        }
    };
    /// Multiplies by `gamma` every epoch.
    ExponentialLR(
        /// The factor.
        gamma: f64,
    ) {} fits [
        gamma: |x| x.is_finite(), "to be finite";
    ] => |s, at| if at.turn == Turn::Next { at.current * s.gamma } else { at.from() };
    /// Falls to 0 as a power of the remaining epochs.
    PolynomialLR() {
        /// The epoch at which it is 0.
        total_iters: usize = 5,
        /// The exponent.
        power: f64 = 1.0,
    } fits [
        power: |x| x >= 0.0 && x.is_finite(), "of 0 or more";
    ] => |s, at| {
        let left = |epoch: f64| 1.0 - epoch / s.total_iters as f64;
        match at.turn == Turn::Next && at.epoch <= s.total_iters {
            true => at.current * (left(at.epoch as f64) / left(at.epoch as f64 - 1.0)).powf(s.power),
            false => at.from(),
        }
    };
    /// Falls to `eta_min` along half a cosine, and rises again
    /// ([Loshchilov and Hutter](https://arxiv.org/abs/1608.03983)).
    CosineAnnealingLR(
        /// Epochs on the way down.
        t_max: usize,
    ) {
        /// The smallest learning rate.
        eta_min: f64 = 0.0,
    } fits [
        t_max: |n| n > 0, "above 0";
        eta_min: |x| x.is_finite(), "to be finite";
    ] => |s, at| {
        let (epoch, way) = (at.epoch as i128, s.t_max.max(1) as i128);
        let height = |epoch: i128| 1.0 + (PI * epoch as f64 / way as f64).cos();
        if at.turn != Turn::Next {
            at.from()
        } else if (epoch - 1 - way) % (2 * way) == 0 {
            // The one before is the smallest, of which no other follows by a factor.
            at.current + (at.base - s.eta_min) * (1.0 - (PI / way as f64).cos()) / 2.0
        } else {
            height(epoch) / height(epoch - 1) * (at.current - s.eta_min) + s.eta_min
        }
    };
    /// Falls to `eta_min` along half a cosine, and restarts
    /// ([Loshchilov and Hutter](https://arxiv.org/abs/1608.03983)).
    CosineAnnealingWarmRestarts(
        /// Epochs of the first way down.
        t_0: usize,
    ) {
        /// Ratio of the length of each way to the one before.
        t_mult: usize = 1,
        /// The smallest learning rate.
        eta_min: f64 = 0.0,
    } fits [
        t_0: |n| n > 0, "above 0";
        t_mult: |n| n > 0, "above 0";
        eta_min: |x| x.is_finite(), "to be finite";
    ] => |s, at| {
        let (epoch, length) = s.place(at.epoch);
        let height = 1.0 + (PI * epoch as f64 / length as f64).cos();
        s.eta_min + (at.base - s.eta_min) * height / 2.0
    };
    /// Moves to the learning rate for averaging weights
    /// ([Izmailov et al.](https://arxiv.org/abs/1803.05407)), and stays there.
    SWALR(
        /// The last one.
        swa_lr: f64,
    ) {
        /// The epochs until then.
        anneal_epochs: usize = 10,
        /// Curve of the change.
        anneal_strategy: AnnealStrategy = AnnealStrategy::Cos,
    } fits [
        swa_lr: |x| x.is_finite(), "to be finite";
    ] => |s, at| {
        let step = if s.anneal_epochs == 0 { at.steps.max(1) } else { at.steps } as f64;
        let part = |step: f64| {
            let t = (step / s.anneal_epochs.max(1) as f64).clamp(0.0, 1.0);
            s.anneal_strategy.between(0.0, 1.0, t)
        };
        let (before, now) = (part(step - 1.0), part(step));
        let first = match before == 1.0 {
            true => s.swa_lr,
            false => (at.current - before * s.swa_lr) / (1.0 - before),
        };
        s.swa_lr * now + first * (1.0 - now)
    };
}

impl CosineAnnealingWarmRestarts {
    /// The epoch of the way down that an epoch is on, and how many that way has.
    fn place(&self, epoch: usize) -> (usize, usize) {
        let (mut at, mut length) = (epoch, self.t_0.max(1));
        if self.t_mult <= 1 {
            return (at % length, length);
        }
        while at >= length {
            at -= length;
            length = length.saturating_mul(self.t_mult);
        }
        (at, length)
    }
}

/// Constructors with PyTorch's defaults.
macro_rules! defaults {
    ($($Schedule:ident)*) => {
        $(impl Default for $Schedule {
            fn default() -> Self {
                Self::new()
            }
        })*
    };
}

defaults!(ConstantLR LinearLR PolynomialLR);

/// Curve from one number to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AnnealStrategy {
    /// Half a cosine.
    #[default]
    Cos,
    /// Evenly.
    Linear,
}

impl rustorch_tensor::Converted for AnnealStrategy {}

impl AnnealStrategy {
    /// The number at a part of the way.
    pub(super) fn between(self, start: f64, end: f64, part: f64) -> f64 {
        match self {
            Self::Cos => end + (start - end) / 2.0 * (1.0 + (PI * part).cos()),
            Self::Linear => (end - start) * part + start,
        }
    }
}

/// The first learning rate times a function of the epoch.
pub struct LambdaLR<F>(pub F);

impl<F: Fn(usize) -> f64 + Send> Schedule for LambdaLR<F> {
    fn lr(&self, epoch: usize, base: f64, _: f64) -> RusTorchResult<f64> {
        Ok(base * (self.0)(epoch))
    }
}

/// The previous learning rate times a function of the epoch.
pub struct MultiplicativeLR<F>(pub F);

impl<F: Fn(usize) -> f64 + Send> Schedule for MultiplicativeLR<F> {
    fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64> {
        let at = Moment::alone(epoch, base, current);
        Ok(self.rates(&at, &Scheduled::default())?.0)
    }

    /// After another schedule, it continues from that schedule's learning rate, as in PyTorch.
    fn rates(&self, at: &Moment, _: &Scheduled) -> RusTorchResult<(f64, Option<f64>)> {
        let lr = match at.turn {
            Turn::First => at.current,
            Turn::Next | Turn::Again => at.current * (self.0)(at.epoch),
        };
        Ok((lr, None))
    }
}
