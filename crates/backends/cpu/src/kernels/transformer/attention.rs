//! Attention with grouped queries. The queries of all heads that share keys and values are rows of
//! tall matrices. The matrices pass over the cache block by block ([`tile`]).
//!
//! For few queries over many keys, threads share the work by parts of the keys. The parts' results
//! are put together in order: the computation follows from shapes and positions alone.

mod cached;
#[cfg(target_arch = "x86_64")]
mod planes;
mod product;
mod tile;
mod vectors;

use std::cell::RefCell;
use std::ops::Range;

use half::{bf16, f16};
use rustorch_ir::ops::Attention;
use rustorch_ir::order::sort_by_key;
use rustorch_ir::{BlockFormat, DType, Op, OpKind, Shape, Signature};
use rustorch_quant::BlockQ8_0;
use rustorch_runtime::{KernelEntry, Layouts};
use smallvec::SmallVec;

use self::cached::{Cached, Rows};
#[cfg(target_arch = "x86_64")]
use self::planes::Planes;
use self::product::LANES;
use self::tile::{Products, QUERIES, Score, Scoring, Tile, Total};
use self::vectors::Vectors;
use crate::kernel::{Args, Misuse, SharedMut};
use crate::launch::Launch;
use crate::qmatmul::MAX_FEW;
use crate::simd::Level;
use crate::view::{Target, View};

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Attention,
    accepts,
    layouts: Layouts::Contiguous,
    launch: Launch::Whole(launch),
};

/// Rows of a task: enough that it pays to prepare keys and values for them alone.
const ROWS: usize = 256;
/// Number of rows up to which tasks split the keys. With few tokens a token's rows count, else a
/// group's.
const FEW: usize = 64;
/// Keys of such a part.
const PART: usize = 256;
/// Rows from which on the matrix unit has enough to do.
#[cfg(target_arch = "x86_64")]
const MANY: usize = 16;

thread_local! {
    /// Operands of a thread's products, as large as the largest so far.
    static VECTORS: RefCell<Vectors> = RefCell::default();
    /// The same where the matrix unit computes them.
    #[cfg(target_arch = "x86_64")]
    static PLANES: RefCell<Option<Planes>> = const { RefCell::new(None) };
    /// Scores of a thread's block.
    static SCORES: RefCell<Vec<Score>> = const { RefCell::new(Vec::new()) };
    /// Results of a thread's tile.
    static TILE: RefCell<Results> = RefCell::default();
    /// Results for parts of the keys, in the thread that launches.
    static PARTS: RefCell<Results> = RefCell::default();
}

/// For each of some queries the total of its weights and a row of weighted values.
#[derive(Default)]
struct Results {
    totals: Vec<Total>,
    sums: Vec<f32>,
}

impl Results {
    /// Room for `rows` rows of `width`.
    fn room(&mut self, rows: usize, width: usize) -> (&mut [Total], &mut [f32]) {
        if self.totals.len() < rows {
            self.totals.resize(rows, Total::NONE);
        }
        if self.sums.len() < rows * width {
            self.sums.resize(rows * width, 0.0);
        }
        (&mut self.totals[..rows], &mut self.sums[..rows * width])
    }
}

/// Room for `len` elements, with whatever is in them.
fn room<T: bytemuck::Pod>(buffer: &mut Vec<T>, len: usize) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, T::zeroed());
    }
    &mut buffer[..len]
}

fn accepts(s: &Signature) -> bool {
    let cache = s.inputs[1].dtype;
    let blocks = DType::Block(BlockFormat::Q8_0);
    // Values of width 0 leave nothing to combine.
    let has_values = s.output().shape.last() != Some(&0);
    (s.outputs.len() == 1 || has_values)
        && s.output().dtype == DType::F32
        && (matches!(cache, DType::F32 | DType::F16 | DType::BF16) || cache == blocks)
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    let Op::Attention(op) = args.op else {
        return Err(Misuse("not an attention".to_owned()));
    };
    let [q, k, v] = [&args.inputs[0], &args.inputs[1], &args.inputs[2]];
    let r = q.shape().len();
    let past = match args.inputs.last().filter(|_| op.past) {
        Some(past) => {
            let past = past.data::<i32>()[0];
            usize::try_from(past).map_err(|_| Misuse(format!("past is {past}, less than 0")))?
        }
        None => 0,
    };
    let (t, s) = (q.shape()[r - 2], k.shape()[r - 2]);
    if op.past && past + t > s {
        let got = format!("{past} past and {t} new tokens");
        return Err(Misuse(format!("{got} in a cache of {s}")));
    }
    let mask = args.inputs.get(3).filter(|_| op.mask);
    let call = Call {
        op,
        queries: q.data(),
        rows: q.shape()[r - 3] / k.shape()[r - 3] * t,
        groups: k.shape()[..r - 2].iter().product(),
        t,
        s,
        d: q.shape()[r - 1],
        dv: v.shape()[r - 1],
        past,
        mask: mask.map(|mask| Mask::new(mask, q.shape(), s)),
    };
    if call.rows * call.groups * call.dv == 0 {
        return Ok(());
    }
    let cache = [k, v];
    match k.dtype() {
        DType::F16 => call.run::<f16>(&mut args, cache.map(View::data)),
        DType::BF16 => call.run::<bf16>(&mut args, cache.map(View::data)),
        DType::Block(_) => {
            let cache = cache.map(|view| view.dense_bytes());
            call.run::<BlockQ8_0>(&mut args, cache.map(bytemuck::cast_slice));
        }
        _ => call.run::<f32>(&mut args, cache.map(View::data)),
    }
    Ok(())
}

