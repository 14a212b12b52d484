//! Compiler hints for operators that tensors do not have. The operators are implemented for
//! operands that never exist. So the compiler shows this advice in place of its own message. `==`
//! is not among them: its implementation would make `eq` of a `&&Tensor` compare references in
//! place of calling the tensor's method.

use std::ops::{Add, Div, Index, Mul, Rem, Sub};

use crate::Tensor;
use crate::error::RusTorchResult;

/// Message for an index in brackets, which tensors do not have. `[…]` would have to return an existing part, by
/// reference, and could not fail.
#[diagnostic::on_unimplemented(
    message = "a tensor has no `[…]`; its parts are `x.i(…)?`",
    label = "expected `.i(…)?`",
    note = "`x.i(0)?`, `x.i((.., 1..3))?`, `x.i(&mask)?`; to write into parts: `x.i(0)?.copy_(&y)?`, \
            `x.index_put_((0, 1), 1.0, false)?`"
)]
pub trait IndexInBrackets {}

impl<T: IndexInBrackets> Index<T> for Tensor {
    type Output = Self;

    fn index(&self, _: T) -> &Self {
        self
    }
}

/// Message for a number on the left of a tensor that is neither `f64` nor `i64`. With several types of floats there the
/// compiler would not know what `2.0 * &x` is. The lifetime has the compiler look for the trait only where it is used.
#[diagnostic::on_unimplemented(
    message = "a number on the left of a tensor is an `f64` or an `i64`, no `{Self}`",
    label = "expected `f64` or `i64` on the left",
    note = "on the right a number may have any type: `&x * k`; on the left it is converted: `f64::from(k) * &x`"
)]
pub trait NumberOnTheLeft<'a>: Sized {
    /// The result, which never exists.
    fn never(self) -> RusTorchResult<Tensor>;
}

/// The types of numbers, and one line for each operator: its trait and function.
macro_rules! refused_on_the_left {
    ($numbers:tt: $($Trait:ident::$function:ident;)*) => {
        $(refused_on_the_left!($Trait::$function $numbers);)*
    };
    ($Trait:ident::$function:ident [$($number:ty),*]) => {
        $(
            impl<'a> $Trait<Tensor> for $number where $number: NumberOnTheLeft<'a> {
                type Output = RusTorchResult<Tensor>;

                fn $function(self, _: Tensor) -> RusTorchResult<Tensor> {
                    self.never()
                }
            }

            impl<'a> $Trait<&'a Tensor> for $number where $number: NumberOnTheLeft<'a> {
                type Output = RusTorchResult<Tensor>;

                fn $function(self, _: &'a Tensor) -> RusTorchResult<Tensor> {
                    self.never()
                }
            }
        )*
    };
}

refused_on_the_left! {
    [f32, i8, i16, i32, isize, u8, u16, u32, u64, usize]:
    Add::add;
    Sub::sub;
    Mul::mul;
    Div::div;
    Rem::rem;
}
