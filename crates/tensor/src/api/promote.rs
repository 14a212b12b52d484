//! Operands that may be numbers, and the common dtype of several operands.

use std::borrow::Cow;

use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::ops::Cast;
use rustorch_ir::{DType, FLOAT8_ADVICE, OpError, Scalar};
use rustorch_macros::track_calls;
use rustorch_runtime::DeviceType;

use crate::Tensor;
use crate::args::numbers::{Side, bound, require_held};
use crate::error::RusTorchResult;
use crate::precision::is_single;
use crate::warnings::warn_once;

/// A number as an argument: any of Rust's integers and floats, a half, a complex number, or `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a number",
    label = "expected a number",
    note = "numbers are Rust's integers and floats, `bool`, `half::f16`, `half::bf16`, `Complex` and `Scalar`"
)]
pub trait Number: Copy {
    /// The number as operations store it.
    fn to_number(self) -> Scalar;
}

impl Number for Scalar {
    fn to_number(self) -> Scalar {
        self
    }
}

impl Number for bool {
    fn to_number(self) -> Scalar {
        self.into()
    }
}

/// The other operand of a binary function: a tensor or a number.
#[derive(Clone, Copy)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Tensor),
    /// A number.
    Scalar(Scalar),
}

/// An operand beside a tensor: another tensor, by reference or not, a [number](Number) other than `bool`, or
/// the result of an operation. Its error is then the error of the operation on it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an operand of a tensor's method or operator",
    label = "neither a tensor nor a number",
    note = "operands are `&Tensor`, `Tensor`, `RusTorchResult<Tensor>` and numbers; `tensor!` makes a tensor of \
            arrays, slices and vectors"
)]
pub trait AsOperand {
    /// The operand.
    ///
    /// # Errors
    /// The errors of the operation that computes it.
    fn as_operand(&self) -> RusTorchResult<Operand<'_>>;
}

/// A value that elements are compared with, or that is written over them: an [operand](AsOperand) or a `bool`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value to compare elements with, or to fill them with",
    label = "neither a tensor nor a number",
    note = "values are `&Tensor`, `Tensor`, `RusTorchResult<Tensor>`, numbers and `bool`"
)]
pub trait AsValue {
    /// The value.
    ///
    /// # Errors
    /// The errors of the operation that computes it.
    fn as_value(&self) -> RusTorchResult<Operand<'_>>;
}

impl<T: AsOperand> AsValue for T {
    #[inline]
    fn as_value(&self) -> RusTorchResult<Operand<'_>> {
        self.as_operand()
    }
}

impl AsValue for bool {
    fn as_value(&self) -> RusTorchResult<Operand<'_>> {
        Ok(Operand::Scalar(self.to_number()))
    }
}

/// A bound of [`Tensor::clamp`], if there is one.
#[derive(Clone, Copy)]
pub struct Limit<'a>(pub(crate) Option<Operand<'a>>);

/// A bound as an argument: an [operand](AsOperand), or `None` for no bound.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no bound",
    label = "expected a tensor, a number or `None`",
    note = "bounds are `&Tensor`, `Tensor`, `RusTorchResult<Tensor>`, numbers, and `None` for no bound"
)]
pub trait AsLimit {
    /// The bound.
    ///
    /// # Errors
    /// The errors of the operation that computes it.
    fn as_limit(&self) -> RusTorchResult<Limit<'_>>;
}

impl<T: AsOperand> AsLimit for T {
    #[inline]
    fn as_limit(&self) -> RusTorchResult<Limit<'_>> {
        self.as_operand().map(|bound| Limit(Some(bound)))
    }
}

impl AsLimit for Option<f64> {
    fn as_limit(&self) -> RusTorchResult<Limit<'_>> {
        Ok(Limit(self.map(|bound| Operand::Scalar(bound.to_number()))))
    }
}

impl AsLimit for Limit<'_> {
    fn as_limit(&self) -> RusTorchResult<Limit<'_>> {
        Ok(*self)
    }
}

