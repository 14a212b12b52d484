//! `tensor!`.

use std::alloc::{Layout, handle_alloc_error};

use half::{bf16, f16};
use num_complex::Complex;
use rustorch_ir::{F8E4M3, F8E5M2};

use crate::{Element, Tensor};

/// A tensor of numbers written down, as `torch.tensor`: one number, nested lists of numbers
/// in brackets, or several such values, which become one list.
///
/// As in PyTorch, plain numbers (`f64`, `i32` in Rust) become `f32` and `i64` tensors. Other
/// types stay what they are; [`Tensor::from_slice`] keeps those two as well.
///
/// ```
/// use rustorch_ir::DType;
/// use rustorch_tensor::tensor;
///
/// let matrix = tensor![[1.0, 2.0], [3.0, 4.0]];
/// assert_eq!((matrix.shape(), matrix.dtype()), (&[2, 2][..], DType::F32));
/// assert_eq!(tensor!([1, 2, 3]).shape(), tensor![1, 2, 3].shape());
/// assert_eq!(tensor!(true).rank(), 0);
/// assert_eq!(tensor!([1u8, 2]).dtype(), DType::U8);
/// ```
#[macro_export]
macro_rules! tensor {
    ($value:expr) => {
        $crate::literal(&$value)
    };
    ($($value:expr),+ $(,)?) => {
        $crate::literal(&[$($value),+])
    };
}

/// A number, or nested arrays of numbers: what [`tensor!`](crate::tensor) takes.
pub trait Literal {
    /// The elements that the numbers become.
    type Element: Element;

    /// The sizes of the dimensions, slowest first.
    fn shape() -> Vec<usize>;

    /// Appends the numbers in row-major order.
    fn append_to(&self, elements: &mut Vec<Self::Element>);
}

impl<T: Literal, const N: usize> Literal for [T; N] {
    type Element = T::Element;

    fn shape() -> Vec<usize> {
        let mut shape = vec![N];
        shape.extend(T::shape());
        shape
    }

    fn append_to(&self, elements: &mut Vec<T::Element>) {
        self.iter().for_each(|x| x.append_to(elements));
    }
}

macro_rules! literals {
    ($($number:ty => $element:ty),* $(,)?) => {
        $(impl Literal for $number {
            type Element = $element;

            fn shape() -> Vec<usize> {
                Vec::new()
            }

            fn append_to(&self, elements: &mut Vec<$element>) {
                elements.push(*self as $element);
            }
        })*
    };
}

literals! {
    f64 => f32,
    i32 => i64,
}

macro_rules! typed_literals {
    ($($number:ty),* $(,)?) => {
        $(impl Literal for $number {
            type Element = Self;

            fn shape() -> Vec<usize> {
                Vec::new()
            }

            fn append_to(&self, elements: &mut Vec<Self>) {
                elements.push(*self);
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

/// The tensor of [`tensor!`](crate::tensor)'s argument. Aborts, as `vec!`, if there is no
/// memory for it.
pub fn literal<T: Literal>(value: &T) -> Tensor {
    let mut elements = Vec::new();
    value.append_to(&mut elements);
    match Tensor::from_slice(&elements, T::shape()) {
        Ok(tensor) => tensor,
        Err(_) => handle_alloc_error(Layout::for_value(&elements[..])),
    }
}
