//! The Rust types of dtypes' elements, and the types that kernels compute in.

use bytemuck::Pod;
use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::{DType, F8E4M3, F8E5M2, Scalar, to_odd};

use crate::half_precision::{
    round_bf16, round_e4m3, round_e5m2, round_f16, widen_bf16, widen_e4m3, widen_e5m2, widen_f16,
};

/// Evaluates `$body` with `$T` standing for the element type of `$dtype`, which is of the
/// named class; a [`Misuse`](crate::kernel::Misuse) if it is not. `bool`s are bytes, and
/// words are plain bits of the right size, for kernels that only move elements.
macro_rules! with_type {
    ($dtype:expr, floats $T:ident => $body:expr) => {
        $crate::element::with_type!(@ $dtype, $T => $body,
            F64: f64, F32: f32; F16: half::f16, BF16: half::bf16)
    };
    // Floats that are computed with in single precision.
    ($dtype:expr, singles $T:ident => $body:expr) => {
        $crate::element::with_type!(@ $dtype, $T => $body,
            F32: f32; F16: half::f16, BF16: half::bf16)
    };
    ($dtype:expr, ints $T:ident => $body:expr) => {
        $crate::element::with_type!(@ $dtype, $T => $body,
            I64: i64, I32: i32, U8: u8, Bool: u8; I16: i16, I8: i8, U16: u16, U32: u32, U64: u64)
    };
    ($dtype:expr, floats8 $T:ident => $body:expr) => {
        $crate::element::with_type!(@ $dtype, $T => $body,
            ; F8E4M3: rustorch_ir::F8E4M3, F8E5M2: rustorch_ir::F8E5M2)
    };
    ($dtype:expr, complex $T:ident => $body:expr) => {
        $crate::element::with_type!(@ $dtype, $T => $body,
            ; Complex64: num_complex::Complex<f32>, Complex128: num_complex::Complex<f64>)
    };
    ($dtype:expr, reals $T:ident => $body:expr) => {
        match $dtype {
            d if d.is_float() => $crate::element::with_type!(d, floats $T => $body),
            d => $crate::element::with_type!(d, ints $T => $body),
        }
    };
    ($dtype:expr, numbers $T:ident => $body:expr) => {
        match $dtype {
            d if d.is_complex() => $crate::element::with_type!(d, complex $T => $body),
            d => $crate::element::with_type!(d, reals $T => $body),
        }
    };
    ($dtype:expr, scalars $T:ident => $body:expr) => {
        match $dtype {
            d if d.is_float8() => $crate::element::with_type!(d, floats8 $T => $body),
            d => $crate::element::with_type!(d, numbers $T => $body),
        }
    };
    ($dtype:expr, words $T:ident => $body:expr) => {
        match $dtype.size() {
            Some(1) => { type $T = u8; $body }
            Some(2) => { type $T = u16; $body }
            Some(4) => { type $T = u32; $body }
            // Arrays of words have the alignment of complex numbers.
            Some(8) => { type $T = [u32; 2]; $body }
            Some(16) => { type $T = [u32; 4]; $body }
            _ => Err($crate::element::unknown($dtype)),
        }
    };
    // Types that are always there, and those of the feature `dtypes`.
    (
        @ $dtype:expr, $T:ident => $body:expr,
        $($variant:ident: $type:ty),*; $($other:ident: $other_type:ty),+
    ) => {
        match $dtype {
            $(rustorch_ir::DType::$variant => { type $T = $type; $body })*
            $(rustorch_ir::DType::$other if cfg!(feature = "dtypes") => {
                type $T = $other_type;
                $body
            })+
            other => Err($crate::element::unknown(other)),
        }
    };
}
pub(crate) use with_type;

/// Returns whether there are kernels for elements of `dtype`, or whether it is one that the feature `dtypes` would
/// bring. Blocks are for each kernel to say.
pub(crate) fn is_known(dtype: DType) -> bool {
    dtype.is_block() || with_type!(dtype, scalars T => Ok(size_of::<T>())).is_ok()
}

/// The answer to a dtype that a kernel did not say it accepts.
pub(crate) fn unknown(dtype: DType) -> crate::kernel::Misuse {
    crate::kernel::Misuse(format!("no kernel for elements of {dtype}"))
}

/// An element as memory holds it.
pub(crate) trait Element: Pod + Send + Sync {
    /// Type of the computation: the type itself, or single precision for floats of fewer bits.
    type Compute: Element<Compute = Self::Compute>;

    /// Whether that is another type.
    const CONVERTED: bool;

    /// The elements in the compute type, put into `buffer` if they are not as they are.
    fn widen<'a>(x: &'a [Self], buffer: &'a mut impl Buffer<Self::Compute>) -> &'a [Self::Compute];

