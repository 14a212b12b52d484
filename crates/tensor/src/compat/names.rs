//! Methods with candle's names: each stands for another method of this crate, with its usual
//! arguments.

use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::promote::{AsOperand, Number};
use crate::api::shape::index::Indices;
use crate::args::dims::{Integer, IntoDims, IntoSizes};
use crate::error::{RusTorchResult, require};

/// One line for each method: its name and arguments, the method and arguments that it is.
macro_rules! names {
    ($($name:ident($($argument:ident: $type:ty),*) = $method:ident($($value:expr),*);)*) => {
        #[track_calls]
        impl Tensor {
            $(#[doc = concat!(
                "`", stringify!($method), "(", stringify!($($value),*), ")`, see [`Tensor::", stringify!($method), "`]."
            )]
            ///
            /// # Errors
            #[doc = concat!("The same errors as [`Tensor::", stringify!($method), "`].")]
            pub fn $name(&self, $($argument: $type),*) -> RusTorchResult<Self> {
                self.$method($($value),*)
            })*
        }
    };
}

names! {
    i(indices: impl Indices) = index(indices);
    get(row: impl Integer) = select(0, row);
    sum_all() = sum(None, false);
    mean_all() = mean(None, false);
    max_all() = max(None, false);
    min_all() = min(None, false);
    sum_keepdim(dims: impl IntoDims) = sum(dims, true);
    mean_keepdim(dims: impl IntoDims) = mean(dims, true);
    max_keepdim(dims: impl IntoDims) = max(dims, true);
    min_keepdim(dims: impl IntoDims) = min(dims, true);
    argmax_keepdim(dim: impl Integer) = argmax(dim, true);
    argmin_keepdim(dim: impl Integer) = argmin(dim, true);
    flatten_all() = flatten(0, -1);
    flatten_from(dim: impl Integer) = flatten(dim, -1);
    flatten_to(dim: impl Integer) = flatten(0, dim);
    broadcast_as(shape: impl IntoSizes) = expand(shape);
    broadcast_add(other: impl AsOperand) = add(other);
    broadcast_sub(other: impl AsOperand) = sub(other);
    broadcast_mul(other: impl AsOperand) = mul(other);
    broadcast_div(other: impl AsOperand) = div(other);
    broadcast_matmul(other: &Self) = matmul(other);
    sqr() = square();
    recip() = reciprocal();
    powf(exponent: f64) = pow(exponent);
}

#[track_calls]
impl Tensor {
    /// `self · factor + summand`.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn affine(&self, factor: impl Number, summand: impl Number) -> RusTorchResult<Self> {
        self.mul(factor.to_number())?.add(summand.to_number())
    }

    /// [`Tensor::where_`] with this `bool` tensor as the condition.
    ///
    /// # Errors
    /// The same errors as [`Tensor::where_`].
    pub fn where_cond(&self, a: impl AsOperand, b: impl AsOperand) -> RusTorchResult<Self> {
        Self::where_(self, a, b)
    }

    /// [`Tensor::shape`].
    pub fn dims(&self) -> &[usize] {
        self.shape()
    }

    /// [`Tensor::numel`].
    pub fn elem_count(&self) -> usize {
        self.numel()
    }
}

/// One line for each rank: the method that gives the sizes of a tensor of it.
macro_rules! dims_of_rank {
    ($($name:ident: $rank:literal, $Sizes:ty = |$dims:ident| $sizes:expr;)*) => {
        #[track_calls]
        impl Tensor {
            $(#[doc = concat!("The sizes of a tensor of rank ", stringify!($rank), ".")]
            ///
            /// # Errors
            /// Fails for an unsupported rank.
            pub fn $name(&self) -> RusTorchResult<$Sizes> {
                let $dims = self.shape();
                let expected = concat!("rank ", stringify!($rank));
                require(stringify!($name), $dims.len() == $rank, expected, self.ty())?;
                Ok($sizes)
            })*
        }
    };
}

dims_of_rank! {
    dims1: 1, usize = |d| d[0];
    dims2: 2, (usize, usize) = |d| (d[0], d[1]);
    dims3: 3, (usize, usize, usize) = |d| (d[0], d[1], d[2]);
    dims4: 4, (usize, usize, usize, usize) = |d| (d[0], d[1], d[2], d[3]);
}
