//! One pass over a token of each of several sequences: products are of all rows, so that weights are read once;
//! attention is of each sequence alone.

use rustorch_ir::DType;
use rustorch_runtime::{HostBuffer, RunError, Runtime, Storage};
use rustorch_tensor::{RusTorchError, RusTorchResult, Tensor, Trace, with_runtime};

use super::slots::{Slots, unread};
use super::state::EngineOptions;
use crate::LlmError;
use crate::decoder::{Pass, Row};
use crate::selection::{Scores, Selection};

/// Numbers of rows for which there are programs. A batch between two of them has idle rows.
const BUCKETS: [usize; 13] = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96];

/// The most rows that the CPU's products add up in the order of one row.
const INVARIANT: usize = 8;

/// Tokens whose logits are read for each row, the best first. A row whose sampler looks at more reads all.
const BEST: usize = 64;

/// The sequence that a row of a program is bound to.
struct Port {
    slot: usize,
    /// Keys, values and recurrent states, layer by layer.
    bound: Vec<Storage>,
}

/// The program for a number of rows.
struct Bucket {
    trace: Trace,
    /// Token ids, `i64`, and positions, `i32`.
    ids: Storage,
    positions: Storage,
    ports: Vec<Port>,
    /// The best tokens, their logits, and all logits. Behind these are recurrent states.
    outputs: Vec<Storage>,
}

/// A token to add to a sequence, and the scores of the next one that are asked for.
pub(super) struct Fed {
    pub(super) slot: usize,
    pub(super) token: u32,
    pub(super) selection: Selection,
}

/// The programs.
pub(super) struct Batch {
    runtime: Runtime,
    buckets: Vec<Bucket>,
    /// Rows of the largest batch that is tried.
    most: usize,
}

impl Bucket {
    fn new(runtime: &Runtime, slots: &Slots, members: &[usize]) -> Result<Self, LlmError> {
        let model = slots.get(members[0]).model();
        let (count, vocab) = (members.len(), model.spec().vocab);
        let options = slots.get(members[0]).options();
        let caches = || members.iter().map(|&slot| slots.get(slot).cache());
        let trace = || -> RusTorchResult<Trace> {
            let ids = Tensor::placeholder([count], DType::I64)?;
            let positions = Tensor::placeholder([count], DType::I32)?;
            let own = (0..count).map(|row| positions.narrow(0, row, 1));
            let own = own.collect::<RusTorchResult<Vec<Tensor>>>()?;
            let bases = caches().filter_map(|cache| cache.bases());
            let bases = bases.map(|(_, windows)| Tensor::placeholder([windows], DType::I32));
            let bases = bases.collect::<RusTorchResult<Vec<Tensor>>>()?;
            let states = caches().filter_map(|cache| cache.slots());
            let states = states.map(|_| Tensor::placeholder([2], DType::I32));
            let states = states.collect::<RusTorchResult<Vec<Tensor>>>()?;
            let rows = caches().zip(&own).enumerate();
            let rows = rows.map(|(row, (cache, position))| {
                let given = [bases.get(row), states.get(row)];
                Row::new(position, cache, given, &options.placement)
            });
            let rows = rows.collect::<RusTorchResult<Vec<Row>>>()?;
            let context = slots.get(members[0]).context();
            let pass = Pass::of_rows(rows, &positions, context, &options.placement)?;
            let logits = model.decoder().forward(&ids, &pass, &[], count)?;
            let known = logits.masked_fill(&logits.isnan()?, f64::NEG_INFINITY)?;
            let (best, best_ids) = known.topk(BEST.min(vocab), 1, true)?;
            let inputs = [&ids, &positions].into_iter().chain(&bases).chain(&states);
            let kept = pass.kept();
            let outputs = [&best_ids, &best, &logits].into_iter().chain(&kept);
            let trace = Trace::new(
                &inputs.collect::<Vec<&Tensor>>(),
                &outputs.collect::<Vec<&Tensor>>(),
            )?;
            let trace = match options.converting {
                Some(dtype) => trace.converting(dtype)?,
                None => trace,
            };
            // Requests were checked for the vocabulary, and sequences for their room.
            Ok(trace.with_checked_values())
        };
        let input = |bytes| {
            let buffer = HostBuffer::zeroed(bytes);
            let buffer = buffer.ok_or_else(|| LlmError::Input("out of memory".to_owned()))?;
            Ok::<_, LlmError>(Storage::from_host(buffer))
        };
        let port = |&slot: &usize| {
            let bound = slots.get(slot).cache().storages();
            Ok::<_, LlmError>(Port { slot, bound })
        };
        Ok(Self {
            ids: input(size_of::<i64>() * count)?,
            positions: input(size_of::<i32>() * count)?,
            ports: members.iter().map(port).collect::<Result<_, _>>()?,
            trace: with_runtime(runtime, options.routing, trace)?,
            outputs: Vec::new(),
        })
    }

