//! Sums of elements, or of the squares of their distances from centres, in double precision.

use crate::fold::fold;
use crate::math::Real;
use crate::simd::{Kernel, Simd};

/// Adds elements, or the squares of their distances from centres, to the results.
pub(super) struct Terms<'a, X> {
    pub(super) results: &'a mut [f64],
    pub(super) x: &'a [X],
    pub(super) centres: Option<&'a [f64]>,
    /// Whether `x` is rows with an element for each result, and not a row for each result.
    pub(super) by_columns: bool,
}

impl<X: Real> Kernel for Terms<'_, X> {
    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let Self {
            results,
            x,
            centres,
            by_columns,
        } = self;
        let square = |x: X, centre: f64| {
            let apart = x.as_() - centre;
            apart * apart
        };
        if by_columns {
            for row in x.chunks_exact(results.len()) {
                match centres {
                    None => {
                        for (sum, &x) in results.iter_mut().zip(row) {
                            *sum += x.as_();
                        }
                    }
                    Some(centres) => {
                        for ((sum, &x), &centre) in results.iter_mut().zip(row).zip(centres) {
                            *sum += square(x, centre);
                        }
                    }
                }
            }
            return;
        }
        let len = x.len() / results.len();
        for (i, (result, row)) in results.iter_mut().zip(x.chunks_exact(len)).enumerate() {
            *result += match centres {
                None => fold(row, 0.0, |sum, x| sum + x.as_(), |a, b| a + b),
                Some(centres) => {
                    let centre = centres[i];
                    fold(row, 0.0, |sum, x| sum + square(x, centre), |a, b| a + b)
                }
            };
        }
    }
}
