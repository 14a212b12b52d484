//! `y = x · Wᵀ`, the product that dominates language models, with `W` in a block format or of
//! floats.
//!
//! [`linear`] converts the activations once (`activations`) and then goes one of two ways. For a
//! few rows it streams the weights from memory as they are (`decode`). For many it unpacks them,
//! panel by panel (`gemm`). In that form one vector instruction serves 16 rows of weights. Both are
//! written once, over things that vary on their own. One is the type of the weights (`operand`;
//! `quantized` with one file a format in `formats`, or `float`). The other is the machine's vector
//! instructions ([`Level`]).
//!
//! A row's result depends on nothing but its operands and the way: neither on the number of threads
//! nor on how rows are shared among them. The two ways add in different orders, so they differ in
//! the last bits.

mod activations;
mod decode;
mod experts;
pub(crate) mod few;
mod float;
mod formats;
mod gemm;
mod operand;
mod quantized;
mod scratch;
mod tile;
#[cfg(target_arch = "x86_64")]
mod tiled;
mod weight;

pub(crate) use decode::MAX_TOKENS as MAX_FEW;
pub(crate) use experts::Experts;
pub use scratch::Scratch;
pub use weight::{Weight, WeightError, WeightType};

#[cfg(target_arch = "x86_64")]
use crate::planes::{self, Number};
use crate::pool::Pool;
use crate::product::{self, Batch};
#[cfg(target_arch = "x86_64")]
use crate::simd::Amx;
use crate::simd::{Kernel, Level, Simd};
use activations::SLAB;
pub(crate) use float::Float;
#[cfg(target_arch = "x86_64")]
use half::{bf16, f16};
use operand::{Matrix, Operand, ROWS};
use std::cell::RefCell;
use tile::{Output, Tile};

/// Slabs of activations that are worth a chunk of their own.
const CHUNK_SLABS: usize = 32;
/// Chunks for each thread, so that one which is late is not a great loss.
const CHUNKS: usize = 4;
/// Rows of activations that stay in a second-level cache, a slab of each, while panels of weights
/// come and go.
const CHUNK_TOKENS: usize = 512;

/// Is half of the multiplications in [`linear`] only padding of rows of `k` elements?
pub(crate) fn pads(k: usize) -> bool {
    k.next_multiple_of(SLAB) >= 2 * k
}

/// Computes `y = x · Wᵀ`: `y[i × n + j]` is the product of row `i` of `x` with row `j` of `w`, for
/// `t` rows of `x`.
///
/// With block formats, activations are rounded to 8 bits (see `activations`); a float format's
/// products are in f32. Sums are in f32.
///
/// # Panics
/// Panics unless `x` holds `t × k` and `y` holds `t × n` values.
// Inlined, so that builds without the feature `llm`, which do not call it, compile no product.
#[inline]
pub fn linear(
    pool: &Pool,
    w: &Weight<'_>,
    x: &[f32],
    t: usize,
    y: &mut [f32],
    scratch: &mut Scratch,
) {
    Linear {
        level: Level::current(),
        pool,
        w,
        x,
        t,
        y,
        scratch,
    }
    .run();
}

/// A call of [`linear`] at some level.
pub(crate) struct Linear<'a> {
    level: Level,
    pool: &'a Pool,
    w: &'a Weight<'a>,
    x: &'a [f32],
    t: usize,
    y: &'a mut [f32],
    scratch: &'a mut Scratch,
}

