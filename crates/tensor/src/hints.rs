//! Operators that tensors do not have, implemented for operands that there are none of: so the compiler gives the advice
//! that stands here, where it would say that an implementation is missing. `==` is not among them: with an implementation,
//! `eq` of a `&&Tensor` would be that of references, no longer the tensor's own method.

use std::ops::Index;

use crate::Tensor;

/// An index in brackets, of which there is none: `[…]` would have to give a part that is there already, by reference,
/// and could not fail.
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
