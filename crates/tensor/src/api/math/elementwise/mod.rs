//! Elementwise functions, one file for each family.
//!
//! Functions that PyTorch composes are also composed here, in single precision for halves, as
//! PyTorch does. The runtime fuses such a chain into one launch.

mod activation;
mod arithmetic;
mod compare;
mod complex;
mod exponential;
mod logical;
mod special;

use rustorch_ir::ops::{
    Activation, ActivationKind, Binary, BinaryOp, Compare, CompareOp, Contiguous, Unary, UnaryOp,
};
use rustorch_ir::{DType, OpError};

use crate::Tensor;
use crate::api::promote::{Operand, result_dtype};
use crate::args::numbers::{Side, is_lost, require_held};
use crate::error::{RusTorchResult, require};

pub use arithmetic::RoundingMode;

/// The dtype that functions of real numbers give for integers: PyTorch's default dtype.
const DEFAULT_FLOAT: DType = DType::F32;

/// `dtype`, or the default float if it holds whole numbers.
pub(crate) fn float_of(dtype: DType) -> DType {
    match dtype.is_int() || dtype == DType::Bool {
        true => DEFAULT_FLOAT,
        false => dtype,
    }
}

/// The dtype that functions made of several operations compute in.
pub(crate) fn compute_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

impl Tensor {
    fn unary(&self, name: &'static str, op: UnaryOp) -> RusTorchResult<Self> {
        let is_negated_mask = op == UnaryOp::Neg && self.dtype() == DType::Bool;
        let expected = "numbers (logical_not is for booleans)";
        require(name, !is_negated_mask, expected, self.ty())?;
        Self::apply(name, Unary { op }, &[self])
    }

    /// A function of real numbers; integers and booleans become `f32`.
    fn real_function(&self, name: &'static str, op: UnaryOp) -> RusTorchResult<Self> {
        self.cast(name, float_of(self.dtype()))?.unary(name, op)
    }

