//! Operands joined along a dimension.

use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
use crate::reader::Reader;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Concat,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Concat(op) = args.op else {
        return Err(Misuse("not a concat".to_owned()));
    };
    with_type!(args.output.dtype(), words T => {
        concat::<T>(&mut args, op.dim);
        Ok(())
    })
}

/// The dimensions before and behind `dim` count as one each. The result is then rows that consist
/// of a piece of each operand.
fn concat<T: Element>(args: &mut Args, dim: usize) {
    let piece = |shape: &[usize]| shape[dim..].iter().product::<usize>();
    let row = piece(args.output.shape());
    let mut end = 0;
    // Each operand with the end of its piece in a row.
    let operands: Vec<(Reader<T>, usize, usize)> = (args.inputs.iter())
        .map(|x| {
            let len = piece(x.shape());
            end += len;
            (Reader::whole(x), len, end)
        })
        .collect();
    for_rows(
        args.pool,
        args.output.data::<T>(),
        1,
        1,
        |first, mut part| {
            let mut at = first;
            while !part.is_empty() {
                let (before, within) = (at / row, at % row);
                let next = operands.partition_point(|&(_, _, end)| end <= within);
                let (x, len, end) = &operands[next];
                let (out, rest) = part.split_at_mut((end - within).min(part.len()));
                x.copy(before * len + len - (end - within), out);
                at += out.len();
                part = rest;
            }
        },
    );
}
