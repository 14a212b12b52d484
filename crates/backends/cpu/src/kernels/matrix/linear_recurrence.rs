//! Linear recurrences: states that every time step decays, corrects and extends.
//!
//! The rows of a state do not depend on each other. So each thread takes some rows through all time steps. A few rows
//! at a time stay in the first cache meanwhile.

use rustorch_ir::ops::LinearRecurrence;
use rustorch_ir::{DType, Op, OpKind, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::kernel::{Args, Misuse, SharedMut, for_ranges};
use crate::launch::Launch;
use crate::math::Real;
use crate::simd::{Arithmetic, Kernel, Level, Simd};
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::LinearRecurrence,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Rows that go through all time steps together.
const ROWS: usize = 32;

/// Sums of a row that are added up side by side.
const LANES: usize = 16;

fn accepts(s: &Signature) -> bool {
    matches!(s.output().dtype, DType::F32 | DType::F64)
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::LinearRecurrence(op) = args.op else {
        return Err(Misuse("not a linear_recurrence".to_owned()));
    };
    match args.output.dtype() {
        DType::F64 => launch_of::<f64>(&mut args, op),
        _ => launch_of::<f32>(&mut args, op),
    }
    Ok(())
}

fn launch_of<T: Real>(args: &mut Args, op: &LinearRecurrence) {
    let (first, decays) = (&args.inputs[0], &args.inputs[1]);
    let &[batch, heads, width, depth] = first.shape() else {
        return;
    };
    let times = decays.shape()[1];
    let [last] = &mut args.others[..] else {
        return;
    };
    let last = SharedMut::new(last.data::<T>());
    let results = SharedMut::new(args.output.data::<T>());
    let vectors = Vectors {
        decays: Operand::<T>::new(decays),
        keys: Operand::new(&args.inputs[2]),
        values: Operand::new(&args.inputs[3]),
        reads: Operand::new(&args.inputs[4]),
        correction: op
            .corrects
            .then(|| [5, 6].map(|i| Operand::new(&args.inputs[i]))),
    };
    let (data, strides) = (first.data::<T>(), &first.layout.strides);
    let work = 4 * times * depth.max(1);
    for_ranges(args.pool, batch * heads * width, work, |range| {
        let mut row = range.start;
        while row < range.end {
            let (head, begin) = (row / width, row % width);
            let rows = ROWS.min(width - begin).min(range.end - row);
            let at = [head / heads, head % heads];
            // SAFETY: rows of the last state belong to one range each, and lie inside of it.
            let state = unsafe { last.range(row * depth, rows * depth) };
            for (i, state) in state.chunks_exact_mut(depth.max(1)).enumerate() {
                let from = at[0] * strides[0] + at[1] * strides[1] + (begin + i) * strides[2];
                for (j, element) in state.iter_mut().enumerate() {
                    *element = data[from + j * strides[3]];
                }
            }
            Level::current().run(Rows {
                vectors: &vectors,
                at,
                times,
                depth,
                begin,
                rows,
                state,
                reads_before: op.reads_before,
                results: &results,
                row_of: |time: usize| ((at[0] * times + time) * heads + at[1]) * width + begin,
            });
            row += rows;
        }
    });
}

/// Vectors `[b, t, h, d]`.
struct Operand<'a, T> {
    data: &'a [T],
    strides: [usize; 4],
    width: usize,
}

impl<'a, T: Real> Operand<'a, T> {
    fn new(view: &View<'a>) -> Self {
        let strides = &view.layout.strides;
        Self {
            data: view.data(),
            strides: [strides[0], strides[1], strides[2], strides[3]],
            width: view.shape()[3],
        }
    }

    /// A vector, in `copy` if its elements are not neighbours.
    #[inline(always)]
    fn vector<'v>(
        &'v self,
        [batch, head]: [usize; 2],
        time: usize,
        copy: &'v mut Vec<T>,
    ) -> &'v [T] {
        if self.width == 0 {
            return &[];
        }
        let [of_batch, of_time, of_head, step] = self.strides;
        let from = batch * of_batch + time * of_time + head * of_head;
        if step == 1 || self.width <= 1 {
            return &self.data[from..][..self.width];
        }
        copy.clear();
        copy.extend((0..self.width).map(|i| self.data[from + i * step]));
        copy
    }
}

/// All operands but the state.
struct Vectors<'a, T> {
    decays: Operand<'a, T>,
    keys: Operand<'a, T>,
    values: Operand<'a, T>,
    reads: Operand<'a, T>,
    correction: Option<[Operand<'a, T>; 2]>,
}

/// Rows of a head's state, through all time steps.
struct Rows<'a, T, F> {
    vectors: &'a Vectors<'a, T>,
    /// Sequence and head.
    at: [usize; 2],
    times: usize,
    depth: usize,
    /// The first of the rows.
    begin: usize,
    rows: usize,
    state: &'a mut [T],
    reads_before: bool,
    results: &'a SharedMut<'a, T>,
    /// The place of the rows' results of a time step.
    row_of: F,
}

impl<T: Real, F: Fn(usize) -> usize> Kernel for Rows<'_, T, F> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let m = Arithmetic::of(s);
        let (vectors, at) = (self.vectors, self.at);
        let mut copies: [Vec<T>; 6] = Default::default();
        let [decay, key, value, read, from, to] = &mut copies;
        for time in 0..self.times {
            let decay = vectors.decays.vector(at, time, decay);
            let key = vectors.keys.vector(at, time, key);
            let values = vectors.values.vector(at, time, value);
            let read = vectors.reads.vector(at, time, read);
            let correction = vectors
                .correction
                .as_ref()
                .map(|[a, b]| (a.vector(at, time, &mut *from), b.vector(at, time, &mut *to)));
            // SAFETY: results of these rows belong to this kernel alone, and lie inside of all.
            let results = unsafe { self.results.range((self.row_of)(time), self.rows) };
            let values = &values[self.begin..][..self.rows];
            for (i, (result, &value)) in results.iter_mut().zip(values).enumerate() {
                let row = &mut self.state[i * self.depth..][..self.depth];
                if self.reads_before {
                    *result = dot(m, row, read);
                }
                match correction {
                    Some((from, to)) => {
                        let product = dot(m, row, from);
                        for (j, x) in row.iter_mut().enumerate() {
                            let kept = m.mul_add(product, to[j], *x * decay[j]);
                            *x = m.mul_add(value, key[j], kept);
                        }
                    }
                    None => {
                        for (j, x) in row.iter_mut().enumerate() {
                            *x = m.mul_add(value, key[j], *x * decay[j]);
                        }
                    }
                }
                if !self.reads_before {
                    *result = dot(m, row, read);
                }
            }
        }
    }
}

/// The sum of the products.
#[inline(always)]
fn dot<T: Real>(m: Arithmetic, a: &[T], b: &[T]) -> T {
    let mut sums = [T::zero(); LANES];
    let (a, b) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.0.iter().zip(b.0) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            *sum = m.mul_add(a, b, *sum);
        }
    }
    for ((sum, &a), &b) in sums.iter_mut().zip(a.1).zip(b.1) {
        *sum = m.mul_add(a, b, *sum);
    }
    let mut count = LANES / 2;
    while count > 0 {
        for lane in 0..count {
            sums[lane] = sums[lane] + sums[lane + count];
        }
        count /= 2;
    }
    sums[0]
}
