//! Schedules of learning rate and momentum.

use rustorch_tensor::RusTorchResult;

use super::schedule::{Moment, Schedule};
use super::simple::{AnnealStrategy, argument, arguments, finite};
use crate::error::require;
use crate::optim::optimizer::Scheduled;

/// Fails unless the bounds of a momentum are numbers.
fn check_momentum(schedule: &'static str, momentum: Option<[f64; 2]>) -> RusTorchResult<()> {
    let [base, max] = momentum.unwrap_or_default();
    finite(schedule, &[("base_momentum", base), ("max_momentum", max)])
}

/// Heights of [`CyclicLR`]'s cycles.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CyclicMode {
    /// All cycles have the same height.
    #[default]
    Triangular,
    /// Each is half as high as the one before.
    Triangular2,
    /// Multiplied by `gamma` at each step.
    ExpRange,
}

impl rustorch_tensor::Converted for CyclicMode {}

/// Moves up and down between two learning rates ([Smith](https://arxiv.org/abs/1506.01186)), and
/// momentum the other way.
#[derive(Clone, PartialEq, Debug)]
pub struct CyclicLR {
    /// The smallest learning rate.
    pub base_lr: f64,
    /// The largest learning rate.
    pub max_lr: f64,
    /// Steps up.
    pub step_size_up: usize,
    /// Number of steps down; `None`: the number of steps up.
    pub step_size_down: Option<usize>,
    /// Change of the cycles' heights.
    pub mode: CyclicMode,
    /// Factor of the height with each step.
    pub gamma: f64,
    /// The smallest and largest momentum, if it changes too.
    pub momentum: Option<[f64; 2]>,
}

arguments!(CyclicLR {
    step_size_up: usize,
    step_size_down: Option<usize>,
    mode: CyclicMode,
    gamma: f64,
    momentum: Option<[f64; 2]>,
});

impl CyclicLR {
    /// A schedule between these two rates, with PyTorch's defaults.
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

    /// Height of a step on its cycle, with the cycle's height.
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

    fn check(&self) -> RusTorchResult<()> {
        const NAME: &str = "CyclicLR";
        let numbers = [("base_lr", self.base_lr), ("max_lr", self.max_lr)];
        finite(NAME, &numbers)?;
        finite(NAME, &[("gamma", self.gamma)])?;
        let up = self.step_size_up;
        argument(NAME, "step_size_up", up, up > 0, "above 0")?;
        check_momentum(NAME, self.momentum)
    }

    fn first_lr(&self) -> Option<f64> {
        Some(self.base_lr)
    }

    fn prepare(&self, group: &mut Scheduled) {
        group.momentum = self.momentum.unwrap_or(group.momentum);
    }

    fn momentum(&self, epoch: usize) -> Option<f64> {
        let [base, max] = self.momentum?;
        Some(max - (max - base) * self.height(epoch))
    }
}

/// Rises to a learning rate and falls to nearly 0, once
/// ([Smith and Topin](https://arxiv.org/abs/1708.07120)); momentum moves the other way.
#[derive(Clone, PartialEq, Debug)]
pub struct OneCycleLR {
    /// The largest learning rate.
    pub max_lr: f64,
    /// Number of all steps.
    pub total_steps: usize,
    /// Fraction of the steps in which the learning rate rises.
    pub pct_start: f64,
    /// Curve of the change.
    pub anneal_strategy: AnnealStrategy,
    /// The smallest and largest momentum, if it changes too.
    pub momentum: Option<[f64; 2]>,
    /// Ratio of the largest rate to the first one.
    pub div_factor: f64,
    /// Ratio of the first rate to the last one.
    pub final_div_factor: f64,
    /// Uses three phases: falls back to the first rate, then to the last.
    pub three_phase: bool,
}

arguments!(OneCycleLR {
    pct_start: f64,
    anneal_strategy: AnnealStrategy,
    momentum: Option<[f64; 2]>,
    div_factor: f64,
    final_div_factor: f64,
    three_phase: bool,
});

impl OneCycleLR {
    /// A schedule up to this rate in this number of steps, with PyTorch's defaults.
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

    /// Its first learning rate and its last.
    fn ends(&self) -> [f64; 2] {
        let first = self.max_lr / self.div_factor;
        [first, first / self.final_div_factor]
    }

    /// A number of a step: `low` at first, `high` where the learning rate is largest, and `last` at last.
    fn at(&self, step: usize, [low, high, last]: [f64; 3]) -> f64 {
        let total = self.total_steps as f64;
        let (up, end) = (self.pct_start * total - 1.0, total - 1.0);
        let phases: &[_] = match self.three_phase {
            true => &[(up, low, high), (2.0 * up, high, low), (end, low, last)],
            false => &[(up, low, high), (end, high, last)],
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

    /// The rate at a step, from the numbers that a group keeps.
    fn rate(&self, step: usize, numbers: [f64; 3]) -> RusTorchResult<f64> {
        let total = self.total_steps;
        let expected = format_args!("at most {total} steps");
        require("OneCycleLR", step <= total, expected, step)?;
        Ok(self.at(step, numbers))
    }
}

impl Schedule for OneCycleLR {
    fn lr(&self, epoch: usize, _: f64, _: f64) -> RusTorchResult<f64> {
        let [first, last] = self.ends();
        self.rate(epoch, [first, self.max_lr, last])
    }

    fn momentum(&self, epoch: usize) -> Option<f64> {
        let [base, max] = self.momentum?;
        Some(self.at(epoch, [max, base, max]))
    }

    fn check(&self) -> RusTorchResult<()> {
        const NAME: &str = "OneCycleLR";
        let (total, part) = (self.total_steps, self.pct_start);
        argument(NAME, "total_steps", total, total > 0, "above 0")?;
        // No way leads up in one step.
        let fits = (0.0..=1.0).contains(&part) && part * total as f64 != 1.0;
        let expected = "between 0 and 1, and not of one step";
        argument(NAME, "pct_start", part, fits, expected)?;
        let [first, last] = self.ends();
        let numbers = [("max_lr", self.max_lr), ("max_lr / div_factor", first)];
        finite(NAME, &numbers)?;
        finite(NAME, &[("max_lr / div_factor / final_div_factor", last)])?;
        check_momentum(NAME, self.momentum)
    }

    fn prepare(&self, group: &mut Scheduled) {
        let [first, last] = self.ends();
        (group.initial_lr, group.max_lr, group.min_lr) = (Some(first), self.max_lr, last);
        group.momentum = self.momentum.unwrap_or(group.momentum);
    }

    /// Uses the numbers that the group keeps, as in PyTorch: with two such schedules on an optimiser, the second sets
    /// both cycles' bounds.
    fn rates(&self, at: &Moment, group: &Scheduled) -> RusTorchResult<(f64, Option<f64>)> {
        let first = group.initial_lr.unwrap_or(at.base);
        let lr = self.rate(at.epoch, [first, group.max_lr, group.min_lr])?;
        let [base, max] = group.momentum;
        let momentum = self.momentum.map(|_| self.at(at.epoch, [max, base, max]));
        Ok((lr, momentum))
    }
}
