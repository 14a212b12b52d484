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
    for_rows(args.pool, indices.data::<i64>(), 1, len, |first, part| {
        let (mut x, mut buffer) = (x.clone(), Vec::new());
        for (row, at) in (first..).zip(part) {
            let line = x.read(row * len, len);
            let largest = op.largest;
            Level::current().run(Extreme { line, largest, at });
            if let Some(values) = &values {
                // SAFETY: there is a value for each index, and rows are one thread's.
                let value = unsafe { values.range(row, 1) };
                T::write(value, &mut buffer, |value| value[0] = line[*at as usize]);
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
