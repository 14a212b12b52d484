//! One operation on singles, of rows or of elements that each stand for a row: a loop goes through many rows,
//! since to find each by itself would take longer than to compute it.

use bytemuck::{cast_slice, cast_slice_mut};
use rustorch_ir::ops::BinaryOp;

use super::Call;
use super::source::Source;
use super::{Value, worker};
use crate::cache;
use crate::kernel::for_rows;
use crate::pool::Pool;
use crate::simd::{Strided, apply2_rows};
use crate::view::View;

/// Elements of a row at least: shorter ones are brought together.
const SHORTEST: usize = 16;

/// Rows at least, so that threads have some to share.
const FEWEST: usize = 16;

/// An operation on rows.
pub(super) struct Rows {
    op: BinaryOp,
    /// Elements of a row.
    width: usize,
    operands: [RowOperand; 2],
}

/// Place of an operand's elements for each row.
#[derive(Clone, Copy)]
struct RowOperand {
    source: usize,
    /// Distances of rows, and of elements, 0 or 1.
    far: usize,
    near: usize,
}

impl Rows {
    /// The loop over rows for a call, if it is of this kind.
    pub(super) fn new(sources: &[Source], call: &Call, count: usize) -> Option<Self> {
        let op = call.function.arithmetic?;
        let width = sources.iter().filter_map(Source::row).min()?;
        let is_worth_it =
            (SHORTEST..=worker::BLOCK_BYTES).contains(&width) && count / width >= FEWEST;
        let operand = |value: &Value| match *value {
            Value::Source(source) => {
                let [far, near] = sources[source].rows_of(width)?;
                Some(RowOperand { source, far, near })
            }
            Value::Call(_) => None,
        };
        let [a, b] = call.operands.as_slice() else {
            return None;
        };
        let operands = [operand(a)?, operand(b)?];
        let is_large = count * size_of::<f32>() >= cache::STREAMED;
        (is_worth_it && !is_large).then_some(Self {
            op,
            width,
            operands,
        })
    }

    /// Computes `out`, in parallel.
    pub(super) fn run(&self, sources: &[Source], operands: &[View], pool: &Pool, out: &mut [u8]) {
        let Self { op, width, .. } = *self;
        let data = self
            .operands
            .map(|operand| cast_slice(sources[operand.source].data(operands)));
        for_rows(pool, cast_slice_mut(out), width, width, |first, out| {
            let [a, b] = [0, 1].map(|i| {
                let RowOperand { far, near, .. } = self.operands[i];
                let data: &[f32] = data[i];
                Strided {
                    data: &data[first * far..],
                    far,
                    near,
                }
            });
            match op {
                BinaryOp::Add => apply2_rows(a, b, width, out, |a, b| a + b),
                BinaryOp::Sub => apply2_rows(a, b, width, out, |a, b| a - b),
                BinaryOp::Mul => apply2_rows(a, b, width, out, |a, b| a * b),
                _ => apply2_rows(a, b, width, out, |a, b| a / b),
            }
        });
    }
}
