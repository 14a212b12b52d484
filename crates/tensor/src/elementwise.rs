//! Functions of each element.

use rustorch_ir::ops::{
    Activation, ActivationKind, Binary, BinaryOp, Compare, CompareOp, Unary, UnaryOp, Where,
};
use rustorch_ir::{DType, OpError};

use crate::Tensor;
use crate::error::{RusTorchResult, require};
use crate::promote::{Operand, result_dtype};

/// The dtype that functions of real numbers give for integers: PyTorch's default dtype.
const DEFAULT_FLOAT: DType = DType::F32;

/// `dtype`, or the default float if it holds whole numbers.
fn float_of(dtype: DType) -> DType {
    match dtype.is_int() || dtype == DType::Bool {
        true => DEFAULT_FLOAT,
        false => dtype,
    }
}

impl Tensor {
    fn unary(&self, name: &'static str, op: UnaryOp) -> RusTorchResult<Self> {
        Self::apply(name, Unary { op }, &[self])
    }

    /// A function of real numbers; integers and booleans become `f32` first.
    fn real_function(&self, name: &'static str, op: UnaryOp) -> RusTorchResult<Self> {
        self.cast(name, float_of(self.dtype()))?.unary(name, op)
    }

    /// Rounding; integers are whole already.
    fn rounding(&self, name: &'static str, op: UnaryOp) -> RusTorchResult<Self> {
        match self.dtype().is_int() {
            true => Ok(self.clone()),
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
            (op, _) => op,
        };
        let (a, b) = (this.to_tensor(name, dtype)?, other.to_tensor(name, dtype)?);
        Self::apply(name, Binary { op }, &[&a, &b])
    }

    fn compare(&self, name: &'static str, op: CompareOp, other: Operand) -> RusTorchResult<Self> {
        let this = Operand::from(self);
        let dtype = result_dtype(name, &[this, other])?;
        let (a, b) = (this.to_tensor(name, dtype)?, other.to_tensor(name, dtype)?);
        Self::apply(name, Compare { op }, &[&a, &b])
    }
}

/// One method for each line: documentation, name, how it is recorded, which function.
macro_rules! unary_methods {
    ($($doc:literal $name:ident = $how:ident($op:expr);)*) => {
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// # Errors
            /// A dtype that the function is not defined for.
            pub fn $name(&self) -> RusTorchResult<Self> {
                self.$how(stringify!($name), $op)
            })*
        }
    };
}

unary_methods! {
    "`-x`. Numbers; integers wrap."
    neg = unary(UnaryOp::Neg);
    "`|x|`; of complex numbers the length, a real."
    abs = unary(UnaryOp::Abs);
    "−1, 0 or 1. Real numbers; NaN gives 0."
    sign = unary(UnaryOp::Sign);
    "eˣ. Real (integers as `f32`) or complex."
    exp = real_function(UnaryOp::Exp);
    "Natural logarithm. Real; integers as `f32`."
    log = real_function(UnaryOp::Log);
    "Square root. Real; integers as `f32`."
    sqrt = real_function(UnaryOp::Sqrt);
    "`1 / √x`. Real; integers as `f32`."
    rsqrt = real_function(UnaryOp::Rsqrt);
    "`1 / x`. Real (integers as `f32`) or complex."
    reciprocal = real_function(UnaryOp::Reciprocal);
    "Sine. Real; integers as `f32`."
    sin = real_function(UnaryOp::Sin);
    "Cosine. Real; integers as `f32`."
    cos = real_function(UnaryOp::Cos);
    "Tangent. Real; integers as `f32`."
    tan = real_function(UnaryOp::Tan);
    "Hyperbolic tangent. Real; integers as `f32`."
    tanh = real_function(UnaryOp::Tanh);
    "Hyperbolic sine. Real; integers as `f32`."
    sinh = real_function(UnaryOp::Sinh);
    "Hyperbolic cosine. Real; integers as `f32`."
    cosh = real_function(UnaryOp::Cosh);
    "Inverse sine. Real; integers as `f32`."
    asin = real_function(UnaryOp::Asin);
    "Inverse cosine. Real; integers as `f32`."
    acos = real_function(UnaryOp::Acos);
    "Inverse tangent. Real; integers as `f32`."
    atan = real_function(UnaryOp::Atan);
    "Inverse hyperbolic sine. Real; integers as `f32`."
    asinh = real_function(UnaryOp::Asinh);
    "Inverse hyperbolic cosine. Real; integers as `f32`."
    acosh = real_function(UnaryOp::Acosh);
    "Inverse hyperbolic tangent. Real; integers as `f32`."
    atanh = real_function(UnaryOp::Atanh);
    "2ˣ. Real; integers as `f32`."
    exp2 = real_function(UnaryOp::Exp2);
    "Logarithm to base 2. Real; integers as `f32`."
    log2 = real_function(UnaryOp::Log2);
    "Logarithm to base 10. Real; integers as `f32`."
    log10 = real_function(UnaryOp::Log10);
    "Error function. Real; integers as `f32`."
    erf = real_function(UnaryOp::Erf);
    "Largest integer not above, as a float. Integers stay."
    floor = rounding(UnaryOp::Floor);
    "Smallest integer not below, as a float. Integers stay."
    ceil = rounding(UnaryOp::Ceil);
    "Nearest integer, halves to even, as a float. Integers stay."
    round = rounding(UnaryOp::Round);
    "Integer part, as a float. Integers stay."
    trunc = rounding(UnaryOp::Trunc);
    "Imaginary part of complex numbers."
    imag = unary(UnaryOp::Imag);
    "`1 / (1 + e⁻ˣ)`. Floats."
    sigmoid = activation(ActivationKind::Sigmoid);
    "`x · sigmoid(x)`. Floats."
    silu = activation(ActivationKind::Silu);
    "`x / 2 · (1 + erf(x / √2))`. Floats."
    gelu = activation(ActivationKind::Gelu);
    "GELU by its tanh approximation: PyTorch's `approximate='tanh'`. Floats."
    gelu_tanh = activation(ActivationKind::GeluTanh);
}

