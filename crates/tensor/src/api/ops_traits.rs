//! Operators.
//!
//! | operator | method |
//! | --- | --- |
//! | `+`, `-`, `*`, `/` | [`Tensor::add`], [`Tensor::sub`], [`Tensor::mul`], [`Tensor::div`] |
//! | `%` | [`Tensor::remainder`] |
//! | `&`, `|`, `^` | [`Tensor::bitwise_and`], [`Tensor::bitwise_or`], [`Tensor::bitwise_xor`] |
//! | `<<`, `>>` | [`Tensor::bitwise_left_shift`], [`Tensor::bitwise_right_shift`] |
//! | unary `-`, `!` | [`Tensor::neg`], [`Tensor::bitwise_not`] |
//!
//! The right operand is a tensor, by reference or value, an operation's result, or any number type
//! of Rust. The left operand of arithmetic may also be a plain literal (`f64` or `i64`), a half or
//! a complex number. Convert other numbers: `f64::from(n) * &x`. The output is a
//! [`RusTorchResult`], since shapes may not fit. Such a result may be an operand beside a tensor.
//! Rust does not let a library join two results, or a result and a number. Write `?` after the
//! first one:
//!
//! ```
//! # use rustorch_tensor::{RusTorchResult, tensor};
//! # fn main() -> RusTorchResult<()> {
//! let (x, y) = (tensor![1.0, 2.0], tensor![3.0, 4.0]);
//! let z = (2 * &x + &y)?;
//! assert_eq!(z.to_vec::<f32>()?, [5.0, 8.0]);
//! let z = ((&x + &y)? * 0.5)?;
//! assert_eq!(z.to_vec::<f32>()?, [2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
//!
//! `+=`, `-=`, `*=` and `/=` write in place, as [`Tensor::add_`] and similar methods do: clones and
//! views of the tensor show the change. `x = (&x + 1)?` makes the variable another tensor instead,
//! and its clones keep the old elements. In Rust these operators cannot return an error. So a
//! mistake is an error when the tensor is read. The next use of its clones and views fails as well.
//! The error names the operator and its line. Nothing is written then. A write to a parameter
//! outside [`no_grad`](crate::no_grad) is rejected in the same way. The parameter keeps its
//! elements, and its next use of any kind fails.
//!
//! ```
//! # use rustorch_tensor::{RusTorchResult, tensor};
//! # fn main() -> RusTorchResult<()> {
//! let mut x = tensor![1.0, 2.0];
//! let same = x.clone();
//! x += 1;
//! x *= &tensor![2.0, 3.0];
//! assert_eq!(x.to_vec::<f32>()?, [4.0, 9.0]);
//! assert_eq!(same.to_vec::<f32>()?, [4.0, 9.0]);
//! x -= tensor![1.0, 2.0, 3.0];
//! let error = x.to_vec::<f32>().unwrap_err().to_string();
//! assert!(error.starts_with("sub_assign at ") && error.contains("[2] and [3]"), "{error}");
//! # Ok(())
//! # }
//! ```

use std::ops::{
    Add, AddAssign, BitAnd, BitOr, BitXor, Div, DivAssign, Mul, MulAssign, Neg, Not, Rem, Shl, Shr,
    Sub, SubAssign,
};
use std::sync::Arc;

use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::DType;
use rustorch_macros::track_calls;

use crate::api::in_place::Argument;
use crate::api::promote::{AsOperand, Number, Operand, result_dtype};
use crate::api::updates::Shared;
use crate::args::numbers::is_lost;
use crate::error::{RusTorchError, RusTorchResult};
use crate::lazy::value::{State, Value};
use crate::{Tensor, call};

/// One line for each operator: its trait and function, the method.
macro_rules! operators {
    ($($Trait:ident::$function:ident = $method:ident;)*) => {
        $(operator!($Trait::$function for [R: AsOperand] &Tensor, R: |a, b| Tensor::$method(a, b));
        operator!($Trait::$function for [R: AsOperand] Tensor, R: |a, b| Tensor::$method(&a, b));
        operator!($Trait::$function for [] RusTorchResult<Tensor>, Tensor: |a, b| Tensor::$method(&a?, b));
        operator!($Trait::$function for [] RusTorchResult<Tensor>, &Tensor: |a, b| Tensor::$method(&a?, b));
        operator!($Trait::$function for [] RusTorchResult<Tensor>, OthersAfterAQuestionMark: |_a, b| match b {});)*
    };
}

/// One line for each arithmetic operator, with a number on its left. Integers and floats may have
/// one type each: with several, the compiler could not infer the type of `2 * &x`.
macro_rules! operators_of_numbers {
    ($($Trait:ident::$function:ident = $method:ident;)*) => {
        $(numbers_first!($Trait::$function = $method: f64, i64, f16, bf16, Complex<f64>, Complex<f32>);)*
    };
}

