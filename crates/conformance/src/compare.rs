//! Compares a result with the reference's, element by element.

use num_complex::Complex64;
use rustorch_ir::DType;
use rustorch_reference::Values;

use crate::bounds::Bounded;
use crate::elements::moduli;
use crate::precision::{Precision, rounded};
use crate::report::Closeness;

/// Closeness of a device's result, at the element that is nearest to its bound. Fails with a description where
/// an element is beyond its bound. NaN, infinities and whole numbers have to be the same.
pub(crate) fn compare(
    result: &Values,
    expected: &Bounded,
    dtype: DType,
) -> Result<Closeness, String> {
    let near = rounded(&expected.values, dtype);
    let error = expected.error.as_deref().map(moduli);
    let error = |i: usize| error.as_ref().map_or(0.0, |error| error[i]);
    match (result, &near, &*expected.values) {
        (Values::Float(result), Values::Float(near), Values::Float(exact)) => {
            floats(result, near, exact, error, dtype)
        }
        (Values::Complex(result), Values::Complex(near), Values::Complex(exact)) => {
            let [result, near, exact] = [result, near, exact].map(|z| parts(z));
            floats(&result, &near, &exact, |i| error(i / 2), dtype)
        }
        (Values::Int(result), Values::Int(near), _) => {
            same_count(result.len(), near.len())?;
            let is_off = |i: usize| (result[i] - near[i]).unsigned_abs() as f64 > error(i);
            first_off("element", result, near, is_off)
        }
        (Values::Blocks(result), Values::Blocks(near), _) => {
            same_count(result.len(), near.len())?;
            first_off("byte", result, near, |i| result[i] != near[i])
        }
        _ => Err("the results are not of one type".to_owned()),
    }
}

fn parts(z: &[Complex64]) -> Vec<f64> {
    z.iter().flat_map(|z| [z.re, z.im]).collect()
}

/// Fails at the first element that `is_off`.
fn first_off<T: std::fmt::Display>(
    what: &str,
    result: &[T],
    expected: &[T],
    is_off: impl Fn(usize) -> bool,
) -> Result<Closeness, String> {
    match (0..result.len()).find(|&i| is_off(i)) {
        None => Ok(Closeness::EXACT),
        Some(i) => Err(format!(
            "{what} {i} is {}, should be {}",
            result[i], expected[i]
        )),
    }
}

/// Compares floats with those that are rounded once (`near`), which always pass, and otherwise with those that are not
/// rounded.
fn floats(
    result: &[f64],
    near: &[f64],
    exact: &[f64],
    bound: impl Fn(usize) -> f64,
    dtype: DType,
) -> Result<Closeness, String> {
    same_count(result.len(), near.len())?;
    let precision = Precision::of(dtype);
    let mut worst = Closeness::EXACT;
    let mut failure: Option<(f64, String)> = None;
    for (i, (&a, &b)) in result.iter().zip(near).enumerate() {
        let bound = bound(i);
        let unit = precision.ulp(exact[i]);
        let allowed = bound / unit;
        if a == b || (a.is_nan() && b.is_nan()) {
            worst = worst.or(Closeness {
                error: 0.0,
                allowed,
            });
            continue;
        }
        let distance = (a - exact[i]).abs();
        if distance <= bound || overflows(a, exact[i], bound, dtype) {
            let error = distance.min(bound) / unit;
            worst = worst.or(Closeness { error, allowed });
            continue;
        }
        let share = distance / bound;
        if failure.as_ref().is_none_or(|(worst, _)| share > *worst) {
            let off = distance / unit;
            let text = format!(
                "element {i} is {a}, should be {}: {off:.3} units in the last place off, allowed are {allowed:.3}",
                exact[i]
            );
            failure = Some((share, text));
        }
    }
    failure.map_or(Ok(worst), |(_, text)| Err(text))
}

/// Is `result` infinite where a number within the bound is, too, as the dtype holds it?
fn overflows(result: f64, exact: f64, bound: f64, dtype: DType) -> bool {
    let furthest = exact + bound.copysign(exact);
    let held = rounded(&Values::Float(vec![furthest]), dtype.real());
    result.is_infinite() && held == Values::Float(vec![result])
}

fn same_count(got: usize, expected: usize) -> Result<(), String> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("{got} elements, should be {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn check(result: &[f64], exact: &[f64], bound: Option<f64>) -> Result<Closeness, String> {
        let error = bound.map(|bound| Rc::new(Values::Float(vec![bound; exact.len()])));
        let values = Rc::new(Values::Float(exact.to_vec()));
        let expected = Bounded { values, error };
        compare(&Values::Float(result.to_vec()), &expected, DType::F32)
    }

    #[test]
    fn each_element_has_its_bound() {
        let exact: Vec<f64> = (1..=4096).map(f64::from).collect();
        assert!(check(&exact, &exact, Some(1e-3)).is_ok());
        let mut result = exact.clone();
        result[1] += 2e-3;
        let error = check(&result, &exact, Some(1e-3)).unwrap_err();
        assert!(error.contains("element 1 is 2.002"), "{error}");
        assert!(check(&[], &[1.0], None).is_err());
        assert_eq!(check(&[], &[], None), Ok(Closeness::EXACT));
    }

    #[test]
    fn what_is_rounded_once_is_right_without_a_bound() {
        let third = 1.0 / 3.0;
        let near = f64::from(third as f32);
        assert!(check(&[near], &[third], None).is_ok());
        let next = f64::from((third as f32).next_down());
        assert!(check(&[next], &[third], None).is_err());
        let closeness = check(&[next], &[third], Some(1e-7)).unwrap();
        assert!(closeness.error > 0.5 && closeness.error < closeness.allowed);
    }

    #[test]
    fn what_is_no_number_has_to_be_the_same() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for bound in [None, Some(1.0)] {
            assert!(check(&[nan, inf, -inf], &[nan, inf, -inf], bound).is_ok());
            for (a, b) in [
                (nan, 1.0),
                (1.0, nan),
                (inf, -inf),
                (inf, 1.0),
                (1.0, inf),
                (nan, inf),
            ] {
                assert!(check(&[a, 1.0], &[b, 1.0], bound).is_err(), "{a} for {b}");
            }
        }
        let largest = f64::from(f32::MAX);
        assert!(check(&[inf], &[largest], Some(1e32)).is_ok());
        assert!(check(&[-inf], &[largest], Some(1e32)).is_err());
    }
}
