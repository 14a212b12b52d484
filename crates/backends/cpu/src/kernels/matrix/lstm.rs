//! Long short-term memory over all times of sequences, and its gradients.
//!
//! Sequences do not depend on each other. So each thread processes some of them through all time
//! steps, and threads synchronise once per layer. The weight is put in order once for all times.

use std::array::from_fn;
use std::ops::Range;

use rustorch_ir::ops::Lstm;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::kernel::{Args, Misuse, SharedMut, for_ranges};
use crate::launch::Launch;
use crate::math::Real;
use crate::pool::Pool;
use crate::simd::{Arithmetic, Kernel, Level, Simd};

pub(crate) const KERNELS: [KernelEntry<Launch>; 2] = [
    entry(OpKind::Lstm, Launch::Whole(forward)),
    entry(OpKind::LstmBackward, Launch::Whole(backward)),
];

const fn entry(kind: OpKind, launch: Launch) -> KernelEntry<Launch> {
    KernelEntry {
        kind,
        accepts,
        layouts: Layouts::Contiguous,
        launch,
    }
}

/// Cost of a state's gates beside a multiplication of its products.
const WORK: usize = 64;

fn accepts(s: &Signature) -> bool {
    matches!(s.output().dtype, DType::F32 | DType::F64)
}

fn forward(mut args: Args) -> Result<(), Misuse> {
    let Op::Lstm(op) = args.op else {
        return Err(Misuse("not an lstm".to_owned()));
    };
    match args.output.dtype() {
        DType::F64 => forward_of::<f64>(&mut args, op),
        _ => forward_of::<f32>(&mut args, op),
    }
    Ok(())
}

fn backward(mut args: Args) -> Result<(), Misuse> {
    let Op::LstmBackward(op) = args.op else {
        return Err(Misuse("not an lstm_backward".to_owned()));
    };
    match args.output.dtype() {
        DType::F64 => backward_of::<f64>(&mut args, &op.lstm),
        _ => backward_of::<f32>(&mut args, &op.lstm),
    }
    Ok(())
}

fn forward_of<T: Real>(args: &mut Args, op: &Lstm) {
    let operand = |i: usize| args.inputs[i].data::<T>();
    let (x, weight, h, c) = (operand(0), operand(1), operand(2), operand(3));
    let hidden = args.inputs[1].shape()[1];
    let weight = Panels::new(weight, [hidden, 4 * hidden], [1, hidden]);
    let [last_h, last_c, saved @ ..] = &mut args.others[..] else {
        return;
    };
    let mut saved = saved
        .iter_mut()
        .map(|saved| SharedMut::new(saved.data::<T>()));
    let saved = [saved.next(), saved.next(), saved.next()];
    let (last_h, last_c) = (last_h.data::<T>(), last_c.data::<T>());
    last_h.copy_from_slice(h);
    last_c.copy_from_slice(c);
    let y = SharedMut::new(args.output.data::<T>());
    let (last_h, last_c) = (SharedMut::new(last_h), SharedMut::new(last_c));
    let steps = op.steps();
    for_sequences(args.pool, op, hidden, |rows| {
        let mut scratch = vec![T::zero(); 4 * rows.len() * hidden];
        for step in &steps {
            let (rows, elements) = having(&rows, step);
            let (at, count) = (elements.start * hidden, rows.len() * hidden);
            let [gates, h_before, c_before] = &saved;
            // SAFETY: rows are those of this thread alone, as are their elements, and inside of the results.
            let time = unsafe {
                let gates = gates.as_ref().map(|gates| gates.range(4 * at, 4 * count));
                Forward {
                    x: &x[4 * at..][..4 * count],
                    weight: &weight,
                    h: last_h.range(rows.start * hidden, count),
                    c: last_c.range(rows.start * hidden, count),
                    y: y.range(at, count),
                    gates: gates.unwrap_or(&mut scratch[..4 * count]),
                    before: [h_before, c_before]
                        .map(|of| of.as_ref().map(move |of| of.range(at, count))),
                }
            };
            Level::current().run(time);
        }
    });
}

