//! The place of the largest or smallest element of each line, and the element.

use rustorch_ir::ops::ArgReduce;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::fold::{Ordered, fold};
use crate::kernel::{Args, Misuse, SharedMut, for_rows};
use crate::launch::Launch;
use crate::reader::Reader;
use crate::simd::{Kernel, Level, Simd};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::ArgReduce,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Elements that are looked through at a time: threads share lines that are longer.
const PIECE: usize = 1 << 16;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(args: Args) -> Result<(), Misuse> {
    let Op::ArgReduce(op) = args.op else {
        return Err(Misuse("not an arg_reduce".to_owned()));
    };
    with_type!(args.inputs[0].dtype(), reals T => {
        arg_reduce::<T>(args, op);
        Ok(())
    })
}

fn arg_reduce<T: Element<Compute: Ordered>>(mut args: Args, op: &ArgReduce) {
    let (mut values, mut indices) = match args.others.pop() {
        Some(indices) => (Some(args.output), indices),
        None => (None, args.output),
    };
    let values = values
        .as_mut()
        .map(|values| SharedMut::new(values.data::<T>()));
    let x = &args.inputs[0];
    let len = x.shape()[op.dim];
    let mut order: Vec<usize> = (0..x.shape().len()).filter(|&d| d != op.dim).collect();
    order.push(op.dim);
    let x = Reader::<T>::new(x, &x.layout.permute(&order));
    let indices = indices.data::<i64>();
    let find = |line: &[T::Compute], at: &mut i64| {
        let largest = op.largest;
        Level::current().run(Extreme { line, largest, at });
    };
    // Places of the extreme of each piece of a long line.
    let pieces = len.div_ceil(PIECE).max(1);
    let mut firsts = vec![
        0;
        if pieces > 1 {
            indices.len() * pieces
        } else {
            0
        }
    ];
    for_rows(args.pool, &mut firsts, 1, PIECE, |first, part| {
        let mut x = x.clone();
        for (piece, at) in (first..).zip(part) {
            let (row, start) = (piece / pieces, piece % pieces * PIECE);
            find(x.read(row * len + start, PIECE.min(len - start)), at);
            *at += start as i64;
        }
    });
    let work = if pieces > 1 { pieces } else { len };
    for_rows(args.pool, indices, 1, work, |first, part| {
        let (mut x, mut buffer, mut extremes) = (x.clone(), Vec::new(), Vec::new());
        for (row, at) in (first..).zip(part) {
            let found = match firsts.get(row * pieces..(row + 1) * pieces) {
                Some(firsts) => {
                    extremes.clear();
                    let extreme = |&at: &i64| x.read(row * len + at as usize, 1)[0];
                    extremes.extend(firsts.iter().map(extreme));
                    find(&extremes, at);
                    let best = *at as usize;
                    *at = firsts[best];
                    extremes[best]
                }
                None => {
                    let line = x.read(row * len, len);
                    find(line, at);
                    line[*at as usize]
                }
            };
            if let Some(values) = &values {
                // SAFETY: there is a value for each index, and rows are one thread's.
                let value = unsafe { values.range(row, 1) };
                T::write(value, &mut buffer, |value| value[0] = found);
            }
        }
    });
}

struct Extreme<'a, T> {
    line: &'a [T],
    largest: bool,
    at: &'a mut i64,
}

impl<T: Ordered> Kernel for Extreme<'_, T> {
    /// Finds what the extreme is, then where it is first.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let extreme = match self.largest {
            true => fold(self.line, T::LEAST, T::larger, T::larger),
            false => fold(self.line, T::GREATEST, T::smaller, T::smaller),
        };
        let is_it = |x: &T| *x == extreme || (x.is_unordered() && extreme.is_unordered());
        *self.at = self.line.iter().position(is_it).unwrap_or(0) as i64;
    }
}
