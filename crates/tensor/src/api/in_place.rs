//! In-place functions, which overwrite their first operand: PyTorch's methods whose names end in
//! `_`.

use rustorch_ir::ops::Contiguous;
use rustorch_ir::{DType, Scalar};

use crate::Tensor;
use crate::api::math::elementwise::RoundingMode;
use crate::api::promote::{AsLimit, AsOperand, AsValue, Limit, Number, Operand};
use crate::api::updates::Shared;
use crate::args::dims::Integer;
use crate::autograd::{Writes, is_grad_enabled};
use crate::error::{RusTorchResult, require};

/// One method for each line: its name and arguments, and the method whose result it writes. Operands may show the same
/// elements as the tensor, unless the line says which memory they may [share](Shared).
macro_rules! in_place {
    ($($name:ident($($argument:ident: $type:ty),*)
        $(shares $shared:ident [$($operand:expr),*])? = $method:ident($($given:expr),*);)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = concat!("Writes [`Tensor::", stringify!($method), "`] over the elements, as [`Tensor::copy_`] writes.")]
            ///
            /// The dtype stays. Gradients flow to the tensors from which the elements were
            /// computed.
            ///
            /// # Errors
            #[doc = concat!("The errors of [`Tensor::", stringify!($method), "`] and of [`Tensor::copy_`].")]
            /// Also fails for a result of another shape, or of a higher kind of dtype (bool, integer, float, complex).
            pub fn $name(&mut self, $($argument: $type),*) -> RusTorchResult<&mut Self> {
                const NAME: &str = stringify!($name);
                in_place!(@operands self, NAME, [$($given),*] $(, $shared [$($operand),*])?);
                self.change(NAME, |x| x.$method($($given),*))
            })*
        }
    };
    (@operands $x:ident, $name:ident, []) => {};
    (@operands $x:ident, $name:ident, [$($given:expr),+]) => {
        $x.require_apart($name, Shared::Alike, &[$($given.operand()),+])?;
    };
    (@operands $x:ident, $name:ident, [$($given:expr),+], $shared:ident [$($operand:expr),*]) => {
        $x.require_apart($name, Shared::$shared, &[$($operand.operand()),*])?;
    };
}

/// An argument of a method that writes.
pub(crate) trait Argument<'a> {
    /// The tensor that it is, if it is one.
    fn operand(self) -> Option<&'a Tensor>;
}

impl<'a> Argument<'a> for &'a Tensor {
    fn operand(self) -> Option<&'a Tensor> {
        Some(self)
    }
}

impl<'a> Argument<'a> for Operand<'a> {
    fn operand(self) -> Option<&'a Tensor> {
        match self {
            Operand::Tensor(tensor) => Some(tensor),
            Operand::Scalar(_) => None,
        }
    }
}

impl<'a> Argument<'a> for Limit<'a> {
    fn operand(self) -> Option<&'a Tensor> {
        self.0.and_then(Operand::operand)
    }
}

/// Types of arguments that are no tensors.
macro_rules! no_tensors {
    ($($type:ty),*) => {
        $(impl<'a> Argument<'a> for $type {
            fn operand(self) -> Option<&'a Tensor> {
                None
            }
        })*
    };
}

no_tensors!(Scalar, isize, f64, Option<f64>, RoundingMode);

