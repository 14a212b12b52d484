//! Dimensions, sizes and shapes as arguments.

use std::ops::RangeFull;

use rustorch_ir::order::sort_by_key;
use rustorch_ir::{OpError, Shape, normalize_dim};
use smallvec::SmallVec;

use crate::error::{RusTorchResult, require};

/// A dimension, an index or a size: an integer of one of Rust's usual types.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a dimension, index or size",
    label = "expected an integer",
    note = "dimensions, indices and sizes are `usize`, `isize`, `i32`, `i64` or `u32`; negative ones count \
            from the end"
)]
pub trait Integer: Copy {
    /// The integer. A number that `isize` cannot hold becomes a dimension that never exists.
    fn to_isize(self) -> isize;
}

macro_rules! integers {
    ($($int:ty),*) => {
        $(impl Integer for $int {
            #[inline]
            fn to_isize(self) -> isize {
                isize::try_from(self).unwrap_or(isize::MAX)
            }
        })*
    };
}

integers!(usize, isize, i32, i64, u32);

/// A dimension or an index, or `None`, whose meaning each method defines.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no dimension or index",
    label = "expected an integer, or `None`",
    note = "a dimension or an index is an integer, negative ones count from the end; `None` leaves it out"
)]
pub trait OptionalDim {
    /// The dimension or the index, if there is one.
    fn to_dim(self) -> Option<isize>;
}

impl<T: Integer> OptionalDim for T {
    fn to_dim(self) -> Option<isize> {
        Some(self.to_isize())
    }
}

impl OptionalDim for Option<isize> {
    fn to_dim(self) -> Option<isize> {
        self
    }
}

/// A choice of dimensions: one, several, or all. An [`IntoDims`] makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dims(Option<SmallVec<[isize; 6]>>);

/// Dimensions as an argument: one (`1`, `-1`), several (`[0, -1]`, `(0, -1)`, a slice or vector), or all
/// (`None`, `()`, `..`). Negative ones count from the end.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not name dimensions",
    label = "expected dimensions",
    note = "dimensions are an integer (`1`, `-1`), several (`[0, -1]`, `(0, -1)`, a slice, a vector), or \
            `None` or `()` for all of them"
)]
pub trait IntoDims {
    /// The dimensions.
    fn into_dims(self) -> Dims;
}

impl IntoDims for Dims {
    fn into_dims(self) -> Dims {
        self
    }
}

impl<T: OptionalDim> IntoDims for T {
    fn into_dims(self) -> Dims {
        Dims(self.to_dim().map(|dim| SmallVec::from_slice(&[dim])))
    }
}

impl IntoDims for () {
    fn into_dims(self) -> Dims {
        Dims(None)
    }
}

impl IntoDims for RangeFull {
    fn into_dims(self) -> Dims {
        Dims(None)
    }
}

impl Dims {
    /// Returns whether they are all that there are, whatever the rank.
    pub(crate) fn are_all(&self) -> bool {
        self.0.is_none()
    }

    /// The given dimensions; none if it is all.
    pub(crate) fn given(&self) -> &[isize] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Indices for a tensor of this rank; one may come several times.
    pub(crate) fn each(
        &self,
        op: &'static str,
        rank: usize,
    ) -> RusTorchResult<SmallVec<[usize; 6]>> {
        let Some(dims) = &self.0 else {
            return Ok((0..rank).collect());
        };
        let mut indices = SmallVec::new();
        for &dim in dims {
            indices.push(normalize_dim(op, dim, rank)?);
        }
        Ok(indices)
    }

    /// Indices for a tensor of this rank, in the given order.
    pub(crate) fn listed(
        &self,
        op: &'static str,
        rank: usize,
    ) -> RusTorchResult<SmallVec<[usize; 6]>> {
        // As in PyTorch, a tensor of rank 0 may be told of its dimension 0.
        let mut indices = self.each(op, rank.max(usize::from(self.0.is_some())))?;
        let once = (1..indices.len()).all(|i| !indices[..i].contains(&indices[i]));
        let expected = "each dimension at most once";
        require(op, once, expected, format_args!("{:?}", self.given()))?;
        indices.retain(|dim| *dim < rank);
        Ok(indices)
    }

