//! Schedules of learning rates: `torch.optim.lr_scheduler`.
//!
//! A [`Schedule`] says a learning rate by the one before, as PyTorch's chainable forms do; [`LrScheduler`] sets it in an
//! optimiser.

use std::f64::consts::PI;

use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::LearningRates;
use super::optimizer::number;
use crate::error::{require, unexpected};

/// How learning rates follow from one another.
pub trait Schedule: Send {
    /// That of an `epoch`, which begins with 0, by the first one of the group, `base`, and by the one before, `current`.
    ///
    /// # Errors
    /// A schedule that has ended.
    fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64>;

    /// The first learning rate, where the schedule says that itself.
    fn first_lr(&self) -> Option<f64> {
        None
    }

    /// The momentum of an epoch, or the first beta, where the schedule says that, too.
    fn momentum(&self, _epoch: usize) -> Option<f64> {
        None
    }
}

impl<S: Schedule + ?Sized> Schedule for Box<S> {
    fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64> {
        (**self).lr(epoch, base, current)
    }

    fn first_lr(&self) -> Option<f64> {
        (**self).first_lr()
    }

    fn momentum(&self, epoch: usize) -> Option<f64> {
        (**self).momentum(epoch)
    }
}

/// Sets the learning rates of an optimiser's groups, epoch by epoch.
pub struct LrScheduler<S> {
    schedule: S,
    base_lrs: Vec<f64>,
    last_lrs: Vec<f64>,
    last_epoch: usize,
}

#[track_calls(LrScheduler)]
impl<S: Schedule> LrScheduler<S> {
    /// Sets the learning rates of epoch 0.
    ///
    /// # Errors
    /// A schedule of momentum for an optimiser that has none.
    pub fn new(optimizer: &mut impl LearningRates, schedule: S) -> RusTorchResult<Self> {
        if let Some(lr) = schedule.first_lr() {
            (0..optimizer.groups()).for_each(|group| set_lr(optimizer, group, lr));
        }
        let base_lrs = lrs(optimizer);
        let mut scheduler = Self {
            schedule,
            last_lrs: base_lrs.clone(),
            base_lrs,
            last_epoch: 0,
        };
        scheduler.update(optimizer)?;
        Ok(scheduler)
    }

    /// Sets the learning rates of the next epoch.
    ///
    /// # Errors
    /// A schedule that has ended; another number of groups than at first.
    pub fn step(&mut self, optimizer: &mut impl LearningRates) -> RusTorchResult<()> {
        self.last_epoch += 1;
        self.update(optimizer)
    }

    fn update(&mut self, optimizer: &mut impl LearningRates) -> RusTorchResult<()> {
        const NAME: &str = "LrScheduler";
        let (groups, known) = (optimizer.groups(), self.base_lrs.len());
        require(
            NAME,
            groups == known,
            format_args!("{known} groups, as at first"),
            groups,
        )?;
        for (group, (&base, current)) in self.base_lrs.iter().zip(lrs(optimizer)).enumerate() {
            let lr = self.schedule.lr(self.last_epoch, base, current)?;
            set_lr(optimizer, group, lr);
            if let Some(momentum) = self.schedule.momentum(self.last_epoch) {
                let is_set = match optimizer.option(group, "betas").as_deref() {
                    Some([_, second]) => {
                        let betas = [momentum, *second];
                        optimizer.set_option(group, "betas", &betas)
                    }
                    _ => optimizer.set_option(group, "momentum", &[momentum]),
                };
                let expected = "an optimiser with momentum or betas (or no cycle_momentum)";
                require(NAME, is_set, expected, "neither")?;
            }
        }
        self.last_lrs = lrs(optimizer);
        Ok(())
    }

    /// The learning rates that it set last, of each group.
    pub fn get_last_lr(&self) -> &[f64] {
        &self.last_lrs
    }

    /// How many steps there were.
    pub fn last_epoch(&self) -> usize {
        self.last_epoch
    }

    /// The first learning rates, the last, and the number of steps, as tensors by name.
    ///
    /// # Errors
    /// More than memory could hold.
    pub fn state_dict(&self) -> RusTorchResult<Tensors> {
        let mut tensors = Tensors::new();
        tensors.insert(
            "last_epoch",
            Tensor::scalar(self.last_epoch as i64, DType::I64)?,
        );
        tensors.insert(
            "base_lrs",
            Tensor::from_slice(&self.base_lrs, self.base_lrs.len())?,
        );
        tensors.insert(
            "last_lrs",
            Tensor::from_slice(&self.last_lrs, self.last_lrs.len())?,
        );
        Ok(tensors)
    }

