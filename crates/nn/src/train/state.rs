//! The training state as named tensors.

use rustorch_files::Tensors;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::{GeneratorState, RusTorchResult, Tensor, default_generator};

use super::TrainStep;
use crate::error::require;
use crate::nn::Module;
use crate::optim::Rule;

/// Version of [`TrainStep::state_dict`].
const VERSION: i64 = 1;

#[track_calls(TrainStep)]
impl<M: Module, R: Rule> TrainStep<M, R> {
    /// The complete training state by name: `module.…`, `optimizer.…`, `scheduler.…`, `scaler.…`,
    /// the number of steps, the state of the default generator, and accumulated gradients. The
    /// tensors are handles on memory that later steps overwrite. Files keep the present values.
    ///
    /// # Errors
    /// Fails for sizes too large for memory.
    pub fn state_dict(&self) -> RusTorchResult<Tensors> {
        let mut state = Tensors::new();
        let generator = default_generator().state();
        let numbers = [
            VERSION,
            self.steps as i64,
            self.batches as i64,
            generator.seed as i64,
            generator.drawn as i64,
        ];
        state.insert("train", Tensor::from_slice(&numbers, numbers.len())?);
        let mut add = |prefix: &str, part: Tensors| {
            for (name, tensor) in part.iter() {
                state.insert(format!("{prefix}{name}"), tensor.clone());
            }
        };
        add("module.", self.module.state_dict());
        add("optimizer.", self.optimizer.state_dict()?);
        if let Some(scheduler) = &self.scheduler {
            add("scheduler.", scheduler.state_dict()?);
        }
        if let Some(scaler) = &self.scaler {
            add("scaler.", scaler.state_dict());
        }
        for (i, sum) in self.sums.iter().enumerate().filter(|_| self.batches > 0) {
            state.insert(format!("sums.{i}"), sum.clone());
        }
        Ok(state)
    }

    /// Loads the result of [`TrainStep::state_dict`], also after a loss with a device. Later steps
    /// have the results of an uninterrupted run.
    ///
    /// # Errors
    /// Fails if the state has another format or a newer version, or is for another module or
    /// optimiser. Also fails if one side lacks a schedule or scaler.
    pub fn load_state_dict(&mut self, state: &Tensors) -> RusTorchResult<()> {
        const NAME: &str = "load_state_dict";
        let numbers = state.opt("train").filter(|x| x.dtype() == DType::I64);
        let numbers = numbers.map(|x| x.to_vec::<i64>()).transpose()?;
        let version = numbers
            .as_ref()
            .and_then(|numbers| numbers.first().copied());
        let expected = format_args!("a state of training of version {VERSION}");
        let got = match version {
            Some(version) => format!("version {version} (a newer rustorch reads it)"),
            None => "the state of something else".to_owned(),
        };
        require(NAME, version.is_none_or(|v| v <= VERSION), expected, &got)?;
        let Some(&[VERSION, steps, batches, seed, drawn]) = numbers.as_deref() else {
            return require(NAME, false, expected, got);
        };
        let count = state
            .names()
            .filter(|name| name.starts_with("sums."))
            .count();
        let sums = (0..count).map(|i| state.get(&format!("sums.{i}")).cloned());
        let sums: Option<Vec<Tensor>> = sums.map(Result::ok).collect();
        let expected = "sums of gradients with no gap";
        require(NAME, sums.is_some(), expected, "others")?;
        let parts = [
            ("schedule", "scheduler.", self.scheduler.is_some()),
            ("scaler", "scaler.", self.scaler.is_some()),
        ];
        for (what, prefix, is_own) in parts {
            let is_there = state.names().any(|name| name.starts_with(prefix));
            let (expected, got) = match is_own {
                true => (format!("the state of a {what}"), "none"),
                false => (format!("no {what}"), "the state of one"),
            };
            require(NAME, is_there == is_own, expected, got)?;
        }
        let scaler = self.scaler.as_ref();
        let scaler = scaler.map(|scaler| scaler.with_state(&state.under("scaler.")));
        let scaler = scaler.transpose()?;
        let optimizer = self
            .optimizer
            .check_state_dict(&state.under("optimizer."))?;
        if let Some(scheduler) = &mut self.scheduler {
            let before = scheduler.state_dict()?;
            scheduler.load_state_dict(&state.under("scheduler."))?;
            let loaded = self.module.load_state_dict(&state.under("module."), true);
            if let Err(error) = loaded {
                scheduler.load_state_dict(&before)?;
                return Err(error);
            }
        } else {
            self.module.load_state_dict(&state.under("module."), true)?;
        }
        self.optimizer.install(optimizer);
        self.scaler = scaler;
        let own = |sum: &Tensor| {
            let mut memory = sum.zeros_like()?;
            memory.copy_(&sum.detach())?;
            memory.eval()?;
            Ok(memory)
        };
        let sums = sums.unwrap_or_default();
        self.sums = sums.iter().map(own).collect::<RusTorchResult<_>>()?;
        (self.steps, self.batches) = (steps as u64, batches as usize);
        self.forget_programs();
        default_generator().set_state(GeneratorState {
            seed: seed as u64,
            drawn: drawn as u64,
        });
        Ok(())
    }
}
