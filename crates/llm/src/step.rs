//! A traced forward pass of a fixed number of tokens.

use rustorch_ir::DType;
use rustorch_ir::passes::Stages;
use rustorch_runtime::{Executable, Fetched, HostBuffer, Loaded, Runtime, Storage};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor, Trace, with_device};

use smallvec::{SmallVec, smallvec};

use crate::LlmError;
use crate::decoder::Pass;
use crate::kv_cache::{Cache, DRAFTS};
use crate::model::Model;
use crate::placement::Placement;
use crate::selection::{Scores, Selection};

/// The step of the latest other size.
const PROMPT: usize = 2;

/// The index of the first step of [`FEW`] tokens.
pub(crate) const FEW_AT: usize = 3;

/// Batch sizes that repeat when drafted tokens are checked. The program of each is kept.
pub(crate) const FEW: [usize; 5] = [2, 3, 4, 8, DRAFTS];

/// The place of the step for a batch of this number of tokens.
pub(crate) fn place(tokens: usize) -> usize {
    match FEW.iter().position(|&few| few == tokens) {
        _ if tokens == 1 => 0,
        Some(i) => FEW_AT + i,
        None => PROMPT,
    }
}

/// The wanted results of a forward pass, besides keys and values.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The number of last tokens with results.
    rows: usize,
    /// The source of the token after each of them.
    selection: Selection,
}

impl Wanted {
    /// All logits of this number of last tokens.
    pub(crate) fn logits(rows: usize) -> Self {
        let selection = Selection::default();
        Self { rows, selection }
    }

    /// The size of a selection's results, for a vocabulary of this size and this number of last tokens.
    pub(crate) fn best(rows: usize, selection: &Selection, vocab: usize) -> Self {
        match selection.best {
            Some(best) if best < vocab => Self {
                rows,
                selection: selection.clone(),
            },
            _ => Self::logits(rows),
        }
    }

    /// The same of the last token alone.
    pub(crate) fn of_last(&self) -> Self {
        Self {
            rows: 1,
            selection: self.selection.clone(),
        }
    }

    /// Returns whether it is a single token, which the device can go on with.
    fn is_choice(&self) -> bool {
        self.rows == 1 && self.selection.is_choice()
    }
}

/// A forward pass that can be run again and again.
pub(crate) struct Step {
    /// Tokens in.
    tokens: usize,
    wanted: Wanted,
    trace: Trace,
    /// Token ids, `i64`, and positions, `i32`; then the positions of windows' first rows, and the numbers of
    /// recurrent states, if there are some.
    inputs: SmallVec<[Storage; 3]>,
    /// The results of the last run; the next run reuses their memory. If one token is chosen, it and its
    /// position are the inputs of the next pass. Behind these results are recurrent states.
    outputs: Vec<Storage>,
    /// The number of outputs that are no states.
    results: usize,
}

impl Step {
    /// Traces a pass over `tokens` tokens for the current runtime.
    ///
    /// # Errors
    /// Fails if memory is too small for the inputs, or if the model's shapes do not match.
    pub(crate) fn new(
        model: &Model,
        cache: &Cache,
        tokens: usize,
        wanted: Wanted,
        placement: &Placement,
        converting: Option<DType>,
    ) -> Result<Self, LlmError> {
        let trace = || -> RusTorchResult<(Trace, usize)> {
            let ids = Tensor::placeholder([tokens], DType::I64)?;
            let positions = Tensor::placeholder([tokens], DType::I32)?;
            let bases = cache.bases().map(|(_, count)| count);
            let bases = bases.map(|count| Tensor::placeholder([count], DType::I32));
            let bases = bases.transpose()?;
            let slots = cache.slots().map(|_| Tensor::placeholder([2], DType::I32));
            let slots = slots.transpose()?;
            let decoder = model.decoder();
            let given = [bases.as_ref(), slots.as_ref()];
            let pass = Pass::with_cache(&positions, cache, given, placement)?;
            let logits = decoder.forward(&ids, &pass, cache.layers(), wanted.rows)?;
            let mut outputs = wanted.selection.of(&logits)?;
            if wanted.is_choice() {
                let next = || positions.narrow(0, tokens - 1, 1)?.add(1);
                outputs.push(match decoder.head_device(placement) {
                    // It goes where the token is chosen: adding one is not worth a way.
                    Some(device) => with_device(device, next)??,
                    None => next()?,
                });
            }
            let results = outputs.len();
            let states = pass.kept();
            let outputs: Vec<&Tensor> = outputs.iter().chain(&states).collect();
            let inputs = [&ids, &positions].into_iter().chain(&bases).chain(&slots);
            let inputs: Vec<&Tensor> = inputs.collect();
            let trace = Trace::new(&inputs, &outputs)?;
            let trace = match converting {
                Some(dtype) => trace.converting(dtype)?,
                None => trace,
            };
            // Sessions know the vocabulary and the room that the cache has.
            Ok((trace.with_checked_values(), results))
        };
        let input = |bytes| {
            let buffer = HostBuffer::zeroed(bytes);
            let buffer = buffer.ok_or_else(|| LlmError::Input("out of memory".to_owned()))?;
            Ok::<_, LlmError>(Storage::from_host(buffer))
        };
        let mut inputs = smallvec![
            input(size_of::<i64>() * tokens)?,
            input(size_of::<i32>() * tokens)?,
        ];
        inputs.extend(cache.bases().map(|(storage, _)| storage.clone()));
        inputs.extend(cache.slots().cloned());
        let (trace, results) = trace()?;
        Ok(Self {
            tokens,
            trace,
            wanted,
            inputs,
            outputs: Vec::new(),
            results,
        })
    }