    /// Increasing indices for a tensor of this rank. One of rank 0 has none, but answers to 0 and -1.
    pub(crate) fn resolve(
        &self,
        op: &'static str,
        rank: usize,
    ) -> RusTorchResult<SmallVec<[usize; 6]>> {
        let mut indices = self.listed(op, rank)?;
        sort_by_key(&mut indices, |dim| *dim);
        Ok(indices)
    }
}

/// Sizes of dimensions; −1 stands for the size that follows from the tensor. An [`IntoSizes`] makes
/// it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sizes(SmallVec<[isize; 6]>);

/// The size of one dimension: an integer, or `()` for −1.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a size",
    label = "expected an integer, `-1` or `()`",
    note = "a size is `usize`, `isize`, `i32`, `i64` or `u32`; `-1` and `()` stand for what follows from \
            the tensor"
)]
pub trait Size: Copy {
    /// The size, or −1.
    fn to_size(self) -> isize;
}

impl<T: Integer> Size for T {
    #[inline]
    fn to_size(self) -> isize {
        self.to_isize()
    }
}

impl Size for () {
    fn to_size(self) -> isize {
        -1
    }
}

/// Sizes as an argument, one of which may be −1: `[2, -1]`, `(2, ())`, a slice or vector, one integer;
/// `()` for rank 0.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of sizes",
    label = "expected sizes",
    note = "sizes are an array, slice or vector of integers (`[2, -1]`), a tuple (`(2, ())`), or one integer"
)]
pub trait IntoSizes {
    /// The sizes.
    fn into_sizes(self) -> Sizes;
}

impl IntoSizes for Sizes {
    fn into_sizes(self) -> Sizes {
        self
    }
}

impl<T: Integer> IntoSizes for T {
    fn into_sizes(self) -> Sizes {
        Sizes(SmallVec::from_slice(&[self.to_isize()]))
    }
}

impl IntoSizes for &Shape {
    fn into_sizes(self) -> Sizes {
        self[..].into_sizes()
    }
}

/// The sizes of all dimensions as an argument, slowest first: `[2, 3]`, `(2, 3)`, a slice, vector or
/// [`Shape`], `3` for a vector's, `()` or `[]` for rank 0.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a shape",
    label = "expected a shape",
    note = "a shape is an array, slice, vector or tuple of `usize` (`[2, 3]`, `(2, 3)`), one `usize`, or `()`"
)]
pub trait IntoShape {
    /// The shape.
    fn into_shape(self) -> Shape;
}

impl IntoShape for Shape {
    fn into_shape(self) -> Shape {
        self
    }
}

impl IntoShape for &Shape {
    fn into_shape(self) -> Shape {
        self.clone()
    }
}

impl IntoShape for usize {
    fn into_shape(self) -> Shape {
        [self].into()
    }
}

/// Sizes of the parts of a dimension. An [`IntoParts`] makes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parts {
    /// All parts have this size, except the last.
    Equal(usize),
    /// The size of each part.
    Each(Vec<usize>),
}

/// Sizes of parts as an argument: one for all (`2`), or one for each (`[1, 2]`, a slice or vector).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no size of parts",
    label = "expected a `usize`, or a list of them",
    note = "sizes of parts are one `usize` for all (`2`), or one for each (`[1, 2]`, a slice, a vector)"
)]
pub trait IntoParts {
    /// The sizes.
    fn into_parts(self) -> Parts;
}

impl IntoParts for usize {
    fn into_parts(self) -> Parts {
        Parts::Equal(self)
    }
}

/// One line for each kind of list: the generic type and item of its elements, the trait, and the value
/// built from a slice.
macro_rules! lists {
    ($([$($T:ident: $Bound:ident)?] $Item:ty => $List:ident::$method:ident, |$slice:ident| $made:expr, $Made:ty;)*) => {
        $(impl<$($T: $Bound)?> $List for &[$Item] {
            #[inline]
            fn $method(self) -> $Made {
                let $slice = self;
                $made
            }
        }

        impl<$($T: $Bound,)? const N: usize> $List for [$Item; N] {
            #[inline]
            fn $method(self) -> $Made {
                self.as_slice().$method()
            }
        }

        impl<$($T: $Bound,)? const N: usize> $List for &[$Item; N] {
            #[inline]
            fn $method(self) -> $Made {
                self.as_slice().$method()
            }
        }

        impl<$($T: $Bound)?> $List for Vec<$Item> {
            fn $method(self) -> $Made {
                self.as_slice().$method()
            }
        }

        impl<$($T: $Bound)?> $List for &Vec<$Item> {
            fn $method(self) -> $Made {
                self.as_slice().$method()
            }
        })*
    };
}

