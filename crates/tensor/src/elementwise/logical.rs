//! Bits, truth values, and choices by them.

use rustorch_ir::DType;
use rustorch_ir::ops::{UnaryOp, Where};
use rustorch_macros::track_calls;

use super::binary_methods;
use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::numbers::{largest_float, require_rounded};
use crate::promote::AsOperand;
use crate::promote::{Operand, result_dtype};

binary_methods! {
    "Bitwise and; logical for booleans. Integers and booleans."
    bitwise_and = And, |d| d;
    "Bitwise or; logical for booleans. Integers and booleans."
    bitwise_or = Or, |d| d;
    "Bitwise exclusive or; logical for booleans. Integers and booleans."
    bitwise_xor = Xor, |d| d;
    "`self · 2^other` of integers: 0 where `other` is negative, or no less than their bits."
    bitwise_left_shift = ShiftLeft, |d| d;
    "`⌊self / 2^other⌋` of integers: 0, or −1 of a negative one, where `other` is negative, or no \
     less than their bits."
    bitwise_right_shift = ShiftRight, |d| d;
    "Is `self` not 0 and `other` neither? Result `bool`."
    logical_and = And, |_| DType::Bool;
    "Is `self` or `other` not 0? Result `bool`."
    logical_or = Or, |_| DType::Bool;
    "Is exactly one of `self` and `other` not 0? Result `bool`."
    logical_xor = Xor, |_| DType::Bool;
}

#[track_calls]
impl Tensor {
    /// Every bit the other way; logical for booleans. Integers and booleans.
    ///
    /// # Errors
    /// Another dtype.
    pub fn bitwise_not(&self) -> RusTorchResult<Self> {
        match self.dtype() {
            DType::Bool => self.logical_not(),
            _ => self.bitwise_xor(-1),
        }
    }

    /// Is it 0, or false? Result `bool`.
    ///
    /// # Errors
    /// A block format.
    pub fn logical_not(&self) -> RusTorchResult<Self> {
        self.cast("logical_not", DType::Bool)?
            .unary("logical_not", UnaryOp::Not)
    }

    /// `a` where `condition`, a `bool` tensor, is true, else `b`: `torch.where`. All three
    /// broadcast; `a` and `b` promote, and may be numbers.
    ///
    /// # Errors
    /// A condition that is not `bool`; shapes that do not broadcast; a number out of the range of the
    /// dtype that both promote to.
    pub fn where_(condition: &Self, a: impl AsOperand, b: impl AsOperand) -> RusTorchResult<Self> {
        let (a, b): (Operand, Operand) = (a.as_operand()?, b.as_operand()?);
        let dtype = result_dtype("where", &[a, b])?;
        for operand in [a, b] {
            if let Operand::Scalar(value) = operand {
                require_rounded("where", value, dtype)?;
            }
        }
        let (a, b) = (a.to_tensor("where", dtype)?, b.to_tensor("where", dtype)?);
        Self::apply("where", Where, &[condition, &a, &b])
    }

    /// `value`, a number or a tensor of rank 0, where `mask`, a `bool` tensor, is true, else `self`.
    /// Both broadcast.
    ///
    /// # Errors
    /// A mask that is not `bool`; shapes that do not broadcast; a number out of the dtype's range; a
    /// tensor with dimensions, or whose kind is above that of `self`, such as a float for integers.
    pub fn masked_fill(&self, mask: &Self, value: impl AsOperand) -> RusTorchResult<Self> {
        const NAME: &str = "masked_fill";
        let value = value.as_operand()?;
        if let Operand::Tensor(value) = value {
            require(NAME, value.rank() == 0, "a value of rank 0", value.ty())?;
            let dtype = result_dtype(NAME, &[self.into(), value.into()])?;
            let expected = format_args!("a value that {} holds", self.dtype());
            require(NAME, dtype == self.dtype(), expected, dtype)?;
        }
        let value = value.as_element(NAME, self.dtype())?;
        Self::apply(NAME, Where, &[mask, &value, self])
    }

    /// NaN and infinities put in other numbers' places: NaN `nan`; `positive` and `negative` those of
    /// the infinities, or else the largest and least number of the dtype. Floats, and the parts of
    /// complex numbers; integers stay.
    ///
    /// # Errors
    /// A block format.
    pub fn nan_to_num(
        &self,
        nan: f64,
        positive: Option<f64>,
        negative: Option<f64>,
    ) -> RusTorchResult<Self> {
        if self.dtype().is_complex() {
            let [re, im] = [self.real()?, self.imag()?];
            let part = |x: Self| x.nan_to_num(nan, positive, negative);
            return Self::complex(&part(re)?, &part(im)?);
        }
        let Some(largest) = largest_float(self.dtype()) else {
            return Ok(self.clone());
        };
        // It is an operand, not an element: PyTorch rounds it to infinity.
        let number = |x: f64| Self::number("nan_to_num", x.into(), self.dtype(), None);
        let x = Self::where_(&self.isnan()?, number(nan)?, self)?;
        let x = Self::where_(&x.isposinf()?, number(positive.unwrap_or(largest))?, &x)?;
        Self::where_(&self.isneginf()?, number(negative.unwrap_or(-largest))?, &x)
    }
}
