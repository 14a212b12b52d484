//! `tensor!`.

use std::alloc::{Layout, handle_alloc_error};

use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::{F8E4M3, F8E5M2, OpError};
use rustorch_macros::track_calls;

use crate::error::RusTorchResult;
use crate::{Element, Tensor};

/// A tensor of literal numbers, as `torch.tensor`. The brackets of the macro count as the outermost
/// list.
///
/// | written | shape |
/// | --- | --- |
/// | `tensor!(1.0)` | `[]` |
/// | `tensor![1.0,]` | `[1]` |
/// | `tensor![1.0, 2.0]` | `[2]` |
/// | `tensor![[1.0, 2.0]]` | `[1, 2]` |
/// | `tensor![[1.0, 2.0], [3.0, 4.0]]` | `[2, 2]` |
/// | `tensor!(numbers)`, of an array, slice or vector | its own |
///
/// Plain numbers (`f64`, `i32` in Rust), and `usize` and `isize`, become `f32` and `i64` tensors, as in
/// PyTorch. Other types keep their dtype; [`Tensor::from_slice`] keeps `f64`, `i32`, `usize` and
/// `isize` as well. Vectors of vectors may be ragged, so they need [`Tensor::new`], which can fail.
///
/// ```
/// use rustorch_ir::DType;
/// use rustorch_tensor::tensor;
///
/// let matrix = tensor![[1.0, 2.0], [3.0, 4.0]];
/// assert_eq!((matrix.shape(), matrix.dtype()), (&[2, 2][..], DType::F32));
/// assert_eq!(tensor![[1, 2, 3]].shape(), [1, 3]);
/// assert_eq!(tensor!(vec![1, 2, 3]).shape(), tensor![1, 2, 3].shape());
/// assert_eq!(tensor!(true).rank(), 0);
/// assert_eq!(tensor![1u8, 2].dtype(), DType::U8);
/// ```
///
/// ```compile_fail
/// // Rows might differ in length: `Tensor::new(rows)?`.
/// let rows = vec![vec![1.0, 2.0], vec![3.0]];
/// rustorch_tensor::tensor!(rows);
/// ```
#[macro_export]
macro_rules! tensor {
    ([$($row:tt)*] $(,)?) => {
        $crate::literal(&[[$($row)*]])
    };
    ($value:expr) => {
        $crate::literal(&$value)
    };
    ($($value:expr),+ $(,)?) => {
        $crate::literal(&[$($value),+])
    };
}

/// Panics, as `assert_eq!`, unless two tensors have one shape and close elements:
/// `|a - b| <= atol + rtol · |b|`, as [`Tensor::allclose`]. By default `rtol` is 1e-5 and `atol`
/// 1e-8.
///
/// ```
/// use rustorch_tensor::{assert_close, tensor};
///
/// let x = tensor![1.0, 2.0];
/// assert_close!(x.sqrt().unwrap(), tensor![1.0, 1.4142135]);
/// assert_close!(x, tensor![1.01, 2.01], 0.0, 0.1);
/// ```
#[macro_export]
macro_rules! assert_close {
    ($left:expr, $right:expr $(,)?) => {
        $crate::assert_close!($left, $right, 1e-5, 1e-8)
    };
    ($left:expr, $right:expr, $rtol:expr, $atol:expr $(,)?) => {{
        let left: &$crate::Tensor = &$left;
        let right: &$crate::Tensor = &$right;
        assert_eq!(left.shape(), right.shape(), "shapes differ");
        match left.allclose(right, $rtol, $atol) {
            Ok(true) => {}
            Ok(false) => panic!(
                "tensors differ{}:\n{left}\n{right}",
                $crate::farthest(left, right, $rtol, $atol).unwrap_or_default(),
            ),
            Err(e) => panic!("tensors cannot be compared: {e}"),
        }
    }};
}

