//! The trait of all schedules, and a schedule's progress.

use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

use crate::error::{require, unexpected};
use crate::optim::LearningRates;
use crate::optim::optimizer::{Scheduled, number};

/// Rule that computes each learning rate from the one before.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a schedule of learning rates",
    label = "expected a schedule, such as `StepLR`",
    note = "`?` behind a call that returns a `RusTorchResult` of a schedule gives the schedule"
)]
pub trait Schedule: Send {
    /// The learning rate of an `epoch`; the first epoch is 0. `base` is the first learning rate of the group, and
    /// `current` the previous one.
    ///
    /// # Errors
    /// Fails for a schedule that has ended.
    fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64>;

    /// The first learning rate, if the schedule defines it.
    fn first_lr(&self) -> Option<f64> {
        None
    }

    /// The momentum of an epoch, or the first beta, if the schedule defines it.
    fn momentum(&self, _epoch: usize) -> Option<f64> {
        None
    }

    /// Checks the arguments.
    ///
    /// # Errors
    /// Fails for the first invalid argument.
    fn check(&self) -> RusTorchResult<()> {
        Ok(())
    }

    /// Stores in a group the initial values for other schedules of the optimiser.
    fn prepare(&self, _group: &mut Scheduled) {}

    /// The learning rate and the momentum of a group at a step.
    ///
    /// # Errors
    /// The errors of [`Schedule::lr`].
    fn rates(&self, at: &Moment, _group: &Scheduled) -> RusTorchResult<(f64, Option<f64>)> {
        let lr = self.lr(at.epoch, at.base, at.from())?;
        Ok((lr, self.momentum(at.epoch)))
    }

    /// Sets the rates of epoch 0.
    ///
    /// # Errors
    /// The errors of [`Schedule::check`]. Also fails for a schedule of momentum if the optimiser
    /// has none.
    fn begin(
        &self,
        progress: &mut Progress,
        optimizer: &mut dyn LearningRates,
    ) -> RusTorchResult<()> {
        self.check()?;
        if let Some(lr) = self.first_lr() {
            let groups = optimizer.groups();
            set_lrs(optimizer, &vec![lr; groups]);
        }
        for group in 0..optimizer.groups() {
            if let Some(scheduled) = optimizer.scheduled(group) {
                self.prepare(scheduled);
            }
        }
        progress.base_lrs = initial_lrs(optimizer);
        self.advance(progress, optimizer, Turn::First)?;
        if let Some(lr) = self.first_lr() {
            progress.base_lrs.fill(lr);
        }
        Ok(())
    }

    /// Sets the rates of a later epoch.
    ///
    /// # Errors
    /// Fails for a schedule that has ended, or a learning rate that is NaN.
    fn advance(
        &self,
        progress: &mut Progress,
        optimizer: &mut dyn LearningRates,
        turn: Turn,
    ) -> RusTorchResult<()> {
        const NAME: &str = "LrScheduler";
        progress.turn(turn);
        for group in 0..optimizer.groups() {
            let at = progress.moment(turn, group, lr(optimizer, group));
            let scheduled = optimizer.scheduled(group).copied().unwrap_or_default();
            let (lr, momentum) = self.rates(&at, &scheduled)?;
            let got = format_args!("NaN in epoch {}", at.epoch);
            require(NAME, !lr.is_nan(), "a learning rate that is a number", got)?;
            set_lr(optimizer, group, lr);
            if let Some(momentum) = momentum {
                let expected = "an optimiser with momentum or betas (or no cycle_momentum)";
                let is_set = set_momentum(optimizer, group, momentum);
                require(NAME, is_set, expected, "neither")?;
            }
        }
        Ok(())
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

    fn check(&self) -> RusTorchResult<()> {
        (**self).check()
    }

    fn prepare(&self, group: &mut Scheduled) {
        (**self).prepare(group);
    }

    fn rates(&self, at: &Moment, group: &Scheduled) -> RusTorchResult<(f64, Option<f64>)> {
        (**self).rates(at, group)
    }

    fn begin(
        &self,
        progress: &mut Progress,
        optimizer: &mut dyn LearningRates,
    ) -> RusTorchResult<()> {
        (**self).begin(progress, optimizer)
    }

    fn advance(
        &self,
        progress: &mut Progress,
        optimizer: &mut dyn LearningRates,
        turn: Turn,
    ) -> RusTorchResult<()> {
        (**self).advance(progress, optimizer, turn)
    }
}

/// The reason for a schedule's evaluation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// The schedule begins.
    First,
    /// An epoch has passed.
    Next,
    /// It begins after another one, from the first learning rate.
    Again,
}

/// The step and the group of a schedule's evaluation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moment {
    /// Why.
    pub turn: Turn,
    /// The epoch, from 0.
    pub epoch: usize,
    /// Number of steps so far.
    pub steps: usize,
    /// The first learning rate.
    pub base: f64,
    /// The previous learning rate.
    pub current: f64,
}

impl Moment {
    /// The moment of a schedule that has always stood alone.
    pub(super) fn alone(epoch: usize, base: f64, current: f64) -> Self {
        let turn = if epoch == 0 { Turn::First } else { Turn::Next };
        Self {
            turn,
            epoch,
            steps: epoch,
            base,
            current,
        }
    }

    /// The learning rate that the next one is computed from.
    pub fn from(&self) -> f64 {
        match self.turn {
            Turn::Again => self.base,
            Turn::First | Turn::Next => self.current,
        }
    }
}