fn backward_of<T: Real>(args: &mut Args, op: &Lstm) {
    let operand = |i: usize| args.inputs[i].data::<T>();
    let (ct, ct_h, ct_c) = (operand(0), operand(1), operand(2));
    let (gates, c_before, weight) = (operand(3), operand(4), operand(5));
    let hidden = args.inputs[5].shape()[1];
    let weight = Panels::new(weight, [4 * hidden, hidden], [hidden, 1]);
    let [dh, dc] = &mut args.others[..] else {
        return;
    };
    let (dh, dc) = (dh.data::<T>(), dc.data::<T>());
    dh.copy_from_slice(ct_h);
    dc.copy_from_slice(ct_c);
    let dx = SharedMut::new(args.output.data::<T>());
    let (dh, dc) = (SharedMut::new(dh), SharedMut::new(dc));
    let steps = op.steps();
    for_sequences(args.pool, op, hidden, |rows| {
        for step in steps.iter().rev() {
            let (rows, elements) = having(&rows, step);
            let (at, count) = (elements.start * hidden, rows.len() * hidden);
            // SAFETY: rows are those of this thread alone, as are their elements, and inside of the results.
            let time = unsafe {
                Backward {
                    ct: &ct[at..][..count],
                    gates: &gates[4 * at..][..4 * count],
                    c_before: &c_before[at..][..count],
                    weight: &weight,
                    dh: dh.range(rows.start * hidden, count),
                    dc: dc.range(rows.start * hidden, count),
                    dx: dx.range(4 * at, 4 * count),
                }
            };
            Level::current().run(time);
        }
    });
}

/// Calls `body` with ranges of sequences that have about as many elements, in parallel.
fn for_sequences(pool: &Pool, op: &Lstm, hidden: usize, body: impl Fn(Range<usize>) + Sync) {
    let parts = parts(&op.sizes, pool.threads());
    let elements: usize = op.sizes.iter().sum();
    let work = elements * hidden * (4 * hidden + WORK) / parts.len().max(1);
    for_ranges(pool, parts.len(), work, |range| {
        parts[range].iter().cloned().for_each(&body);
    });
}

/// The sequences in `count` parts or fewer, by the number of them that have each time.
fn parts(sizes: &[usize], count: usize) -> Vec<Range<usize>> {
    let all: usize = sizes.iter().sum();
    let length = |row: usize| sizes.partition_point(|&rows| rows > row);
    let (mut parts, mut begin, mut before) = (Vec::new(), 0, 0);
    for row in 0..sizes.first().copied().unwrap_or(0) {
        before += length(row);
        if before * count >= all * (parts.len() + 1) {
            parts.push(begin..row + 1);
            begin = row + 1;
        }
    }
    parts
}

/// Rows among `rows` that have the time of a step, and their elements.
fn having(rows: &Range<usize>, step: &Range<usize>) -> (Range<usize>, Range<usize>) {
    let rows = rows.start.min(step.len())..rows.end.min(step.len());
    let elements = step.start + rows.start..step.start + rows.end;
    (rows, elements)
}

/// A time of some sequences.
struct Forward<'a, T> {
    x: &'a [T],
    weight: &'a Panels<T>,
    h: &'a mut [T],
    c: &'a mut [T],
    y: &'a mut [T],
    gates: &'a mut [T],
    /// `h` and `c` before it, if they are saved.
    before: [Option<&'a mut [T]>; 2],
}