    /// Takes what [`LrScheduler::state_dict`] gave; the optimiser's own state has the learning rates.
    ///
    /// # Errors
    /// The state of something else, or of another number of groups.
    pub fn load_state_dict(&mut self, state: &Tensors) -> RusTorchResult<()> {
        const NAME: &str = "load_state_dict";
        let (Some(epoch), Some(base)) = (state.opt("last_epoch"), state.opt("base_lrs")) else {
            return Err(unexpected(
                NAME,
                "last_epoch and base_lrs",
                "the state of something else",
            ));
        };
        let (groups, given) = (self.base_lrs.len(), base.numel());
        require(
            NAME,
            groups == given,
            format_args!("{groups} base_lrs"),
            given,
        )?;
        self.last_epoch = number(epoch, "last_epoch")? as usize;
        self.base_lrs = base.to_dtype(DType::F64)?.to_vec()?;
        if let Some(last) = state.opt("last_lrs") {
            self.last_lrs = last.to_dtype(DType::F64)?.to_vec()?;
        }
        Ok(())
    }
}

/// The learning rates of all groups.
fn lrs(optimizer: &impl LearningRates) -> Vec<f64> {
    let lr = |group| optimizer.option(group, "lr")?.first().copied();
    (0..optimizer.groups()).filter_map(lr).collect()
}

fn set_lr(optimizer: &mut impl LearningRates, group: usize, lr: f64) {
    // Every optimiser has one.
    optimizer.set_option(group, "lr", &[lr]);
}

