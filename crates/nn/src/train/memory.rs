//! Memory of a step, reported before the step.

use std::fmt;

use rustorch_ir::TensorType;
use rustorch_macros::track_calls;
use rustorch_runtime::{DeviceType, FailureClass, RunError, Storage, WorkingMemory};
use rustorch_tensor::{RusTorchError, RusTorchResult, Saving, Tensor, runtime};

use super::TrainStep;
use super::program::{Kind, Program};
use crate::error::unexpected;
use crate::nn::Module;
use crate::optim::Rule;

/// Number of times that a batch is halved to find one that fits.
const HALVINGS: usize = 12;

/// The least share of live bytes that a round of recomputation saves.
const SHARES: usize = 32;

/// Peak memory of a training step, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepMemory {
    /// Parameters and buffers of the module.
    pub module: usize,
    /// Optimiser states and accumulated gradients.
    pub states: usize,
    /// Working memory of a step on each device: activations, gradients, and new values.
    pub working: Vec<WorkingMemory>,
}

impl StepMemory {
    /// All memory, without values that are offloaded to the host.
    pub fn peak(&self) -> usize {
        let working = self.working.iter().map(|working| working.bytes);
        self.module + self.states + working.sum::<usize>()
    }

    /// The offloaded values, in the host's memory.
    pub fn offloaded(&self) -> usize {
        self.working.iter().map(|working| working.offloaded).sum()
    }
}

/// `12.3 MiB of parameters and buffers, 24.5 MiB of states, 512 MiB of values on cuda:0, 1.5 GiB that wait on the host`.
impl fmt::Display for StepMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (module, states) = (Bytes(self.module), Bytes(self.states));
        write!(f, "{module} of parameters and buffers, {states} of states")?;
        let mut working = self.working.iter();
        working.try_for_each(|w| write!(f, ", {} of values on {}", Bytes(w.bytes), w.device))?;
        match self.offloaded() {
            0 => Ok(()),
            bytes => write!(f, ", {} that wait on the host", Bytes(bytes)),
        }
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