impl<T: Real> Kernel for Forward<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = Arithmetic::of(s);
        let hidden = self.weight.depth;
        for (before, now) in self.before.into_iter().zip([&*self.h, &*self.c]) {
            if let Some(before) = before {
                before.copy_from_slice(now);
            }
        }
        self.gates.copy_from_slice(self.x);
        self.weight.add_products(m, self.h, self.gates);
        let states = self.c.chunks_exact_mut(hidden.max(1));
        let results = self.h.chunks_exact_mut(hidden.max(1)).zip(states);
        let gates = self.gates.chunks_exact_mut(4 * hidden.max(1));
        for (gates, (h, c)) in gates.zip(results) {
            let (through, output) = gates.split_at_mut(3 * hidden);
            let (in_and_forget, new) = through.split_at_mut(2 * hidden);
            for gates in [&mut *in_and_forget, &mut *output] {
                gates.iter_mut().for_each(|gate| *gate = gate.sigmoid(m));
            }
            new.iter_mut()
                .for_each(|new| *new = new.hyperbolic_tangent(m));
            let (input, forget) = in_and_forget.split_at(hidden);
            let gates = input.iter().zip(forget).zip(new.iter().zip(output.iter()));
            for ((h, c), ((&input, &forget), (&new, &output))) in h.iter_mut().zip(c).zip(gates) {
                *c = forget * *c + input * new;
                *h = output * c.hyperbolic_tangent(m);
            }
        }
        self.y.copy_from_slice(self.h);
    }
}

/// Goes back through a time of some sequences.
struct Backward<'a, T> {
    ct: &'a [T],
    gates: &'a [T],
    c_before: &'a [T],
    weight: &'a Panels<T>,
    dh: &'a mut [T],
    dc: &'a mut [T],
    dx: &'a mut [T],
}

impl<T: Real> Kernel for Backward<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = Arithmetic::of(s);
        let hidden = self.weight.width;
        let one = T::one();
        let of_gates = self.gates.chunks_exact(4 * hidden.max(1));
        let of_gates = of_gates.zip(self.dx.chunks_exact_mut(4 * hidden.max(1)));
        for (row, (gates, dx)) in of_gates.enumerate() {
            let at = row * hidden..(row + 1) * hidden;
            let [input, forget, new, output] = from_fn(|i| &gates[i * hidden..][..hidden]);
            let (through, d_output) = dx.split_at_mut(3 * hidden);
            let (in_and_forget, d_new) = through.split_at_mut(2 * hidden);
            let (d_input, d_forget) = in_and_forget.split_at_mut(hidden);
            let (ct, before) = (&self.ct[at.clone()], &self.c_before[at.clone()]);
            let (dh, dc) = (&mut self.dh[at.clone()], &mut self.dc[at]);
            for j in 0..hidden {
                let (i, f, n, o) = (input[j], forget[j], new[j], output[j]);
                let shown = (f * before[j] + i * n).hyperbolic_tangent(m);
                let h = dh[j] + ct[j];
                let c = dc[j] + h * o * (one - shown * shown);
                d_input[j] = c * n * i * (one - i);
                d_forget[j] = c * before[j] * f * (one - f);
                d_new[j] = c * i * (one - n * n);
                d_output[j] = h * shown * o * (one - o);
                dc[j] = c * f;
                dh[j] = T::zero();
            }
        }
        self.weight.add_products(m, self.dx, self.dh);
    }
}

/// Columns that are multiplied together.
const COLUMNS: usize = 32;

/// Rows that are multiplied together.
const ROWS: usize = 4;

/// Products that are added up one after the other.
const CHAIN: usize = 256;

/// A matrix `[depth, width]` in the order in which products read it: columns in groups, the last one padded with zeros.
struct Panels<T> {
    data: Vec<[T; COLUMNS]>,
    depth: usize,
    width: usize,
}

impl<T: Real> Panels<T> {
    /// Packs the elements at `i · strides[0] + j · strides[1]`.
    fn new(matrix: &[T], [depth, width]: [usize; 2], strides: [usize; 2]) -> Self {
        let mut data = Vec::with_capacity(width.div_ceil(COLUMNS) * depth);
        for first in (0..width).step_by(COLUMNS) {
            let count = COLUMNS.min(width - first);
            data.extend((0..depth).map(|i| {
                let mut group = [T::zero(); COLUMNS];
                for (j, element) in group[..count].iter_mut().enumerate() {
                    *element = matrix[i * strides[0] + (first + j) * strides[1]];
                }
                group
            }));
        }
        Self { data, depth, width }
    }

