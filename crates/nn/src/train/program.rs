//! A recorded step. Its batch, random keys and optimiser numbers change in each run.

use rustorch_ir::{DType, Scalar, TensorType};
use rustorch_runtime::{HostBuffer, Storage, WorkingMemory};
use rustorch_tensor::replay::RandomKeys;
use rustorch_tensor::{RusTorchError, RusTorchResult, Saving, Tensor, Trace, eval_all, runtime};

use crate::nn::ParameterId;
use crate::optim::RecordedUpdate;

/// The recording of a step.
pub(super) struct Recorded {
    pub(super) loss: Tensor,
    /// The norm of the gradients, where they are clipped by it.
    pub(super) norm: Option<Tensor>,
    /// Whether nothing is updated, where that is asked.
    pub(super) skips: Option<Tensor>,
    /// The tensors written besides parameters and their states.
    pub(super) written: Vec<Tensor>,
    /// `None` where gradients are only added up.
    pub(super) update: Option<RecordedUpdate>,
}

/// A program that is run for batches of the same shapes.
pub(super) struct Program {
    pub(super) kind: Kind,
    /// Handles on the module's tensors: writes through other handles since the last run are computed before the next
    /// one.
    state: Vec<Tensor>,
    trace: Trace,
    keys: RandomKeys,
    pub(super) update: Option<RecordedUpdate>,
    /// Keys and numbers, in the memory that all runs read them from.
    data: Vec<Storage>,
    /// The numbers that are there.
    numbers: Vec<Scalar>,
    /// The results of the last run, which the next one may overwrite.
    outputs: Vec<Storage>,
    is_checked: bool,
    has_norm: bool,
    has_skips: bool,
}

/// The key of a program.
#[derive(Clone, PartialEq)]
pub(super) struct Kind {
    pub(super) batch: Vec<TensorType>,
    pub(super) updates: bool,
    /// The memory of parameters and their states.
    pub(super) memory: Vec<ParameterId>,
}

/// The results of a run.
pub(super) struct Ran {
    pub(super) loss: Tensor,
    pub(super) norm: Option<Tensor>,
    /// Whether nothing was updated.
    pub(super) is_skipped: bool,
}

/// The loss among a trace's outputs.
const LOSS: usize = 0;

fn checked(trace: Trace, is_checked: bool) -> Trace {
    match is_checked {
        true => trace.with_checked_values(),
        false => trace,
    }
}

fn in_memory(bytes: &[u8]) -> RusTorchResult<Storage> {
    let buffer = HostBuffer::copy_of(bytes).ok_or(RusTorchError::OutOfMemory {
        op: "TrainStep",
        bytes: bytes.len(),
    })?;
    Ok(Storage::from_host(buffer))
}

impl Program {
    /// The placeholders of a recorded `batch`.
    pub(super) fn new(
        kind: Kind,
        batch: &[Tensor],
        (recorded, keys): (Recorded, RandomKeys),
        state: Vec<Tensor>,
        is_checked: bool,
    ) -> RusTorchResult<Self> {
        let Recorded {
            loss,
            norm,
            skips,
            written,
            update,
        } = recorded;
        let numbers = update.iter().flat_map(|update| &update.numbers);
        let numbers: Vec<_> = numbers.collect();
        let placeholders = batch.iter().chain(keys.placeholders());
        let placeholders = placeholders.chain(numbers.iter().map(|number| &number.placeholder));
        let outputs = [&loss].into_iter().chain(&norm).chain(&skips);
        let outputs = outputs.chain(&written);
        let outputs = outputs.chain(update.iter().flat_map(|update| &update.written));
        let trace = Trace::new(
            &placeholders.collect::<Vec<_>>(),
            &outputs.collect::<Vec<_>>(),
        )?;
        let mut data = Vec::new();
        for _ in keys.placeholders() {
            data.push(in_memory(&[0; 2 * size_of::<i64>()])?);
        }
        for number in &numbers {
            data.push(in_memory(
                &number.value.to_bytes(number.placeholder.dtype()),
            )?);
        }
        Ok(Self {
            kind,
            state,
            trace: checked(trace, is_checked),
            keys,
            numbers: numbers.iter().map(|number| number.value).collect(),
            update,
            data,
            outputs: Vec::new(),
            is_checked,
            has_norm: norm.is_some(),
            has_skips: skips.is_some(),
        })
    }

