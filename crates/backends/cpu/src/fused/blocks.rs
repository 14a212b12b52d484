//! Elements that are computed when they are read.

use super::source::Place;
use super::worker::{Register, Worker};
use super::{Body, Plan};
use crate::view::View;

/// Results of a plan, block by block.
pub(crate) struct Blocks<'a> {
    plan: &'a Plan,
    operands: &'a [View<'a>],
    /// The most elements that are read at a time.
    len: usize,
    /// The thread that reads.
    worker: Option<Worker<'a>>,
    out: Register,
}

/// A clone without the elements that were read.
impl Clone for Blocks<'_> {
    fn clone(&self) -> Self {
        Self::new(self.plan, self.operands, self.len)
    }
}

impl<'a> Blocks<'a> {
    /// The result of `plan` on `operands`, at most `len` elements at a time.
    pub(crate) fn new(plan: &'a Plan, operands: &'a [View<'a>], len: usize) -> Self {
        Self {
            plan,
            operands,
            len,
            worker: None,
            out: Register::default(),
        }
    }

    /// Cost of an element beside an addition.
    pub(crate) fn work(&self) -> usize {
        match &self.plan.body {
            Body::Copy(_) => 0,
            Body::Compute(program) => program.work,
        }
    }

    /// The bytes of `len` elements from number `start` on.
    pub(crate) fn read(&mut self, start: usize, len: usize) -> &[u8] {
        let (plan, operands) = (self.plan, self.operands);
        let bytes = len * plan.size;
        match &plan.body {
            Body::Copy(source) => {
                let source = &plan.sources[*source];
                match source.load(source.data(operands), start, len, false, &mut self.out) {
                    Place::Memory(bytes) => bytes,
                    Place::Register(at) => &self.out.bytes()[at..at + bytes],
                }
            }
            Body::Compute(program) => {
                let most = self.len;
                let worker = self.worker.get_or_insert_with(|| {
                    Worker::new(program, &plan.sources, operands, most, false)
                });
                let out = self.out.room(bytes);
                worker.block(start, len, out);
                out
            }
        }
    }
}
