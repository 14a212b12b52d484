//! Special functions, for every device. Processors compute these Rust files in double precision,
//! and kernels of GPUs in their own.
//!
//! So that GPUs' languages can say it too, it is a small part of Rust. A file has functions of `f64`
//! alone, each below those that it calls. They are made of `let`, assignments, `if` and `while` that
//! have no value, `return`, an expression at the end; of functions of the C library by their names
//! there; of `polynomial` of a name and a list of numbers. Numbers have a point or an exponent.
//! There is no recursion. Searches in loops end also for NaN and infinities.

mod bessel;
mod division;
mod error;
mod exponential;
mod gamma;
mod polynomials;

pub use bessel::*;
pub use division::*;
pub use error::*;
pub use exponential::*;
pub use gamma::*;
pub use polynomials::*;

/// The files' text, each behind those whose functions it calls.
pub const SOURCES: [&str; 6] = [
    include_str!("division.rs"),
    include_str!("exponential.rs"),
    include_str!("error.rs"),
    include_str!("gamma.rs"),
    include_str!("bessel.rs"),
    include_str!("polynomials.rs"),
];

/// Is there a special function of this name?
pub fn is_defined(name: &str) -> bool {
    let head = format!("\npub fn {name}(");
    SOURCES.iter().any(|source| source.contains(&head))
}

/// `c[0] + c[1] x + c[2] x² + …`
fn polynomial<const N: usize>(x: f64, c: [f64; N]) -> f64 {
    c.iter().rev().fold(0.0, |sum, c| sum * x + c)
}

/// The functions of the C library that the files use, by their names there.
mod c {
    macro_rules! functions {
        ($($name:ident = $function:path;)+) => {
            $(pub(super) fn $name(x: f64) -> f64 {
                $function(x)
            })+
        };
    }

    functions! {
        acos = f64::acos;
        cos = f64::cos;
        erf = libm::erf;
        exp = f64::exp;
        fabs = f64::abs;
        floor = f64::floor;
        log = f64::ln;
        sin = f64::sin;
        sqrt = f64::sqrt;
        tan = f64::tan;
    }

    pub(super) fn isnan(x: f64) -> bool {
        x.is_nan()
    }

    pub(super) fn fmod(x: f64, y: f64) -> f64 {
        x % y
    }

    pub(super) fn pow(x: f64, y: f64) -> f64 {
        x.powf(y)
    }
}