    /// Binds a row to each of these sequences. A sequence that has a row keeps it, so that no two rows swap theirs.
    fn bind(&mut self, slots: &Slots, members: &[usize]) -> Result<(), LlmError> {
        let has_row = |slot: &usize| self.ports.iter().any(|port| port.slot == *slot);
        let others: Vec<usize> = members
            .iter()
            .copied()
            .filter(|slot| !has_row(slot))
            .collect();
        let mut others = others.into_iter();
        for port in &mut self.ports {
            if !members.contains(&port.slot)
                && let Some(slot) = others.next()
            {
                port.slot = slot;
            }
            let storages = slots.get(port.slot).cache().storages();
            for (old, new) in port.bound.iter_mut().zip(storages) {
                if !old.same_as(&new) {
                    self.trace.rebind(old, &new)?;
                    *old = new;
                }
            }
        }
        Ok(())
    }

    fn run(&mut self, runtime: &Runtime, slots: &Slots, rows: &[Fed]) -> Result<(), LlmError> {
        let (mut ids, mut positions) = (Vec::new(), Vec::new());
        let mut inputs = vec![self.ids.clone(), self.positions.clone()];
        for port in &self.ports {
            let row = rows.iter().find(|row| row.slot == port.slot);
            // An idle row writes behind its sequence's tokens, which the sequence's next token overwrites, and the
            // recurrent state that is not the sequence's.
            ids.push(row.map_or(0, |row| i64::from(row.token)));
            let session = slots.get(port.slot);
            positions.push(session.tokens().len() as i32);
        }
        let caches = || self.ports.iter().map(|port| slots.get(port.slot).cache());
        inputs.extend(caches().filter_map(|cache| cache.bases().map(|(bases, _)| bases.clone())));
        inputs.extend(caches().filter_map(|cache| cache.slots().cloned()));
        let write = |storage, bytes: &[u8]| runtime.write(storage, bytes);
        write(&self.ids, bytemuck::cast_slice(&ids)).map_err(RusTorchError::from)?;
        write(&self.positions, bytemuck::cast_slice(&positions)).map_err(RusTorchError::from)?;
        Ok(self.trace.run_into(&inputs, &mut self.outputs)?)
    }

    /// Reads what each row asked for.
    fn read(&self, runtime: &Runtime, rows: &[Fed]) -> Result<Vec<Scores>, RusTorchError> {
        let [best_ids, best, all, ..] = &self.outputs[..] else {
            return Ok(Vec::new());
        };
        let count = self.ports.len();
        let read = |storage: &Storage, row: usize, bytes: &mut [u8]| {
            let at = row * (storage.bytes() / count);
            runtime.read(storage, at, bytes)
        };
        let best_count = best.bytes() / count / size_of::<f32>();
        let scores = rows.iter().map(|fed| {
            let row = self.ports.iter().position(|port| port.slot == fed.slot);
            let row = row.unwrap_or_default();
            let Selection {
                best: wanted,
                banned,
            } = &fed.selection;
            let enough = wanted.filter(|wanted| wanted + banned.len() <= best_count);
            let Some(wanted) = enough else {
                let mut logits = vec![0.0_f32; all.bytes() / count / size_of::<f32>()];
                read(all, row, bytemuck::cast_slice_mut(&mut logits))?;
                return Ok(Scores { ids: None, logits });
            };
            let (mut ids, mut logits) = (vec![0_i64; best_count], vec![0.0_f32; best_count]);
            read(best_ids, row, bytemuck::cast_slice_mut(&mut ids))?;
            read(best, row, bytemuck::cast_slice_mut(&mut logits))?;
            let known = ids.into_iter().map(|id| id as u32).zip(logits);
            let allowed = known.filter(|(id, _)| !banned.contains(id)).take(wanted);
            let (ids, logits) = allowed.unzip();
            Ok(Scores {
                ids: Some(ids),
                logits,
            })
        });
        scores
            .collect::<Result<_, RunError>>()
            .map_err(RusTorchError::from)
    }
}