in_place! {
    abs_() = abs();
    acos_() = acos();
    acosh_() = acosh();
    add_(other: impl AsOperand) = add(other.as_operand()?);
    add_scaled_(other: impl AsOperand, alpha: impl Number) = add_scaled(other.as_operand()?, alpha.to_number());
    addcdiv_(a: &Self, b: &Self, value: impl Number) = addcdiv(a, b, value.to_number());
    addcmul_(a: &Self, b: &Self, value: impl Number) = addcmul(a, b, value.to_number());
    asin_() = asin();
    asinh_() = asinh();
    atan2_(other: impl AsOperand) = atan2(other.as_operand()?);
    atan_() = atan();
    atanh_() = atanh();
    bitwise_and_(other: impl AsOperand) = bitwise_and(other.as_operand()?);
    bitwise_left_shift_(other: impl AsOperand) = bitwise_left_shift(other.as_operand()?);
    bitwise_not_() = bitwise_not();
    bitwise_or_(other: impl AsOperand) = bitwise_or(other.as_operand()?);
    bitwise_right_shift_(other: impl AsOperand) = bitwise_right_shift(other.as_operand()?);
    bitwise_xor_(other: impl AsOperand) = bitwise_xor(other.as_operand()?);
    ceil_() = ceil();
    clamp_(low: impl AsLimit, high: impl AsLimit) = clamp(low.as_limit()?, high.as_limit()?);
    clamp_max_(other: impl AsOperand) = clamp_max(other.as_operand()?);
    clamp_min_(other: impl AsOperand) = clamp_min(other.as_operand()?);
    copysign_(other: impl AsOperand) = copysign(other.as_operand()?);
    cos_() = cos();
    cosh_() = cosh();
    cumprod_(dim: impl Integer) = cumprod(dim.to_isize());
    cumsum_(dim: impl Integer) = cumsum(dim.to_isize());
    deg2rad_() = deg2rad();
    digamma_() = digamma();
    div_(other: impl AsOperand) = div(other.as_operand()?);
    div_mode_(other: impl AsOperand, mode: RoundingMode) = div_mode(other.as_operand()?, mode);
    eq_(other: impl AsValue) = eq(other.as_value()?);
    erf_() = erf();
    erfc_() = erfc();
    erfinv_() = erfinv();
    exp2_() = exp2();
    exp_() = exp();
    expm1_() = expm1();
    float_power_(other: impl AsOperand) = float_power(other.as_operand()?);
    floor_() = floor();
    floor_divide_(other: impl AsOperand) = floor_divide(other.as_operand()?);
    fmod_(other: impl AsOperand) = fmod(other.as_operand()?);
    frac_() = frac();
    gcd_(other: impl AsOperand) = gcd(other.as_operand()?);
    ge_(other: impl AsValue) = ge(other.as_value()?);
    gt_(other: impl AsValue) = gt(other.as_value()?);
    hardsigmoid_() = hardsigmoid();
    hardswish_() = hardswish();
    hardtanh_(low: f64, high: f64) = hardtanh(low, high);
    hypot_(other: impl AsOperand) = hypot(other.as_operand()?);
    i0_() = i0();
    igamma_(other: impl AsOperand) = igamma(other.as_operand()?);
    igammac_(other: impl AsOperand) = igammac(other.as_operand()?);
    index_add_(dim: impl Integer, index: &Self, source: &Self, alpha: impl Number) shares Nothing [index, source] = index_add(dim.to_isize(), index, source, alpha.to_number());
    index_copy_(dim: impl Integer, index: &Self, source: &Self) shares Nothing [index, source] = index_copy(dim.to_isize(), index, source);
    index_fill_(dim: impl Integer, index: &Self, value: impl AsValue) shares Nothing [index] = index_fill(dim.to_isize(), index, value.as_value()?);
    lcm_(other: impl AsOperand) = lcm(other.as_operand()?);
    le_(other: impl AsValue) = le(other.as_value()?);
    lerp_(end: &Self, weight: impl AsOperand) = lerp(end, weight.as_operand()?);
    lgamma_() = lgamma();
    log10_() = log10();
    log1p_() = log1p();
    log2_() = log2();
    log_() = log();
    logical_and_(other: impl AsOperand) = logical_and(other.as_operand()?);
    logical_not_() = logical_not();
    logical_or_(other: impl AsOperand) = logical_or(other.as_operand()?);
    logical_xor_(other: impl AsOperand) = logical_xor(other.as_operand()?);
    lt_(other: impl AsValue) = lt(other.as_value()?);
    masked_fill_(mask: &Self, value: impl AsValue) shares Alike [mask] = masked_fill(mask, value.as_value()?);
    masked_scatter_(mask: &Self, source: &Self) shares Alike [] = masked_scatter(mask, source);
    mish_() = mish();
    mul_(other: impl AsOperand) = mul(other.as_operand()?);
    nan_to_num_(nan: f64, positive: Option<f64>, negative: Option<f64>) = nan_to_num(nan, positive, negative);
    ne_(other: impl AsValue) = ne(other.as_value()?);
    neg_() = neg();
    nextafter_(other: impl AsOperand) = nextafter(other.as_operand()?);
    pow_(other: impl AsOperand) = pow(other.as_operand()?);
    put_(index: &Self, source: &Self, accumulate: bool) shares Nothing [index, source] = put(index, source, accumulate);
    rad2deg_() = rad2deg();
    reciprocal_() = reciprocal();
    relu6_() = relu6();
    relu_() = relu();
    remainder_(other: impl AsOperand) = remainder(other.as_operand()?);
    renorm_(p: f64, dim: impl Integer, max_norm: f64) = renorm(p, dim.to_isize(), max_norm);
    round_() = round();
    rsqrt_() = rsqrt();
    scatter_(dim: impl Integer, index: &Self, source: impl AsOperand) shares Nothing [index, source.as_operand()?] = scatter(dim.to_isize(), index, source.as_operand()?);
    scatter_add_(dim: impl Integer, index: &Self, source: impl AsOperand) shares Nothing [index, source.as_operand()?] = scatter_add(dim.to_isize(), index, source.as_operand()?);
    selu_() = selu();
    sgn_() = sgn();
    sigmoid_() = sigmoid();
    sign_() = sign();
    silu_() = silu();
    sin_() = sin();
    sinc_() = sinc();
    sinh_() = sinh();
    sqrt_() = sqrt();
    square_() = square();
    sub_(other: impl AsOperand) = sub(other.as_operand()?);
    tan_() = tan();
    tanh_() = tanh();
    threshold_(threshold: f64, value: f64) = threshold(threshold, value);
    tril_(diagonal: impl Integer) = tril(diagonal.to_isize());
    triu_(diagonal: impl Integer) = triu(diagonal.to_isize());
    true_divide_(other: impl AsOperand) = true_divide(other.as_operand()?);
    trunc_() = trunc();
    xlogy_(other: impl AsOperand) = xlogy(other.as_operand()?);
}