lists! {
    [T: Integer] T => IntoDims::into_dims, |dims| {
        Dims(Some(dims.iter().map(|dim| dim.to_isize()).collect()))
    }, Dims;
    [T: Size] T => IntoSizes::into_sizes, |sizes| {
        Sizes(sizes.iter().map(|size| size.to_size()).collect())
    }, Sizes;
    [] usize => IntoShape::into_shape, |shape| shape.into(), Shape;
    [] usize => IntoParts::into_parts, |sizes| Parts::Each(sizes.to_vec()), Parts;
}

macro_rules! tuples {
    ($($name:ident: $T:ident $usize:ty),*) => {
        impl<$($T: Size),*> IntoSizes for ($($T,)*) {
            fn into_sizes(self) -> Sizes {
                let ($($name,)*) = self;
                Sizes(SmallVec::from_slice(&[$($name.to_size()),*]))
            }
        }

        impl IntoShape for ($($usize,)*) {
            fn into_shape(self) -> Shape {
                let ($($name,)*) = self;
                [$($name),*].into()
            }
        }
    };
}

macro_rules! tuples_of_dims {
    ($($name:ident: $T:ident),*) => {
        impl<$($T: Integer),*> IntoDims for ($($T,)*) {
            fn into_dims(self) -> Dims {
                let ($($name,)*) = self;
                [$($name.to_isize()),*].into_dims()
            }
        }
    };
}

tuples!();
tuples!(a: A usize);
tuples!(a: A usize, b: B usize);
tuples!(a: A usize, b: B usize, c: C usize);
tuples!(a: A usize, b: B usize, c: C usize, d: D usize);
tuples!(a: A usize, b: B usize, c: C usize, d: D usize, e: E usize);
tuples!(a: A usize, b: B usize, c: C usize, d: D usize, e: E usize, f: F usize);
tuples_of_dims!(a: A);
tuples_of_dims!(a: A, b: B);
tuples_of_dims!(a: A, b: B, c: C);
tuples_of_dims!(a: A, b: B, c: C, d: D);
tuples_of_dims!(a: A, b: B, c: C, d: D, e: E);
tuples_of_dims!(a: A, b: B, c: C, d: D, e: E, f: F);

impl Sizes {
    /// The sizes as they were given.
    pub(crate) fn as_slice(&self) -> &[isize] {
        &self.0
    }

    /// A shape of `elements`: −1 stands for the size that the others leave.
    pub(crate) fn infer(&self, op: &'static str, elements: usize) -> RusTorchResult<Shape> {
        let unfit = || {
            let expected = format_args!("a shape of {elements} elements, at most one size -1");
            OpError::new(op, expected, format!("{:?}", &self.0[..]))
        };
        let mut known = 1usize;
        let mut unknown = None;
        let mut shape = Shape::default();
        for (i, &size) in self.0.iter().enumerate() {
            let size = match usize::try_from(size) {
                Ok(size) => size,
                Err(_) if size == -1 && unknown.replace(i).is_none() => 1,
                Err(_) => return Err(unfit().into()),
            };
            known = known.checked_mul(size).ok_or_else(unfit)?;
            shape.to_mut().push(size);
        }
        if let Some(i) = unknown {
            shape.to_mut()[i] = elements.checked_div(known).ok_or_else(unfit)?;
            known *= shape[i];
        }
        match known == elements {
            true => Ok(shape),
            false => Err(unfit().into()),
        }
    }

    /// A shape in which −1 keeps the size that `dims` has there, aligned at the last.
    pub(crate) fn keep(&self, op: &'static str, dims: &[usize]) -> RusTorchResult<Shape> {
        let lead = self.0.len().wrapping_sub(dims.len());
        let size = |(i, &size): (usize, &isize)| match usize::try_from(size) {
            Ok(size) => Some(size),
            Err(_) if size == -1 => dims.get(i.wrapping_sub(lead)).copied(),
            Err(_) => None,
        };
        let shape: Option<Shape> = self.0.iter().enumerate().map(size).collect();
        shape.ok_or_else(|| {
            let expected = format_args!("sizes that {dims:?} broadcasts to, or -1 for one of them");
            OpError::new(op, expected, format!("{:?}", &self.0[..])).into()
        })
    }
}
