//! The elements of each line at given ranks in ascending order, without sorting the line.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_ir::{Layout, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use super::top_k::{Keyed, Packed};
use crate::element::{Element, with_type};
use crate::index::{Check, Indices, take};
use crate::kernel::{Args, Misuse, SharedMut, for_ranges};
use crate::launch::Launch;
use crate::pool::Pool;
use crate::reader::{Reader, Runs};
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::KthValue,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Elements that a thread looks at together: threads share lines that are longer.
const PIECE: usize = 1 << 16;

/// Cost of an element beside an addition.
const WORK: usize = 8;

/// Bits of a number that are counted in one pass over a long line.
const DIGIT: u32 = 11;

/// Number of remaining elements of a long line at which no further pass narrows the search.
const FEW: usize = 1 << 14;

/// Places of a line for which each takes less than sorting the line does.
const FEW_PLACES: usize = 8;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(args: Args) -> Result<(), Misuse> {
    let Op::KthValue(op) = args.op else {
        return Err(Misuse("not a kth_value".to_owned()));
    };
    let Args {
        pool,
        inputs: [x, places],
        output: mut values,
        mut others,
        ..
    } = args
    else {
        return Err(Misuse("kth_value has two operands".to_owned()));
    };
    let [indices] = &mut others[..] else {
        return Err(Misuse("kth_value has two results".to_owned()));
    };
    let shape = values.ty.shape.clone();
    let check = Check::new(op.k);
    if shape.elements() > 0 {
        let lines = Lines {
            pool,
            x,
            places,
            dim: op.dim,
            check: &check,
        };
        with_type!(x.dtype(), reals T => {
            lines.select::<T>(indices.data());
            Ok(())
        })?;
    }
    // They are of the lines.
    let inside = Check::new(x.shape()[op.dim]);
    let picks = Indices::Wide(Reader::of(indices.data(), &Layout::contiguous(&shape)));
    with_type!(x.dtype(), words T => {
        take::<T>(pool, values.data(), &shape, x, op.dim, &picks, &inside);
        Ok(())
    })?;
    check.finish(places, x, op.dim)
}

/// The lines of an operand along a dimension, and the places that are asked for in each.
struct Lines<'a> {
    pool: &'a Pool,
    x: &'a View<'a>,
    places: &'a View<'a>,
    dim: usize,
    check: &'a Check,
}

impl Lines<'_> {
    /// Writes the indices of the elements at the places, in the order of these.
    fn select<T: Element<Compute: Keyed>>(&self, indices: &mut [i64])
    where
        u128: Packed<<T::Compute as Keyed>::Key>,
    {
        match u32::try_from(self.x.shape()[self.dim]) {
            Ok(_) => self.select_by::<T, <T::Compute as Keyed>::Narrow>(indices),
            Err(_) => self.select_by::<T, u128>(indices),
        }
    }

    fn select_by<T, P>(&self, indices: &mut [i64])
    where
        T: Element<Compute: Keyed>,
        P: Packed<<T::Compute as Keyed>::Key>,
    {
        let rank = self.x.shape().len();
        let mut order: Vec<usize> = (0..rank).filter(|&d| d != self.dim).collect();
        order.push(self.dim);
        let (len, asked) = (self.x.shape()[self.dim], self.places.shape()[self.dim]);
        let x = Reader::<T>::new(self.x, &self.x.layout.permute(&order));
        let places = Indices::new(self.places, &self.places.layout.permute(&order));
        let targets = Layout::contiguous(&self.places.layout.shape).permute(&order);
        let out = SharedMut::new(indices);
        // Has `find` tell the indices that a line's places have.
        let line = |line: usize, places: &mut Indices, find: &mut dyn FnMut(usize) -> i64| {
            let numbers = line * asked..(line + 1) * asked;
            let targets = Runs::new(&targets, numbers.clone())
                .flat_map(|run| (0..run.len).map(move |i| run.at + i * run.stride));
            for (&place, target) in places.read(numbers.start, asked).iter().zip(targets) {
                let place = self.check.inside(place, target);
                // SAFETY: an element of the result, of a line that only one thread has.
                unsafe { *out.at(target) = place.map_or(0, &mut *find) };
            }
        };
        let lines = places.len() / asked;
        if len > PIECE {
            let mut places = places.clone();
            for number in 0..lines {
                let long = Long {
                    pool: self.pool,
                    x: &x,
                    line: number * len..(number + 1) * len,
                };
                line(number, &mut places, &mut |place| long.select::<P>(place));
            }
            return;
        }
        // Lines that are read together.
        let strip = (PIECE / len).max(1);
        for_ranges(self.pool, lines, len * WORK, |range| {
            let (mut x, mut places, mut packed) = (x.clone(), places.clone(), Vec::new());
            for first in range.clone().step_by(strip) {
                let count = strip.min(range.end - first);
                let together = x.read(first * len, count * len);
                for (number, x) in (first..).zip(together.chunks_exact(len)) {
                    packed.clear();
                    packed.extend(x.iter().enumerate().map(|(i, x)| P::new(x.key(), i)));
                    let sorts = asked > FEW_PLACES;
                    if sorts {
                        packed.sort_unstable();
                    }
                    line(number, &mut places, &mut |place| match sorts {
                        true => packed[place].place(),
                        false => packed.select_nth_unstable(place).1.place(),
                    });
                }
            }
        });
    }
}

