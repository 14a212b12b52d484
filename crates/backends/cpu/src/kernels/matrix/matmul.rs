//! Matrix products of batches.

use bytemuck::Pod;
#[cfg(target_arch = "x86_64")]
use half::{bf16, f16};
use num_complex::Complex;
use num_traits::{One, WrappingAdd, WrappingMul, Zero};
use rustorch_ir::{DType, Layout, OpKind, Shape, Signature};
use rustorch_runtime::{KernelEntry, Layouts};

use crate::element::{Element, with_type};
use crate::kernel::{Args, Misuse, for_rows};
use crate::launch::Launch;
#[cfg(target_arch = "x86_64")]
use crate::planes::{self, Number, Unit};
use crate::pool::Pool;
use crate::product::{Batch, Matrix, products};
use crate::reader::Reader;
use crate::simd::{Kernel, Level, Simd};
use crate::view::View;

pub(crate) const KERNEL: KernelEntry<Launch> = KernelEntry {
    kind: OpKind::Matmul,
    accepts,
    layouts: Layouts::Any,
    launch: Launch::Whole(launch),
};

/// Rows of an integer matrix that are gone through at once.
const DEPTH: usize = 64;

fn accepts(_: &Signature) -> bool {
    true
}

fn launch(mut args: Args) -> Result<(), Misuse> {
    #[cfg(target_arch = "x86_64")]
    if in_tiles(&mut args) {
        return Ok(());
    }
    match args.output.dtype() {
        DType::F64 => as_stored::<f64>(&mut args),
        DType::F32 if of_vectors(&mut args) => {}
        DType::F32 => as_stored::<f32>(&mut args),
        DType::Complex64 => as_stored::<Complex<f32>>(&mut args),
        DType::Complex128 => as_stored::<Complex<f64>>(&mut args),
        d if d.is_float() => {
            return with_type!(d, floats T => {
                widened::<T>(&mut args);
                Ok(())
            });
        }
        d => {
            return with_type!(d, ints T => {
                integers::<T>(&mut args);
                Ok(())
            });
        }
    }
    Ok(())
}

/// The batch dimensions of the result, and `[m, k, n]`.
fn sizes(args: &Args) -> (Shape, [usize; 3]) {
    let (out, a) = (args.output.shape(), args.inputs[0].shape());
    let matrix = out.len() - 2;
    (
        out[..matrix].into(),
        [out[matrix], a[a.len() - 1], out[matrix + 1]],
    )
}

/// Computes products by the matrix unit, if they are large enough. Products of bf16 may use the
/// vector unit's instructions for them.
#[cfg(target_arch = "x86_64")]
fn in_tiles(args: &mut Args) -> bool {
    fn of<T: Number, const N: usize>(unit: impl Unit, args: &mut Args) -> bool {
        let (lead, sizes) = sizes(args);
        let [a, b] = operands::<T>(args, &lead);
        planes::multiply::<T, T, T, N, N>(unit, args.pool, sizes, &a, &b, args.output.data())
    }
    if !planes::pays(sizes(args).1) {
        return false;
    }
    let level = Level::current();
    match (level.amx(), level.bf16(), args.output.dtype()) {
        (Some(amx), _, DType::F32) => of::<f32, 3>(amx, args),
        (Some(amx), _, DType::F16) => of::<f16, 2>(amx, args),
        (Some(amx), _, DType::BF16) => of::<bf16, 1>(amx, args),
        (_, Some(unit), DType::BF16) => of::<bf16, 1>(unit, args),
        _ => false,
    }
}

/// The operands, in place.
fn operands<'a, T: Pod>(args: &Args<'a>, lead: &Shape) -> [Batch<'a, T>; 2] {
    [0, 1].map(|i| {
        let view = &args.inputs[i];
        Batch::new(view.data(), view.layout, lead)
    })
}

/// Products of operands with any strides, which are read in place.
fn as_stored<T: Element + Zero + One>(args: &mut Args) {
    let (lead, sizes) = sizes(args);
    let [a, b] = operands::<T>(args, &lead);
    products(args.pool, &a, &b, sizes, args.output.data());
}

/// Computes products of rows that are neighbours with one column.
fn of_vectors(args: &mut Args) -> bool {
    let (lead, [m, k, n]) = sizes(args);
    if n != 1 || k == 0 || m * lead.elements() == 0 {
        return false;
    }
    let [a, b] = operands::<f32>(args, &lead);
    if a.strides()[1] != 1 {
        return false;
    }
    let level = Level::current();
    // Unless their elements are neighbours already.
    let columns: Option<Vec<f32>> =
        (b.strides()[0] != 1).then(|| (0..b.len()).flat_map(|i| column(b.get(i), k)).collect());
    for_rows(args.pool, args.output.data(), 1, k, |first, part| {
        let mut part = part;
        let mut row = first;
        while !part.is_empty() {
            let (batch, within) = (row / m, row % m);
            let count = part.len().min(m - within);
            let (out, rest) = std::mem::take(&mut part).split_at_mut(count);
            row += out.len();
            part = rest;
            level.run(Dots {
                rows: a.get(batch).from(within, 0),
                x: match &columns {
                    Some(columns) => &columns[batch * k..][..k],
                    None => &b.get(batch).data[..k],
                },
                out,
            });
        }
    });
    true
}