    /// A function of real or complex numbers; integers and booleans become `f32`.
    fn function(&self, name: &'static str, op: UnaryOp) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.complex_function(name, op),
            false => self.real_function(name, op),
        }
    }

    /// A function of real numbers that is made of others: `f` in at least single precision, in the
    /// dtype of `self`. Integers and booleans become `f32`.
    fn composed(
        &self,
        name: &'static str,
        f: impl FnOnce(&Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        require(name, !self.dtype().is_complex(), "real numbers", self.ty())?;
        self.composed_of_numbers(name, f)
    }

    /// The same of complex numbers, too.
    fn composed_of_numbers(
        &self,
        name: &'static str,
        f: impl FnOnce(&Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        let dtype = float_of(self.dtype());
        require(name, !dtype.is_block(), "numbers", self.ty())?;
        f(&self.cast(name, compute_dtype(dtype))?)?.cast(name, dtype)
    }

    /// The same of two operands, in the dtype that both promote to.
    fn composed_of_two(
        &self,
        name: &'static str,
        other: Operand,
        f: impl FnOnce(&Self, &Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<Self> {
        let this = Operand::from(self);
        let dtype = float_of(result_dtype(name, &[this, other])?);
        let compute = compute_dtype(dtype);
        let (a, b) = (
            this.to_tensor(name, compute)?,
            other.to_tensor(name, compute)?,
        );
        f(&a, &b)?.cast(name, dtype)
    }

    /// Fails unless the dtype that is computed in holds a parameter.
    fn require_parameter(
        &self,
        name: &'static str,
        parameter: impl Into<Option<f64>>,
    ) -> RusTorchResult<()> {
        let compute = compute_dtype(float_of(self.dtype()));
        (parameter.into()).map_or(Ok(()), |x| require_held(name, x.into(), compute))
    }

    /// Rounding; integers are whole already.
    fn rounding(&self, name: &'static str, op: UnaryOp) -> RusTorchResult<Self> {
        match self.dtype().is_int() {
            true => Self::apply(name, Contiguous, &[self]),
            false => self.unary(name, op),
        }
    }

    fn activation(&self, name: &'static str, kind: ActivationKind) -> RusTorchResult<Self> {
        Self::apply(name, Activation { kind }, &[self])
    }

    fn binary(
        &self,
        name: &'static str,
        op: BinaryOp,
        other: Operand,
        adjust: impl Fn(DType) -> DType,
    ) -> RusTorchResult<Self> {
        let this = Operand::from(self);
        let dtype = adjust(result_dtype(name, &[this, other])?);
        // As numbers, booleans add by or and multiply by and.
        let op = match (op, dtype) {
            (BinaryOp::Add, DType::Bool) => BinaryOp::Or,
            (BinaryOp::Mul, DType::Bool) => BinaryOp::And,
            (BinaryOp::Sub, DType::Bool) => {
                let expected = "numbers (logical_xor is for booleans)";
                return Err(OpError::new(name, expected, self.ty()).into());
            }
            (op, _) => op,
        };
        if let Operand::Tensor(other) = other
            && [self.dtype(), other.dtype()] == [dtype; 2]
        {
            return Self::apply(name, Binary { op }, &[self, other]);
        }
        if let (BinaryOp::Mul | BinaryOp::Div, Operand::Scalar(value)) = (op, other)
            && is_lost(value, dtype)
        {
            // Like PyTorch, which has factors of halves in single precision.
            let (a, b) = (
                self.cast(name, DType::F32)?,
                other.to_tensor(name, DType::F32)?,
            );
            return Self::apply(name, Binary { op }, &[&a, &b])?.cast(name, dtype);
        }
        let (a, b) = (this.as_tensor(name, dtype)?, other.as_tensor(name, dtype)?);
        Self::apply(name, Binary { op }, &[&a, &b])
    }

    /// The larger or the smaller (`op`) of the elements and a bound.
    fn bounded(&self, name: &'static str, op: BinaryOp, other: Operand) -> RusTorchResult<Self> {
        let Operand::Scalar(_) = other else {
            return self.binary(name, op, other, |d| d);
        };
        let dtype = result_dtype(name, &[self.into(), other])?;
        let side = match op {
            BinaryOp::Maximum => Side::Lower,
            _ => Side::Upper,
        };
        let x = Operand::from(self).as_tensor(name, dtype)?;
        let bound = other.as_bound(name, dtype, side)?;
        Self::apply(name, Binary { op }, &[&*x, &*bound])
    }

    fn compare(&self, name: &'static str, op: CompareOp, other: Operand) -> RusTorchResult<Self> {
        let this = Operand::from(self);
        let dtype = result_dtype(name, &[this, other])?;
        let (a, b) = (this.as_tensor(name, dtype)?, other.as_tensor(name, dtype)?);
        Self::apply(name, Compare { op }, &[&a, &b])
    }
}

/// One method for each line: documentation, name, how it is recorded, which function.
macro_rules! unary_methods {
    ($($doc:literal $(#[$more:meta])* $name:ident = $how:ident($op:expr);)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            $(#[$more])*
            ///
            /// # Errors
            /// Fails for a dtype that the function is not defined for.
            pub fn $name(&self) -> RusTorchResult<Self> {
                self.$how(stringify!($name), $op)
            })*
        }
    };
}
use unary_methods;

/// One method for each line: documentation, name, and function, which is the larger or the smaller.
macro_rules! bounding_methods {
    ($($doc:literal $name:ident = $op:ident;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// `other` is a tensor or a number. A tensor is broadcast and promoted as in PyTorch. A
            /// number does not change the dtype, unless it has a higher kind (a float for
            /// integers). A number beyond all integers of the dtype leaves the elements unchanged.
            ///
            /// # Errors
            /// Fails for shapes that do not broadcast, or an unsupported dtype. Also fails for a
            /// number that would be the result but that the dtype does not hold.
            pub fn $name(&self, other: impl crate::AsOperand) -> RusTorchResult<Self> {
                self.bounded(stringify!($name), rustorch_ir::ops::BinaryOp::$op, other.as_operand()?)
            })*
        }
    };
}
use bounding_methods;

/// One method for each line: documentation, name, function, adjustment of the common dtype.
macro_rules! binary_methods {
    ($($doc:literal $(#[$more:meta])* $name:ident = $op:ident, $adjust:expr;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            $(#[$more])*
            ///
            /// `other` is a tensor or a number. A tensor is broadcast and promoted as in PyTorch. A
            /// number does not change the dtype, unless it has a higher kind (a float for
            /// integers).
            ///
            /// # Errors
            /// Fails for shapes that do not broadcast, or a dtype that the function is not defined
            /// for.
            pub fn $name(&self, other: impl crate::AsOperand) -> RusTorchResult<Self> {
                self.binary(stringify!($name), rustorch_ir::ops::BinaryOp::$op, other.as_operand()?, $adjust)
            })*
        }
    };
}
use binary_methods;

/// One method for each line: documentation, name, further arguments, and its formula for a real
/// number.
macro_rules! composed_methods {
    ($($doc:literal $name:ident($($arg:ident: $ty:ty),*) = |$x:ident| $value:expr;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// # Errors
            /// Fails for a dtype that is not real, or a parameter out of its range.
            pub fn $name(&self, $($arg: $ty),*) -> RusTorchResult<Self> {
                $(self.require_parameter(stringify!($name), $arg)?;)*
                self.composed(stringify!($name), |$x| $value)
            })*
        }
    };
}
use composed_methods;

/// One method for each line: documentation, name, and its formula for two real numbers.
macro_rules! composed_methods_of_two {
    ($($doc:literal $name:ident = |$a:ident, $b:ident| $value:expr;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// `other` is a tensor, which is broadcast and promoted, or a number.
            ///
            /// # Errors
            /// Fails for shapes that do not broadcast, or a dtype that is not real.
            pub fn $name(&self, other: impl crate::AsOperand) -> RusTorchResult<Self> {
                self.composed_of_two(stringify!($name), other.as_operand()?, |$a, $b| $value)
            })*
        }
    };
}
use composed_methods_of_two;