impl AsOperand for Tensor {
    #[inline]
    fn as_operand(&self) -> RusTorchResult<Operand<'_>> {
        Ok(Operand::Tensor(self))
    }
}

impl AsOperand for RusTorchResult<Tensor> {
    fn as_operand(&self) -> RusTorchResult<Operand<'_>> {
        match self {
            Ok(tensor) => Ok(Operand::Tensor(tensor)),
            Err(e) => Err(e.clone()),
        }
    }
}

impl AsOperand for Operand<'_> {
    #[inline]
    fn as_operand(&self) -> RusTorchResult<Operand<'_>> {
        Ok(*self)
    }
}

impl AsOperand for Scalar {
    #[inline]
    fn as_operand(&self) -> RusTorchResult<Operand<'_>> {
        Ok(Operand::Scalar(*self))
    }
}

impl<T: AsOperand + ?Sized> AsOperand for &T {
    #[inline]
    fn as_operand(&self) -> RusTorchResult<Operand<'_>> {
        (**self).as_operand()
    }
}

impl<T: AsOperand + ?Sized> AsOperand for &mut T {
    #[inline]
    fn as_operand(&self) -> RusTorchResult<Operand<'_>> {
        (**self).as_operand()
    }
}

impl<'a> From<&'a Tensor> for Operand<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Tensor(tensor)
    }
}

/// One line for each kind of numbers: the types, and how one is a [`Scalar`].
macro_rules! numbers {
    ($($($number:ty),* => |$x:ident| $scalar:expr;)*) => {
        $($(impl Number for $number {
            #[inline]
            fn to_number(self) -> Scalar {
                let $x = self;
                $scalar
            }
        }

        impl AsOperand for $number {
            #[inline]
            fn as_operand(&self) -> RusTorchResult<Operand<'_>> {
                Ok(Operand::Scalar(self.to_number()))
            }
        })*)*
    };
}

numbers! {
    f64, f32, i64, i32, u64 => |x| x.into();
    i16, i8, u32, u16, u8 => |x| i64::from(x).into();
    isize => |x| (x as i64).into();
    usize => |x| (x as u64).into();
    f16, bf16 => |x| x.to_f64().into();
    Complex<f64> => |z| Scalar::Complex(z.re.into(), z.im.into());
    Complex<f32> => |z| Scalar::Complex(z.re.into(), z.im.into());
}

/// The dtype that the operands are converted to, by `torch.result_type`: numbers and tensors of rank 0 count only if
/// their kind is above that of the other operands. Kinds are bool, integer, float and complex. A number counts as
/// `i64` (above its range as `u64`), `f32` or `complex64`.
#[inline]
pub(crate) fn result_dtype(op: &'static str, operands: &[Operand]) -> RusTorchResult<DType> {
    match operands {
        // What is asked most often, and known soonest.
        [Operand::Tensor(a), Operand::Tensor(b)] if a.dtype() == b.dtype() => Ok(a.dtype()),
        _ => promoted(op, operands),
    }
}

fn promoted(op: &'static str, operands: &[Operand]) -> RusTorchResult<DType> {
    // From the strongest to the weakest: tensors with dimensions, without, numbers.
    let mut kinds: [Option<DType>; 3] = [None; 3];
    for operand in operands {
        let (kind, dtype) = match operand {
            Operand::Tensor(t) if t.rank() > 0 => (0, t.dtype()),
            Operand::Tensor(t) => (1, t.dtype()),
            Operand::Scalar(Scalar::Int(_)) => (2, DType::I64),
            Operand::Scalar(Scalar::UInt(_)) => (2, DType::U64),
            Operand::Scalar(Scalar::Float(_)) => (2, DType::F32),
            Operand::Scalar(Scalar::Complex(..)) => (2, DType::Complex64),
        };
        kinds[kind] = match kinds[kind] {
            None => Some(dtype),
            Some(other) => Some(promote(op, other, dtype)?),
        };
    }
    let [tensors, rank_0, numbers] = kinds;
    let weak = combine(op, rank_0, numbers)?;
    let dtype = combine(op, tensors, weak)?;
    dtype.ok_or_else(|| OpError::new(op, "operands", "none").into())
}