/// One method for each line: documentation, name, function, adjustment of the common dtype.
macro_rules! binary_methods {
    ($($doc:literal $name:ident = $op:ident, $adjust:expr;)*) => {
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// `other` is a tensor, which is broadcast and promoted as in PyTorch, or a number,
            /// which leaves the dtype unless it is of a higher kind (a float for integers).
            ///
            /// # Errors
            /// Shapes that do not broadcast; a dtype that the function is not defined for.
            pub fn $name<'a>(&self, other: impl Into<Operand<'a>>) -> RusTorchResult<Self> {
                self.binary(stringify!($name), BinaryOp::$op, other.into(), $adjust)
            })*
        }
    };
}

binary_methods! {
    "`self + other`; of booleans, or."
    add = Add, |d| d;
    "`self - other`."
    sub = Sub, |d| d;
    "`self · other`; of booleans, and."
    mul = Mul, |d| d;
    "`self / other`, the true quotient: of integers an `f32`."
    div = Div, float_of;
    "`⌊self / other⌋`. Real numbers; an integer division by zero is an error of evaluation."
    floor_divide = FloorDivide, |d| d;
    "`self - other · ⌊self / other⌋`, with `other`'s sign, as Python's `%`. Real numbers; an \
     integer division by zero is an error of evaluation."
    remainder = Remainder, |d| d;
    "`self` to the power `other`. Real numbers; integers to a negative power give 0, or ±1 \
     where `self` is ±1."
    pow = Pow, |d| d;
    "The larger; NaN where one is NaN. Real numbers and booleans."
    maximum = Maximum, |d| d;
    "The smaller; NaN where one is NaN. Real numbers and booleans."
    minimum = Minimum, |d| d;
    "Bitwise and; logical for booleans. Integers and booleans."
    bitwise_and = And, |d| d;
    "Bitwise or; logical for booleans. Integers and booleans."
    bitwise_or = Or, |d| d;
    "Bitwise exclusive or; logical for booleans. Integers and booleans."
    bitwise_xor = Xor, |d| d;
    "Is `self` not 0 and `other` neither? Result `bool`."
    logical_and = And, |_| DType::Bool;
    "Is `self` or `other` not 0? Result `bool`."
    logical_or = Or, |_| DType::Bool;
    "Is exactly one of `self` and `other` not 0? Result `bool`."
    logical_xor = Xor, |_| DType::Bool;
}

/// One method for each line: documentation, name, comparison.
macro_rules! compare_methods {
    ($($doc:literal $name:ident = $op:ident;)*) => {
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// `other` is a tensor, which is broadcast and promoted, or a number. Result `bool`.
            ///
            /// # Errors
            /// Shapes that do not broadcast; an order of complex numbers.
            pub fn $name<'a>(&self, other: impl Into<Operand<'a>>) -> RusTorchResult<Self> {
                self.compare(stringify!($name), CompareOp::$op, other.into())
            })*
        }
    };
}

