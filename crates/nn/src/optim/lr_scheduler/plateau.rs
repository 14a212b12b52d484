//! A schedule that follows a metric.

use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor};

use super::schedule::{doubles, lrs, set_lr};
use super::simple::{arguments, finite};
use crate::error::{require, unexpected};
use crate::optim::LearningRates;
use crate::optim::optimizer::number;

/// Multiplies the learning rate by `factor` if a metric has not improved for some epochs.
///
/// ```
/// use rustorch_nn::optim::lr_scheduler::ReduceLROnPlateau;
/// let plateau = ReduceLROnPlateau::new().factor(0.5).patience(3usize);
/// assert_eq!((plateau.factor, plateau.patience), (0.5, 3));
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct ReduceLROnPlateau {
    /// Whether a larger metric is better.
    pub is_max: bool,
    /// The factor.
    pub factor: f64,
    /// Number of epochs without improvement that are tolerated.
    pub patience: usize,
    /// The smallest change that counts as an improvement.
    pub threshold: f64,
    /// Whether the threshold is absolute, not relative to the best metric.
    pub is_absolute: bool,
    /// Number of epochs that are ignored after a change.
    pub cooldown: usize,
    /// The smallest learning rate.
    pub min_lr: f64,
    /// The smallest change that is applied.
    pub eps: f64,
    best: Option<f64>,
    bad_epochs: usize,
    cooling: usize,
    last_epoch: usize,
    last_lrs: Vec<f64>,
}

arguments!(ReduceLROnPlateau {
    is_max: bool,
    factor: f64,
    patience: usize,
    threshold: f64,
    is_absolute: bool,
    cooldown: usize,
    min_lr: f64,
    eps: f64,
});

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
            last_epoch: 0,
            last_lrs: Vec::new(),
        }
    }
}

#[track_calls(ReduceLROnPlateau)]
impl ReduceLROnPlateau {
    /// A schedule with PyTorch's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The best figure so far; at first the worst possible one.
    fn best(&self) -> f64 {
        self.best.unwrap_or(match self.is_max {
            true => f64::NEG_INFINITY,
            false => f64::INFINITY,
        })
    }

    fn is_better(&self, figure: f64) -> bool {
        let best = self.best();
        match (self.is_max, self.is_absolute) {
            (false, false) => figure < best * (1.0 - self.threshold),
            (false, true) => figure < best - self.threshold,
            (true, false) => figure > best * (1.0 + self.threshold),
            (true, true) => figure > best + self.threshold,
        }
    }

    /// Updates the learning rates after an epoch with this metric.
    ///
    /// # Errors
    /// Fails for a factor of 1 or more, or for another argument that is NaN.
    pub fn step(&mut self, optimizer: &mut impl LearningRates, figure: f64) -> RusTorchResult<()> {
        self.check()?;
        self.last_epoch += 1;
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
        self.last_lrs = lrs(optimizer);
        Ok(())
    }

    fn check(&self) -> RusTorchResult<()> {
        const NAME: &str = "ReduceLROnPlateau";
        let fits = self.factor < 1.0 && self.factor.is_finite();
        require(NAME, fits, "a factor below 1", self.factor)?;
        let numbers = [("threshold", self.threshold), ("min_lr", self.min_lr)];
        finite(NAME, &numbers)?;
        finite(NAME, &[("eps", self.eps)])
    }

    /// The learning rates after the last step, one for each group.
    pub fn get_last_lr(&self) -> &[f64] {
        &self.last_lrs
    }

    /// Number of steps so far.
    pub fn last_epoch(&self) -> usize {
        self.last_epoch
    }

    /// The best metric, counts of steps and the last learning rates, as tensors with PyTorch's
    /// names.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn state_dict(&self) -> RusTorchResult<Tensors> {
        let mut tensors = Tensors::new();
        tensors.insert("best", Tensor::scalar(self.best(), DType::F64)?);
        let counts = [
            ("num_bad_epochs", self.bad_epochs),
            ("cooldown_counter", self.cooling),
            ("last_epoch", self.last_epoch),
        ];
        for (name, count) in counts {
            tensors.insert(name, Tensor::scalar(count as i64, DType::I64)?);
        }
        let last_lrs = Tensor::from_slice(&self.last_lrs, self.last_lrs.len())?;
        tensors.insert("last_lrs", last_lrs);
        Ok(tensors)
    }

    /// Loads the result of [`ReduceLROnPlateau::state_dict`]; the learning rates are in the
    /// optimiser's own state.
    ///
    /// # Errors
    /// Fails for the state of another object.
    pub fn load_state_dict(&mut self, state: &Tensors) -> RusTorchResult<()> {
        let find = |name: &'static str| match state.opt(name) {
            Some(tensor) => Ok(tensor),
            None => Err(unexpected(
                "load_state_dict",
                format_args!("{name} of ReduceLROnPlateau"),
                "the state of something else",
            )),
        };
        let count = |name| Ok::<_, RusTorchError>(number(find(name)?, name)? as usize);
        let best = number(find("best")?, "best")?;
        let (bad_epochs, cooling) = (count("num_bad_epochs")?, count("cooldown_counter")?);
        let last_epoch = count("last_epoch")?;
        self.last_lrs = doubles(find("last_lrs")?)?;
        self.best = Some(best);
        (self.bad_epochs, self.cooling) = (bad_epochs, cooling);
        self.last_epoch = last_epoch;
        Ok(())
    }
}