impl Batch {
    /// No programs yet.
    pub(super) fn new(runtime: &Runtime, options: &EngineOptions) -> Self {
        Self {
            runtime: runtime.clone(),
            buckets: Vec::new(),
            most: match options.batch_invariant {
                true => options.sequences.min(INVARIANT),
                false => options.sequences,
            },
        }
    }

    /// Rows of the largest batch that is tried.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Tries smaller batches after one of `rows` rows has failed.
    pub(super) fn shrink(&mut self, rows: usize, error: &LlmError) {
        self.most = (rows / 2).max(1);
        let most = self.most;
        tracing::warn!("a batch of {rows} sequences failed: {error}; at most {most} from now on");
        // Programs for more hold memory that the smaller ones may need.
        self.buckets.retain(|bucket| bucket.ports.len() <= most);
    }

    /// Adds tokens to sequences that are [ready](crate::Session::is_ready), at most [`Self::most`]. Returns the scores
    /// that each row asked for.
    ///
    /// # Errors
    /// Fails if no device is left, or if memory is too small. No sequence has another token then.
    pub(super) fn feed(
        &mut self,
        slots: &mut Slots,
        rows: &[Fed],
    ) -> Result<Vec<Scores>, LlmError> {
        let runtime = self.runtime.clone();
        let _span = runtime.span("decode");
        let members = members(slots, rows);
        let scores = loop {
            // A new program may be the first to find that a cache was lost.
            match self.attempt(slots, rows, &members) {
                Ok(scores) => break scores,
                Err(LlmError::Tensor(error)) if error.is_data_lost() => {
                    tracing::warn!("sequences of a batch are computed again: {error}");
                    recover(slots, &members)?;
                }
                Err(error) => return Err(error),
            }
        };
        rows.iter()
            .for_each(|row| slots.get_mut(row.slot).push(row.token));
        Ok(scores)
    }

    /// One pass over these sequences.
    fn attempt(
        &mut self,
        slots: &mut Slots,
        rows: &[Fed],
        members: &[usize],
    ) -> Result<Vec<Scores>, LlmError> {
        let runtime = self.runtime.clone();
        let bucket = self.bucket(slots, members)?;
        bucket.bind(slots, members)?;
        for &slot in members {
            slots.get_mut(slot).choose_states()?;
        }
        bucket.run(&runtime, slots, rows)?;
        Ok(bucket.read(&runtime, rows)?)
    }

    /// The program for these sequences.
    fn bucket(&mut self, slots: &Slots, members: &[usize]) -> Result<&mut Bucket, LlmError> {
        let is_for = |bucket: &Bucket| bucket.ports.len() == members.len();
        let at = self.buckets.iter().position(is_for);
        let at = at.unwrap_or(self.buckets.len());
        if at == self.buckets.len() {
            self.buckets
                .push(Bucket::new(&self.runtime, slots, members)?);
        }
        Ok(&mut self.buckets[at])
    }
}

/// The sequences of a pass over these rows: theirs, and idle ones up to the size of a program. If too few others are
/// ready, the program is of the rows alone.
fn members(slots: &Slots, rows: &[Fed]) -> Vec<usize> {
    let mut members: Vec<usize> = rows.iter().map(|row| row.slot).collect();
    let size = BUCKETS.into_iter().find(|&size| size >= rows.len());
    let more = size.unwrap_or(rows.len()).min(slots.len()) - rows.len();
    let is_idle = |slot: &usize| !members.contains(slot) && slots.get(*slot).is_ready();
    let mut idle: Vec<usize> = (0..slots.len()).filter(is_idle).collect();
    // Their attention is over their tokens.
    idle.sort_by_key(|&slot| slots.get(slot).tokens().len());
    if idle.len() >= more {
        members.extend(&idle[..more]);
    }
    members
}

/// Computes the caches again that were lost with a device.
fn recover(slots: &mut Slots, members: &[usize]) -> Result<(), LlmError> {
    let mut lost = Vec::new();
    for &slot in members {
        let storages = slots.get(slot).cache().storages();
        if storages.iter().any(|storage| storage.valid_on().is_empty()) {
            lost.push(slot);
        }
    }
    let lost = match lost.is_empty() {
        true => members,
        false => &lost[..],
    };
    for &slot in lost {
        slots.with_programs(slot)?.recover(&unread())?;
    }
    Ok(())
}
