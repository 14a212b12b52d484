//! Elementwise operations, one or several fused: threads take blocks of elements through all of
//! them. So only operands and the last result are in memory; the rest stays in the nearest caches.
//!
//! A [`Plan`] lists the operands of a step (`source`). It is compiled to a `program` of loads and
//! functions on registers, which threads run block by block (`worker`).

mod blocks;
mod foreach;
mod products;
mod program;
mod rows;
mod source;
mod worker;

use rustorch_ir::{DType, Layout, Shape};
use rustorch_runtime::{Part, PartOperand, Step};
use smallvec::SmallVec;

use crate::element::unknown;
use crate::elementwise::{Function, Loop};
use crate::kernel::{Args, Misuse};
pub(crate) use blocks::Blocks;
pub(crate) use foreach::Groups;
use program::Program;
use rows::Rows;
use source::{Data, Source};

/// Plan of a step of elementwise operations.
pub(crate) struct Plan {
    /// Operands, and constants.
    sources: Vec<Source>,
    /// Bytes of an element of the result.
    size: usize,
    body: Body,
    /// A faster way than the body's blocks for the whole plan.
    rows: Option<Rows>,
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
    operands: SmallVec<[Value; 4]>,
    /// Bytes of an element of the result.
    size: usize,
}

/// An operand of a chain of elementwise operations.
pub(crate) struct Found {
    /// The index among the operands that it is run with.
    pub(crate) operand: usize,
    /// Layout in the chain's shape.
    pub(crate) layout: Layout,
    pub(crate) dtype: DType,
}

/// Elementwise operations of a step on elements of one shape.
pub(crate) struct Chain<'a> {
    /// Shape of the result.
    pub(crate) shape: &'a Shape,
    /// Dtype of the result.
    pub(crate) dtype: DType,
    /// The operations with their indices in the step; the last gives the result.
    pub(crate) parts: Vec<(usize, &'a Part, Function)>,
}

impl Plan {
    /// A plan of `step`, whose parts are these functions.
    pub(crate) fn new(step: &Step, functions: Vec<Function>) -> Result<Self, Misuse> {
        let shape = &step.output().ty.shape;
        let parts = step.parts.iter().enumerate().zip(functions);
        let chain = Chain {
            shape,
            dtype: step.output().ty.dtype,
            parts: parts.map(|((at, part), f)| (at, part, f)).collect(),
        };
        Self::of(chain, |operand| found(step, shape, operand))
    }

    /// A plan of a chain, whose other operands are where `find` says.
    pub(crate) fn of(
        chain: Chain,
        find: impl Fn(PartOperand) -> Result<Found, Misuse>,
    ) -> Result<Self, Misuse> {
        let Chain {
            shape,
            dtype,
            parts,
        } = chain;
        let operands = parts.iter().map(|(_, part, _)| part.operands.len());
        let mut sources = Vec::with_capacity(operands.sum());
        let mut calls: Vec<Call> = Vec::with_capacity(parts.len());
        let mut values: Vec<(PartOperand, Value)> = Vec::new();
        for (at, part, function) in parts {
            let mut operands: SmallVec<[Value; 4]> = SmallVec::new();
            for &operand in &part.operands {
                let known = values.iter().find(|(known, _)| *known == operand);
                operands.push(match known {
                    Some(&(_, value)) => value,
                    None => {
                        let Found {
                            operand: index,
                            layout,
                            dtype,
                        } = find(operand)?;
                        sources.push(Source::new(Data::Operand(index), &layout, dtype)?);
                        let value = Value::Source(sources.len() - 1);
                        values.push((operand, value));
                        value
                    }
                });
            }
            let value = match function {
                Function::Identity => operands[0],
                Function::Constant(word) => {
                    let layout = Layout::contiguous(&Shape::default()).broadcast_to(shape);
                    sources.push(Source::new(Data::Constant(word), &layout, part.dtype)?);
                    Value::Source(sources.len() - 1)
                }
                Function::Loop(function) => {
                    calls.push(Call {
                        function,
                        operands,
                        size: size(part.dtype)?,
                    });
                    Value::Call(calls.len() - 1)
                }
            };
            values.push((PartOperand::Part(at), value));
        }
        let rows = match &calls[..] {
            [call] => Rows::new(&sources, call, shape.elements()),
            _ => None,
        };
        let body = match values.last() {
            Some(&(_, Value::Source(source))) => Body::Copy(source),
            _ => Body::Compute(Program::new(&sources, calls)),
        };
        Ok(Self {
            sources,
            size: size(dtype)?,
            body,
            rows,
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
        match (&self.body, &self.rows) {
            (Body::Copy(source), _) => self.sources[*source].copy_all(inputs, pool, out),
            (_, Some(rows)) => rows.run(&self.sources, inputs, pool, out),
            (Body::Compute(program), None) => {
                worker::run(program, &self.sources, inputs, pool, out, self.size);
            }
        }
    }
}

/// Finds an operand of its step for a chain of `shape`.
pub(crate) fn found(step: &Step, shape: &Shape, operand: PartOperand) -> Result<Found, Misuse> {
    let PartOperand::Input(operand) = operand else {
        return Err(Misuse("an operand that is computed later".to_owned()));
    };
    let place = &step.inputs[operand];
    Ok(Found {
        operand,
        layout: place.layout.broadcast_to(shape),
        dtype: place.ty.dtype,
    })
}

fn size(dtype: DType) -> Result<usize, Misuse> {
    dtype.size().ok_or_else(|| unknown(dtype))
}
