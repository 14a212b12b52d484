//! New tensors.

use rustorch_ir::ops::{Arange, Full};
use rustorch_ir::{DType, OpError, Scalar, TensorType};
use rustorch_macros::track_calls;
use rustorch_runtime::{HostBuffer, Storage};

use crate::api::promote::{AsValue, Number};
use crate::args::dims::IntoShape;
use crate::args::numbers::{as_element, require_held, require_rounded};
use crate::device::manager::current_pin;
use crate::error::{RusTorchError, RusTorchResult, require, with_room};
use crate::lazy::value::View;
use crate::tensor::check_type;
use crate::{Element, Operand, Tensor};

#[track_calls]
impl Tensor {
    /// The elements `data`, in row-major order, as a tensor of `shape`.
    ///
    /// # Errors
    /// Fails unless the number of elements matches the shape, or if the host is out of memory.
    #[doc(alias = "from_numpy")]
    #[doc(alias = "frombuffer")]
    pub fn from_slice<T: Element>(data: &[T], shape: impl IntoShape) -> RusTorchResult<Self> {
        const NAME: &str = "from_slice";
        let ty = type_of(NAME, data, &shape.into_shape()[..])?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let buffer = HostBuffer::copy_of(bytes).ok_or(RusTorchError::OutOfMemory {
            op: NAME,
            bytes: bytes.len(),
        })?;
        let view = View::whole(Storage::from_host(buffer), &ty.shape);
        Self::created(T::DTYPE, view)
    }

    /// [`Tensor::from_slice`] of a vector, whose memory becomes the tensor's.
    ///
    /// # Errors
    /// Fails unless the number of elements matches the shape.
    #[doc(alias = "from_numpy")]
    #[doc(alias = "frombuffer")]
    #[doc(alias = "from_blob")]
    pub fn from_vec<T: Element>(data: Vec<T>, shape: impl IntoShape) -> RusTorchResult<Self> {
        let ty = type_of("from_vec", &data, &shape.into_shape()[..])?;
        let buffer = HostBuffer::borrowed(Elements(data));
        let view = View::whole(Storage::from_host(buffer), &ty.shape);
        Self::created(T::DTYPE, view)
    }

    /// A tensor of a whole storage, whose bytes are the elements in row-major order. Weights in a
    /// block format are made this way.
    ///
    /// # Errors
    /// Fails if the storage does not hold exactly the bytes of this shape and dtype.
    pub fn from_storage(
        storage: Storage,
        shape: impl IntoShape,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "from_storage";
        let ty = TensorType::new(&shape.into_shape()[..], dtype);
        check_type(NAME, &ty)?;
        let (expected, got) = (ty.bytes(), storage.bytes());
        let fits = expected == got;
        require(
            NAME,
            fits,
            format_args!("{expected} bytes for {ty}"),
            format_args!("{got} bytes"),
        )?;
        Self::created(dtype, View::whole(storage, &ty.shape))
    }

    /// A tensor whose elements `element` computes from each index, in row-major order.
    ///
    /// # Errors
    /// Fails for a shape too large for memory.
    pub fn from_fn<T: Element>(
        shape: impl IntoShape,
        mut element: impl FnMut(&[usize]) -> T,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "from_fn";
        let shape = &shape.into_shape()[..];
        let ty = TensorType::new(shape, T::DTYPE);
        check_type(NAME, &ty)?;
        let count = ty.shape.elements();
        let mut elements = with_room(NAME, count)?;
        let mut index = vec![0; shape.len()];
        for _ in 0..count {
            elements.push(element(&index));
            for (at, &size) in index.iter_mut().zip(shape).rev() {
                *at += 1;
                if *at < size {
                    break;
                }
                *at = 0;
            }
        }
        Self::from_vec(elements, shape)
    }

    /// One number as a tensor of rank 0.
    ///
    /// # Errors
    /// Fails for a block format.
    #[doc(alias = "scalar_tensor")]
    pub fn scalar(value: impl Number, dtype: DType) -> RusTorchResult<Self> {
        Self::full([], value, dtype)
    }

    /// A tensor of one value.
    ///
    /// # Errors
    /// Fails for a shape too large for memory, a value out of the dtype's range, or a block format.
    pub fn full(shape: impl IntoShape, value: impl Number, dtype: DType) -> RusTorchResult<Self> {
        Self::filled("full", &shape.into_shape()[..], value.to_number(), dtype)
    }

