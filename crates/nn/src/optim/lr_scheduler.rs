//! Learning rate schedules: `torch.optim.lr_scheduler`.
//!
//! A [`Schedule`] computes a learning rate from the one before, as PyTorch's chainable forms do;
//! [`LrScheduler`] sets it in an optimiser.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `schedule.rs` | [`Schedule`]: what all schedules do, and how far one has come |
//! | `simple.rs`, `cycles.rs` | the schedules |
//! | `composed.rs` | schedules of schedules |
//! | `plateau.rs` | [`ReduceLROnPlateau`], which goes by a figure |

mod composed;
mod cycles;
mod plateau;
mod schedule;
mod simple;

pub use composed::{ChainedScheduler, SequentialLR};
pub use cycles::{CyclicLR, CyclicMode, OneCycleLR};
pub use plateau::ReduceLROnPlateau;
pub use schedule::{Moment, Progress, Schedule, Turn};
pub use simple::{
    AnnealStrategy, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR,
    LambdaLR, LinearLR, MultiStepLR, MultiplicativeLR, PolynomialLR, SWALR, StepLR,
};

use rustorch_files::Tensors;
use rustorch_macros::track_calls;
use rustorch_tensor::warnings::warn_once;
use rustorch_tensor::{RusTorchResult, Tensor};

use super::LearningRates;
use crate::error::require;
use schedule::doubles;
pub(crate) use schedule::lrs;

/// Sets the learning rates of an optimiser's groups, epoch by epoch.
pub struct LrScheduler<S> {
    schedule: S,
    progress: Progress,
    last_lrs: Vec<f64>,
}

#[track_calls(LrScheduler)]
impl<S: Schedule> LrScheduler<S> {
    /// Sets the learning rates of epoch 0.
    ///
    /// # Errors
    /// Fails for an invalid argument. Also fails for a schedule of momentum if the optimiser has
    /// none.
    pub fn new(optimizer: &mut impl LearningRates, schedule: S) -> RusTorchResult<Self> {
        let mut progress = Progress::default();
        schedule.begin(&mut progress, optimizer)?;
        Ok(Self {
            schedule,
            progress,
            last_lrs: lrs(optimizer),
        })
    }

    /// Sets the learning rates of the next epoch. Before the optimiser's first step this is a warning, as in PyTorch:
    /// nothing is trained at the first learning rate.
    ///
    /// # Errors
    /// Fails for a schedule that has ended, or if the number of groups has changed.
    pub fn step(&mut self, optimizer: &mut impl LearningRates) -> RusTorchResult<()> {
        if self.last_epoch() == 0 && !optimizer.has_stepped() {
            warn_once(
                "LrScheduler",
                "the optimiser has made no step at the first learning rate; call its step before",
            );
        }
        self.advance(optimizer)
    }

    /// [`Self::step`] after a step of the optimiser that may have been skipped.
    pub(crate) fn advance(&mut self, optimizer: &mut impl LearningRates) -> RusTorchResult<()> {
        let (groups, known) = (optimizer.groups(), self.progress.groups());
        require(
            "LrScheduler",
            groups == known,
            format_args!("{known} groups, as at first"),
            groups,
        )?;
        (self.schedule).advance(&mut self.progress, optimizer, Turn::Next)?;
        self.last_lrs = lrs(optimizer);
        Ok(())
    }

    /// The learning rates that it set last, one for each group.
    pub fn get_last_lr(&self) -> &[f64] {
        &self.last_lrs
    }

    /// Number of steps so far.
    pub fn last_epoch(&self) -> usize {
        self.progress.epoch()
    }

    /// The first and last learning rates, and the number of steps, as named tensors. Tensors of
    /// nested schedules are at `schedules.0.` and so on.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn state_dict(&self) -> RusTorchResult<Tensors> {
        let mut tensors = Tensors::new();
        self.progress.save("", &mut tensors)?;
        tensors.insert(
            "last_lrs",
            Tensor::from_slice(&self.last_lrs, self.last_lrs.len())?,
        );
        Ok(tensors)
    }

    /// Loads the result of [`LrScheduler::state_dict`]; the learning rates are in the optimiser's
    /// own state.
    ///
    /// # Errors
    /// Fails for the state of another object, or for another number of groups.
    pub fn load_state_dict(&mut self, state: &Tensors) -> RusTorchResult<()> {
        let progress = self.progress.loaded("", state)?;
        if let Some(last) = state.opt("last_lrs") {
            self.last_lrs = doubles(last)?;
        }
        self.progress = progress;
        Ok(())
    }
}
