//! Elementwise operations, one or several fused: threads take blocks of elements through all
//! of them, so that only operands and the last result are in memory and the rest stays in
//! the nearest caches.
//!
//! A [`Plan`] says what a step reads (`source`) and is compiled to a `program` of loads and
//! functions on registers, which threads run block by block (`worker`).

mod program;
mod source;
mod worker;

use rustorch_ir::{DType, Layout, Shape};
use rustorch_runtime::{Operand, Step};
use smallvec::SmallVec;

use crate::element::unknown;
use crate::elementwise::{Function, Loop};
use crate::kernel::{Args, Misuse};
use program::Program;
use source::{Data, Source};

/// What a step of elementwise operations does.
pub(crate) struct Plan {
    /// The operands of the step, then its constants.
    sources: Vec<Source>,
    /// Bytes of an element of the result.
    size: usize,
    body: Body,
}

enum Body {
    /// The result is this source.
    Copy(usize),
    /// The result is computed.
    Compute(Program),
}

/// A value of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    Source(usize),
    Call(usize),
}

/// A function with its operands.
struct Call {
    function: Loop,
    operands: SmallVec<[Value; 3]>,
    /// Bytes of an element of the result.
    size: usize,
}

impl Plan {
    /// A plan of `step`, whose parts are these functions.
    pub(crate) fn new(step: &Step, functions: Vec<Function>) -> Result<Self, Misuse> {
        let shape = &step.output().ty.shape;
        let mut sources = Vec::with_capacity(step.inputs.len());
        for (i, place) in step.inputs.iter().enumerate() {
            let layout = place.layout.broadcast_to(shape);
            sources.push(Source::new(Data::Operand(i), &layout, place.ty.dtype)?);
        }
        let mut calls: Vec<Call> = Vec::new();
        let mut values: SmallVec<[Value; 8]> = SmallVec::new();
        for (part, function) in step.parts.iter().zip(functions) {
            let value = |operand: &Operand| match *operand {
                Operand::Input(i) => Value::Source(i),
                Operand::Part(i) => values[i],
            };
            let value = match function {
                Function::Identity => value(&part.operands[0]),
                Function::Constant(word) => {
                    let layout = Layout::contiguous(&Shape::default()).broadcast_to(shape);
                    sources.push(Source::new(Data::Constant(word), &layout, part.dtype)?);
                    Value::Source(sources.len() - 1)
                }
                Function::Loop(function) => {
                    calls.push(Call {
                        function,
                        operands: part.operands.iter().map(value).collect(),
                        size: size(part.dtype)?,
                    });
                    Value::Call(calls.len() - 1)
                }
            };
            values.push(value);
        }
        let body = match values.last() {
            Some(&Value::Source(source)) => Body::Copy(source),
            _ => Body::Compute(Program::new(&sources, calls)),
        };
        Ok(Self {
            sources,
            size: size(step.output().ty.dtype)?,
            body,
        })
    }

    /// Computes the step's result.
    pub(crate) fn run(&self, args: Args) {
        let Args {
            pool,
            inputs,
            mut output,
            ..
        } = args;
        let out = output.span(self.size);
        if out.is_empty() {
            return;
        }
        match &self.body {
            Body::Copy(source) => self.sources[*source].copy_all(inputs, pool, out),
            Body::Compute(program) => {
                worker::run(program, &self.sources, inputs, pool, out, self.size);
            }
        }
    }
}

fn size(dtype: DType) -> Result<usize, Misuse> {
    dtype.size().ok_or_else(|| unknown(dtype))
}