impl Linear<'_> {
    fn run(mut self) {
        let (t, n, k) = (self.t, self.w.n(), self.w.k());
        let (x, y) = (self.x.len(), self.y.len());
        assert!(x == t * k, "{t} rows of {k} activations in {x} values");
        assert!(y == t * n, "{t} rows of {n} results in {y} values");
        if k == 0 {
            self.y.fill(0.0);
        } else if y > 0 && t <= MAX_FEW {
            let (w, bias) = (*self.w, None);
            let mut products = [few::Projection { w, bias, y: self.y }];
            let (x, epilogue) = ((self.x, t), few::Epilogue::Nothing);
            few::multiply(
                self.pool,
                self.level,
                x,
                &mut products,
                epilogue,
                self.scratch,
            );
        } else if y > 0 && !self.in_tiles() && !self.as_matrices() {
            (self.w.weight_type().kernels().product)(self);
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Linear<'_> {
    /// Computes products with floats, where they can be, by the matrix unit.
    fn in_tiles(&mut self) -> bool {
        match (self.level.amx(), self.w.weight_type()) {
            (Some(amx), WeightType::F32) => self.by_planes::<f32, 3, 3>(amx),
            (Some(amx), WeightType::F16) => self.by_planes::<f16, 3, 2>(amx),
            (Some(amx), WeightType::BF16) => self.by_planes::<bf16, 3, 1>(amx),
            _ => false,
        }
    }

    fn by_planes<W: Number, const P: usize, const Q: usize>(&mut self, amx: Amx) -> bool {
        let (n, k) = (self.w.n(), self.w.k());
        let [x, w] = [[k, 1], [1, k]];
        let x = Batch::one(product::Matrix {
            data: self.x,
            strides: x,
        });
        let w = Batch::one(product::Matrix {
            data: bytemuck::cast_slice::<_, W>(self.w.bytes()),
            strides: w,
        });
        planes::multiply::<_, _, _, P, Q>(amx, self.pool, [self.t, k, n], &x, &w, self.y)
    }
}

impl Linear<'_> {
    /// Computes large products of f32 as those of any matrices. The condition is that their rows would have
    /// to be filled up by a quarter or more. Others are twice as fast by slabs, by measurement.
    fn as_matrices(&mut self) -> bool {
        let (n, k) = (self.w.n(), self.w.k());
        let sizes = [self.t, k, n];
        let fills = 4 * k.next_multiple_of(SLAB) >= 5 * k;
        let is_single = self.w.weight_type() == WeightType::F32;
        let goes = is_single && fills && product::is_large(sizes);
        if goes {
            let matrix = |data, strides| Batch::one(product::Matrix { data, strides });
            let x = matrix(self.x, [k, 1]);
            let w = matrix(bytemuck::cast_slice(self.w.bytes()), [1, k]);
            product::products(self.pool, &x, &w, sizes, self.y);
        }
        goes
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl Linear<'_> {
    /// There is no matrix unit that is known here.
    fn in_tiles(&mut self) -> bool {
        false
    }
}

/// The product with weights of type `O`. None of the sizes is zero.
fn compute<O: Operand>(product: Linear<'_>) {
    let Linear {
        level,
        pool,
        w,
        x,
        t,
        y,
        scratch,
    } = product;
    let weights = Matrix::<O>::new(bytemuck::cast_slice(w.bytes()), w.n());
    let slabs = scratch.slabs::<O::X>(w.k().div_ceil(SLAB) * t);
    convert_all(level, pool, w, (x, t), bytemuck::cast_slice_mut(slabs));
    multiply(level, pool, weights, slabs, Output::new(y, w.n()), t);
}

/// Rows of activations, each of `k`.
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    x: &'a [f32],
    k: usize,
    /// The numbers of the rows, if they are not all in order.
    numbers: Option<&'a [usize]>,
}

impl<'a> Rows<'a> {
    fn count(self) -> usize {
        self.numbers.map_or(self.x.len() / self.k, <[_]>::len)
    }

    #[inline(always)]
    fn row(self, row: usize) -> &'a [f32] {
        let row = self.numbers.map_or(row, |numbers| numbers[row]);
        &self.x[row * self.k..][..self.k]
    }
}

/// Converts `t` rows of activations to the slabs that products with `w` read.
fn convert_all(
    level: Level,
    pool: &Pool,
    w: &Weight<'_>,
    (x, t): (&[f32], usize),
    slabs: &mut [u8],
) {
    let kernels = w.weight_type().kernels();
    let rows = Rows {
        x,
        k: x.len() / t,
        numbers: None,
    };
    pool.for_each_chunk(slabs, CHUNK_SLABS * kernels.slab, &|start, slabs| {
        (kernels.convert)(level, rows, start / kernels.slab, slabs);
    });
}