/// Progress of a schedule, and of nested schedules.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Progress {
    /// Below 0 where the first schedule of a [`SequentialLR`](super::SequentialLR) waits for its first step.
    epoch: i64,
    steps: usize,
    base_lrs: Vec<f64>,
    pub(super) parts: Vec<Self>,
}

impl Progress {
    /// Progress of a schedule that has others in it.
    pub(super) fn of_parts(optimizer: &mut dyn LearningRates, parts: Vec<Self>) -> Self {
        Self {
            base_lrs: initial_lrs(optimizer),
            parts,
            ..Self::default()
        }
    }

    pub(super) fn epoch(&self) -> usize {
        self.epoch.max(0) as usize
    }

    pub(super) fn groups(&self) -> usize {
        self.base_lrs.len()
    }

    pub(super) fn base_lrs(&self) -> &[f64] {
        &self.base_lrs
    }

    pub(super) fn turn(&mut self, turn: Turn) {
        (self.epoch, self.steps) = match turn {
            Turn::First => (0, 0),
            Turn::Next => (self.epoch + 1, self.steps + 1),
            Turn::Again => (0, self.steps),
        };
    }

    /// Takes a step back, of the schedules that are none of schedules.
    pub(super) fn undo(&mut self) {
        match self.parts.is_empty() {
            true => self.epoch -= 1,
            false => self.parts.iter_mut().for_each(Self::undo),
        }
    }

    fn moment(&self, turn: Turn, group: usize, current: f64) -> Moment {
        Moment {
            turn,
            epoch: self.epoch(),
            steps: self.steps,
            base: self.base_lrs.get(group).copied().unwrap_or(current),
            current,
        }
    }

    /// Adds it to a state, under a prefix.
    pub(super) fn save(&self, prefix: &str, state: &mut Tensors) -> RusTorchResult<()> {
        let counts = [("last_epoch", self.epoch), ("steps", self.steps as i64)];
        for (name, count) in counts {
            state.insert(
                format!("{prefix}{name}"),
                Tensor::scalar(count, DType::I64)?,
            );
        }
        let base_lrs = Tensor::from_slice(&self.base_lrs, self.base_lrs.len())?;
        state.insert(format!("{prefix}base_lrs"), base_lrs);
        let mut parts = self.parts.iter().enumerate();
        parts.try_for_each(|(i, part)| part.save(&format!("{prefix}schedules.{i}."), state))
    }

    /// Loads the progress that was saved under a prefix, for the same kind of schedule.
    pub(super) fn loaded(&self, prefix: &str, state: &Tensors) -> RusTorchResult<Self> {
        const NAME: &str = "load_state_dict";
        let find = |name: &str| state.opt(format!("{prefix}{name}").as_str());
        let (Some(epoch), Some(base)) = (find("last_epoch"), find("base_lrs")) else {
            let expected = format_args!("{prefix}last_epoch and {prefix}base_lrs");
            return Err(unexpected(NAME, expected, "the state of something else"));
        };
        let (groups, base_lrs) = (self.groups(), doubles(base)?);
        let expected = format_args!("{groups} {prefix}base_lrs");
        require(NAME, groups == base_lrs.len(), expected, base_lrs.len())?;
        let epoch = number(epoch, "last_epoch")? as i64;
        let steps = find("steps").map(|steps| number(steps, "steps"));
        let parts = self.parts.iter().enumerate();
        let parts = parts.map(|(i, part)| part.loaded(&format!("{prefix}schedules.{i}."), state));
        Ok(Self {
            epoch,
            steps: steps.transpose()?.unwrap_or(epoch as f64) as usize,
            base_lrs,
            parts: parts.collect::<RusTorchResult<_>>()?,
        })
    }
}

/// The numbers of a tensor.
pub(super) fn doubles(x: &Tensor) -> RusTorchResult<Vec<f64>> {
    x.to_dtype(DType::F64)?.flatten(0, -1)?.to_vec()
}

/// The learning rate of a group; every optimiser has one.
fn lr(optimizer: &dyn LearningRates, group: usize) -> f64 {
    let numbers = optimizer.option(group, "lr").unwrap_or_default();
    numbers.first().copied().unwrap_or(0.0)
}

/// The learning rates of all groups.
pub(crate) fn lrs(optimizer: &dyn LearningRates) -> Vec<f64> {
    let groups = 0..optimizer.groups();
    groups.map(|group| lr(optimizer, group)).collect()
}

pub(super) fn set_lr(optimizer: &mut dyn LearningRates, group: usize, lr: f64) {
    optimizer.set_option(group, "lr", &[lr]);
}

pub(super) fn set_lrs(optimizer: &mut dyn LearningRates, lrs: &[f64]) {
    for (group, &lr) in lrs.iter().enumerate() {
        set_lr(optimizer, group, lr);
    }
}

/// The learning rates that the first schedule of the optimiser began with.
fn initial_lrs(optimizer: &mut dyn LearningRates) -> Vec<f64> {
    let mut initial = lrs(optimizer);
    for (group, lr) in initial.iter_mut().enumerate() {
        if let Some(scheduled) = optimizer.scheduled(group) {
            *lr = *scheduled.initial_lr.get_or_insert(*lr);
        }
    }
    initial
}

/// Sets the momentum or the first beta of a group; `false` if it has neither.
fn set_momentum(optimizer: &mut dyn LearningRates, group: usize, momentum: f64) -> bool {
    match optimizer.option(group, "betas") {
        Some(mut betas) if !betas.is_empty() => {
            betas[0] = momentum;
            optimizer.set_option(group, "betas", &betas)
        }
        _ => optimizer.set_option(group, "momentum", &[momentum]),
    }
}
