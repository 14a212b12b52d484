//! The contents of the brackets in `x[…]`.

use std::convert::Infallible;
use std::ops::{Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use crate::Tensor;
use crate::args::dims::OptionalDim;

/// All dimensions without an index of their own: Python's `...`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ellipsis;

/// A new dimension of size 1: Python's `None`, which works as well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewAxis;

/// One index of [`Tensor::index`].
#[derive(Clone)]
pub enum Index {
    /// One index of a dimension, which is dropped; negative ones count from the end.
    At(isize),
    /// Every `step`-th index of a dimension, as Python's `start:end:step`.
    Slice {
        /// The first one; negative ones count from the end.
        start: Option<isize>,
        /// The end of the range; negative ones count from the end.
        end: Option<isize>,
        /// The distance between them, at least 1.
        step: isize,
    },
    /// See [`Ellipsis`].
    Ellipsis,
    /// See [`NewAxis`].
    NewAxis,
    /// A new dimension of size 1, or 0 for `false`.
    Bool(bool),
    /// A mask of as many dimensions as it has, or indices of one dimension. Masks are `bool`, or `u8` as in older
    /// PyTorch. Indices are `i64` or `i32`. Negative indices count from the end.
    Tensor(Tensor),
}

impl Index {
    /// Python's `start:end:step`; `None` leaves a bound out.
    pub fn slice(start: impl OptionalDim, end: impl OptionalDim, step: isize) -> Self {
        let (start, end) = (start.to_dim(), end.to_dim());
        Self::Slice { start, end, step }
    }
}

/// Indices of [`Tensor::index`]: one, a tuple of up to eight, or a list of [`Index`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an index of a tensor",
    label = "expected an index, or a tuple of them",
    note = "an index is an integer, a range of them, `Ellipsis`, `NewAxis`, or a tensor (a mask or indices); several \
            stand in a tuple: `x.i((.., 1..3, &mask))`"
)]
pub trait Indices {
    /// The indices in order.
    fn list(self) -> Vec<Index>;
}

impl Indices for Vec<Index> {
    fn list(self) -> Vec<Index> {
        self
    }
}

impl Indices for &[Index] {
    fn list(self) -> Vec<Index> {
        self.to_vec()
    }
}

impl Indices for Index {
    fn list(self) -> Vec<Index> {
        vec![self]
    }
}

macro_rules! index_from {
    ($($type:ty: |$index:pat_param| $made:expr;)*) => {
        $(impl From<$type> for Index {
            fn from($index: $type) -> Self {
                $made
            }
        }

        impl Indices for $type {
            fn list(self) -> Vec<Index> {
                vec![self.into()]
            }
        })*
    };
}

index_from! {
    Ellipsis: |_| Self::Ellipsis;
    NewAxis: |_| Self::NewAxis;
    Option<Infallible>: |_| Self::NewAxis;
    bool: |value| Self::Bool(value);
    Tensor: |tensor| Self::Tensor(tensor);
    &Tensor: |tensor| Self::Tensor(tensor.clone());
    RangeFull: |_| Self::slice(None, None, 1);
}

/// Integers, and ranges of them. Numbers beyond `isize` become an index that never exists.
macro_rules! index_from_ints {
    ($($int:ty),*) => {
        $(index_from! {
            $int: |index| Self::At(bound(index));
            Range<$int>: |range| Self::slice(bound(range.start), bound(range.end), 1);
            RangeFrom<$int>: |range| Self::slice(bound(range.start), None, 1);
            RangeTo<$int>: |range| Self::slice(None, bound(range.end), 1);
            RangeInclusive<$int>: |range| Self::slice(bound(*range.start()), behind(*range.end()), 1);
            RangeToInclusive<$int>: |range| Self::slice(None, behind(range.end), 1);
        })*
    };
}

index_from_ints!(i32, i64, isize, usize);

fn bound(index: impl TryInto<isize>) -> isize {
    index.try_into().unwrap_or(isize::MAX)
}

/// The end of a range that `last` belongs to.
fn behind(last: impl TryInto<isize>) -> Option<isize> {
    match bound(last) {
        // The last element counted from the end: the range has no other.
        -1 => None,
        last => Some(last.saturating_add(1)),
    }
}

macro_rules! indices_of_tuples {
    ($($name:ident: $Type:ident),+) => {
        impl<$($Type: Into<Index>),+> Indices for ($($Type,)+) {
            fn list(self) -> Vec<Index> {
                let ($($name,)+) = self;
                vec![$($name.into()),+]
            }
        }
    };
}

indices_of_tuples!(a: A);
indices_of_tuples!(a: A, b: B);
indices_of_tuples!(a: A, b: B, c: C);
indices_of_tuples!(a: A, b: B, c: C, d: D);
indices_of_tuples!(a: A, b: B, c: C, d: D, e: E);
indices_of_tuples!(a: A, b: B, c: C, d: D, e: E, f: F);
indices_of_tuples!(a: A, b: B, c: C, d: D, e: E, f: F, g: G);
indices_of_tuples!(a: A, b: B, c: C, d: D, e: E, f: F, g: G, h: H);