/// A mask of scores, as it lies in memory.
struct Mask<'a> {
    data: &'a [f32],
    /// Start of each query's row.
    rows: Vec<usize>,
    /// From one key to the next.
    step: usize,
}

impl<'a> Mask<'a> {
    /// For queries of a shape with `keys` keys.
    fn new(mask: &View<'a>, queries: &[usize], keys: usize) -> Self {
        let last = queries.len() - 1;
        let scores = Shape::from(queries).with_dim(last, keys);
        let layout = mask.layout.broadcast_to(&scores);
        let rows = layout.slice(last, 0, 1, 1);
        let rows = rows.positions();
        Self {
            data: mask.data(),
            rows: rows.map(|at| at - layout.offset).collect(),
            step: layout.strides[last],
        }
    }

    /// Adds the mask of a query to its scores with the keys from `first` on.
    #[inline(always)]
    fn add(&self, query: usize, first: usize, scores: &mut [f32]) {
        let mask = &self.data[self.rows[query] + first * self.step..];
        if self.step == 1 {
            scores.iter_mut().zip(mask).for_each(|(x, m)| *x += m);
        } else {
            let mask = mask[0];
            scores.iter_mut().for_each(|x| *x += mask);
        }
    }
}

/// Operands and sizes of the computation.
struct Call<'a> {
    op: &'a Attention,
    queries: &'a [f32],
    /// Queries of a group: row `r` is query `r % t` of its head `r / t`.
    rows: usize,
    /// Groups of heads that share keys and values.
    groups: usize,
    t: usize,
    s: usize,
    d: usize,
    dv: usize,
    past: usize,
    mask: Option<Mask<'a>>,
}

/// Work of a thread at a time: rows of a group, with some of the keys.
struct Task {
    group: usize,
    rows: Range<usize>,
    keys: Range<usize>,
}

