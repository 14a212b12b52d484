//! Kernels of batches of matrices, which compute in double precision.

use bytemuck::Pod;
use num_complex::{Complex, Complex64};
use rustorch_math::linalg::Field;

use crate::index::coordinates;
use crate::kernel::{Args, Misuse, for_rows};
use crate::view::{Target, View};

/// An element of matrices.
pub(crate) trait Entry: Pod + Send + Sync {
    /// Type of the computation.
    type Field: Field;
    /// Its real type, such as that of a singular value.
    type Real: Entry<Field = f64>;
    /// Its complex type, such as that of an eigenvalue.
    type Complex: Entry<Field = Complex64>;

    /// The element in double precision.
    fn widen(self) -> Self::Field;

    /// The element rounded to memory's type.
    fn narrow(x: Self::Field) -> Self;
}

macro_rules! entries {
    ($($type:ty, $field:ty, $real:ty, $complex:ty: $widen:expr, $narrow:expr;)+) => {
        $(impl Entry for $type {
            type Field = $field;
            type Real = $real;
            type Complex = $complex;

            fn widen(self) -> $field {
                let widen: fn($type) -> $field = $widen;
                widen(self)
            }

            fn narrow(x: $field) -> Self {
                let narrow: fn($field) -> $type = $narrow;
                narrow(x)
            }
        })+
    };
}

entries! {
    f64, f64, f64, Complex64: |x| x, |x| x;
    f32, f64, f32, Complex<f32>: f64::from, |x| x as f32;
    Complex64, Complex64, f64, Complex64: |x| x, |x| x;
    Complex<f32>, Complex64, f32, Complex<f32>:
        |x| Complex::new(x.re.into(), x.im.into()),
        |x| Complex::new(x.re as f32, x.im as f32);
}

/// Evaluates `$body` with `$T` standing for the [`Entry`] that `$dtype` is.
macro_rules! with_entry {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            d if d.is_complex() => $crate::element::with_type!(d, complex $T => $body),
            rustorch_ir::DType::F64 => { type $T = f64; $body }
            rustorch_ir::DType::F32 => { type $T = f32; $body }
            other => Err($crate::element::unknown(other)),
        }
    };
}
pub(crate) use with_entry;

/// Rows and columns of an operand's matrices.
pub(crate) fn sizes(x: &View) -> [usize; 2] {
    let shape = x.shape();
    [shape[shape.len() - 2], shape[shape.len() - 1]]
}

/// Calls `f` with each matrix of the first operand and its place among them, in parallel.
pub(crate) fn map<T: Entry, R: Send>(
    args: &Args,
    f: impl Fn(usize, Vec<T::Field>) -> R + Sync,
) -> Vec<R> {
    let a = &args.inputs[0];
    let [rows, columns] = sizes(a);
    let shape = a.shape();
    let count = shape[..shape.len() - 2].iter().product();
    let mut results: Vec<Option<R>> = (0..count).map(|_| None).collect();
    let work = rows * columns * rows.min(columns);
    for_rows(args.pool, &mut results, 1, work, |first, part| {
        for (i, result) in (first..).zip(part) {
            *result = Some(f(i, matrix::<T>(a, i)));
        }
    });
    results.into_iter().flatten().collect()
}

/// The `i`-th matrix, or with `i`-th vector of an operand whose last dimension has the columns.
pub(crate) fn matrix<T: Entry>(x: &View, i: usize) -> Vec<T::Field> {
    let [rows, columns] = sizes(x);
    part::<T>(x, i, rows * columns)
}

/// The `i`-th run of `len` elements.
pub(crate) fn part<T: Entry>(x: &View, i: usize, len: usize) -> Vec<T::Field> {
    let run = &x.data::<T>()[i * len..][..len];
    run.iter().map(|x| x.widen()).collect()
}

/// Writes the elements of a result, matrix by matrix.
pub(crate) fn store<'a, T: Entry>(
    out: &mut Target,
    parts: impl Iterator<Item = &'a Vec<T::Field>>,
) {
    let values = parts.flatten().map(|&x| T::narrow(x));
    out.data::<T>()
        .iter_mut()
        .zip(values)
        .for_each(|(out, x)| *out = x);
}

/// Writes a whole number for each matrix.
pub(crate) fn store_numbers(out: &mut Target, numbers: impl Iterator<Item = usize>) {
    let out: &mut [i32] = out.data();
    out.iter_mut()
        .zip(numbers)
        .for_each(|(out, x)| *out = x as i32);
}

/// Error of the `i`-th matrix of the first operand.
pub(crate) fn misuse(args: &Args, i: usize, what: &str) -> Misuse {
    let ty = args.inputs[0].ty;
    let batch = &ty.shape[..ty.shape.len() - 2];
    match batch.is_empty() {
        true => Misuse(format!("the matrix {ty} {what}")),
        false => Misuse(format!(
            "matrix {:?} of {ty} {what}",
            &coordinates(batch, i)[..]
        )),
    }
}

/// The results, or a [`Misuse`] that names the first matrix without.
pub(crate) fn converged<R, E>(args: &Args, found: Vec<Result<R, E>>) -> Result<Vec<R>, Misuse> {
    let what = "has elements that are not finite, so that the iteration does not converge";
    let each = found.into_iter().enumerate();
    each.map(|(i, found)| found.map_err(|_| misuse(args, i, what)))
        .collect()
}