/// The first column of a matrix of `k` rows.
fn column(matrix: Matrix<f32>, k: usize) -> impl Iterator<Item = f32> {
    let elements = matrix.data.iter().step_by(matrix.strides[0].max(1));
    // One again and again, if they are broadcast.
    let first = matrix.data.first().filter(|_| matrix.strides[0] == 0);
    let repeated = first.into_iter().cycle();
    repeated.chain(elements).take(k).copied()
}

/// Computes the products of rows, whose elements are neighbours, with a vector: one for each element of `out`.
pub(in crate::kernels) fn dots(pool: &Pool, rows: Matrix<f32>, x: &[f32], out: &mut [f32]) {
    let level = Level::current();
    for_rows(pool, out, 1, x.len(), |first, out| {
        let rows = rows.from(first, 0);
        level.run(Dots { rows, x, out });
    });
}

/// The products of rows with a vector.
struct Dots<'a> {
    rows: Matrix<'a, f32>,
    x: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Dots<'_> {
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        /// Elements whose products are added up by themselves: each addition to a larger sum rounds more.
        const BLOCK: usize = 16 * 1024;
        for (i, out) in self.out.iter_mut().enumerate() {
            let row = &self.rows.data[i * self.rows.strides[0]..][..self.x.len()];
            if row.len() <= BLOCK {
                *out = dot(s, row, self.x);
                continue;
            }
            // A closure of an iterator might be compiled by itself, and then without the level's instructions.
            let mut sum = 0.0;
            for (row, x) in row.chunks(BLOCK).zip(self.x.chunks(BLOCK)) {
                sum += dot(s, row, x);
            }
            *out = sum;
        }
    }
}

/// The sum of the products of two vectors of one length.
#[inline(always)]
fn dot<S: Simd>(s: S, row: &[f32], x: &[f32]) -> f32 {
    /// Sums that grow side by side: one alone would wait for its last addition.
    const CHAINS: usize = 4;
    let (x, x_rest) = x.as_chunks::<16>();
    let (row, row_rest) = row.as_chunks::<16>();
    let mut sums = [s.splat_f32(0.0); CHAINS];
    let (fours, last) = row.as_chunks::<CHAINS>();
    let (x_fours, x_last) = x.as_chunks::<CHAINS>();
    for (row, x) in fours.iter().zip(x_fours) {
        for (sum, (row, x)) in sums.iter_mut().zip(row.iter().zip(x)) {
            *sum = s.mul_add(*sum, s.load_f32(row), s.load_f32(x));
        }
    }
    for (sum, (row, x)) in sums.iter_mut().zip(last.iter().zip(x_last)) {
        *sum = s.mul_add(*sum, s.load_f32(row), s.load_f32(x));
    }
    let [a, b, c, d] = sums;
    let sum = s.sum(s.add_f32(s.add_f32(a, b), s.add_f32(c, d)));
    let rest = row_rest.iter().zip(x_rest);
    rest.fold(sum, |sum, (a, b)| sum + a * b)
}

/// Products in another type than the operands', which are converted first.
fn widened<T: Element<Compute: Zero + One>>(args: &mut Args) {
    let (lead, sizes) = sizes(args);
    let [mut a, mut b] = [0, 1].map(|i| Reader::<T>::whole(&args.inputs[i]));
    let a = row_major(&mut a, &args.inputs[0], &lead);
    let b = row_major(&mut b, &args.inputs[1], &lead);
    T::write(args.output.data::<T>(), &mut Vec::new(), |out| {
        products(args.pool, &a, &b, sizes, out);
    });
}

/// The matrices of an operand in row-major order.
fn row_major<'a, T: Element>(
    reader: &'a mut Reader<T>,
    view: &View,
    lead: &Shape,
) -> Batch<'a, T::Compute> {
    let layout = Layout::contiguous(&view.ty.shape);
    Batch::new(reader.all(), &layout, lead)
}

/// Products of integers, which wrap.
fn integers<T: Element<Compute = T> + WrappingAdd + WrappingMul>(args: &mut Args) {
    let (lead, [m, k, n]) = sizes(args);
    let [mut a, mut b] = [0, 1].map(|i| Reader::<T>::whole(&args.inputs[i]));
    let a = row_major(&mut a, &args.inputs[0], &lead);
    let b = row_major(&mut b, &args.inputs[1], &lead);
    let level = Level::current();
    for_rows(
        args.pool,
        args.output.data::<T>(),
        n,
        k * n,
        |first, part| {
            // Rows of `b` that stay in the cache while those of the result go by.
            for depth in (0..k.max(1)).step_by(DEPTH) {
                for (row, out) in (first..).zip(part.chunks_exact_mut(n)) {
                    let a = a.get(row / m).from(row % m, 0).data;
                    let a = &a[depth..k.min(depth + DEPTH)];
                    let b = b.get(row / m).from(depth, 0).data;
                    if depth == 0 {
                        out.fill(T::zeroed());
                    }
                    level.run(Row { a, b, out });
                }
            }
        },
    );
}

/// Adds the product of a row with a matrix to a row.
struct Row<'a, T> {
    a: &'a [T],
    b: &'a [T],
    out: &'a mut [T],
}

impl<T: Copy + WrappingAdd + WrappingMul> Kernel for Row<'_, T> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (x, b) in self.a.iter().zip(self.b.chunks_exact(self.out.len())) {
            for (out, b) in self.out.iter_mut().zip(b) {
                *out = out.wrapping_add(&x.wrapping_mul(b));
            }
        }
    }
}
