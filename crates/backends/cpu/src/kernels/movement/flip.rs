//! Dimensions in reverse order.

use rustorch_ir::ops::Flip;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::index::coordinates;
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Flip,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Flip(op) = args.op else {
        return Err(Misuse("not a flip".to_owned()));
    };
    with_type!(args.output.dtype(), words T => {
        flip::<T>(&mut args, op);
        Ok(())
    })
}

fn flip<T: Element>(args: &mut Args, op: &Flip) {
    let x = &args.inputs[0];
    let (shape, strides) = (x.shape(), &x.layout.strides);
    // The last dimension is a row.
    let lead = shape.len().saturating_sub(1);
    let row = shape.last().map_or(1, |&n| n);
    let stride = strides.last().map_or(1, |&s| s.max(1));
    let is_repeated = strides.last() == Some(&0);
    let turns = op.dims.contains(&lead);
    let data: &[T] = x.data();
    for_rows(
        args.pool,
        args.output.data::<T>(),
        row,
        row,
        |first, part| {
            for (i, out) in part.chunks_exact_mut(row).enumerate() {
                let at = coordinates(&shape[..lead], first + i);
                let place = |(d, &at): (usize, &usize)| match op.dims.contains(&d) {
                    true => (shape[d] - 1 - at) * strides[d],
                    false => at * strides[d],
                };
                let start: usize = at.iter().enumerate().map(place).sum();
                let line = &data[start..];
                match (turns, stride) {
                    _ if is_repeated => out.fill(line[0]),
                    (false, 1) => out.copy_from_slice(&line[..row]),
                    (true, 1) => copy(out, line[..row].iter().rev()),
                    (false, _) => copy(out, line.iter().step_by(stride)),
                    (true, _) => copy(
                        out,
                        line[..(row - 1) * stride + 1].iter().rev().step_by(stride),
                    ),
                }
            }
        },
    );
}

fn copy<'a, T: Copy + 'a>(to: &mut [T], from: impl Iterator<Item = &'a T>) {
    to.iter_mut().zip(from).for_each(|(y, x)| *y = *x);
}