    /// Returns whether it is a pass over this number of tokens with these results.
    pub(crate) fn is_for(&self, tokens: usize, wanted: &Wanted) -> bool {
        self.tokens == tokens && self.wanted == *wanted
    }

    /// The prepared graph.
    pub(crate) fn executable(&self) -> &Executable {
        self.trace.executable()
    }

    /// The passes over the graph, see [`Trace::passes`].
    ///
    /// # Errors
    /// Fails if no device can run some operation.
    pub(crate) fn passes(&self) -> RusTorchResult<Stages> {
        self.trace.passes()
    }

    /// Puts another state in the place of a lost one.
    ///
    /// # Errors
    /// The same errors as [`Trace::rebind`].
    pub(crate) fn rebind(&mut self, old: &Storage, new: &Storage) -> Result<(), LlmError> {
        Ok(self.trace.rebind(old, new)?)
    }

    /// Reads this cache's positions of windows, and its numbers of recurrent states, from now on.
    pub(crate) fn read_cache(&mut self, cache: &Cache) {
        self.inputs.truncate(2);
        let bases = cache.bases().map(|(storage, _)| storage);
        self.inputs.extend(bases.cloned());
        self.inputs.extend(cache.slots().cloned());
    }

    /// Brings its operands to their devices.
    ///
    /// # Errors
    /// The same errors as [`Executable::load`].
    pub(crate) fn load(&self, each: impl FnMut(Loaded)) -> Result<(), LlmError> {
        Ok(self.trace.load(&self.inputs, each)?)
    }

    /// Runs it over a batch that begins at position `past`.
    ///
    /// # Errors
    /// The same errors as [`Executable::run_into`].
    pub(crate) fn run(
        &mut self,
        runtime: &Runtime,
        batch: &[u32],
        past: usize,
    ) -> Result<(), LlmError> {
        let ids = batch.iter().map(|&id| i64::from(id));
        let positions = (past as i32..).take(batch.len());
        let written = [
            collect(ids.map(i64::to_ne_bytes)),
            collect(positions.map(i32::to_ne_bytes)),
        ];
        for (storage, bytes) in self.inputs.iter().zip(written) {
            let written = runtime.write(storage, &bytes);
            written.map_err(RusTorchError::from)?;
        }
        Ok(self.trace.run_into(&self.inputs, &mut self.outputs)?)
    }

    /// Runs it over the token that `before` has chosen.
    ///
    /// # Errors
    /// The same errors as [`Executable::run_into`].
    pub(crate) fn run_behind(&mut self, before: &Self) -> Result<(), LlmError> {
        let chosen = before.outputs.iter().take(2);
        let inputs: SmallVec<[Storage; 3]> = chosen.chain(self.inputs.get(2)).cloned().collect();
        Ok(self.trace.run_into(&inputs, &mut self.outputs)?)
    }

    /// The place of the token that the last run chose, if one token is wanted.
    pub(crate) fn choice(&self) -> Option<&Storage> {
        let is_choice = self.wanted.is_choice();
        self.outputs.first().filter(|_| is_choice)
    }

    /// Reads the results of the last run, whose rows are shared out evenly among `scores`.
    ///
    /// # Errors
    /// The same errors as [`Runtime::read`].
    pub(crate) fn read(&self, runtime: &Runtime, scores: &mut [Scores]) -> Result<(), LlmError> {
        let results = &self.outputs[..self.results.min(self.outputs.len())];
        let read = self.wanted.selection.read(runtime, results, scores);
        Ok(read.map_err(RusTorchError::from)?)
    }
}

/// A pass over one token that was queued before the host knew which: the best one of the pass
/// before, which the device handed on by itself.
pub(crate) struct Ahead {
    /// The end of the pass before.
    pub(crate) past: usize,
    /// The token, as soon as it is known.
    pub(crate) token: Option<u32>,
    pub(crate) wanted: Wanted,
    /// The index of the step.
    pub(crate) step: usize,
    /// The token that it chooses.
    pub(crate) chosen: Fetched,
}

impl Ahead {
    /// Returns whether it is the pass over these tokens.
    pub(crate) fn is_over(&self, past: usize, batch: &[u32], wanted: &Wanted) -> bool {
        self.past == past && batch == self.token.as_slice() && self.wanted == *wanted
    }
}

fn collect<const N: usize>(values: impl Iterator<Item = [u8; N]>) -> SmallVec<[u8; 64]> {
    values.flatten().collect()
}