#[track_calls(TrainStep)]
impl<M: Module, R: Rule> TrainStep<M, R> {
    /// Sets a limit in bytes for a step, as [`TrainStep::memory`] counts them.
    ///
    /// First, some logits are computed in chunks of rows, with their gradients. They are products
    /// that feed a cross entropy only ([`Trace::chunking`](rustorch_tensor::Trace::chunking)). The
    /// number of chunks grows while it costs less. The gradients of the product's weights are then
    /// added up chunk by chunk, with other rounding.
    ///
    /// ```
    /// # extern crate rustorch_nn as rustorch;
    /// # use rustorch::nn::{Forward, Linear, Module};
    /// # use rustorch::optim::{SGD, SGDOptions};
    /// # use rustorch::train::TrainStep;
    /// # fn main() -> rustorch_tensor::RusTorchResult<()> {
    /// # let net = Linear::new(4, 4)?;
    /// # let sgd = SGD::new(net.named_parameters(), SGDOptions::default())?;
    /// # let train = TrainStep::new(net, sgd, |net, x| net.forward(&x[0])?.tanh()?.mean_all());
    /// let mut train = train.memory_budget(1 << 30);
    /// let x = rustorch_tensor::tensor![[1.0, 2.0, 3.0, 4.0]];
    /// assert!(train.memory(&[&x])?.peak() <= 1 << 30);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn memory_budget(mut self, bytes: usize) -> Self {
        self.forget_programs();
        self.budget = Some(bytes);
        self
    }

    /// Also offloads activations to the host's memory, on devices with their own memory that support it. It offloads
    /// all activations that lower the peak of the step. With a [budget](Self::memory_budget) it offloads only
    /// activations that are slower to recompute. Losses are the same to the bit. A device that cannot move a value
    /// keeps it; the CPU, whose memory is the host's, always does.
    #[must_use]
    pub fn offload_activations(mut self) -> Self {
        self.forget_programs();
        self.offloads = true;
        self
    }

    /// The memory of the next step for a batch of such shapes: it is planned, but does not run.
    ///
    /// # Errors
    /// The same errors as [`TrainStep::step`].
    pub fn memory(&mut self, batch: &[&Tensor]) -> RusTorchResult<StepMemory> {
        let numbers = self.numbers(1.0)?;
        let batch: Vec<&Tensor> = batch.iter().copied().chain(&numbers).collect();
        let storages = batch.iter().map(|tensor| tensor.storage());
        let storages: Vec<Storage> = storages.collect::<RusTorchResult<_>>()?;
        let (program, _) = self.program(&batch, &storages)?;
        Ok(StepMemory {
            working: self.programs[program].working_memory(),
            ..self.kept_memory()
        })
    }

    /// Memory between steps.
    fn kept_memory(&self) -> StepMemory {
        let bytes = |tensor: &Tensor| TensorType::new(tensor.shape(), tensor.dtype()).bytes();
        let state = self.module.state_dict();
        let states = self.optimizer.states().chain(&self.sums);
        StepMemory {
            module: state.iter().map(|(_, tensor)| bytes(tensor)).sum(),
            states: states.map(bytes).sum(),
            working: Vec::new(),
        }
    }

    /// Returns whether the next step, for a batch of such shapes, fits in the free memory and the budget.
    ///
    /// # Errors
    /// The same errors as [`TrainStep::step`], except those of memory.
    pub fn fits(&mut self, batch: &[&Tensor]) -> RusTorchResult<bool> {
        let numbers = self.numbers(1.0)?;
        let batch: Vec<&Tensor> = batch.iter().copied().chain(&numbers).collect();
        let storages = batch.iter().map(|tensor| tensor.storage());
        let storages: Vec<Storage> = storages.collect::<RusTorchResult<_>>()?;
        let mut program = self.new_program(self.kind(&batch))?;
        let over = self.over_budget(&mut program, &storages)?;
        Ok(over.is_none() && self.lack(&program, &storages)?.is_none())
    }

    /// Has a new program by a batch keep to the budget, if there is one. Returns the bytes by which it does not.
    fn over_budget(
        &self,
        program: &mut Program,
        batch: &[Storage],
    ) -> RusTorchResult<Option<usize>> {
        let Some(budget) = self.budget else {
            return Ok(None);
        };
        let kept = self.kept_memory().peak();
        let over = |working: &[WorkingMemory]| {
            let bytes = working.iter().map(|w| w.bytes).sum::<usize>();
            (kept + bytes).saturating_sub(budget)
        };
        shrink(program, batch, self.saving_of(program)?, over)
    }

    /// The choices for a program's values.
    fn saving_of(&self, program: &Program) -> RusTorchResult<Saving> {
        let moves = || program.saving(0, Saving::Offload)?.offloads();
        Ok(match self.offloads && moves()? {
            true => Saving::Either,
            false => Saving::Recompute,
        })
    }

    /// Has a new program by a batch keep to the budget, if there is one.
    pub(super) fn keep_to_budget(
        &mut self,
        program: &mut Program,
        batch: &[Storage],
    ) -> RusTorchResult<()> {
        let over = self.over_budget(program, batch)?;
        let (Some(budget), Some(over)) = (self.budget, over) else {
            return Ok(());
        };
        let smaller = match self.fitting(&program.kind) {
            Some((size, of)) => format!(" (batches of {size} in place of {of} do)"),
            None => String::new(),
        };
        let expected = format!(
            "a step within a memory budget of {}{smaller}",
            Bytes(budget)
        );
        let got = match over {
            usize::MAX => "one that does not fit into memory at all".to_owned(),
            over => {
                let least = Bytes(budget + over);
                format!("one that takes {least} at the least, with values computed again")
            }
        };
        Err(unexpected("TrainStep", expected, got))
    }

    /// Fails if no device has enough memory for a new program by a batch, and says which one would do: of a smaller batch,
    /// or one that computes values again. A device that has too little is passed over, as one that is out of memory.
    pub(super) fn check_fit(
        &mut self,
        program: &mut Program,
        batch: &[Storage],
    ) -> RusTorchResult<()> {
        let Some(lack) = self.lack(program, batch)? else {
            return Ok(());
        };
        let mut advice = Vec::new();
        if let Some((size, of)) = self.fitting(&program.kind) {
            advice.push(format!("batches of {size} in place of {of} do"));
        }
        if self.budget.is_none() {
            let lacking = |w: &WorkingMemory| {
                let free = w.free.unwrap_or(u64::MAX);
                usize::try_from((w.bytes as u64).saturating_sub(free)).unwrap_or(usize::MAX)
            };
            let lacking = |working: &[WorkingMemory]| working.iter().map(lacking).sum::<usize>();
            let fits = shrink(program, batch, self.saving_of(program)?, lacking)?;
            if fits.is_none() {
                let working = program.working_memory();
                let kept = self.kept_memory();
                let peak = Bytes(StepMemory { working, ..kept }.peak());
                advice.push(format!(
                    "a memory budget of {peak} does, with values computed again"
                ));
            }
        }
        let advice = match &advice[..] {
            [] => String::new(),
            advice => format!(" ({})", advice.join("; ")),
        };
        let expected = format!("a step that fits in memory{advice}");
        Err(unexpected("TrainStep", expected, lack))
    }

    /// The shortage of a program, if no device has room for it.
    fn lack(&mut self, program: &Program, batch: &[Storage]) -> RusTorchResult<Option<String>> {
        match program.load_with_room(batch, &self.worked_in) {
            Err(error) if is_full(&error) => return Ok(Some(error.to_string())),
            loaded => loaded?,
        }
        let working = program.working_memory();
        // The reference plans no memory: each value has some of its own as long as it is read.
        if let [alone] = &working[..]
            && let (DeviceType::Reference, Some(free)) = (alone.device, alone.free)
            && program.peak_bytes() as u64 > free
        {
            let bytes = program.peak_bytes();
            let lack = format!("reference: a run works in {bytes} bytes, where {free} are free");
            return Ok(Some(lack));
        }
        for working in working {
            let mut known = self.worked_in.iter_mut();
            match known.find(|known| known.device == working.device) {
                Some(known) => known.bytes = known.bytes.max(working.bytes),
                None => self.worked_in.push(working),
            }
        }
        Ok(None)
    }

    /// The largest batch, halved some times, whose step fits. Also its size.
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
            let (mut program, batch) = (self.new_program(kind).ok()?, batch.ok()?);
            let over = self.over_budget(&mut program, &batch).ok()?;
            if let (None, Ok(None)) = (over, self.lack(&program, &batch)) {
                return Some((half, size));
            }
        }
        None
    }
}

