//! The place of the largest or smallest element of each line, and the element.

use rustorch_ir::ops::ArgReduce;
use rustorch_ir::{Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::fold::{LANES, Ordered, fold, joined};
use crate::kernel::{Args, Misuse, SharedMut, for_rows};
use crate::launch::Launch;
use crate::reader::Reader;
use crate::simd::{Kernel, Level, Simd, from_fn};

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
                Some(extremes) => place_of(extremes, op.largest),
                None => 0,
            };
            let (start, len) = piece(row, best);
            let line = x.read(start, len);
            let place = place_of(line, op.largest);
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

/// The first place of the largest or smallest element.
fn place_of<T: Ordered>(line: &[T], largest: bool) -> usize {
    let mut place = 0;
    Level::current().run(Place {
        line,
        largest,
        place: &mut place,
    });
    place
}

/// The largest or smallest element.
#[inline(always)]
fn extreme<T: Ordered>(line: &[T], largest: bool) -> T {
    match largest {
        true => fold(line, T::LEAST, T::larger, T::larger),
        false => fold(line, T::GREATEST, T::smaller, T::smaller),
    }
}

struct Extreme<'a, T> {
    line: &'a [T],
    largest: bool,
    extreme: &'a mut T,
}

impl<T: Ordered> Kernel for Extreme<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        *self.extreme = extreme(self.line, self.largest);
    }
}

struct Place<'a, T> {
    line: &'a [T],
    largest: bool,
    place: &'a mut usize,
}

impl<T: Ordered> Kernel for Place<'_, T> {
    /// Finds the extreme, then its first place.
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let extreme = extreme(self.line, self.largest);
        let place = match extreme.is_unordered() {
            true => first(self.line, T::is_unordered),
            false => first(self.line, |x| x == extreme),
        };
        *self.place = place.unwrap_or(0);
    }
}

/// The first place of an element for which `is_it` holds. Vectors find it among the elements of a chunk.
#[inline(always)]
fn first<T: Copy>(line: &[T], is_it: impl Fn(T) -> bool) -> Option<usize> {
    let (chunks, rest) = line.as_chunks::<CHUNK>();
    let place = |chunk: &[T; CHUNK]| {
        let mut lanes = [u32::MAX; LANES];
        for (number, x) in chunk.as_chunks::<LANES>().0.iter().enumerate() {
            let at = (number * LANES) as u32;
            lanes = from_fn(|i| match is_it(x[i]) {
                true => lanes[i].min(at + i as u32),
                false => lanes[i],
            });
        }
        joined(lanes, u32::min)
    };
    let mut places = chunks.iter().map(place).enumerate();
    let found = places.find(|(_, at)| *at != u32::MAX);
    let found = found.map(|(number, at)| number * CHUNK + at as usize);
    found.or_else(|| {
        let at = rest.iter().position(|&x| is_it(x))?;
        Some(chunks.len() * CHUNK + at)
    })
}