/// Schedules: documentation, name, arguments that have to be given, options with their defaults, and the learning rate of
/// an epoch.
macro_rules! schedules {
    ($($(#[$about:meta])* $Schedule:ident(
        $($(#[$need:meta])* $needed:ident: $Needed:ty),* $(,)?
    ) {
        $($(#[$may:meta])* $option:ident: $Option:ty = $default:expr,)*
    } => |$s:ident, $epoch:ident, $base:ident, $current:ident| $lr:expr;)*) => {
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

                $(
                    #[doc = concat!("The same with another `", stringify!($option), "`.")]
                    #[must_use]
                    pub fn $option(mut self, $option: impl rustorch_tensor::Setting<$Option>) -> Self {
                        self.$option = rustorch_tensor::Setting::setting($option);
                        self
                    }
                )*
            }

            impl Schedule for $Schedule {
                fn lr(&self, $epoch: usize, $base: f64, $current: f64) -> RusTorchResult<f64> {
                    let $s = self;
                    Ok($lr)
                }
            }
        )*
    };
}

schedules! {
    /// Times `gamma` every `step_size` epochs.
    StepLR(
        /// Epochs between.
        step_size: usize,
    ) {
        /// The factor.
        gamma: f64 = 0.1,
    } => |s, epoch, _base, current| {
        let changes = epoch > 0 && s.step_size > 0 && epoch.is_multiple_of(s.step_size);
        if changes { current * s.gamma } else { current }
    };
    /// Times `gamma` at each of some epochs.
    MultiStepLR(
        /// The epochs; one that is there twice counts twice.
        milestones: Vec<usize>,
    ) {
        /// The factor.
        gamma: f64 = 0.1,
    } => |s, epoch, _base, current| {
        let times = s.milestones.iter().filter(|&&milestone| milestone == epoch).count();
        current * s.gamma.powi(times as i32)
    };
    /// Times `factor` until an epoch.
    ConstantLR() {
        /// The factor.
        factor: f64 = 1.0 / 3.0,
        /// The epoch from which on it is the first one again.
        total_iters: usize = 5,
    } => |s, epoch, _base, current| match epoch {
        0 => current * s.factor,
        epoch if epoch == s.total_iters => current / s.factor,
        _ => current,
    };
    /// Times a factor that changes evenly until an epoch.
    LinearLR() {
        /// The first factor.
        start_factor: f64 = 1.0 / 3.0,
        /// The last factor.
        end_factor: f64 = 1.0,
        /// The epoch of the last factor.
        total_iters: usize = 5,
    } => |s, epoch, _base, current| {
        let (total, way) = (s.total_iters as f64, s.end_factor - s.start_factor);
        match epoch {
            0 => current * s.start_factor,
            epoch if epoch > s.total_iters => current,
            epoch => {
                let before = total * s.start_factor + (epoch as f64 - 1.0) * way;
                current * (1.0 + way / before)
            }
        }
    };
    /// Times `gamma` every epoch.
    ExponentialLR(
        /// The factor.
        gamma: f64,
    ) {} => |s, epoch, _base, current| if epoch == 0 { current } else { current * s.gamma };
    /// Down to 0 by a power.
    PolynomialLR() {
        /// The epoch at which it is 0.
        total_iters: usize = 5,
        /// The exponent.
        power: f64 = 1.0,
    } => |s, epoch, _base, current| {
        let left = |epoch: f64| 1.0 - epoch / s.total_iters as f64;
        match epoch == 0 || epoch > s.total_iters {
            true => current,
            false => current * (left(epoch as f64) / left(epoch as f64 - 1.0)).powf(s.power),
        }
    };
    /// Down to `eta_min` along half a cosine, and up again ([Loshchilov and Hutter](https://arxiv.org/abs/1608.03983)).
    CosineAnnealingLR(
        /// Epochs on the way down.
        t_max: usize,
    ) {
        /// The smallest one.
        eta_min: f64 = 0.0,
    } => |s, epoch, base, current| {
        let height = |epoch: f64| 1.0 + (PI * epoch / s.t_max as f64).cos();
        match epoch {
            0 => current,
            // The one before is the smallest, of which no other follows by a factor.
            epoch if (epoch + s.t_max - 1).is_multiple_of((2 * s.t_max).max(1)) => {
                current + (base - s.eta_min) * (1.0 - (PI / s.t_max as f64).cos()) / 2.0
            }
            epoch => {
                let (now, before) = (height(epoch as f64), height(epoch as f64 - 1.0));
                now / before * (current - s.eta_min) + s.eta_min
            }
        }
    };
    /// Down to `eta_min` along half a cosine, and at once up again ([Loshchilov and Hutter](https://arxiv.org/abs/1608.03983)).
    CosineAnnealingWarmRestarts(
        /// Epochs of the first way down.
        t_0: usize,
    ) {
        /// How many times as long each way is as the one before.
        t_mult: usize = 1,
        /// The smallest one.
        eta_min: f64 = 0.0,
    } => |s, epoch, base, _current| {
        let (mut at, mut length) = (epoch, s.t_0.max(1));
        while at >= length {
            at -= length;
            length *= s.t_mult.max(1);
        }
        let height = 1.0 + (PI * at as f64 / length as f64).cos();
        s.eta_min + (base - s.eta_min) * height / 2.0
    };
    /// To the learning rate at which weights are averaged ([Izmailov et al.](https://arxiv.org/abs/1803.05407)), and then the
    /// same.
    SWALR(
        /// The last one.
        swa_lr: f64,
    ) {
        /// The epochs until then.
        anneal_epochs: usize = 10,
        /// How it changes.
        anneal_strategy: AnnealStrategy = AnnealStrategy::Cos,
    } => |s, epoch, _base, current| {
        let epoch = if s.anneal_epochs == 0 { epoch.max(1) } else { epoch } as f64;
        let part = |epoch: f64| {
            let t = (epoch / s.anneal_epochs.max(1) as f64).clamp(0.0, 1.0);
            s.anneal_strategy.between(0.0, 1.0, t)
        };
        let (before, now) = (part(epoch - 1.0), part(epoch));
        let first = match before == 1.0 {
            true => s.swa_lr,
            false => (current - before * s.swa_lr) / (1.0 - before),
        };
        s.swa_lr * now + first * (1.0 - now)
    };
}

/// By PyTorch's defaults.
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

/// How a number changes to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AnnealStrategy {
    /// Along half a cosine.
    #[default]
    Cos,
    /// Evenly.
    Linear,
}

impl rustorch_tensor::Converted for AnnealStrategy {}

impl AnnealStrategy {
    /// The number at a part of the way.
    fn between(self, start: f64, end: f64, part: f64) -> f64 {
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

/// The learning rate before times a function of the epoch.
pub struct MultiplicativeLR<F>(pub F);

impl<F: Fn(usize) -> f64 + Send> Schedule for MultiplicativeLR<F> {
    fn lr(&self, epoch: usize, _: f64, current: f64) -> RusTorchResult<f64> {
        Ok(if epoch == 0 {
            current
        } else {
            current * (self.0)(epoch)
        })
    }
}

/// Schedules one behind the other, each of which begins with the first learning rate.
pub struct SequentialLR {
    schedules: Vec<Box<dyn Schedule>>,
    milestones: Vec<usize>,
}

#[track_calls(SequentialLR)]
impl SequentialLR {
    /// Schedules, and the epochs at which all but the first begin.
    ///
    /// # Errors
    /// Not one epoch less than schedules; epochs that do not rise.
    pub fn new(
        schedules: Vec<Box<dyn Schedule>>,
        milestones: impl Into<Vec<usize>>,
    ) -> RusTorchResult<Self> {
        let milestones = milestones.into();
        let fits = schedules.len() == milestones.len() + 1 && milestones.is_sorted();
        let got = format_args!("{milestones:?} for {} schedules", schedules.len());
        require(
            "SequentialLR",
            fits,
            "rising epochs, one for each schedule but the first",
            got,
        )?;
        Ok(Self {
            schedules,
            milestones,
        })
    }
}

impl Schedule for SequentialLR {
    fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64> {
        let begun = self
            .milestones
            .partition_point(|&milestone| milestone <= epoch);
        let since = epoch
            - begun
                .checked_sub(1)
                .map_or(0, |before| self.milestones[before]);
        let current = if since == 0 { base } else { current };
        self.schedules[begun].lr(since, base, current)
    }
}

/// Schedules of which each changes what the one before it made: `ChainedScheduler`.
pub struct ChainedScheduler(pub Vec<Box<dyn Schedule>>);

impl Schedule for ChainedScheduler {
    fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64> {
        let mut schedules = self.0.iter();
        schedules.try_fold(current, |current, schedule| {
            schedule.lr(epoch, base, current)
        })
    }
}

/// How the heights of [`CyclicLR`]'s cycles change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CyclicMode {
    /// All are the same.
    #[default]
    Triangular,
    /// Each is half as high as the one before.
    Triangular2,
    /// Times `gamma` with each step.
    ExpRange,
}

impl rustorch_tensor::Converted for CyclicMode {}

/// Up and down between two learning rates ([Smith](https://arxiv.org/abs/1506.01186)), and momentum the other way.
#[derive(Clone, PartialEq, Debug)]
pub struct CyclicLR {
    /// The smallest one.
    pub base_lr: f64,
    /// The largest one.
    pub max_lr: f64,
    /// Steps up.
    pub step_size_up: usize,
    /// Steps down; `None`: as many.
    pub step_size_down: Option<usize>,
    /// How heights change.
    pub mode: CyclicMode,
    /// By what, with each step.
    pub gamma: f64,
    /// The smallest and largest momentum, if it changes, too.
    pub momentum: Option<[f64; 2]>,
}

impl CyclicLR {
    /// Between these two, by PyTorch's defaults.
    pub fn new(base_lr: f64, max_lr: f64) -> Self {
        Self {
            base_lr,
            max_lr,
            step_size_up: 2000,
            step_size_down: None,
            mode: CyclicMode::Triangular,
            gamma: 1.0,
            momentum: Some([0.8, 0.9]),
        }
    }

    /// How far up a step is, with the height of its cycle.
    fn height(&self, step: usize) -> f64 {
        let up = self.step_size_up.max(1) as f64;
        let total = up + self.step_size_down.map_or(up, |down| down as f64);
        let (ratio, step) = (up / total, step as f64);
        let cycle = (1.0 + step / total).floor();
        let x = 1.0 + step / total - cycle;
        let scale = if x <= ratio {
            x / ratio
        } else {
            (x - 1.0) / (ratio - 1.0)
        };
        scale
            * match self.mode {
                CyclicMode::Triangular => 1.0,
                CyclicMode::Triangular2 => 1.0 / 2f64.powf(cycle - 1.0),
                CyclicMode::ExpRange => self.gamma.powf(step),
            }
    }
}

impl Schedule for CyclicLR {
    fn lr(&self, epoch: usize, base: f64, _: f64) -> RusTorchResult<f64> {
        Ok(base + (self.max_lr - base) * self.height(epoch))
    }

    fn first_lr(&self) -> Option<f64> {
        Some(self.base_lr)
    }

    fn momentum(&self, epoch: usize) -> Option<f64> {
        let [base, max] = self.momentum?;
        Some(max - (max - base) * self.height(epoch))
    }
}

/// Up to a learning rate and down to nearly 0 once ([Smith and Topin](https://arxiv.org/abs/1708.07120)), and momentum the
/// other way.
#[derive(Clone, PartialEq, Debug)]
pub struct OneCycleLR {
    /// The largest one.
    pub max_lr: f64,
    /// All steps.
    pub total_steps: usize,
    /// Which part of them goes up.
    pub pct_start: f64,
    /// How it changes.
    pub anneal_strategy: AnnealStrategy,
    /// The smallest and largest momentum, if it changes, too.
    pub momentum: Option<[f64; 2]>,
    /// How many times as large the largest one is as the first.
    pub div_factor: f64,
    /// How many times as large the first one is as the last.
    pub final_div_factor: f64,
    /// Does it go down to the first one as it went up, and then to the last?
    pub three_phase: bool,
}

impl OneCycleLR {
    /// Up to this one in so many steps, by PyTorch's defaults.
    pub fn new(max_lr: f64, total_steps: usize) -> Self {
        Self {
            max_lr,
            total_steps,
            pct_start: 0.3,
            anneal_strategy: AnnealStrategy::Cos,
            momentum: Some([0.85, 0.95]),
            div_factor: 25.0,
            final_div_factor: 1e4,
            three_phase: false,
        }
    }

    /// A number of a step that is `low` at first, `high` where the learning rate is largest, and `last` at last.
    fn at(&self, step: usize, [low, high, last]: [f64; 3]) -> f64 {
        let total = self.total_steps as f64;
        let (up, end) = (self.pct_start * total - 1.0, total - 1.0);
        let phases = match self.three_phase {
            true => vec![(up, low, high), (2.0 * up, high, low), (end, low, last)],
            false => vec![(up, low, high), (end, high, last)],
        };
        let (mut start, step) = (0.0, step as f64);
        for (i, &(until, from, to)) in phases.iter().enumerate() {
            if step <= until || i + 1 == phases.len() {
                return self
                    .anneal_strategy
                    .between(from, to, (step - start) / (until - start));
            }
            start = until;
        }
        last
    }
}

impl Schedule for OneCycleLR {
    fn lr(&self, epoch: usize, _: f64, _: f64) -> RusTorchResult<f64> {
        let total = self.total_steps;
        require(
            "OneCycleLR",
            epoch <= total,
            format_args!("at most {total} steps"),
            epoch,
        )?;
        let first = self.max_lr / self.div_factor;
        Ok(self.at(epoch, [first, self.max_lr, first / self.final_div_factor]))
    }

    fn momentum(&self, epoch: usize) -> Option<f64> {
        let [base, max] = self.momentum?;
        Some(self.at(epoch, [max, base, max]))
    }
}

/// Times `factor` where a figure has become no better for some epochs.
#[derive(Clone, PartialEq, Debug)]
pub struct ReduceLROnPlateau {
    /// Is larger better?
    pub is_max: bool,
    /// The factor.
    pub factor: f64,
    /// For how many epochs it may become no better.
    pub patience: usize,
    /// By how much better is better.
    pub threshold: f64,
    /// Is that a difference, not a part of the best figure?
    pub is_absolute: bool,
    /// How many epochs do not count after a change.
    pub cooldown: usize,
    /// The smallest learning rate.
    pub min_lr: f64,
    /// The least change that is made.
    pub eps: f64,
    best: Option<f64>,
    bad_epochs: usize,
    cooling: usize,
}

impl Default for ReduceLROnPlateau {
    fn default() -> Self {
        Self {
            is_max: false,
            factor: 0.1,
            patience: 10,
            threshold: 1e-4,
            is_absolute: false,
            cooldown: 0,
            min_lr: 0.0,
            eps: 1e-8,
            best: None,
            bad_epochs: 0,
            cooling: 0,
        }
    }
}

#[track_calls(ReduceLROnPlateau)]
impl ReduceLROnPlateau {
    fn is_better(&self, figure: f64) -> bool {
        let Some(best) = self.best else {
            return !figure.is_nan();
        };
        match (self.is_max, self.is_absolute) {
            (false, false) => figure < best * (1.0 - self.threshold),
            (false, true) => figure < best - self.threshold,
            (true, false) => figure > best * (1.0 + self.threshold),
            (true, true) => figure > best + self.threshold,
        }
    }

    /// Sets the learning rates after an epoch with this figure.
    ///
    /// # Errors
    /// A factor of 1 or more.
    pub fn step(&mut self, optimizer: &mut impl LearningRates, figure: f64) -> RusTorchResult<()> {
        require(
            "ReduceLROnPlateau",
            self.factor < 1.0,
            "a factor below 1",
            self.factor,
        )?;
        match self.is_better(figure) {
            true => (self.best, self.bad_epochs) = (Some(figure), 0),
            false => self.bad_epochs += 1,
        }
        if self.cooling > 0 {
            (self.cooling, self.bad_epochs) = (self.cooling - 1, 0);
        }
        if self.bad_epochs > self.patience {
            (self.cooling, self.bad_epochs) = (self.cooldown, 0);
            for (group, lr) in lrs(optimizer).into_iter().enumerate() {
                let next = (lr * self.factor).max(self.min_lr);
                if lr - next > self.eps {
                    set_lr(optimizer, group, next);
                }
            }
        }
        Ok(())
    }
}
