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

/// Elements that are compared together.
const CHUNK: usize = 64;

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
    // The extreme of each piece of a long line.
    let pieces = len.div_ceil(PIECE).max(1);
    let piece = |row: usize, piece: usize| {
        let start = piece * PIECE;
        (row * len + start, PIECE.min(len - start))
    };
    let shared = if pieces > 1 { indices.len() } else { 0 };
    let mut extremes = vec![T::Compute::LEAST; shared * pieces];
    for_rows(args.pool, &mut extremes, 1, PIECE, |first, part| {
        let mut x = x.clone();
        for (number, extreme) in (first..).zip(part) {
            let (start, len) = piece(number / pieces, number % pieces);
            *extreme = extreme_of(x.read(start, len), op.largest);
        }
    });
    let work = if pieces > 1 { PIECE } else { len };
    for_rows(args.pool, indices, 1, work, |first, part| {
        let (mut x, mut buffer) = (x.clone(), Vec::new());
        for (row, at) in (first..).zip(part) {
            // The first piece with the extreme is looked through once more.
            let best = match extremes.get(row * pieces..(row + 1) * pieces) {
                Some(extremes) => place_of(extremes, extreme_of(extremes, op.largest)),
                None => 0,
            };
            let (start, len) = piece(row, best);
            let line = x.read(start, len);
            let extreme = extreme_of(line, op.largest);
            let place = place_of(line, extreme);
            *at = (best * PIECE + place) as i64;
            if let Some(values) = &values {
                let found = line[place];
                // SAFETY: there is a value for each index, and rows are one thread's.
                let value = unsafe { values.range(row, 1) };
                T::write(value, &mut buffer, |value| value[0] = found);
            }
        }
    });
}

/// The largest or smallest element.
fn extreme_of<T: Ordered>(line: &[T], largest: bool) -> T {
    let mut extreme = T::LEAST;
    Level::current().run(Extreme {
        line,
        largest,
        extreme: &mut extreme,
    });
    extreme
}

/// The first place of an element that is equal to `extreme`.
fn place_of<T: Ordered>(line: &[T], extreme: T) -> usize {
    let mut place = 0;
    Level::current().run(Place {
        line,
        extreme,
        place: &mut place,
    });
    place
}

struct Extreme<'a, T> {
    line: &'a [T],
    largest: bool,
    extreme: &'a mut T,
}

impl<T: Ordered> Kernel for Extreme<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        *self.extreme = match self.largest {
            true => fold(self.line, T::LEAST, T::larger, T::larger),
            false => fold(self.line, T::GREATEST, T::smaller, T::smaller),
        };
    }
}

struct Place<'a, T> {
    line: &'a [T],
    extreme: T,
    place: &'a mut usize,
}

impl<T: Ordered> Kernel for Place<'_, T> {
    /// Looks at chunks as wholes, as vectors do, and then into the one.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let extreme = self.extreme;
        let is_it = |x: &T| (*x == extreme) | (x.is_unordered() & extreme.is_unordered());
        let has_it = |chunk: &[T]| chunk.iter().fold(false, |has, x| has | is_it(x));
        let chunk = self.line.chunks(CHUNK).position(has_it).unwrap_or(0) * CHUNK;
        let within = self.line[chunk..].iter().position(is_it);
        *self.place = chunk + within.unwrap_or(0);
    }
}