compare_methods! {
    "`self == other`, for each element."
    eq = Eq;
    "`self != other`, for each element; true of NaN."
    ne = Ne;
    "`self < other`, for each element."
    lt = Lt;
    "`self <= other`, for each element."
    le = Le;
    "`self > other`, for each element."
    gt = Gt;
    "`self >= other`, for each element."
    ge = Ge;
}

impl Tensor {
    /// Is it NaN? Result `bool`.
    ///
    /// # Errors
    /// A block format.
    pub fn isnan(&self) -> RusTorchResult<Self> {
        match self.dtype().is_float() {
            true => self.unary("isnan", UnaryOp::IsNan),
            // A complex number with a NaN differs from itself too, and integers never do.
            false => self.compare("isnan", CompareOp::Ne, self.into()),
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

    /// Complex conjugate; real numbers as they are.
    ///
    /// # Errors
    /// None.
    pub fn conj(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.unary("conj", UnaryOp::Conj),
            false => Ok(self.clone()),
        }
    }

    /// Real part; real numbers as they are.
    ///
    /// # Errors
    /// None.
    pub fn real(&self) -> RusTorchResult<Self> {
        match self.dtype().is_complex() {
            true => self.unary("real", UnaryOp::Real),
            false => Ok(self.clone()),
        }
    }

    /// The complex numbers `real + imag · i` of two tensors of `f32`, or two of `f64`, which
    /// broadcast.
    ///
    /// # Errors
    /// Other dtypes; shapes that do not broadcast.
    pub fn complex(real: &Self, imag: &Self) -> RusTorchResult<Self> {
        let op = BinaryOp::Complex;
        Self::apply("complex", Binary { op }, &[real, imag])
    }

    /// `x · x`.
    ///
    /// # Errors
    /// A block format.
    pub fn square(&self) -> RusTorchResult<Self> {
        self.binary("square", BinaryOp::Mul, self.into(), |d| d)
    }

    /// `max(x, 0)`. Floats and integers.
    ///
    /// # Errors
    /// A complex dtype or a block format.
    pub fn relu(&self) -> RusTorchResult<Self> {
        match self.dtype().is_int() {
            true => self.binary("relu", BinaryOp::Maximum, 0.into(), |d| d),
            false => self.activation("relu", ActivationKind::Relu),
        }
    }

    /// `min(max(self, low), high)`; the bounds are tensors that broadcast, or numbers.
    ///
    /// # Errors
    /// A dtype without order; shapes that do not broadcast.
    pub fn clamp<'a, 'b>(
        &self,
        low: impl Into<Operand<'a>>,
        high: impl Into<Operand<'b>>,
    ) -> RusTorchResult<Self> {
        let raised = self.binary("clamp", BinaryOp::Maximum, low.into(), |d| d)?;
        raised.binary("clamp", BinaryOp::Minimum, high.into(), |d| d)
    }

    /// `a` where `condition`, a `bool` tensor, is true, else `b`: `torch.where`. All three
    /// broadcast; `a` and `b` promote, and may be numbers.
    ///
    /// # Errors
    /// A condition that is not `bool`; shapes that do not broadcast.
    pub fn where_<'a, 'b>(
        condition: &Self,
        a: impl Into<Operand<'a>>,
        b: impl Into<Operand<'b>>,
    ) -> RusTorchResult<Self> {
        let (a, b): (Operand, Operand) = (a.into(), b.into());
        let dtype = result_dtype("where", &[a, b])?;
        let (a, b) = (a.to_tensor("where", dtype)?, b.to_tensor("where", dtype)?);
        Self::apply("where", Where, &[condition, &a, &b])
    }

    /// `value`, a number or a tensor of rank 0, where `mask`, a `bool` tensor that
    /// broadcasts, is true, else `self`.
    ///
    /// # Errors
    /// A mask that is not `bool`, or larger than `self`; a value whose kind is above that of
    /// `self`, such as a float for integers.
    pub fn masked_fill<'a>(
        &self,
        mask: &Self,
        value: impl Into<Operand<'a>>,
    ) -> RusTorchResult<Self> {
        let value = value.into();
        let dtype = result_dtype("masked_fill", &[self.into(), value])?;
        let expected = format!("a value that {} holds", self.dtype());
        require("masked_fill", dtype == self.dtype(), expected, dtype)?;
        let value = value.to_tensor("masked_fill", dtype)?;
        let filled = Self::apply("masked_fill", Where, &[mask, &value, self])?;
        if filled.shape() != self.shape() {
            let expected = format!("a mask and value that broadcast to {}", self.ty().shape);
            return Err(OpError::new("masked_fill", expected, filled.ty()).into());
        }
        Ok(filled)
    }
}