    /// Adds the products of rows `x` with the matrix to `y`. Each is the same whatever rows there are beside it.
    #[inline(always)]
    fn add_products(&self, m: Arithmetic, x: &[T], y: &mut [T]) {
        if self.depth == 0 || self.width == 0 {
            return;
        }
        let rows = y.len() / self.width;
        for (group, panel) in self.data.chunks_exact(self.depth).enumerate() {
            let first = group * COLUMNS;
            let mut row = 0;
            while row + ROWS <= rows {
                self.add_tile::<ROWS>(m, panel, [row, first], x, y);
                row += ROWS;
            }
            for row in row..rows {
                self.add_tile::<1>(m, panel, [row, first], x, y);
            }
        }
    }

    /// The same of `R` rows and a group of columns.
    #[inline(always)]
    fn add_tile<const R: usize>(
        &self,
        m: Arithmetic,
        panel: &[[T; COLUMNS]],
        [row, first]: [usize; 2],
        x: &[T],
        y: &mut [T],
    ) {
        let count = COLUMNS.min(self.width - first);
        let x: [&[T]; R] = from_fn(|r| &x[(row + r) * self.depth..][..self.depth]);
        for begin in (0..self.depth).step_by(CHAIN) {
            let mut sums = [[T::zero(); COLUMNS]; R];
            for at in begin..self.depth.min(begin + CHAIN) {
                let columns = &panel[at];
                for (sums, x) in sums.iter_mut().zip(x) {
                    let x = x[at];
                    for (sum, &column) in sums.iter_mut().zip(columns) {
                        *sum = m.mul_add(x, column, *sum);
                    }
                }
            }
            for (r, sums) in sums.iter().enumerate() {
                let y = &mut y[(row + r) * self.width + first..][..count];
                y.iter_mut().zip(sums).for_each(|(y, &sum)| *y = *y + sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_about_as_many_elements() {
        assert_eq!(parts(&[4, 4, 4], 2), [0..2, 2..4]);
        // Lengths 5, 1, 1, 1, 1, 1.
        assert_eq!(parts(&[6, 1, 1, 1, 1], 2), [0..1, 1..6]);
        assert_eq!(parts(&[2, 1], 8), [0..1, 1..2]);
        assert!(parts(&[0, 0], 3).is_empty());
    }

    #[test]
    fn products_do_not_depend_on_the_rows_beside() {
        let (depth, width) = (300, 37);
        let number = |i: usize| (i % 17) as f32 / 7.0 - 1.0;
        let matrix: Vec<f32> = (0..depth * width).map(number).collect();
        let panels = Panels::new(&matrix, [depth, width], [width, 1]);
        struct Products<'a>(&'a Panels<f32>, &'a [f32], &'a mut [f32]);
        impl Kernel for Products<'_> {
            #[inline(always)]
            fn run<S: Simd>(self, s: S) {
                self.0.add_products(Arithmetic::of(s), self.1, self.2);
            }
        }
        let rows = 7;
        let x: Vec<f32> = (0..rows * depth).map(|i| number(3 * i)).collect();
        for level in Level::available() {
            let mut together = vec![0.5; rows * width];
            level.run(Products(&panels, &x, &mut together));
            for row in 0..rows {
                let mut alone = vec![0.5; width];
                level.run(Products(&panels, &x[row * depth..][..depth], &mut alone));
                assert_eq!(alone, together[row * width..][..width]);
                for (j, y) in alone.iter().enumerate() {
                    let terms = (0..depth)
                        .map(|k| f64::from(x[row * depth + k]) * f64::from(matrix[k * width + j]));
                    assert!((f64::from(*y) - 0.5 - terms.sum::<f64>()).abs() < 1e-3);
                }
            }
        }
    }
}