fn promote(op: &'static str, a: DType, b: DType) -> Result<DType, OpError> {
    let refused = || {
        let advice = match a.is_float8() || b.is_float8() {
            true => FLOAT8_ADVICE,
            false => "to_dtype makes them one",
        };
        let expected = format_args!("dtypes that promote ({advice})");
        OpError::new(op, expected, format_args!("{a} and {b}"))
    };
    a.promote(b).ok_or_else(refused)
}

fn combine(
    op: &'static str,
    strong: Option<DType>,
    weak: Option<DType>,
) -> Result<Option<DType>, OpError> {
    let (Some(strong), Some(weak)) = (strong, weak) else {
        return Ok(strong.or(weak));
    };
    Ok(Some(match strong {
        s if s.is_complex() => s,
        s if s.is_float() && weak.is_complex() => s.complex().unwrap_or(DType::Complex64),
        s if s.is_float() || (s.is_float8() && !weak.is_complex()) => s,
        s if s.is_int() && (weak.is_int() || weak == DType::Bool) => s,
        s if s.is_int() && weak.is_complex() => weak,
        s => promote(op, s, weak)?,
    }))
}

impl<'a> Operand<'a> {
    /// The operand as a tensor of `dtype`.
    pub(crate) fn as_tensor(
        self,
        op: &'static str,
        dtype: DType,
    ) -> RusTorchResult<Cow<'a, Tensor>> {
        match self {
            Self::Tensor(tensor) if tensor.dtype() == dtype => Ok(Cow::Borrowed(tensor)),
            Self::Tensor(tensor) => tensor.cast(op, dtype).map(Cow::Owned),
            // Work goes where its other operands are.
            Self::Scalar(value) => Tensor::number(op, value, dtype, None).map(Cow::Owned),
        }
    }

    /// The operand as elements of `dtype`, which has to hold it if it is a number.
    pub(crate) fn as_element(self, op: &'static str, dtype: DType) -> RusTorchResult<Tensor> {
        if let Self::Scalar(value) = self {
            require_held(op, value, dtype)?;
        }
        self.to_tensor(op, dtype)
    }

    /// The operand as a bound of elements of `dtype`.
    pub(crate) fn as_bound(
        self,
        op: &'static str,
        dtype: DType,
        side: Side,
    ) -> RusTorchResult<Cow<'a, Tensor>> {
        match self {
            Self::Scalar(value) => Self::Scalar(bound(op, value, dtype, side)?),
            tensor => tensor,
        }
        .as_tensor(op, dtype)
    }

    /// [`Operand::as_tensor`] with its own handle.
    pub(crate) fn to_tensor(self, op: &'static str, dtype: DType) -> RusTorchResult<Tensor> {
        Ok(self.as_tensor(op, dtype)?.into_owned())
    }
}

/// The target of [`Tensor::to`].
#[derive(Clone, Copy)]
pub enum To<'a> {
    /// A dtype.
    DType(DType),
    /// A device.
    Device(DeviceType),
    /// A device by its name: `cpu`, `cuda`, `opencl:1`.
    Named(&'a str),
    /// Dtype of a tensor and, if its elements are in memory, its device.
    Like(&'a Tensor),
}

impl From<DType> for To<'_> {
    fn from(dtype: DType) -> Self {
        Self::DType(dtype)
    }
}

impl From<DeviceType> for To<'_> {
    fn from(device: DeviceType) -> Self {
        Self::Device(device)
    }
}

impl From<&DeviceType> for To<'_> {
    fn from(device: &DeviceType) -> Self {
        Self::Device(*device)
    }
}

impl<'a> From<&'a str> for To<'a> {
    fn from(name: &'a str) -> Self {
        Self::Named(name)
    }
}

impl<'a> From<&'a String> for To<'a> {
    fn from(name: &'a String) -> Self {
        Self::Named(name)
    }
}