    /// Bytes of the values that are alive at once, as [`Trace::peak_bytes`] counts them.
    pub(super) fn peak_bytes(&self) -> usize {
        self.trace.peak_bytes()
    }

    /// The trace.
    pub(super) fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The same program in about `bytes` bytes: some values are not kept for gradients.
    pub(super) fn saving(&self, bytes: usize, saving: Saving) -> RusTorchResult<Trace> {
        self.trace.saving(LOSS, bytes, saving)
    }

    /// Has values that gradients need wait in the host's memory, where a device moves them there.
    pub(super) fn offload(&mut self) -> RusTorchResult<()> {
        let moved = self.saving(0, Saving::Offload)?;
        if moved.peak_bytes() < self.peak_bytes() && moved.offloads()? {
            self.replace(moved);
        }
        Ok(())
    }

    /// Goes on by another trace of the same computation.
    pub(super) fn replace(&mut self, trace: Trace) {
        self.outputs.clear();
        self.trace = checked(trace, self.is_checked);
    }

    /// The numbers that it was recorded with.
    pub(super) fn first_numbers(&self) -> Vec<Scalar> {
        self.numbers.clone()
    }

    /// Plans and compiles it, and brings its operands to their devices, without a run.
    pub(super) fn load(&self, batch: &[Storage]) -> RusTorchResult<()> {
        self.trace.load(&self.inputs(batch), |_| {})
    }

    /// The same for devices that have room for it beside `held`.
    pub(super) fn load_with_room(
        &self,
        batch: &[Storage],
        held: &[WorkingMemory],
    ) -> RusTorchResult<()> {
        self.trace.load_with_room(&self.inputs(batch), held)
    }

    fn inputs(&self, batch: &[Storage]) -> Vec<Storage> {
        batch.iter().chain(&self.data).cloned().collect()
    }

    /// The working memory of runs; nothing is known before it was loaded.
    pub(super) fn working_memory(&self) -> Vec<WorkingMemory> {
        let working = self.trace.executable().working_memory();
        working.unwrap_or_default()
    }

    /// Runs it for a batch, with these numbers.
    pub(super) fn run(&mut self, batch: &[Storage], numbers: Vec<Scalar>) -> RusTorchResult<Ran> {
        eval_all(&self.state.iter().collect::<Vec<_>>())?;
        let runtime = runtime();
        let keys = self.keys.draw();
        let (of_keys, of_numbers) = self.data.split_at(keys.len());
        for (storage, key) in of_keys.iter().zip(keys) {
            let bytes: Vec<u8> = key.iter().flat_map(|word| word.to_ne_bytes()).collect();
            runtime.write(storage, &bytes)?;
        }
        let update = self.update.iter().flat_map(|update| &update.numbers);
        let known = self.numbers.iter().zip(&numbers);
        for ((storage, number), (known, value)) in of_numbers.iter().zip(update).zip(known) {
            if known != value {
                runtime.write(storage, &value.to_bytes(number.placeholder.dtype()))?;
            }
        }
        self.numbers = numbers;
        let inputs = self.inputs(batch);
        self.trace.run_into(&inputs, &mut self.outputs)?;
        let output = |i: usize| {
            let ty = &self.trace.outputs()[i];
            Tensor::from_storage(self.outputs[i].clone(), &ty.shape[..], ty.dtype)
        };
        let skips = usize::from(self.has_norm) + 1;
        Ok(Ran {
            loss: output(LOSS)?,
            norm: self.has_norm.then(|| output(1)).transpose()?,
            is_skipped: self.has_skips && output(skips)?.to_scalar()?,
        })
    }

    /// The keys that the last run drew by.
    pub(super) fn keys(&self) -> &[Storage] {
        &self.data[..self.keys.placeholders().len()]
    }

    /// A batch's types, by which programs are found.
    pub(super) fn types(batch: &[&Tensor]) -> Vec<TensorType> {
        let ty = |tensor: &&Tensor| TensorType::new(tensor.shape(), tensor.dtype());
        batch.iter().map(ty).collect()
    }
}

/// A placeholder of a type.
pub(super) fn placeholder(ty: &TensorType) -> RusTorchResult<Tensor> {
    let dtype: DType = ty.dtype;
    Tensor::placeholder(&ty.shape[..], dtype)
}