/// Converts rows of activations to slabs, from slab `start` on, as [`Convert`] does.
fn convert<O: Operand>(level: Level, rows: Rows<'_>, start: usize, slabs: &mut [u8]) {
    let slabs = bytemuck::cast_slice_mut(slabs);
    level.run(Convert::<O> { rows, start, slabs });
}

/// Cuts rows of activations into slabs: the first of all rows, then the second of all and so on.
struct Convert<'a, O: Operand> {
    rows: Rows<'a>,
    /// The first of `slabs` among all.
    start: usize,
    slabs: &'a mut [O::X],
}

impl<O: Operand> Kernel for Convert<'_, O> {
    const DOTS: bool = true;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let t = self.rows.count();
        for (i, slab) in (self.start..).zip(self.slabs) {
            let values = &self.rows.row(i % t)[i / t * SLAB..];
            if let Some(values) = values.first_chunk() {
                O::convert(s, values, slab);
            } else {
                let mut filled = [0.0; SLAB];
                filled[..values.len()].copy_from_slice(values);
                O::convert(s, &filled, slab);
            }
        }
    }
}

/// Multiplies the rows of weights from `first` on, one for each of `y`'s columns, with all rows of
/// activations.
fn stream<O: Operand>(level: Level, w: &Weight<'_>, first: usize, x: &[u8], y: Tile<'_>) {
    level.run(decode::Decode::<O> {
        weights: Matrix::new(bytemuck::cast_slice(w.bytes()), w.n()),
        first,
        x: bytemuck::cast_slice(x),
        y,
    });
}

/// Shares the rows of weights among the threads, and the rows of activations where those are too
/// few.
fn multiply<O: Operand>(
    level: Level,
    pool: &Pool,
    weights: Matrix<'_, O>,
    x: &[O::X],
    y: Output<'_>,
    t: usize,
) {
    let n = weights.rows();
    let pairs = O::most_rows(level) / (2 * ROWS);
    let rows = 2 * ROWS * (n / (2 * ROWS) / (CHUNKS * pool.threads())).clamp(1, pairs);
    let row_chunks = n.div_ceil(rows);
    let token_chunks = t
        .div_ceil(CHUNK_TOKENS)
        .max(pool.threads().div_ceil(row_chunks));
    let tokens = t.div_ceil(token_chunks);
    pool.run(row_chunks * t.div_ceil(tokens), &|chunk| {
        let (first, token) = (chunk % row_chunks * rows, chunk / row_chunks * tokens);
        // SAFETY: chunks have different rows or different columns.
        let y = unsafe { y.tile(token..t.min(token + tokens), first..n.min(first + rows)) };
        let x = bytemuck::cast_slice(x);
        let part = Many {
            first,
            x,
            tokens: t,
            token,
            y,
        };
        part.multiply::<O>(level, weights);
    });
}

/// A product of the rows of weights from `first` on with the rows of activations from `token` on, see
/// [`gemm::Gemm`].
pub(crate) struct Many<'a> {
    first: usize,
    x: &'a [u8],
    tokens: usize,
    token: usize,
    y: Tile<'a>,
}

impl Many<'_> {
    fn multiply<O: Operand>(self, level: Level, weights: Matrix<'_, O>) {
        SUMS.with_borrow_mut(|sums| {
            let gemm = gemm::Gemm {
                weights,
                first: self.first,
                x: bytemuck::cast_slice(self.x),
                tokens: self.tokens,
                token: self.token,
                y: self.y,
                sums,
            };
            O::multiply_many(level, gemm);
        });
    }
}

/// Multiplies rows of weights with many rows of activations, on this thread.
fn many<O: Operand>(level: Level, w: &Weight<'_>, part: Many<'_>) {
    part.multiply::<O>(level, Matrix::new(bytemuck::cast_slice(w.bytes()), w.n()));
}

thread_local! {
    /// A thread's share of the sums of a product, as large as the largest so far.
    static SUMS: RefCell<Vec<gemm::Sums>> = const { RefCell::new(Vec::new()) };
}

#[cfg(test)]
mod tests;