    fn filled(
        name: &'static str,
        shape: &[usize],
        value: Scalar,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        // Like PyTorch, which fills one element another way.
        match shape.iter().all(|&size| size == 1) {
            true => require_rounded(name, value, dtype)?,
            false => require_held(name, value, dtype)?,
        }
        if shape.is_empty() {
            return Self::number(name, value, dtype, current_pin());
        }
        let shape = shape.into();
        let full = Full {
            shape,
            value: as_element(value, dtype),
            dtype,
        };
        Self::apply(name, full, &[])
    }

    /// A tensor of zeros.
    ///
    /// # Errors
    /// The same errors as [`Tensor::full`].
    pub fn zeros(shape: impl IntoShape, dtype: DType) -> RusTorchResult<Self> {
        Self::filled("zeros", &shape.into_shape()[..], Scalar::Int(0), dtype)
    }

    /// A tensor of ones.
    ///
    /// # Errors
    /// The same errors as [`Tensor::full`].
    pub fn ones(shape: impl IntoShape, dtype: DType) -> RusTorchResult<Self> {
        Self::filled("ones", &shape.into_shape()[..], Scalar::Int(1), dtype)
    }

    /// A tensor whose elements are to be overwritten. They are zeros, since memory is never uninitialised here.
    ///
    /// # Errors
    /// The same errors as [`Tensor::full`].
    pub fn empty(shape: impl IntoShape, dtype: DType) -> RusTorchResult<Self> {
        Self::filled("empty", &shape.into_shape()[..], Scalar::Int(0), dtype)
    }

