//! How much memory a step takes, told before it is made.

use std::fmt;

use rustorch_ir::TensorType;
use rustorch_runtime::{FailureClass, RunError, Storage, WorkingMemory};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor, runtime};

use super::TrainStep;
use super::program::{Kind, Program};
use crate::error::unexpected;
use crate::nn::Module;
use crate::optim::Rule;

/// How often a batch is halved to find one that fits.
const HALVINGS: usize = 12;

/// Bytes that a step of training takes at its peak.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepMemory {
    /// Parameters and buffers of the module.
    pub module: usize,
    /// States of the optimiser, and sums of gradients.
    pub states: usize,
    /// On each device what a step works in besides: values that gradients need, gradients, what is new.
    pub working: Vec<WorkingMemory>,
}

impl StepMemory {
    /// All of it.
    pub fn peak(&self) -> usize {
        let working = self.working.iter().map(|working| working.bytes);
        self.module + self.states + working.sum::<usize>()
    }
}

/// `12.3 MiB of parameters and buffers, 24.5 MiB of states, 512 MiB of values on cpu`.
impl fmt::Display for StepMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (module, states) = (Bytes(self.module), Bytes(self.states));
        write!(f, "{module} of parameters and buffers, {states} of states")?;
        let mut working = self.working.iter();
        working.try_for_each(|w| write!(f, ", {} of values on {}", Bytes(w.bytes), w.device))
    }
}

struct Bytes(usize);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        let (mut size, mut unit) = (self.0 as f64 / 1024.0, 0);
        while size >= 1024.0 && unit + 1 < UNITS.len() {
            (size, unit) = (size / 1024.0, unit + 1);
        }
        write!(f, "{size:.1} {}", UNITS[unit])
    }
}

impl<M: Module, R: Rule> TrainStep<M, R> {
    /// What the next step takes, by a batch of such shapes, without making it: it is planned, and has its places in
    /// memory.
    ///
    /// # Errors
    /// As [`TrainStep::step`].
    pub fn memory(&mut self, batch: &[&Tensor]) -> RusTorchResult<StepMemory> {
        let updates = self.batches + 1 >= self.every;
        let storages = batch.iter().map(|tensor| tensor.storage());
        let storages: Vec<Storage> = storages.collect::<RusTorchResult<_>>()?;
        let (program, _) = self.program(batch, &storages, updates)?;
        let bytes = |tensor: &Tensor| TensorType::new(tensor.shape(), tensor.dtype()).bytes();
        let state = self.module.state_dict();
        let states = self.optimizer.states().chain(&self.sums);
        Ok(StepMemory {
            module: state.iter().map(|(_, tensor)| bytes(tensor)).sum(),
            states: states.map(bytes).sum(),
            working: self.programs[program].working_memory(),
        })
    }

    /// Fails if no device has enough memory for a new program by a batch, and says of which size one would do. A device
    /// that has too little is passed over, as one that is out of memory.
    pub(super) fn check_fit(&mut self, program: &Program, batch: &[Storage]) -> RusTorchResult<()> {
        let Some(lack) = self.lack(program, batch)? else {
            return Ok(());
        };
        let smaller = match self.fitting(&program.kind) {
            Some((size, of)) => format!("batches of {size} in place of {of} do, and "),
            None => String::new(),
        };
        let expected = format!("a step that fits into memory ({smaller}checkpoint takes less)");
        Err(unexpected("TrainStep", expected, lack))
    }

    /// What there is too little of for a program, if no device has room for it.
    fn lack(&mut self, program: &Program, batch: &[Storage]) -> RusTorchResult<Option<String>> {
        match program.load(batch, &self.worked_in) {
            Err(error) if is_full(&error) => return Ok(Some(error.to_string())),
            loaded => loaded?,
        }
        for working in program.working_memory() {
            let mut known = self.worked_in.iter_mut();
            match known.find(|known| known.device == working.device) {
                Some(known) => known.bytes = known.bytes.max(working.bytes),
                None => self.worked_in.push(working),
            }
        }
        Ok(None)
    }

    /// The largest batch, halved some times, whose step fits, and of which size it is now.
    fn fitting(&mut self, kind: &Kind) -> Option<(usize, usize)> {
        let size = *kind.batch.first()?.shape.first()?;
        let halves = (1..=HALVINGS)
            .map(|i| size >> i)
            .take_while(|&half| half > 0);
        for half in halves {
            let cut = |ty: &TensorType| match &ty.shape[..] {
                [first, rest @ ..] if *first == size => {
                    TensorType::new([&[half], rest].concat(), ty.dtype)
                }
                _ => ty.clone(),
            };
            let kind = Kind {
                batch: kind.batch.iter().map(cut).collect(),
                ..kind.clone()
            };
            let zeros = |ty: &TensorType| Tensor::zeros(&ty.shape[..], ty.dtype)?.storage();
            let batch = kind
                .batch
                .iter()
                .map(zeros)
                .collect::<RusTorchResult<Vec<_>>>();
            let program = self.new_program(kind).ok()?;
            if let Ok(None) = self.lack(&program, &batch.ok()?) {
                return Some((half, size));
            }
        }
        None
    }
}

/// Did devices fail for want of memory?
fn is_full(error: &RusTorchError) -> bool {
    let is_full = |class| matches!(class, FailureClass::OutOfMemory { .. });
    match error {
        RusTorchError::Device(error) => is_full(error.class),
        RusTorchError::Run(RunError::NoDevice { .. }) => {
            let fallbacks = runtime().fallbacks();
            fallbacks
                .last()
                .is_some_and(|last| is_full(last.error.class))
        }
        _ => false,
    }
}