/// A number, or nested arrays, slices or vectors of numbers: an argument of [`Tensor::new`].
#[diagnostic::on_unimplemented(
    message = "a tensor is not made of `{Self}`",
    label = "neither numbers nor lists of them",
    note = "tensors are made of numbers, and of arrays, slices and vectors of them; elements are `f64`, `f32`, \
            `f16`, `bf16`, integers, `bool` and `Complex`"
)]
pub trait Literal {
    /// The elements that the numbers become.
    type Element: Element;

    /// The sizes of the dimensions, slowest first, from the first element of each list.
    fn sizes(value: Option<&Self>) -> Vec<usize>;

    /// Appends the numbers in row-major order.
    ///
    /// # Errors
    /// Fails with the length of a list that differs from its expected size.
    fn append_to(&self, sizes: &[usize], elements: &mut Vec<Self::Element>) -> Result<(), usize>;
}

/// A list with the same sizes throughout, by its type: an argument of [`tensor!`](crate::tensor).
#[diagnostic::on_unimplemented(
    message = "`tensor!` takes no `{Self}`",
    label = "neither numbers nor arrays, slices or vectors of numbers",
    note = "`Tensor::new(data)?` takes vectors of vectors, whose rows might differ in length"
)]
pub trait Regular: Literal {}

impl<T: Literal> Literal for [T] {
    type Element = T::Element;

    fn sizes(value: Option<&Self>) -> Vec<usize> {
        let mut sizes = vec![value.map_or(0, <[T]>::len)];
        sizes.extend(T::sizes(value.and_then(<[T]>::first)));
        sizes
    }

    fn append_to(&self, sizes: &[usize], elements: &mut Vec<T::Element>) -> Result<(), usize> {
        let (size, inner) = sizes.split_first().ok_or(self.len())?;
        match self.len() == *size {
            true => self.iter().try_for_each(|x| x.append_to(inner, elements)),
            false => Err(self.len()),
        }
    }
}

impl<T: Literal, const N: usize> Literal for [T; N] {
    type Element = T::Element;

    fn sizes(value: Option<&Self>) -> Vec<usize> {
        let mut sizes = vec![N];
        sizes.extend(T::sizes(value.and_then(|list| list.first())));
        sizes
    }

    fn append_to(&self, sizes: &[usize], elements: &mut Vec<T::Element>) -> Result<(), usize> {
        self.as_slice().append_to(sizes, elements)
    }
}

impl<T: Literal> Literal for Vec<T> {
    type Element = T::Element;

    fn sizes(value: Option<&Self>) -> Vec<usize> {
        <[T]>::sizes(value.map(Vec::as_slice))
    }

    fn append_to(&self, sizes: &[usize], elements: &mut Vec<T::Element>) -> Result<(), usize> {
        self.as_slice().append_to(sizes, elements)
    }
}

impl<T: Literal + ?Sized> Literal for &T {
    type Element = T::Element;

    fn sizes(value: Option<&Self>) -> Vec<usize> {
        T::sizes(value.copied())
    }

    fn append_to(&self, sizes: &[usize], elements: &mut Vec<T::Element>) -> Result<(), usize> {
        (**self).append_to(sizes, elements)
    }
}

/// An element of a [`Regular`] list: numbers, and arrays of them.
#[diagnostic::on_unimplemented(
    message = "`tensor!` takes no lists of `{Self}`",
    label = "neighbouring lists, which may differ in length",
    note = "`Tensor::new(data)?` takes vectors of vectors, and fails where they differ"
)]
pub trait Row: Literal {}

impl<T: Row, const N: usize> Row for [T; N] {}
impl<T: Row, const N: usize> Regular for [T; N] {}
impl<T: Row> Regular for [T] {}
impl<T: Row> Regular for Vec<T> {}
impl<T: Regular + ?Sized> Regular for &T {}

macro_rules! literals {
    ($($number:ty => $element:ty),* $(,)?) => {
        $(impl Row for $number {}
        impl Regular for $number {}

        impl Literal for $number {
            type Element = $element;

            fn sizes(_: Option<&Self>) -> Vec<usize> {
                Vec::new()
            }

            fn append_to(&self, _: &[usize], elements: &mut Vec<$element>) -> Result<(), usize> {
                elements.push(*self as $element);
                Ok(())
            }
        })*
    };
}