/// Makes a new program save memory, until it is within its limit. It first computes logits by chunks, as long
/// as that is cheapest and helps. Then it follows `saving`.
fn shrink(
    program: &mut Program,
    batch: &[Storage],
    mut saving: Saving,
    over: impl Fn(&[WorkingMemory]) -> usize,
) -> RusTorchResult<Option<usize>> {
    let over = |program: &Program| match program.load(batch) {
        Err(error) if is_full(&error) => Ok(usize::MAX),
        loaded => loaded.map(|()| over(&program.working_memory())),
    };
    // A planned program sets its memory aside, so no two programs are planned at once.
    let whole = program.trace().unplanned();
    let mut now = over(program)?;
    let mut chunks = 2;
    while now > 0
        && let Some(chunked) = whole.chunking(chunks)?
    {
        let before = program.trace().unplanned();
        program.replace(chunked);
        let then = over(program)?;
        if (then, program.peak_bytes()) >= (now, before.peak_bytes()) {
            program.replace(before);
            break;
        }
        (now, chunks) = (then, 2 * chunks);
    }
    let kept = program.trace().unplanned();
    loop {
        let over = over(program)?;
        if over == 0 {
            return Ok(None);
        }
        let peak = program.peak_bytes();
        let less = over.clamp(peak / SHARES, peak / 2);
        let smaller = program.saving(peak - less, saving)?;
        match smaller.peak_bytes() < peak {
            true => program.replace(smaller),
            // A value that is computed again takes memory for a while. An offloaded one does not.
            false if saving == Saving::Either => {
                program.replace(kept.unplanned());
                saving = Saving::Offload;
            }
            false => return Ok(Some(over)),
        }
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
