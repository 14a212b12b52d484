//! Learning rates.

use std::f64::consts::PI;

use crate::TrainingSettings;

/// A learning rate that rises linearly for some steps, and then falls along half a cosine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedule {
    highest: f64,
    lowest: f64,
    warmup: u64,
    steps: u64,
}

impl From<&TrainingSettings> for Schedule {
    fn from(settings: &TrainingSettings) -> Self {
        Self {
            highest: settings.lr,
            lowest: settings.min_lr,
            warmup: settings.warmup,
            steps: settings.steps,
        }
    }
}

impl Schedule {
    /// The learning rate of a step; the first step is 1.
    pub fn lr(&self, step: u64) -> f64 {
        if step <= self.warmup {
            return self.highest * step as f64 / self.warmup as f64;
        }
        let falling = self.steps.saturating_sub(self.warmup).max(1);
        let progress = ((step - self.warmup) as f64 / falling as f64).min(1.0);
        self.lowest + (self.highest - self.lowest) * 0.5 * (1.0 + (PI * progress).cos())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_and_falls() {
        let schedule = Schedule {
            highest: 1.0,
            lowest: 0.2,
            warmup: 4,
            steps: 12,
        };
        let near = |step, lr: f64| assert!((schedule.lr(step) - lr).abs() < 1e-12, "{step}");
        near(1, 0.25);
        near(4, 1.0);
        near(8, 0.6);
        near(12, 0.2);
        near(20, 0.2);
        let flat = Schedule {
            warmup: 0,
            ..schedule
        };
        assert!(flat.lr(1) < 1.0 && flat.lr(1) > 0.98);
    }
}