impl<'a> From<&'a Tensor> for To<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Like(tensor)
    }
}

#[track_calls]
impl Tensor {
    /// The tensor on the CPU: [`Tensor::to_device`] of `cpu`.
    ///
    /// # Errors
    /// The errors of [`Tensor::to_device`].
    pub fn cpu(&self) -> RusTorchResult<Self> {
        self.to_device(DeviceType::Cpu)
    }

    /// The tensor on the first CUDA GPU: [`Tensor::to_device`] of `cuda`.
    ///
    /// # Errors
    /// The errors of [`Tensor::to_device`], also without such a GPU.
    pub fn cuda(&self) -> RusTorchResult<Self> {
        self.to_device("cuda")
    }

    /// Converts to another dtype ([`Tensor::to_dtype`]), to another device ([`Tensor::to_device`]),
    /// or to those of another tensor.
    ///
    /// # Errors
    /// The errors of these methods.
    pub fn to<'a>(&self, other: impl Into<To<'a>>) -> RusTorchResult<Self> {
        match other.into() {
            To::DType(dtype) => self.to_dtype(dtype),
            To::Device(device) => self.to_device(device),
            To::Named(name) => self.to_device(name),
            To::Like(tensor) => {
                let converted = self.to_dtype(tensor.dtype())?;
                match tensor.device() {
                    Some(device) => converted.to_device(device),
                    None => Ok(converted),
                }
            }
        }
    }

    /// The values in another dtype. Floats become integers by truncation and saturation, and complex numbers lose their
    /// imaginary part. Conversion to `bool` is `!= 0`. Block formats are dequantised. Floats are rounded to nearest,
    /// ties to even; too large ones become 448 in `f8e4m3`.
    ///
    /// # Errors
    /// Fails for a block format as the result, since quantising is not a cast. A block format
    /// converts to floats only.
    pub fn to_dtype(&self, dtype: DType) -> RusTorchResult<Self> {
        const NAME: &str = "to_dtype";
        if self.dtype().is_complex() && dtype.is_float() {
            warn_once(
                NAME,
                "a complex number loses its imaginary part; real() does so explicitly",
            );
        }
        self.cast(NAME, dtype)
    }

    /// The values in the dtype of another tensor, on this tensor's device.
    ///
    /// # Errors
    /// The same errors as [`Tensor::to_dtype`].
    pub fn type_as(&self, other: &Self) -> RusTorchResult<Self> {
        self.cast("type_as", other.dtype())
    }

    pub(crate) fn cast(&self, op: &'static str, dtype: DType) -> RusTorchResult<Self> {
        self.as_dtype(op, dtype).map(Cow::into_owned)
    }

    /// [`Tensor::cast`], without another handle if it has the dtype.
    pub(crate) fn as_dtype(&self, op: &'static str, dtype: DType) -> RusTorchResult<Cow<'_, Self>> {
        let dtype = match dtype {
            // What computes in single precision gives that.
            DType::F16 | DType::BF16 if is_single(op) => DType::F32,
            dtype => dtype,
        };
        match self.dtype() == dtype {
            true => Ok(Cow::Borrowed(self)),
            false => Self::apply(op, Cast { dtype }, &[self]).map(Cow::Owned),
        }
    }
}

/// The methods that convert to a dtype and have its name, as in PyTorch.
macro_rules! casts {
    ($($name:ident => $DType:ident;)*) => {
        #[track_calls]
        impl Tensor {
            $(
                #[doc = concat!("The values as [`DType::", stringify!($DType), "`], as [`Tensor::to_dtype`].")]
                ///
                /// # Errors
                /// The same errors as [`Tensor::to_dtype`].
                pub fn $name(&self) -> RusTorchResult<Self> {
                    self.cast(stringify!($name), DType::$DType)
                }
            )*
        }
    };
}

casts! {
    float => F32;
    double => F64;
    half => F16;
    bfloat16 => BF16;
    long => I64;
    int => I32;
    bool => Bool;
}