macro_rules! numbers_first {
    ($Trait:ident::$function:ident = $method:ident: $($number:ty),*) => {
        $(operator!($Trait::$function for [] $number, &Tensor: |a, b| {
            beside(stringify!($method), a, b, |a, b| Tensor::$method(a, b))
        });
        operator!($Trait::$function for [] $number, Tensor: |a, b| a.$function(&b));)*
    };
}

macro_rules! operator {
    (
        $Trait:ident::$function:ident for [$($R:ident: $Bound:ident)?] $A:ty, $B:ty:
        |$a:ident, $b:ident| $result:expr
    ) => {
        #[rustorch_macros::track_calls]
        impl<$($R: $Bound)?> $Trait<$B> for $A {
            type Output = RusTorchResult<Tensor>;

            fn $function(self, $b: $B) -> Self::Output {
                let $a = self;
                $result
            }
        }
    };
}

/// A placeholder in the compiler's list of operands, for results and numbers beside a result. Rust
/// does not let a library join them or show its own message.
pub enum OthersAfterAQuestionMark {}

/// `f` of a number on the left of a tensor, as one of rank 0, and the tensor.
fn beside(
    op: &'static str,
    number: impl Number,
    tensor: &Tensor,
    f: impl Fn(&Tensor, &Tensor) -> RusTorchResult<Tensor>,
) -> RusTorchResult<Tensor> {
    let number = number.to_number();
    let dtype = result_dtype(op, &[Operand::Scalar(number), tensor.into()])?;
    let left = |dtype| Tensor::number(op, number, dtype, None);
    match matches!(op, "mul" | "div") && is_lost(number, dtype) {
        true => f(&left(DType::F32)?, &tensor.cast(op, DType::F32)?)?.cast(op, dtype),
        false => f(&left(dtype)?, tensor),
    }
}

operators! {
    Add::add = add;
    Sub::sub = sub;
    Mul::mul = mul;
    Div::div = div;
    Rem::rem = remainder;
    BitAnd::bitand = bitwise_and;
    BitOr::bitor = bitwise_or;
    BitXor::bitxor = bitwise_xor;
    Shl::shl = bitwise_left_shift;
    Shr::shr = bitwise_right_shift;
}

operators_of_numbers! {
    Add::add = add;
    Sub::sub = sub;
    Mul::mul = mul;
    Div::div = div;
    Rem::rem = remainder;
}

/// One line for each operator: its trait and function, the method.
macro_rules! assigning_operators {
    ($($Trait:ident::$function:ident = $method:ident;)*) => {
        $(#[track_calls]
        impl<R: AsOperand> $Trait<R> for Tensor {
            fn $function(&mut self, other: R) {
                const NAME: &str = stringify!($function);
                let changed = other.as_operand().and_then(|other| {
                    self.require_apart(NAME, Shared::Alike, &[other.operand()])?;
                    self.change(NAME, |x| x.$method(other)).map(drop)
                });
                changed.unwrap_or_else(|error| self.refuse(NAME, error));
            }
        })*
    };
}

assigning_operators! {
    AddAssign::add_assign = add;
    SubAssign::sub_assign = sub;
    MulAssign::mul_assign = mul;
    DivAssign::div_assign = div;
}

impl Tensor {
    /// Makes this handle one on a value that gives an operator's error. The other handles on its memory get the
    /// error, too.
    #[track_caller]
    fn refuse(&mut self, op: &'static str, error: RusTorchError) {
        let error = match error {
            // These tell the operator already.
            RusTorchError::Deferred { .. } | RusTorchError::Op { call: Some(_), .. } => error,
            error => {
                let (call, error) = (call::current(op), Box::new(error));
                RusTorchError::Deferred { call, error }
            }
        };
        // Elements that were written before stay.
        let memory = self.view_of_value().ok().map(|view| view.storage.clone());
        let state = State::Failed(Arc::new(error));
        let failed = Value::new(self.ty().clone(), self.value().pin(), state);
        if let Some(memory) = memory {
            self.shared().refuse(&memory, &failed);
        }
        // A parameter goes on: who uses it next is told.
        if !(self.is_leaf() && self.requires_grad()) {
            self.set_value(failed);
        }
    }
}

macro_rules! unary_operators {
    ($($Trait:ident::$function:ident = $method:ident;)*) => {
        $(#[track_calls]
        impl $Trait for &Tensor {
            type Output = RusTorchResult<Tensor>;

            fn $function(self) -> Self::Output {
                Tensor::$method(self)
            }
        }

        #[track_calls]
        impl $Trait for Tensor {
            type Output = RusTorchResult<Tensor>;

            fn $function(self) -> Self::Output {
                Tensor::$method(&self)
            }
        })*
    };
}

unary_operators! {
    Neg::neg = neg;
    Not::not = bitwise_not;
}
