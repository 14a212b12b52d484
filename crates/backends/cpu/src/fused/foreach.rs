//! The same elementwise operations on tensors of several groups: threads take blocks of them, of whichever
//! group, through all operations, and write all results of a block at once.

use rustorch_ir::ops::Foreach;
use rustorch_ir::{Layout, Op, Shape, ValueId};
use smallvec::SmallVec;

use super::program::{Program, Typed};
use super::source::{Data, Source};
use super::worker::{BLOCK_BYTES, Register, Worker};
use super::{Call, Value, size};
use crate::elementwise::Function;
use crate::kernel::{Args, Misuse, SharedMut, for_ranges};

/// Operations on each group.
pub(crate) struct Groups {
    each: Foreach,
    sources: Vec<Source>,
    /// None where results are operands as they are.
    program: Option<Program>,
    results: Vec<Output>,
    /// Elements of a block.
    block: usize,
}

/// A result of a group.
struct Output {
    from: From,
    /// The input of the body that it is written over, and which of the states that is.
    state: Option<(usize, usize)>,
    /// Bytes of an element.
    size: usize,
}

/// Place of a result after a block was computed.
enum From {
    Register(Typed),
    Source(usize),
}

impl Groups {
    /// The operation, whose elementwise nodes are these functions, in their order.
    pub(crate) fn new(
        each: &Foreach,
        functions: impl IntoIterator<Item = Function>,
    ) -> Result<Self, Misuse> {
        let body = &each.body;
        let (any, one) = (Shape::from([2]), Layout::contiguous(&Shape::default()));
        let mut sources = Vec::new();
        let mut values: Vec<Value> = Vec::with_capacity(body.len());
        for (input, ty) in body.inputs().iter().enumerate() {
            let layout = match each.is_number(input) {
                true => one.broadcast_to(&any),
                false => Layout::contiguous(&any),
            };
            sources.push(Source::new(Data::Operand(input), &layout, ty.dtype)?);
            values.push(Value::Source(input));
        }
        let (mut calls, mut functions) = (Vec::new(), functions.into_iter());
        for node in body.nodes() {
            let operand = |value: &ValueId| values[value.index()];
            if let Op::Assign(_) = node.op {
                values.push(operand(&node.inputs[1]));
                continue;
            }
            let dtype = node.output().dtype;
            let missing = || Misuse("an operation without a function".to_owned());
            values.push(match functions.next().ok_or_else(missing)? {
                Function::Identity => operand(&node.inputs[0]),
                Function::Constant(word) => {
                    let layout = one.broadcast_to(&any);
                    sources.push(Source::new(Data::Constant(word), &layout, dtype)?);
                    Value::Source(sources.len() - 1)
                }
                Function::Loop(function) => {
                    calls.push(Call {
                        function,
                        operands: node.inputs.iter().map(operand).collect(),
                        size: size(dtype)?,
                    });
                    Value::Call(calls.len() - 1)
                }
            });
        }
        let outputs = body.outputs().iter().map(|value| values[value.index()]);
        let outputs: Vec<Value> = outputs.collect();
        let widest = sources.iter().map(|source| source.size).max().unwrap_or(1);
        let widest = calls.iter().map(|call| call.size).fold(widest, usize::max);
        let (program, registers) = match calls.is_empty() {
            true => (None, Vec::new()),
            false => {
                let (program, registers) = Program::keeping(&sources, calls, &outputs);
                (Some(program), registers)
            }
        };
        let mut states = 0;
        let result = |(output, &value): (usize, &ValueId)| -> Result<Output, Misuse> {
            let from = match outputs[output] {
                Value::Call(call) => From::Register(registers[call]),
                Value::Source(source) => From::Source(source),
            };
            let state = each.state(output).map(|input| {
                states += 1;
                (input, states - 1)
            });
            let size = size(body.ty(value).dtype)?;
            Ok(Output { from, state, size })
        };
        Ok(Self {
            results: (body.outputs().iter().enumerate())
                .map(result)
                .collect::<Result<_, _>>()?,
            each: each.clone(),
            sources,
            program,
            block: BLOCK_BYTES / widest,
        })
    }

