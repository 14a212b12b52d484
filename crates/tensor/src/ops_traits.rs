//! The operators `+ - * /` and unary `-`.
//!
//! They stand between tensors, by reference or value, and between a tensor and a number
//! (`f64` or `i64`, so that the type of a literal is clear) on either side, and mean [`Tensor::add`], [`Tensor::sub`], [`Tensor::mul`], [`Tensor::div`] and
//! [`Tensor::neg`]. Their output is a [`RusTorchResult`], since shapes may not fit:
//!
//! ```
//! # use rustorch_tensor::{RusTorchResult, tensor};
//! # fn main() -> RusTorchResult<()> {
//! let (x, y) = (tensor![1.0, 2.0], tensor![3.0, 4.0]);
//! let z = (2.0 * (&x + &y)?)?;
//! assert_eq!(z.to_vec::<f32>()?, [8.0, 12.0]);
//! # Ok(())
//! # }
//! ```

use std::ops::{Add, Div, Mul, Neg, Sub};

use rustorch_macros::track_calls;

use crate::Tensor;
use crate::error::RusTorchResult;
use crate::promote::{Operand, result_dtype};

macro_rules! operators {
    ($($Trait:ident::$method:ident),*) => {
        $(operator!($Trait::$method: |a: &Tensor, b: &Tensor| Tensor::$method(a, b));
        operator!($Trait::$method: |a: &Tensor, b: Tensor| Tensor::$method(a, &b));
        operator!($Trait::$method: |a: Tensor, b: &Tensor| Tensor::$method(&a, b));
        operator!($Trait::$method: |a: Tensor, b: Tensor| Tensor::$method(&a, &b));
        number_operators!($Trait::$method: f64, i64);)*
    };
}

macro_rules! number_operators {
    ($Trait:ident::$method:ident: $($number:ty),*) => {
        $(operator!($Trait::$method: |a: &Tensor, b: $number| Tensor::$method(a, b));
        operator!($Trait::$method: |a: Tensor, b: $number| Tensor::$method(&a, b));
        operator!($Trait::$method: |a: $number, b: &Tensor| {
            Tensor::$method(&beside(stringify!($method), a, b)?, b)
        });
        operator!($Trait::$method: |a: $number, b: Tensor| a.$method(&b));)*
    };
}

macro_rules! operator {
    ($Trait:ident::$method:ident: |$a:ident: $A:ty, $b:ident: $B:ty| $result:expr) => {
        #[rustorch_macros::track_calls]
        impl $Trait<$B> for $A {
            type Output = RusTorchResult<Tensor>;

            fn $method(self, $b: $B) -> Self::Output {
                let $a = self;
                $result
            }
        }
    };
}

/// A number on the left of a tensor, as one of rank 0.
fn beside(
    op: &'static str,
    number: impl Into<Operand<'static>>,
    tensor: &Tensor,
) -> RusTorchResult<Tensor> {
    let number = number.into();
    number.to_tensor(op, result_dtype(op, &[number, tensor.into()])?)
}

operators!(Add::add, Sub::sub, Mul::mul, Div::div);

#[track_calls]
impl Neg for &Tensor {
    type Output = RusTorchResult<Tensor>;

    fn neg(self) -> Self::Output {
        Tensor::neg(self)
    }
}

#[track_calls]
impl Neg for Tensor {
    type Output = RusTorchResult<Tensor>;

    fn neg(self) -> Self::Output {
        Self::neg(&self)
    }
}
