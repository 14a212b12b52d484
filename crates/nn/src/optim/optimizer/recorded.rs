//! A step as a program that is run often has it: its numbers are operands.

use indexmap::IndexMap;
use rustorch_ir::{DType, Op, Scalar};
use rustorch_tensor::replay::{VaryingNumber, operations, record_numbers};
use rustorch_tensor::{RusTorchResult, Tensor, no_grad};

use super::{Optimizer, Parameter, Rule, memory};

/// What a step writes, as it was recorded.
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
}

/// What a step of a parameter would be recorded as.
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
}

impl Parameter {
    /// What the next step would be recorded as. Nothing is computed.
    fn rehearse<R: Rule>(&self, options: &R) -> RusTorchResult<(Rehearsed, Vec<VaryingNumber>)> {
        let gradient = Tensor::placeholder(self.tensor.shape(), self.tensor.dtype())?;
        let (outcome, numbers) = record_numbers(&[], || {
            let mut state = self.state.begun();
            let next = options.update(
                self.step + 1.0,
                &self.tensor.detach(),
                &gradient,
                &mut state,
            )?;
            Ok::<_, rustorch_tensor::RusTorchError>((next, state))
        });
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
    /// Records a step by gradients as [`Optimizer::step_with`] does, for a program that is run often; where `skips` is
    /// true when it runs, nothing changes. The optimiser stays as it is until [`Optimizer::advance`].
    ///
    /// # Errors
    /// As [`Optimizer::step_with`].
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
                        let (rehearsed, numbers) = parameter.rehearse(&group.options)?;
                        update.kinds.push(Kind {
                            group: i,
                            step: parameter.step,
                            shape: shape.to_vec(),
                            dtype,
                            parameter: place,
                            rehearsed,
                        });
                        update.numbers.extend(numbers.iter().cloned());
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
    /// An option that has no such value.
    pub(crate) fn numbers(&self, update: &RecordedUpdate) -> RusTorchResult<Option<Vec<Scalar>>> {
        let mut numbers = Vec::with_capacity(update.numbers.len());
        for kind in &update.kinds {
            let group = &self.groups[kind.group];
            group.options.check()?;
            let (rehearsed, _) = group.parameters[kind.parameter].rehearse(&group.options)?;
            if !rehearsed.is_same_program(&kind.rehearsed) {
                return Ok(None);
            }
            numbers.extend(rehearsed.numbers);
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

    /// The memory of parameters and their states, by which a recorded step knows whether it is still of these.
    pub(crate) fn memory(&self) -> Vec<usize> {
        self.tensors().map(memory).collect()
    }
}
