//! A step inside a recorded program: its numbers are operands.

use indexmap::IndexMap;
use rustorch_ir::{DType, Op, Scalar};
use rustorch_tensor::replay::{VaryingNumber, operations, record_numbers};
use rustorch_tensor::{RusTorchResult, Tensor, no_grad};

use super::{Optimizer, Parameter, Rule};
use crate::nn::ParameterId;

/// The tensors that a recorded step writes.
pub(crate) struct RecordedUpdate {
    /// Parameters and their states, as they are afterwards.
    pub(crate) written: Vec<Tensor>,
    /// The numbers of the step.
    pub(crate) numbers: Vec<VaryingNumber>,
    kinds: Vec<Kind>,
    /// Parameters that change, by group and place, with the memory of their states.
    changed: Vec<(usize, usize, IndexMap<&'static str, Tensor>)>,
}

/// Parameters whose steps have the same operations and numbers.
struct Kind {
    group: usize,
    step: f64,
    shape: Vec<usize>,
    dtype: DType,
    /// One of them, by its place.
    parameter: usize,
    rehearsed: Rehearsed,
    /// The kind before whose numbers are its, too, as far as was seen yet.
    same_numbers: Option<usize>,
}

/// The recording of a step of a parameter.
#[derive(PartialEq)]
struct Rehearsed {
    ops: Vec<Op>,
    numbers: Vec<Scalar>,
    dtypes: Vec<DType>,
}

impl Rehearsed {
    fn is_same_program(&self, other: &Self) -> bool {
        self.ops == other.ops && self.dtypes == other.dtypes
    }

    fn has_same_numbers(&self, other: &Self) -> bool {
        self.numbers == other.numbers && self.dtypes == other.dtypes
    }
}

impl Parameter {
    /// The recording of the next step. Nothing is computed.
    fn rehearse<R: Rule>(&self, options: &R) -> RusTorchResult<(Rehearsed, Vec<VaryingNumber>)> {
        let gradient = Tensor::placeholder(self.tensor.shape(), self.tensor.dtype())?;
        let (outcome, numbers) = record_numbers(&[], || self.updated(options, &gradient));
        let (next, state) = outcome?;
        let results: Vec<&Tensor> = [&next].into_iter().chain(state.next.values()).collect();
        let rehearsed = Rehearsed {
            ops: operations(&results).into_iter().map(|o| o.op).collect(),
            numbers: numbers.iter().map(|number| number.value).collect(),
            dtypes: numbers
                .iter()
                .map(|number| number.placeholder.dtype())
                .collect(),
        };
        Ok((rehearsed, numbers))
    }
}

impl<R: Rule> Optimizer<R> {
    /// Allocates states that begin as zeros, so that the first step is the same program as later ones.
    ///
    /// # Errors
    /// Fails for an invalid option, or for sizes too large for memory.
    pub(crate) fn prepare(&mut self) -> RusTorchResult<()> {
        let mut new = Vec::new();
        for group in &mut self.groups {
            group.options.check()?;
            let fresh = |parameter: &&mut Parameter| {
                parameter.step == 0.0
                    && parameter.state.stored.is_empty()
                    && parameter.tensor.requires_grad()
            };
            for parameter in group.parameters.iter_mut().filter(fresh) {
                let gradient =
                    Tensor::placeholder(parameter.tensor.shape(), parameter.tensor.dtype())?;
                let (_, state) = parameter.next(&group.options, &gradient)?;
                for (name, like) in state.zeros {
                    let memory = Tensor::zeros(like.shape(), like.dtype())?;
                    new.push(memory.clone());
                    parameter.state.stored.insert(name, memory);
                }
            }
        }
        for memory in new {
            memory.storage()?;
        }
        Ok(())
    }