impl Call<'_> {
    /// Rows of a group that come with a token; with more than a few tokens, all rows. They decide the way:
    /// a few tokens together have the results of each alone, bit by bit, as in products.
    fn rows_of_token(&self) -> usize {
        match self.t {
            1..=MAX_FEW => self.rows / self.t,
            _ => self.rows,
        }
    }

    /// Keys that a row of a group sees.
    #[inline(always)]
    fn visible(&self, row: usize) -> Range<usize> {
        if !self.op.causal {
            return 0..self.s;
        }
        let end = self.past + row % self.t + 1;
        let window = self.op.window.unwrap_or(end);
        end.saturating_sub(window)..end.min(self.s)
    }

    /// Keys from the first to the last that any of some rows of a group sees.
    fn seen(&self, rows: Range<usize>) -> Range<usize> {
        let visible = rows.map(|row| self.visible(row));
        let both = visible.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        both.unwrap_or(0..0)
    }

    fn run<T: Cached>(&self, args: &mut Args, [keys, values]: [&[T]; 2]) {
        let out = args.output.data::<f32>();
        // For each row its own; for none, where they are not a result.
        let logs = args.others.first_mut().map(Target::data::<f32>);
        let logs = logs.unwrap_or_default();
        let logs_of_row = usize::from(!logs.is_empty());
        let logs = SharedMut::new(logs);
        // SAFETY: each task has rows of its own.
        let logs = |first: usize, count: usize| unsafe {
            logs.range(first * logs_of_row, count * logs_of_row)
        };
        let seen = self.seen(0..self.rows);
        let first_part = seen.start / PART;
        let parts = seen.end.div_ceil(PART) - first_part;
        if self.rows_of_token() <= FEW && parts > 1 {
            PARTS.with_borrow_mut(|results| {
                let width = self.dv.next_multiple_of(LANES);
                let rows = self.groups * self.rows;
                let (totals, sums) = results.room(parts * rows, width);
                let (shared_totals, shared_sums) = (SharedMut::new(totals), SharedMut::new(sums));
                args.pool.run(self.groups * parts, &|task| {
                    let (group, part) = (task / parts, first_part + task % parts);
                    // SAFETY: each task has rows of its own.
                    let (totals, sums) = unsafe {
                        let (first, count) = (task * self.rows, self.rows);
                        let sums = shared_sums.range(first * width, count * width);
                        (shared_totals.range(first, count), sums)
                    };
                    let start = seen.start.max(part * PART);
                    let keys_of = start..seen.end.min((part + 1) * PART);
                    let task = Task {
                        group,
                        rows: 0..self.rows,
                        keys: keys_of,
                    };
                    self.compute(&task, [keys, values], totals, sums);
                });
                args.pool
                    .for_each_chunk(out, self.rows * self.dv, &|start, out| {
                        let first = start / self.dv * parts;
                        let count = self.rows * parts;
                        self.join(
                            &totals[first..][..count],
                            &sums[first * width..][..count * width],
                            out,
                            logs(start / self.dv, self.rows),
                        );
                    });
            });
            return;
        }
        let blocks = self.rows.div_ceil(ROWS);
        // A token's decoding takes no memory.
        let mut tasks: SmallVec<[Task; 64]> = (0..self.groups * blocks)
            .map(|task| {
                let first = task % blocks * ROWS;
                let rows = first..self.rows.min(first + ROWS);
                let keys = self.seen(rows.clone());
                Task {
                    group: task / blocks,
                    rows,
                    keys,
                }
            })
            .collect();
        // The longest first, so that threads are done at about the same time.
        sort_by_key(&mut tasks, |task| {
            std::cmp::Reverse(task.keys.len() * task.rows.len())
        });
        let out = SharedMut::new(out);
        args.pool.run(tasks.len(), &|task| {
            let task = &tasks[task];
            let (first, count) = (task.group * self.rows + task.rows.start, task.rows.len());
            // SAFETY: each task has rows of its own.
            let out = unsafe { out.range(first * self.dv, count * self.dv) };
            TILE.with_borrow_mut(|results| {
                let (totals, sums) = results.room(count, self.dv.next_multiple_of(LANES));
                self.compute(task, [keys, values], totals, sums);
                self.join(totals, sums, out, logs(first, count));
            });
        });
    }

    /// Computes a task's totals and sums.
    fn compute<T: Cached>(
        &self,
        task: &Task,
        cache: [&[T]; 2],
        totals: &mut [Total],
        sums: &mut [f32],
    ) {
        #[cfg(target_arch = "x86_64")]
        if let Some(amx) = Level::current().amx()
            && T::SPLITS
            && task.rows.len().min(self.rows_of_token()) >= MANY
            && self.d > 0
        {
            return PLANES.with_borrow_mut(|planes| {
                let planes = planes.get_or_insert_with(|| Planes::new(amx));
                self.compute_with(planes, task, cache, totals, sums);
            });
        }
        VECTORS.with_borrow_mut(|vectors| self.compute_with(vectors, task, cache, totals, sums));
    }

    fn compute_with<T: Cached>(
        &self,
        products: &mut impl Products,
        task: &Task,
        [keys, values]: [&[T]; 2],
        totals: &mut [Total],
        sums: &mut [f32],
    ) {
        let Task {
            group,
            ref rows,
            keys: ref range,
        } = *task;
        let first = group * self.rows + rows.start;
        let each = |width: usize| self.s * width / T::ELEMENTS;
        SCORES.with_borrow_mut(|scores| {
            Level::current().run(Tile {
                queries: &self.queries[first * self.d..][..rows.len() * self.d],
                keys: Rows::new(&keys[group * each(self.d)..][..each(self.d)], self.d),
                values: Rows::new(&values[group * each(self.dv)..][..each(self.dv)], self.dv),
                range: range.clone(),
                scoring: Scoring {
                    scale: self.op.scale.0 as f32,
                    soft_cap: self.op.soft_cap.map(|cap| cap.0 as f32),
                },
                visible: |row| self.visible(rows.start + row),
                mask: |row, key, scores: &mut [f32]| {
                    if let Some(mask) = &self.mask {
                        mask.add(first + row, key, scores);
                    }
                },
                products,
                scores: room(scores, QUERIES),
                totals,
                sums,
            })
        });
    }

    /// Puts the results for parts of the keys together: those of some rows for the first part, for
    /// the next and so on. A row that sees nothing at all (a mask of −∞) becomes NaN, as by
    /// definition. `logs` has the logarithm of each row's total, or is empty.
    fn join(&self, totals: &[Total], sums: &[f32], out: &mut [f32], logs: &mut [f32]) {
        let rows = out.len() / self.dv;
        let width = sums.len() / totals.len();
        for (row, out) in out.chunks_exact_mut(self.dv).enumerate() {
            let parts = || (row..totals.len()).step_by(rows);
            let largest = parts().map(|at| totals[at].largest);
            let all = Total {
                largest: largest.fold(f32::NEG_INFINITY, f32::max),
                sum: 0.0,
            };
            let factor = |at: usize| (totals[at].largest - all.base()).exp();
            let sum: f32 = parts().map(|at| factor(at) * totals[at].sum).sum();
            if let Some(log) = logs.get_mut(row) {
                *log = all.base() + sum.ln();
            }
            out.fill(0.0);
            for at in parts() {
                let factor = factor(at) / sum;
                let sums = &sums[at * width..][..width];
                out.iter_mut()
                    .zip(sums)
                    .for_each(|(out, sum)| *out += factor * sum);
            }
        }
    }
}