/// A line that threads share.
struct Long<'a, T: Element> {
    pool: &'a Pool,
    x: &'a Reader<'a, T>,
    /// Its elements among those of `x`.
    line: Range<usize>,
}

impl<T: Element<Compute: Keyed>> Long<'_, T> {
    /// The index of the element at a place in rising order. Nothing is copied. The bits of its key and index are found
    /// from the highest on. Each pass counts the elements that have the bits so far, until few are left.
    fn select<P: Packed<<T::Compute as Keyed>::Key>>(&self, mut place: usize) -> i64 {
        // The bits that are known, and how many are behind them.
        let (mut bits, mut behind) = (P::ZERO, P::BITS);
        let mut left = self.line.len();
        while left > FEW {
            let next = behind.saturating_sub(DIGIT);
            let counts: Vec<AtomicUsize> = (0..1 << DIGIT).map(|_| AtomicUsize::new(0)).collect();
            let start = || vec![0; 1 << DIGIT];
            let count = |counts: &mut Vec<usize>, packed: P| {
                counts[packed.above(next).low(DIGIT)] += 1;
            };
            self.each((bits, behind), start, count, |found| {
                for (count, found) in counts.iter().zip(found) {
                    count.fetch_add(found, Ordering::Relaxed);
                }
            });
            let mut digit = 0;
            left = counts[digit].load(Ordering::Relaxed);
            while place >= left {
                place -= left;
                digit += 1;
                left = counts[digit].load(Ordering::Relaxed);
            }
            bits = bits.then(digit, behind - next);
            behind = next;
        }
        let few = Mutex::new(Vec::with_capacity(left));
        let note = |found: &mut Vec<P>, packed| found.push(packed);
        self.each((bits, behind), Vec::new, note, |found| {
            few.lock().unwrap_or_else(|e| e.into_inner()).extend(found);
        });
        let mut few = few.into_inner().unwrap_or_else(|e| e.into_inner());
        few.select_nth_unstable(place).1.place()
    }

    /// Adds each element whose first bits are known to one of several totals, which are then finished.
    fn each<K, P: Packed<<T::Compute as Keyed>::Key>>(
        &self,
        (bits, behind): (P, u32),
        start: impl Fn() -> K + Sync,
        add: impl Fn(&mut K, P) + Sync,
        finish: impl Fn(K) + Sync,
    ) {
        let len = self.line.len();
        for_ranges(self.pool, len.div_ceil(PIECE), PIECE, |pieces| {
            let (mut x, mut total) = (self.x.clone(), start());
            for first in pieces.map(|piece| piece * PIECE) {
                let piece = x.read(self.line.start + first, PIECE.min(len - first));
                for (index, x) in (first..).zip(piece) {
                    let packed = P::new(x.key(), index);
                    if packed.above(behind) == bits {
                        add(&mut total, packed);
                    }
                }
            }
            finish(total);
        });
    }
}