    /// One value in this tensor's shape and dtype.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn full_like(&self, value: impl Number) -> RusTorchResult<Self> {
        Self::filled("full_like", self.shape(), value.to_number(), self.dtype())
    }

    /// [`Tensor::full_like`] in another dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::full`].
    pub fn full_like_with(&self, value: impl Number, dtype: DType) -> RusTorchResult<Self> {
        Self::filled("full_like", self.shape(), value.to_number(), dtype)
    }

    /// One value, a number or a tensor of rank 0, in this tensor's shape and dtype.
    ///
    /// # Errors
    /// Fails for a value of a higher rank, a number out of the dtype's range, or a block format.
    pub fn fill(&self, value: impl AsValue) -> RusTorchResult<Self> {
        const NAME: &str = "fill";
        match value.as_value()? {
            Operand::Scalar(value) => Self::filled(NAME, self.shape(), value, self.dtype()),
            Operand::Tensor(value) => {
                require(NAME, value.rank() == 0, "a value of rank 0", value.ty())?;
                value
                    .cast(NAME, self.dtype())?
                    .expand(self.shape())?
                    .contiguous()
            }
        }
    }

    /// Zeros in this tensor's shape and dtype.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn zeros_like(&self) -> RusTorchResult<Self> {
        self.full_like(0)
    }

    /// Ones in this tensor's shape and dtype.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn ones_like(&self) -> RusTorchResult<Self> {
        self.full_like(1)
    }

    /// [`Tensor::empty`] in this tensor's shape and dtype.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn empty_like(&self) -> RusTorchResult<Self> {
        Self::empty(self.shape(), self.dtype())
    }

    /// [`Tensor::zeros_like`] in another dtype.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn zeros_like_with(&self, dtype: DType) -> RusTorchResult<Self> {
        self.full_like_with(0, dtype)
    }

    /// [`Tensor::ones_like`] in another dtype.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn ones_like_with(&self, dtype: DType) -> RusTorchResult<Self> {
        self.full_like_with(1, dtype)
    }

    /// [`Tensor::empty_like`] in another dtype.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn empty_like_with(&self, dtype: DType) -> RusTorchResult<Self> {
        Self::empty(self.shape(), dtype)
    }

    /// One value in another shape, in this tensor's dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::full`].
    pub fn new_full(&self, shape: impl IntoShape, value: impl Number) -> RusTorchResult<Self> {
        Self::filled(
            "new_full",
            &shape.into_shape()[..],
            value.to_number(),
            self.dtype(),
        )
    }

    /// Zeros in another shape, in this tensor's dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::full`].
    pub fn new_zeros(&self, shape: impl IntoShape) -> RusTorchResult<Self> {
        self.new_full(shape, 0)
    }

    /// Ones in another shape, in this tensor's dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::full`].
    pub fn new_ones(&self, shape: impl IntoShape) -> RusTorchResult<Self> {
        self.new_full(shape, 1)
    }

    /// [`Tensor::empty`] in another shape, in this tensor's dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::full`].
    pub fn new_empty(&self, shape: impl IntoShape) -> RusTorchResult<Self> {
        self.new_full(shape, 0)
    }

    /// Elements in another shape, converted to this tensor's dtype.
    ///
    /// # Errors
    /// The same errors as [`Tensor::from_slice`]. Also fails for a dtype that the numbers cannot be
    /// converted to.
    pub fn new_tensor<T: Element>(
        &self,
        data: &[T],
        shape: impl IntoShape,
    ) -> RusTorchResult<Self> {
        Self::from_slice(data, shape)?.cast("new_tensor", self.dtype())
    }

    /// `start`, `start + 1`, … up to but without `end`: `i64`, or `f32` if a bound is a float.
    /// [`Tensor::arange_with`] has a step and a dtype.
    ///
    /// # Errors
    /// Fails if `end` is below `start`, or for bounds that are not finite.
    #[doc(alias = "range")]
    pub fn arange(start: impl Number, end: impl Number) -> RusTorchResult<Self> {
        let (start, end) = (start.to_number(), end.to_number());
        let is_whole = |number| matches!(number, Scalar::Int(_) | Scalar::UInt(_));
        let dtype = match is_whole(start) && is_whole(end) {
            true => DType::I64,
            false => DType::F32,
        };
        Self::arange_with(start, end, 1, dtype)
    }

    /// `start`, `start + step`, … up to but without `end`, of shape `[⌈(end - start) / step⌉]`.
    ///
    /// # Errors
    /// Fails for a step of 0, or for one that leads away from `end`. Also fails for bounds that are
    /// not finite, or a dtype that is neither integer nor float.
    pub fn arange_with(
        start: impl Number,
        end: impl Number,
        step: impl Number,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        let (start, end, step) = (start.to_number(), end.to_number(), step.to_number());
        let Some(len) = arange_len(start, end, step) else {
            let expected = "finite bounds and a step other than 0 that leads to the end";
            let got = format_args!("{start} to {end} by {step}");
            return Err(OpError::new("arange", expected, got).into());
        };
        let arange = Arange {
            start,
            step,
            len,
            dtype,
        };
        Self::apply("arange", arange, &[])
    }

    /// `steps` evenly spaced numbers from `start` to `end`, both included. Elements are rounded to the dtype, or
    /// truncated for integers, the ends first.
    ///
    /// # Errors
    /// Fails for booleans, a block format, or a complex end with a real dtype.
    pub fn linspace(
        start: impl Number,
        end: impl Number,
        steps: usize,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        Self::spaced(
            "linspace",
            [start.to_number(), end.to_number()],
            steps,
            dtype,
        )?
        .cast("linspace", dtype)
    }

    /// `base` to the power of each number of [`Tensor::linspace`]; PyTorch's default base is 10.
    ///
    /// # Errors
    /// The same errors as [`Tensor::linspace`].
    pub fn logspace(
        start: impl Number,
        end: impl Number,
        steps: usize,
        base: f64,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        const NAME: &str = "logspace";
        let exponents = Self::spaced(NAME, [start.to_number(), end.to_number()], steps, dtype)?;
        let power = match exponents.dtype().is_complex() {
            true => exponents.mul(base.ln())?.exp()?,
            false => Self::number(NAME, base.into(), DType::F64, None)?.pow(&exponents)?,
        };
        power.cast(NAME, dtype)
    }

    /// Evenly spaced numbers in double precision.
    fn spaced(
        name: &'static str,
        [start, end]: [Scalar; 2],
        steps: usize,
        dtype: DType,
    ) -> RusTorchResult<Self> {
        let legal = !dtype.is_block() && dtype != DType::Bool;
        require(name, legal, "a dtype of numbers", dtype)?;
        for end in [start, end] {
            require_held(name, end, dtype)?;
        }
        let real = start.imag() == 0.0 && end.imag() == 0.0;
        let [start, end] = match (steps, dtype.is_int()) {
            // As PyTorch, which rounds the only number afterwards.
            (1, false) => [start, end],
            _ => [start, end].map(|end| rounded(end, dtype)),
        };
        let line = Self::line(name, start.as_f64(), end.as_f64(), steps)?;
        match real {
            true => Ok(line),
            false => Self::complex(&line, &Self::line(name, start.imag(), end.imag(), steps)?),
        }
    }

    fn line(name: &'static str, start: f64, end: f64, steps: usize) -> RusTorchResult<Self> {
        let step = match steps {
            0 | 1 => 0.0,
            _ => (end - start) / (steps - 1) as f64,
        };
        let line = |start: f64, step: f64| {
            let (start, step) = (start.into(), step.into());
            let arange = Arange {
                start,
                step,
                len: steps,
                dtype: DType::F64,
            };
            Self::apply(name, arange, &[])
        };
        // The second half is counted back from the end, so that both ends are exact.
        let index = line(0.0, 1.0)?;
        let from_end = line(steps.saturating_sub(1) as f64, -1.0)?;
        let (rising, falling) = (line(start, step)?, from_end.mul(-step)?.add(end)?);
        let first_half = index.lt((steps / 2).max(1) as f64)?;
        Self::where_(&first_half, &rising, &falling)
    }

    /// The `n` × `n` identity matrix.
    ///
    /// # Errors
    /// Fails for a matrix too large for memory, or a block format.
    pub fn eye(n: usize, dtype: DType) -> RusTorchResult<Self> {
        Self::eye_of([n, n], dtype)
    }

    /// A matrix `[n, m]` with ones on its diagonal, 0 elsewhere: PyTorch's `eye(n, m)`.
    ///
    /// # Errors
    /// The same errors as [`Tensor::eye`].
    pub fn eye_of([n, m]: [usize; 2], dtype: DType) -> RusTorchResult<Self> {
        let line = |n: usize| Self::arange_with(0, n as i64, 1, DType::I64);
        line(n)?.unsqueeze(1)?.eq(&line(m)?)?.cast("eye", dtype)
    }
}