    /// Lets `compute` write results for `out`, through `buffer` if they need rounding.
    fn write<R>(
        out: &mut [Self],
        buffer: &mut impl Buffer<Self::Compute>,
        compute: impl FnOnce(&mut [Self::Compute]) -> R,
    ) -> R;
}

/// Room for converted elements.
pub(crate) trait Buffer<T> {
    /// Room for `len` of them, holding anything.
    fn room(&mut self, len: usize) -> &mut [T];
}

/// Grows.
impl<T: Pod> Buffer<T> for Vec<T> {
    fn room(&mut self, len: usize) -> &mut [T] {
        self.resize(len, T::zeroed());
        self
    }
}

/// A buffer for at most `N`.
impl<T, const N: usize> Buffer<T> for [T; N] {
    fn room(&mut self, len: usize) -> &mut [T] {
        &mut self[..len]
    }
}

macro_rules! computes_as_itself {
    ($($type:ty),+) => {$(
        impl Element for $type {
            type Compute = Self;

            const CONVERTED: bool = false;

            fn widen<'a>(x: &'a [Self], _: &'a mut impl Buffer<Self>) -> &'a [Self] {
                x
            }

            fn write<R>(
                out: &mut [Self],
                _: &mut impl Buffer<Self>,
                compute: impl FnOnce(&mut [Self]) -> R,
            ) -> R {
                compute(out)
            }
        }
    )+};
}

computes_as_itself!(
    f64, f32, i64, i32, i16, i8, u8, u16, u32, u64, [u32; 2], [u32; 4]
);
computes_as_itself!(Complex<f32>, Complex<f64>);

macro_rules! computes_in_single_precision {
    ($($type:ty: $widen:ident, $round:ident;)+) => {$(
        impl Element for $type {
            type Compute = f32;

            const CONVERTED: bool = true;

            fn widen<'a>(x: &'a [Self], buffer: &'a mut impl Buffer<f32>) -> &'a [f32] {
                let buffer = buffer.room(x.len());
                $widen(x, buffer);
                buffer
            }

            fn write<R>(
                out: &mut [Self],
                buffer: &mut impl Buffer<f32>,
                compute: impl FnOnce(&mut [f32]) -> R,
            ) -> R {
                let buffer = buffer.room(out.len());
                let result = compute(buffer);
                $round(buffer, out);
                result
            }
        }
    )+};
}

computes_in_single_precision! {
    f16: widen_f16, round_f16;
    bf16: widen_bf16, round_bf16;
    F8E4M3: widen_e4m3, round_e4m3;
    F8E5M2: widen_e5m2, round_e5m2;
}

/// An element that a parameter of an operation can stand for.
pub(crate) trait FromScalar: Element {
    /// The element that is `value`, rounded or cut to the type.
    fn from_scalar(value: Scalar) -> Self;
}

macro_rules! from_scalar {
    ($($type:ty: $value:ident => $from:expr;)+) => {$(
        impl FromScalar for $type {
            fn from_scalar($value: Scalar) -> Self {
                $from
            }
        }
    )+};
}

from_scalar! {
    f64: v => v.as_f64();
    f32: v => v.as_f64() as f32;
    f16: v => Self::from_f32(to_odd(v.as_f64()));
    bf16: v => Self::from_f32(to_odd(v.as_f64()));
    i64: v => v.as_i64();
    i32: v => v.as_i64() as Self;
    i16: v => v.as_i64() as Self;
    i8: v => v.as_i64() as Self;
    u8: v => v.as_i64() as Self;
    u16: v => v.as_i64() as Self;
    u32: v => v.as_i64() as Self;
    u64: v => v.as_u64();
    Complex<f32>: v => Self::new(v.as_f64() as f32, v.imag() as f32);
    Complex<f64>: v => Self::new(v.as_f64(), v.imag());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_once() {
        // Just above the tie between 1 and its neighbour, where single precision is the tie.
        let above = 1.0 + (-11f64).exp2() + (-40f64).exp2();
        assert_eq!(f16::from_f32(above as f32).to_f64(), 1.0);
        assert_eq!(
            f16::from_scalar(above.into()).to_f64(),
            1.0 + (-10f64).exp2()
        );
        assert_eq!(
            f16::from_scalar((-above).into()).to_f64(),
            -1.0 - (-10f64).exp2()
        );
        assert_eq!(f16::from_scalar(1e300.into()), f16::INFINITY);
        assert_eq!(bf16::from_scalar(1e300.into()), bf16::INFINITY);
        assert!(bf16::from_scalar(f64::NAN.into()).is_nan());
    }
}
