//! Bits, truth values, and choices by them.

use rustorch_ir::DType;
use rustorch_ir::ops::{Contiguous, UnaryOp, Where};
use rustorch_macros::track_calls;

use super::binary_methods;
use crate::Tensor;
use crate::api::promote::{AsOperand, AsValue};
use crate::api::promote::{Operand, result_dtype};
use crate::args::numbers::{largest_float, require_rounded};
use crate::error::{RusTorchResult, require};

binary_methods! {
    "Bitwise and; logical for booleans. Takes integers and booleans."
    bitwise_and = And, |d| d;
    "Bitwise or; logical for booleans. Takes integers and booleans."
    bitwise_or = Or, |d| d;
    "Bitwise exclusive or; logical for booleans. Takes integers and booleans."
    bitwise_xor = Xor, |d| d;
    "`self · 2^other` of integers: 0 if `other` is negative or at least their number of bits."
    bitwise_left_shift = ShiftLeft, |d| d;
    "`⌊self / 2^other⌋` of integers: 0, or −1 for negative ones, if `other` is negative or at \
     least their number of bits."
    bitwise_right_shift = ShiftRight, |d| d;
    "Are `self` and `other` both nonzero? The result is `bool`."
    logical_and = And, |_| DType::Bool;
    "Is `self` or `other` nonzero? The result is `bool`."
    logical_or = Or, |_| DType::Bool;
    "Is exactly one of `self` and `other` nonzero? The result is `bool`."
    logical_xor = Xor, |_| DType::Bool;
}

#[track_calls]
impl Tensor {
    /// Inverts every bit; logical for booleans. Takes integers and booleans.
    ///
    /// # Errors
    /// Fails for an unsupported dtype.
    pub fn bitwise_not(&self) -> RusTorchResult<Self> {
        match self.dtype() {
            DType::Bool => self.logical_not(),
            _ => self.bitwise_xor(-1),
        }
    }

    /// Tests each element for 0, or false. The result is `bool`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn logical_not(&self) -> RusTorchResult<Self> {
        self.cast("logical_not", DType::Bool)?
            .unary("logical_not", UnaryOp::Not)
    }

    /// `a` where `condition` (`bool`) is true, else `b`: `torch.where`. All three broadcast; `a`
    /// and `b` promote, and may be numbers.
    ///
    /// # Errors
    /// Fails for a condition that is not `bool`, or shapes that do not broadcast. Also fails for a
    /// number that the promoted dtype does not hold.
    #[doc(alias = "where")]
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

    /// `value` where `mask` (`bool`) is true, else `self`. `value` is a number or a tensor of
    /// rank 0. Both broadcast.
    ///
    /// # Errors
    /// Fails for a mask that is not `bool`, or shapes that do not broadcast. Also fails for a
    /// number out of the dtype's range. Also fails for a value tensor with dimensions, or of a
    /// higher kind, such as a float for integers.
    pub fn masked_fill(&self, mask: &Self, value: impl AsValue) -> RusTorchResult<Self> {
        const NAME: &str = "masked_fill";
        let value = value.as_value()?;
        if let Operand::Tensor(value) = value {
            require(NAME, value.rank() == 0, "a value of rank 0", value.ty())?;
            let dtype = result_dtype(NAME, &[self.into(), value.into()])?;
            let expected = format_args!("a value that {} holds", self.dtype());
            require(NAME, dtype == self.dtype(), expected, dtype)?;
        }
        let value = value.as_element(NAME, self.dtype())?;
        Self::apply(NAME, Where, &[mask, &value, self])
    }

    /// Replaces NaN by `nan`, and infinities by `positive` and `negative`. By default these are the dtype's largest and
    /// smallest number. Floats, and the parts of complex numbers; integers are unchanged.
    ///
    /// # Errors
    /// Fails for a block format.
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
            return Self::apply("nan_to_num", Contiguous, &[self]);
        };
        // It is an operand, not an element: PyTorch rounds it to infinity.
        let number = |x: f64| Self::number("nan_to_num", x.into(), self.dtype(), None);
        let x = Self::where_(&self.isnan()?, number(nan)?, self)?;
        let x = Self::where_(&x.isposinf()?, number(positive.unwrap_or(largest))?, &x)?;
        Self::where_(&self.isneginf()?, number(negative.unwrap_or(-largest))?, &x)
    }
}