impl Tensor {
    /// Writes the result of `change` over this tensor.
    pub(crate) fn change(
        &mut self,
        name: &'static str,
        change: impl Fn(&Self) -> RusTorchResult<Self>,
    ) -> RusTorchResult<&mut Self> {
        let writes = self.writes();
        let _turn = writes.as_deref().map(Writes::turn);
        let mut result = change(self)?;
        if result.requires_grad() {
            self.require_writable(name, true)?;
        }
        result = self.fitted(name, result)?;
        let is_alone = self.is_alone();
        if is_alone {
            self.announce_change(name);
        }
        if result.requires_grad() {
            // The gradient may need the elements that are written over.
            let changed = match is_alone {
                true => change(self)?,
                false => change(&Self::apply(name, Contiguous, &[self])?)?,
            };
            result = self.fitted(name, changed)?;
        }
        self.replace(name, result)
    }

    /// A result in this tensor's dtype, by PyTorch's rules for changes in place.
    fn fitted(&self, op: &'static str, result: Self) -> RusTorchResult<Self> {
        let is_parameter = self.is_leaf() && self.requires_grad() && is_grad_enabled();
        let expected = "a tensor that is not a parameter, outside no_grad";
        require(op, !is_parameter, expected, "one that wants a gradient")?;
        let expected = format_args!("an operand that broadcasts to {}", self.ty().shape);
        require(op, result.shape() == self.shape(), expected, result.ty())?;
        let fits = kind(result.dtype()) <= kind(self.dtype());
        let expected = format_args!("a result that {} holds", self.dtype());
        require(op, fits, expected, result.dtype())?;
        match result.dtype() == self.dtype() {
            true => Ok(result),
            false => result.cast(op, self.dtype()),
        }
    }
}

/// The kinds of dtypes in the order in which each holds those before it.
fn kind(dtype: DType) -> u8 {
    match dtype {
        DType::Bool => 0,
        dtype if dtype.is_int() => 1,
        dtype if dtype.is_complex() => 3,
        _ => 2,
    }
}