literals! {
    f64 => f32,
    i32 => i64,
    isize => i64,
    usize => i64,
}

macro_rules! typed_literals {
    ($($number:ty),* $(,)?) => {
        $(impl Row for $number {}
        impl Regular for $number {}

        impl Literal for $number {
            type Element = Self;

            fn sizes(_: Option<&Self>) -> Vec<usize> {
                Vec::new()
            }

            fn append_to(&self, _: &[usize], elements: &mut Vec<Self>) -> Result<(), usize> {
                elements.push(*self);
                Ok(())
            }
        })*
    };
}

typed_literals!(
    f32,
    f16,
    bf16,
    F8E4M3,
    F8E5M2,
    i64,
    i16,
    i8,
    u8,
    u16,
    u32,
    u64,
    bool,
    Complex<f32>,
    Complex<f64>
);

/// The tensor of [`tensor!`](crate::tensor)'s argument. Aborts, as `vec!` does, if memory is too small.
#[track_caller]
pub fn literal<T: Regular>(value: &T) -> Tensor {
    match Tensor::new(value) {
        Ok(tensor) => tensor,
        Err(_) => handle_alloc_error(Layout::for_value(value)),
    }
}

/// Largest difference of two tensors that are not close, and its index: for
/// [`assert_close!`](crate::assert_close).
///
/// # Errors
/// Fails for elements without a difference.
#[doc(hidden)]
pub fn farthest(left: &Tensor, right: &Tensor, rtol: f64, atol: f64) -> RusTorchResult<String> {
    let near = left.isclose(right, rtol, atol, false)?;
    let far = near.logical_not()?.sum(None, false)?.item()?;
    let wide = |x: &Tensor| match x.dtype().is_complex() {
        true => Ok(x.clone()),
        false => x.double(),
    };
    let differences = wide(left)?.sub(&wide(right)?)?.abs()?.ravel()?;
    let at = differences.argmax(0, false)?;
    let most = differences.index_select(0, &at)?.item()?;
    let mut place = at.item()? as usize;
    let mut indices = Vec::new();
    for size in left.shape().iter().rev() {
        indices.insert(0, place % size);
        place /= size;
    }
    let elements = left.numel();
    Ok(format!(
        " in {far} of {elements} elements, by up to {most:.4e} at {indices:?} (rtol {rtol:e}, atol {atol:e})"
    ))
}

#[track_calls]
impl Tensor {
    /// A tensor of a number, or of nested arrays, slices and vectors of numbers. Plain numbers
    /// (`f64`, `i32`) become `f32` and `i64`, as in [`tensor!`](crate::tensor).
    ///
    /// ```
    /// # use rustorch_tensor::{RusTorchResult, Tensor};
    /// # fn main() -> RusTorchResult<()> {
    /// let rows = vec![vec![1.0, 2.0], vec![3.0, 4.0]];
    /// assert_eq!(Tensor::new(&rows)?.shape(), [2, 2]);
    /// assert_eq!(Tensor::new([1u8, 2, 3])?.shape(), [3]);
    /// let ragged = Tensor::new(vec![vec![1, 2], vec![3]]).unwrap_err().to_string();
    /// assert!(ragged.ends_with("expected lists of the sizes [2, 2], got one of length 1"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Fails for neighbouring lists of different lengths.
    #[doc(alias = "torch.tensor")]
    #[doc(alias = "as_tensor")]
    #[doc(alias = "asarray")]
    pub fn new(data: impl Literal) -> RusTorchResult<Self> {
        made_of("new", &data)
    }
}

fn made_of<T: Literal>(name: &'static str, data: &T) -> RusTorchResult<Tensor> {
    let (sizes, mut elements) = (T::sizes(Some(data)), Vec::new());
    let ragged = |length| {
        let expected = format_args!("lists of the sizes {sizes:?}");
        OpError::new(name, expected, format_args!("one of length {length}"))
    };
    data.append_to(&sizes, &mut elements).map_err(ragged)?;
    Tensor::from_vec(elements, &sizes)
}