    /// Records a step by gradients as [`Optimizer::step_with`] does, for a program that is run often; where `skips` is
    /// true when it runs, nothing changes. The optimiser stays as it is until [`Optimizer::advance`].
    ///
    /// # Errors
    /// The same errors as [`Optimizer::step_with`].
    pub(crate) fn record_update(
        &self,
        gradient: impl Fn(&Tensor) -> Option<Tensor>,
        skips: Option<&Tensor>,
    ) -> RusTorchResult<RecordedUpdate> {
        let mut update = RecordedUpdate {
            written: Vec::new(),
            numbers: Vec::new(),
            kinds: Vec::new(),
            changed: Vec::new(),
        };
        // Numbers of each kind, which its parameters share.
        let mut shared: Vec<Vec<VaryingNumber>> = Vec::new();
        let kept = |next: &Tensor, old: &Tensor| match skips {
            Some(skips) => Tensor::where_(skips, old, next),
            None => Ok(next.clone()),
        };
        for (i, group) in self.groups.iter().enumerate() {
            group.options.check()?;
            for (place, parameter) in group.parameters.iter().enumerate() {
                let Some(gradient) = gradient(&parameter.tensor) else {
                    continue;
                };
                let (shape, dtype) = (parameter.tensor.shape(), parameter.tensor.dtype());
                let is_its = |kind: &Kind| {
                    kind.group == i
                        && kind.step == parameter.step
                        && kind.shape == shape
                        && kind.dtype == dtype
                };
                let kind = match update.kinds.iter().position(is_its) {
                    Some(kind) => kind,
                    None => {
                        let (rehearsed, mut numbers) = parameter.rehearse(&group.options)?;
                        let is_alike = |kind: &Kind| {
                            kind.same_numbers.is_none()
                                && kind.group == i
                                && kind.rehearsed.has_same_numbers(&rehearsed)
                        };
                        let same_numbers = update.kinds.iter().position(is_alike);
                        match same_numbers {
                            Some(known) => numbers.clone_from(&shared[known]),
                            None => update.numbers.extend(numbers.iter().cloned()),
                        }
                        update.kinds.push(Kind {
                            group: i,
                            step: parameter.step,
                            shape: shape.to_vec(),
                            dtype,
                            parameter: place,
                            rehearsed,
                            same_numbers,
                        });
                        shared.push(numbers);
                        shared.len() - 1
                    }
                };
                let (next, _) =
                    record_numbers(&shared[kind], || parameter.next(&group.options, &gradient));
                let (next, state) = next?;
                let mut changed = IndexMap::new();
                no_grad(|| {
                    let mut tensor = parameter.tensor.clone();
                    tensor.copy_(&kept(&next, &parameter.tensor.detach())?)?;
                    update.written.push(tensor);
                    for (name, next) in &state.next {
                        let memory = state.memory(name, next)?;
                        let mut written = memory.clone();
                        written.copy_(&kept(next, &memory)?)?;
                        update.written.push(written);
                        changed.insert(*name, memory);
                    }
                    Ok::<_, rustorch_tensor::RusTorchError>(())
                })?;
                update.changed.push((i, place, changed));
            }
        }
        Ok(update)
    }

    /// The numbers of the step that comes next, in their order; `None` if it is another program.
    ///
    /// # Errors
    /// Fails for an invalid option.
    pub(crate) fn numbers(&self, update: &RecordedUpdate) -> RusTorchResult<Option<Vec<Scalar>>> {
        let mut numbers = Vec::with_capacity(update.numbers.len());
        let mut known: Vec<Rehearsed> = Vec::with_capacity(update.kinds.len());
        for kind in &update.kinds {
            let group = &self.groups[kind.group];
            group.options.check()?;
            let (rehearsed, _) = group.parameters[kind.parameter].rehearse(&group.options)?;
            let are_same = |before: usize| known[before].has_same_numbers(&rehearsed);
            if !rehearsed.is_same_program(&kind.rehearsed)
                || !kind.same_numbers.is_none_or(are_same)
            {
                return Ok(None);
            }
            if kind.same_numbers.is_none() {
                numbers.extend_from_slice(&rehearsed.numbers);
            }
            known.push(rehearsed);
        }
        Ok(Some(numbers))
    }

    /// Notes that a recorded step was made.
    pub(crate) fn advance(&mut self, update: &RecordedUpdate) {
        for (group, place, states) in &update.changed {
            let parameter = &mut self.groups[*group].parameters[*place];
            parameter.step += 1.0;
            for (name, memory) in states {
                parameter.state.stored.insert(name, memory.clone());
            }
        }
    }

    /// Parameters and their states.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &Tensor> {
        self.parameters().flat_map(|parameter| {
            let states = parameter.state.stored.values();
            [&parameter.tensor].into_iter().chain(states)
        })
    }

    /// The states of all parameters.
    pub(crate) fn states(&self) -> impl Iterator<Item = &Tensor> {
        self.parameters()
            .flat_map(|parameter| parameter.state.stored.values())
    }

    /// The memory of parameters and their states, by which a recorded step knows whether it is still of these.
    pub(crate) fn memory(&self) -> Vec<ParameterId> {
        self.tensors().map(ParameterId::of).collect()
    }
}