    /// Computes all results.
    pub(crate) fn run(&self, args: Args) -> Result<(), Misuse> {
        let Args {
            pool,
            inputs,
            output,
            others,
            ..
        } = args;
        let each = &self.each;
        let outputs = self.results.len();
        let tensor = (0..each.own).find(|&input| !each.is_number(input));
        let elements = |group: usize| {
            let shape = tensor.map(|input| inputs[each.operand(group, input)].shape());
            shape.map_or(1, |shape| shape.iter().product::<usize>())
        };
        let mut targets: Vec<_> = [output].into_iter().chain(others).collect();
        let targets: Vec<SharedMut<u8>> = (targets.iter_mut().enumerate())
            .map(|(at, target)| SharedMut::new(target.span(self.results[at % outputs].size)))
            .collect();
        // The first block of each group, and the end.
        let mut firsts = vec![0];
        for group in 0..each.count {
            firsts.push(firsts[group] + elements(group).div_ceil(self.block));
        }
        let work = self.block * self.program.as_ref().map_or(1, |program| program.work);
        for_ranges(pool, firsts[each.count], work, |blocks| {
            let mut states: Vec<Register> = Vec::new();
            states.resize_with(outputs, Register::default);
            for block in blocks {
                let group = firsts.partition_point(|&first| first <= block) - 1;
                let start = (block - firsts[group]) * self.block;
                let len = self.block.min(elements(group) - start);
                let out = |result: usize| {
                    let (target, size) = (
                        &targets[group * outputs + result],
                        self.results[result].size,
                    );
                    // SAFETY: blocks are disjoint and inside of the result, of which there is one slice at a time.
                    unsafe { target.range(start * size, len * size) }
                };
                // A state is reached only through the result that is written over it.
                for (result, output) in self.results.iter().enumerate() {
                    if let Some((_, state)) = output.state {
                        let out = out(result);
                        states[state].room(out.len()).copy_from_slice(out);
                    }
                }
                let find = |input: usize| {
                    let size = self.sources[input].size;
                    let mut known = self.results.iter().filter_map(|output| output.state);
                    if let Some((_, state)) = known.find(|(own, _)| *own == input) {
                        return &states[state].bytes()[..len * size];
                    }
                    let bytes = inputs[each.operand(group, input)].span(size);
                    match each.is_number(input) {
                        true => bytes,
                        false => &bytes[start * size..][..len * size],
                    }
                };
                let data: SmallVec<[&[u8]; 16]> = self
                    .sources
                    .iter()
                    .map(|source| source.found(find))
                    .collect();
                let worker = self.program.as_ref().map(|program| {
                    let mut worker =
                        Worker::over(program, &self.sources, data.iter().copied(), len, false);
                    // The states of the group's next block are prefetched while this block is computed.
                    let next = self.block.min(elements(group) - start - len);
                    for (result, output) in self.results.iter().enumerate() {
                        if output.state.is_some() {
                            // SAFETY: a block, or the end, is behind this one.
                            let state = unsafe {
                                targets[group * outputs + result].at((start + len) * output.size)
                            };
                            worker.ask_for(state, next * output.size);
                        }
                    }
                    for (input, source) in self.sources.iter().enumerate() {
                        let is_state = self
                            .results
                            .iter()
                            .any(|output| output.state.is_some_and(|(state, _)| state == input));
                        if source.contiguous && !is_state {
                            let block = data[input];
                            let behind = block.as_ptr().wrapping_add(block.len());
                            worker.ask_for(behind, next * source.size);
                        }
                    }
                    worker.block(0, len, &mut []);
                    worker
                });
                for (result, output) in self.results.iter().enumerate() {
                    let from = match (&output.from, &worker) {
                        (From::Register(typed), Some(worker)) => worker.register(*typed, len),
                        (From::Source(source), _) => data[*source],
                        (From::Register(_), None) => continue,
                    };
                    out(result).copy_from_slice(from);
                }
            }
        });
        Ok(())
    }
}
