//! How far a result may be from the reference's.

use num_complex::Complex64;
use rustorch_ir::case::{Case, Fill};
use rustorch_ir::ops::ScatterMode;
use rustorch_ir::{DType, Op};
use rustorch_reference::Values;

/// What a kernel is allowed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Tolerance {
    /// Nothing.
    Exact,
    /// A normalised mean squared error: the sum of the squared differences over that of the
    /// squared results.
    Overall(f64),
    /// The same for each element by itself, where their magnitudes differ.
    Each(f64),
}

impl Tolerance {
    /// What a kernel for `case` with a result of type `output` is allowed. As in ggml's
    /// tests of its backends, 1e-7 in single precision and 5e-4 where an operand is
    /// quantised or of half precision. In double precision it is what single precision
    /// cannot reach.
    pub(crate) fn of(case: &Case, output: DType) -> Self {
        let inexact = output.is_float() || output.is_complex();
        if !inexact || moves(&case.op) {
            return Self::Exact;
        }
        let of = |dtype: DType| match dtype {
            DType::Block(_) | DType::F16 | DType::BF16 => 5e-4,
            DType::F32 | DType::Complex64 => 1e-7,
            _ => 1e-20,
        };
        let inputs = case.inputs.iter().map(|x| of(x.ty.dtype));
        let error = inputs.fold(of(output), f64::max);
        match case.inputs.iter().any(|x| x.fill == Fill::Special) {
            true => Self::Each(error),
            false => Self::Overall(error),
        }
    }

    /// The largest error that is allowed, in the measure of [`Self::compare`].
    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::Exact => 0.0,
            Self::Overall(limit) | Self::Each(limit) => limit,
        }
    }

    /// The error of `result`: a normalised square, of the whole or of the worst element. Fails
    /// with a description where it is too large. NaN, infinities and integers have to be the
    /// same.
    pub(crate) fn compare(self, result: &Values, expected: &Values) -> Result<f64, String> {
        match (result, expected) {
            (Values::Int(result), Values::Int(expected)) => {
                same_count(result.len(), expected.len())?;
                let differs = |(a, b)| a != b;
                let first = result.iter().zip(expected).position(differs);
                first.map_or(Ok(0.0), |i| Err(element(i, result[i], expected[i])))
            }
            (Values::Float(result), Values::Float(expected)) => self.floats(result, expected),
            (Values::Complex(result), Values::Complex(expected)) => {
                let parts =
                    |z: &[Complex64]| -> Vec<f64> { z.iter().flat_map(|z| [z.re, z.im]).collect() };
                self.floats(&parts(result), &parts(expected))
            }
            (Values::Blocks(result), Values::Blocks(expected)) => {
                same_count(result.len(), expected.len())?;
                let first = result.iter().zip(expected).position(|(a, b)| a != b);
                first.map_or(Ok(0.0), |i| {
                    Err(format!(
                        "byte {i} is {}, should be {}",
                        result[i], expected[i]
                    ))
                })
            }
            _ => Err("the results are not of one type".to_owned()),
        }
    }

    fn floats(self, result: &[f64], expected: &[f64]) -> Result<f64, String> {
        same_count(result.len(), expected.len())?;
        let (mut error, mut signal, mut worst) = (0.0, 0.0, (0, 0.0));
        let mut largest = 0_f64;
        for (i, (&a, &b)) in result.iter().zip(expected).enumerate() {
            if a == b || (a.is_nan() && b.is_nan()) {
                signal += if b.is_finite() { b * b } else { 0.0 };
                continue;
            }
            let square = (a - b).powi(2);
            let close = match self {
                Self::Exact => false,
                Self::Each(limit) => square <= limit * b * b,
                Self::Overall(_) => true,
            };
            if !close || !square.is_finite() {
                return Err(element(i, a, b));
            }
            if square > worst.1 {
                worst = (i, square);
            }
            largest = largest.max(square / (b * b));
            error += square;
            signal += b * b;
        }
        match self {
            Self::Overall(limit) if error > limit * signal => Err(format!(
                "normalised error {:.1e} is over {limit:.0e}; {}",
                error / signal,
                element(worst.0, result[worst.0], expected[worst.0]),
            )),
            Self::Overall(_) if error > 0.0 => Ok(error / signal),
            Self::Overall(_) | Self::Exact => Ok(0.0),
            Self::Each(_) => Ok(largest),
        }
    }
}

fn same_count(got: usize, expected: usize) -> Result<(), String> {
    match got == expected {
        true => Ok(()),
        false => Err(format!("{got} elements, should be {expected}")),
    }
}

/// Does the operation only move elements, or round them as its definition says?
fn moves(op: &Op) -> bool {
    let combines = matches!(op, Op::Scatter(s) if s.mode != ScatterMode::Set);
    op.def().op_type().is_none() && !combines
}

fn element(i: usize, got: impl std::fmt::Display, expected: impl std::fmt::Display) -> String {
    format!("element {i} is {got}, should be {expected}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(tolerance: Tolerance, a: &[f64], b: &[f64]) -> Result<f64, String> {
        tolerance.compare(&Values::Float(a.to_vec()), &Values::Float(b.to_vec()))
    }

    #[test]
    fn errors_are_relative_to_the_whole() {
        let limit = Tolerance::Overall(1e-7);
        let error = compare(limit, &[1.0, 1e-5], &[1.0, 0.0]).unwrap();
        assert!((error - 1e-10).abs() < 1e-20, "{error}");
        assert!(compare(limit, &[1.0, 1e-3], &[1.0, 0.0]).is_err());
        assert!(compare(limit, &[1e-30], &[0.0]).is_err());
        assert!(compare(Tolerance::Each(1e-7), &[1.0, 1e-5], &[1.0, 0.0]).is_err());
        assert!(compare(Tolerance::Exact, &[1.0 + 1e-15], &[1.0]).is_err());
        assert_eq!(compare(limit, &[], &[]), Ok(0.0));
        let error = compare(Tolerance::Each(1e-7), &[1.0, 2.0001], &[1.0, 2.0]).unwrap();
        assert!((error - 2.5e-9).abs() < 1e-12, "{error}");
        assert!(compare(limit, &[], &[1.0]).is_err());
    }

    #[test]
    fn what_is_no_number_has_to_be_the_same() {
        let (nan, inf) = (f64::NAN, f64::INFINITY);
        for limit in [
            Tolerance::Exact,
            Tolerance::Overall(1.0),
            Tolerance::Each(1.0),
        ] {
            assert!(compare(limit, &[nan, inf, -inf], &[nan, inf, -inf]).is_ok());
            for (a, b) in [
                (nan, 1.0),
                (1.0, nan),
                (inf, -inf),
                (inf, 1.0),
                (1.0, inf),
                (nan, inf),
            ] {
                assert!(compare(limit, &[a, 1.0], &[b, 1.0]).is_err(), "{a} for {b}");
            }
        }
    }
}
