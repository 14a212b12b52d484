//! Faults planted into right results, to check that they are found.

use num_complex::Complex64;
use rustorch_ir::{DType, TensorType};
use rustorch_reference::Values;

use crate::bounds::Bounded;
use crate::compare::compare;
use crate::elements::moduli;
use crate::extent::mixed;
use crate::precision::{Precision, rounded};
use crate::report::Fault;

/// The right `result` with a fault; `None` where there is nothing to make wrong.
fn with_fault(
    fault: Fault,
    result: &Values,
    expected: &Bounded,
    ty: &TensorType,
) -> Option<Values> {
    let wrong = match fault {
        Fault::NextSmaller if !is_rounded_once(expected, ty.dtype) => return None,
        Fault::NextSmaller => each(result, |x| next_smaller(x, ty.dtype), |i| i - i.signum()),
        Fault::FewerDigits => each(result, |x| with_digits(x, digits(ty.dtype)), |i| i),
        Fault::Bias => {
            let more = 1.0 + f64::from(-digits(ty.dtype)).exp2();
            rounded(&each(result, |x| x * more, |i| i), ty.dtype)
        }
        Fault::OneElement => one_element(result, expected, ty.dtype)?,
        Fault::OneRow => one_row(result, expected, ty)?,
    };
    (!is_same(&wrong, result)).then_some(wrong)
}

/// The faults that can be planted into a result, and whether each is found.
pub(crate) fn plant(result: &Values, expected: &Bounded, ty: &TensorType) -> Vec<(Fault, bool)> {
    let planted = Fault::ALL.into_iter().filter_map(|fault| {
        let wrong = with_fault(fault, result, expected, ty)?;
        Some((fault, compare(&wrong, expected, ty.dtype).is_err()))
    });
    planted.collect()
}

/// Are all elements the same, NaN included?
fn is_same(a: &Values, b: &Values) -> bool {
    let same = |a: &[f64], b: &[f64]| {
        let mut pairs = a.iter().zip(b);
        pairs.all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
    };
    match (a, b) {
        (Values::Float(a), Values::Float(b)) => same(a, b),
        (Values::Complex(a), Values::Complex(b)) => {
            let parts = |z: &[Complex64]| z.iter().flat_map(|z| [z.re, z.im]).collect::<Vec<_>>();
            same(&parts(a), &parts(b))
        }
        (a, b) => a == b,
    }
}

/// Is no element allowed more than half a unit in the last place?
fn is_rounded_once(expected: &Bounded, dtype: DType) -> bool {
    let precision = Precision::of(dtype);
    expected.error.as_ref().is_none_or(|error| {
        let mut pairs = moduli(error).into_iter().zip(moduli(&expected.values));
        pairs.all(|(e, y)| e <= 0.5 * precision.ulp(y))
    })
}

/// Digits that a dtype with fewer of them has.
fn digits(dtype: DType) -> i32 {
    match dtype.real() {
        DType::F64 => 24,
        DType::F32 => 11,
        DType::F16 => 8,
        DType::BF16 => 5,
        _ => 2,
    }
}

fn each(values: &Values, real: impl Fn(f64) -> f64, int: impl Fn(i128) -> i128) -> Values {
    match values {
        Values::Float(x) => Values::Float(x.iter().map(|&x| real(x)).collect()),
        Values::Int(x) => Values::Int(x.iter().map(|&x| int(x)).collect()),
        Values::Complex(x) => {
            let each = x.iter().map(|z| Complex64::new(real(z.re), real(z.im)));
            Values::Complex(each.collect())
        }
        Values::Blocks(x) => Values::Blocks(x.clone()),
    }
}

fn next_smaller(x: f64, dtype: DType) -> f64 {
    match x.is_finite() && x != 0.0 {
        // The distance to the next number below a power of 2 is half as large.
        true => {
            let unit = Precision::of(dtype).ulp(x);
            let half = rounded(
                &Values::Float(vec![x - x.signum() * unit / 2.0]),
                dtype.real(),
            );
            match half == Values::Float(vec![x]) {
                true => x - x.signum() * unit,
                false => moduli(&half)[0].copysign(x),
            }
        }
        false => x,
    }
}

/// `x` rounded to `digits` binary digits, whatever its exponent.
fn with_digits(x: f64, digits: i32) -> f64 {
    if !x.is_normal() {
        return x;
    }
    let lost = 53 - digits;
    let half = 1_u64 << (lost - 1);
    f64::from_bits((x.to_bits() + half) & !((1 << lost) - 1))
}

fn one_element(result: &Values, expected: &Bounded, dtype: DType) -> Option<Values> {
    let mut wrong = result.clone();
    let sizes = moduli(&expected.values);
    let is_finite = |i: &usize| sizes[*i].is_finite();
    let places: Vec<usize> = (0..sizes.len()).filter(is_finite).collect();
    let place = *places.get(mixed(sizes.len() as u64) as usize % places.len().max(1))?;
    let unit = Precision::of(dtype).ulp(sizes[place]);
    let allowed = expected.error.as_deref().map_or(0.0, |e| moduli(e)[place]);
    let off = match allowed <= 4.0 * unit {
        true => 8.0 * unit,
        false => 2.0 * allowed + unit,
    };
    match &mut wrong {
        Values::Float(x) => x[place] += off.copysign(x[place]),
        Values::Complex(z) => z[place].re += off.copysign(z[place].re),
        Values::Int(x) if dtype == DType::Bool => x[place] = 1 - x[place],
        Values::Int(x) => x[place] += if x[place] > 0 { -1 } else { 1 },
        Values::Blocks(x) => x[place] ^= 1,
    }
    Some(match dtype.is_float() || dtype.is_complex() {
        true => rounded(&wrong, dtype),
        false => wrong,
    })
}

/// A row gets the next one's elements. They differ from its own by more than twice the bound, if there is such a row.
fn one_row(result: &Values, expected: &Bounded, ty: &TensorType) -> Option<Values> {
    let width = *ty.shape.last()?;
    let rows = ty.shape.elements().checked_div(width)?;
    let bound = expected.error.as_deref().map(moduli);
    let bound = |i: usize| bound.as_ref().map_or(0.0, |bound| bound[i]);
    let apart = |row: usize| {
        let pairs = (row * width..(row + 1) * width).map(|i| (i, i + width));
        let each = pairs.map(|(i, j)| difference(result, i, j) - 2.0 * bound(i));
        each.fold(0.0, f64::max)
    };
    let first = mixed(rows as u64) as usize % rows.max(1);
    let mut candidates = (0..rows)
        .map(|i| (first + i) % rows)
        .filter(|i| i + 1 < rows);
    let (mut wrong, row) = (result.clone(), candidates.find(|&row| apart(row) > 0.0)?);
    let (to, from) = (row * width, (row + 1) * width..(row + 2) * width);
    match &mut wrong {
        Values::Float(x) => x.copy_within(from, to),
        Values::Int(x) => x.copy_within(from, to),
        Values::Complex(x) => x.copy_within(from, to),
        Values::Blocks(_) => return None,
    }
    Some(wrong)
}

/// Difference of two elements.
fn difference(values: &Values, i: usize, j: usize) -> f64 {
    match values {
        Values::Float(x) => (x[i] - x[j]).abs(),
        Values::Int(x) => (x[i] - x[j]).unsigned_abs() as f64,
        Values::Complex(x) => (x[i] - x[j]).norm(),
        Values::Blocks(_) => 0.0,
    }
}