/// A number as a dtype has it: integers cut, negative ones wrapped in unsigned dtypes, real halves and
/// singles rounded.
fn rounded(value: Scalar, dtype: DType) -> Scalar {
    let real = value.as_f64();
    match dtype {
        DType::F16 => half::f16::from_f64(real).to_f64().into(),
        DType::BF16 => half::bf16::from_f64(real).to_f64().into(),
        DType::F32 => f64::from(real as f32).into(),
        _ if dtype.is_unsigned() && real < 0.0 => {
            (real + (8.0 * dtype.size().unwrap_or(0) as f64).exp2()).into()
        }
        _ if dtype.is_int() => real.trunc().into(),
        _ => value,
    }
}

/// A vector as the owner of its bytes.
struct Elements<T>(Vec<T>);

impl<T: Element> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        bytemuck::cast_slice(&self.0)
    }
}

/// The type of `data` in this shape, if they fit.
fn type_of<T: Element>(
    op: &'static str,
    data: &[T],
    shape: &[usize],
) -> RusTorchResult<TensorType> {
    let ty = TensorType::new(shape, T::DTYPE);
    check_type(op, &ty)?;
    let fits = ty.bytes() == size_of_val(data);
    require(
        op,
        fits,
        format_args!("{} elements for {ty}", ty.shape.elements()),
        data.len(),
    )?;
    Ok(ty)
}

/// Number of elements of an arange; integers are counted exactly.
fn arange_len(start: Scalar, end: Scalar, step: Scalar) -> Option<usize> {
    if let (Scalar::Int(start), Scalar::Int(end), Scalar::Int(step)) = (start, end, step) {
        let (way, step) = (i128::from(end) - i128::from(start), i128::from(step));
        let fits = step != 0 && (way == 0 || (way > 0) == (step > 0));
        let len = way.unsigned_abs().checked_div(step.unsigned_abs())?;
        let rest = way.unsigned_abs() % step.unsigned_abs();
        return usize::try_from(len + u128::from(rest > 0))
            .ok()
            .filter(|_| fits);
    }
    let len = ((end.as_f64() - start.as_f64()) / step.as_f64()).ceil();
    let fits = step.as_f64().is_finite() && len >= 0.0 && len <= isize::MAX as f64;
    fits.then_some(len as usize)
}
