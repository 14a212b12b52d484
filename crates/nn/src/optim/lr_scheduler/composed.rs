//! Schedules that combine other schedules.

use rustorch_macros::track_calls;
use rustorch_tensor::RusTorchResult;

use super::schedule::{Progress, Schedule, Turn, set_lrs};
use crate::error::require;
use crate::optim::LearningRates;

/// Begins the schedules in a schedule, one after the other.
fn begun(
    schedules: &[Box<dyn Schedule>],
    optimizer: &mut dyn LearningRates,
) -> RusTorchResult<Progress> {
    let mut parts = Vec::with_capacity(schedules.len());
    for schedule in schedules {
        let mut part = Progress::default();
        schedule.begin(&mut part, optimizer)?;
        parts.push(part);
    }
    Ok(Progress::of_parts(optimizer, parts))
}

/// Schedules in sequence; each begins with its first learning rate.
///
/// If the first schedule is itself a sequence, it begins with a step, as in PyTorch. So its epochs are one ahead.
pub struct SequentialLR {
    schedules: Vec<Box<dyn Schedule>>,
    milestones: Vec<usize>,
}

#[track_calls(SequentialLR)]
impl SequentialLR {
    /// Schedules, and the epochs at which all but the first begin.
    ///
    /// # Errors
    /// Fails unless there is one milestone less than schedules, and unless milestones rise.
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

    /// The schedule of an epoch.
    fn index(&self, epoch: usize) -> usize {
        self.milestones
            .partition_point(|&milestone| milestone <= epoch)
    }
}

impl Schedule for SequentialLR {
    fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64> {
        let index = self.index(epoch);
        let begun = index
            .checked_sub(1)
            .map_or(0, |before| self.milestones[before]);
        let current = if epoch == begun { base } else { current };
        self.schedules[index].lr(epoch - begun, base, current)
    }

    fn check(&self) -> RusTorchResult<()> {
        self.schedules.iter().try_for_each(Schedule::check)
    }

    fn begin(
        &self,
        progress: &mut Progress,
        optimizer: &mut dyn LearningRates,
    ) -> RusTorchResult<()> {
        *progress = begun(&self.schedules, optimizer)?;
        // All have begun, and set rates: the first one does so again.
        set_lrs(optimizer, progress.base_lrs());
        progress.undo();
        let first = self.index(0);
        self.schedules[first].advance(&mut progress.parts[first], optimizer, Turn::First)
    }

    fn advance(
        &self,
        progress: &mut Progress,
        optimizer: &mut dyn LearningRates,
        turn: Turn,
    ) -> RusTorchResult<()> {
        // One that is in another is begun by a step.
        progress.turn(match turn {
            Turn::First => Turn::Next,
            turn => turn,
        });
        let epoch = progress.epoch();
        let index = self.index(epoch);
        let is_milestone = index > 0 && self.milestones[index - 1] == epoch;
        let turn = match turn == Turn::Again || is_milestone {
            true => Turn::Again,
            false => Turn::Next,
        };
        self.schedules[index].advance(&mut progress.parts[index], optimizer, turn)
    }
}

/// A chain of schedules: each changes the result of the one before. PyTorch's `ChainedScheduler`.
pub struct ChainedScheduler(pub Vec<Box<dyn Schedule>>);

impl Schedule for ChainedScheduler {
    fn lr(&self, epoch: usize, base: f64, current: f64) -> RusTorchResult<f64> {
        let mut schedules = self.0.iter();
        schedules.try_fold(current, |current, schedule| {
            schedule.lr(epoch, base, current)
        })
    }

    fn check(&self) -> RusTorchResult<()> {
        let has_some = !self.0.is_empty();
        require("ChainedScheduler", has_some, "schedules", "none")?;
        self.0.iter().try_for_each(Schedule::check)
    }

    fn begin(
        &self,
        progress: &mut Progress,
        optimizer: &mut dyn LearningRates,
    ) -> RusTorchResult<()> {
        self.check()?;
        *progress = begun(&self.0, optimizer)?;
        Ok(())
    }

    fn advance(
        &self,
        progress: &mut Progress,
        optimizer: &mut dyn LearningRates,
        turn: Turn,
    ) -> RusTorchResult<()> {
        progress.turn(turn);
        if turn == Turn::Again {
            set_lrs(optimizer, progress.base_lrs());
        }
        for (i, (schedule, part)) in self.0.iter().zip(&mut progress.parts).enumerate() {
            // Each changes what the one before it made, when the chain begins again as well.
            let turn = match turn {
                Turn::Again if i > 0 && part.parts.is_empty() => Turn::First,
                Turn::Again => Turn::Again,
                Turn::First | Turn::Next => Turn::Next,
            };
            schedule.advance(part, optimizer, turn)?;
        }
        Ok(())
    }
}
