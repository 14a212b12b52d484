//! Products of vectors and matrices.

use std::convert::identity;

use rustorch_ir::ops::{Expand, Linear, Matmul, Reshape};
use rustorch_ir::{DType, OpError, Scalar};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::api::amp::lowered;
use crate::api::math::elementwise::compute_dtype;
use crate::api::promote::result_dtype;
use crate::args::dims::Integer;
use crate::args::numbers::require_held;
use crate::error::{RusTorchResult, require};
use crate::precision::with_lower;

#[track_calls]
impl Tensor {
    /// The matrix product, as `torch.matmul`: of `[…, m, k]` and `[…, k, n]` it is `[…, m, n]`, with leading
    /// dimensions broadcast. A vector counts as a row on the left and as a column on the right. It adds no
    /// dimension.
    ///
    /// Numbers of one dtype.
    ///
    /// # Errors
    /// Fails for rank 0, inner sizes that differ, or leading sizes that do not broadcast. Also
    /// fails for different dtypes.
    pub fn matmul(&self, other: &Self) -> RusTorchResult<Self> {
        self.product("matmul", other)
    }

    fn product(&self, name: &'static str, other: &Self) -> RusTorchResult<Self> {
        let ranks = (self.rank(), other.rank());
        let [x, y] = &lowered(name, [self, other])?;
        let got = format_args!("{} and {}", x.ty(), y.ty());
        let expected = "operands of rank 1 or more";
        require(name, ranks.0 > 0 && ranks.1 > 0, expected, got)?;
        // A matrix times a vector is one operation, as that vector times the matrix transposed.
        let is_single = [x.dtype(), y.dtype()] == [DType::F32; 2];
        let fits = ranks == (2, 1) && x.shape()[1] == y.shape()[0] && x.numel() > 0;
        let is_in_order = || x.is_contiguous() && x.value().viewed().is_none();
        if is_single && fits && is_in_order() {
            return Self::apply(name, Linear, &[&**y, &**x]);
        }
        let row = match ranks.0 {
            1 => x.unsqueeze(0)?,
            _ => Self::clone(x),
        };
        let column = match ranks.1 {
            1 => y.unsqueeze(1)?,
            _ => Self::clone(y),
        };
        let product = Self::apply(name, Matmul, &[&row, &column])?;
        let Some((lead, &[m, n])) = product.shape().split_last_chunk() else {
            return Ok(product);
        };
        let kept = match ranks {
            (1, 1) => None,
            (1, _) => Some(n),
            (_, 1) => Some(m),
            _ => return Ok(product),
        };
        let shape = lead.iter().copied().chain(kept).collect();
        Self::apply(name, Reshape { shape }, &[&product])
    }

    fn product_of_ranks(
        &self,
        name: &'static str,
        other: &Self,
        ranks: (usize, usize),
    ) -> RusTorchResult<Self> {
        let fits = (self.rank(), other.rank()) == ranks;
        let expected = format_args!("operands of rank {} and {}", ranks.0, ranks.1);
        let got = format_args!("{} and {}", self.ty(), other.ty());
        require(name, fits, expected, got)?;
        self.product(name, other)
    }

    /// The product of two matrices `[m, k]` and `[k, n]` of one dtype.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn mm(&self, other: &Self) -> RusTorchResult<Self> {
        self.product_of_ranks("mm", other, (2, 2))
    }

    /// The products of two batches of matrices `[b, m, k]` and `[b, k, n]` of one dtype.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn bmm(&self, other: &Self) -> RusTorchResult<Self> {
        let got = format_args!("{} and {}", self.ty(), other.ty());
        let same = self.shape().first() == other.shape().first();
        require("bmm", same, "batches of one size", got)?;
        self.product_of_ranks("bmm", other, (3, 3))
    }

    /// The product of a matrix `[m, k]` and a vector `[k]` of one dtype.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn mv(&self, vector: &Self) -> RusTorchResult<Self> {
        self.product_of_ranks("mv", vector, (2, 1))
    }

    /// The product of two vectors `[k]` of one dtype: a tensor of rank 0.
    ///
    /// # Errors
    /// Fails for unsupported shapes or dtypes.
    pub fn dot(&self, other: &Self) -> RusTorchResult<Self> {
        // None of the products that PyTorch computes in lower precision.
        with_lower(None, || self.product_of_ranks("dot", other, (1, 1)))
    }
}

/// `beta · input + alpha · product`, where an `input` whose factor is 0 is not looked at. The dtype `holds` has to
/// hold both factors. Products of halves are computed in single precision, so that only the sum is rounded.
fn added(
    name: &'static str,
    input: &Tensor,
    product: Tensor,
    beta: Scalar,
    alpha: Scalar,
    holds: DType,
) -> RusTorchResult<Tensor> {
    // Of integers PyTorch cuts the factors, too.
    let whole = |x: Scalar| -> RusTorchResult<Scalar> {
        let dtype = input.dtype();
        require_held(name, x, holds)?;
        Ok(match dtype {
            d if d.is_int() || d == DType::Bool => Scalar::Int(x.as_i64()),
            _ => x,
        })
    };
    let (alpha, beta) = (whole(alpha)?, whole(beta)?);
    let scaled = match alpha == Scalar::Int(1) {
        true => product,
        false => product.mul(alpha)?,
    };
    let shape = scaled.ty().shape.clone();
    let expanded = Tensor::apply(name, Expand { shape }, &[&input.widened(name)?])?;
    match beta {
        beta if beta.as_f64() == 0.0 && beta.imag() == 0.0 => Ok(scaled),
        Scalar::Int(1) => expanded.add(&scaled),
        beta => expanded.mul(beta)?.add(&scaled),
    }
}

/// `Σ a · b` of batches of matrices, one product of matrices side by side.
fn products_added(a: &Tensor, b: &Tensor) -> RusTorchResult<Tensor> {
    const NAME: &str = "addbmm";
    let (&[batch, m, k], &[other, inner, n]) = (a.shape(), b.shape()) else {
        return Err(OpError::new(NAME, "two batches of matrices", b.ty()).into());
    };
    let got = format_args!("{} and {}", a.ty(), b.ty());
    require(NAME, (batch, k) == (other, inner), "batches that fit", got)?;
    let rows = a.permute([1, 0, 2])?.reshape([m, batch * k])?;
    rows.product_of_ranks(NAME, &b.reshape([batch * k, n])?, (2, 2))
}

/// One method for each line: documentation, name, dtype, product. The factors have to fit the
/// dtype, which is a function of the result's dtype.
macro_rules! added_methods {
    ($($doc:literal $name:ident by $holding:ident = |$a:ident, $b:ident| $product:expr;)*) => {
        #[rustorch_macros::track_calls]
        impl Tensor {
            $(#[doc = $doc]
            ///
            /// `self` broadcasts; if `beta` is 0 it is ignored. PyTorch's defaults are 1. For
            /// integers, factors are truncated towards 0.
            ///
            /// # Errors
            /// Fails for shapes or dtypes that do not fit. Also fails for a factor out of range, as
            /// in PyTorch.
            pub fn $name(
                &self,
                $a: &Self,
                $b: &Self,
                beta: impl crate::Number,
                alpha: impl crate::Number,
            ) -> RusTorchResult<Self> {
                const NAME: &str = stringify!($name);
                let [input, $a, $b] = &lowered(NAME, [self, $a, $b])?;
                let operands = [(&**input).into(), (&**$a).into(), (&**$b).into()];
                let dtype = result_dtype(NAME, &operands)?;
                let input = &input.cast(NAME, dtype)?;
                // Different dtypes are the product's to refuse.
                let [$a, $b] = &match $a.dtype() == $b.dtype() {
                    true => [$a.widened(NAME)?, $b.widened(NAME)?],
                    false => [Self::clone($a), Self::clone($b)],
                };
                // What was converted stays so, and is not lowered again.
                let product = with_lower(None, || $product)?;
                let (beta, alpha) = (beta.to_number(), alpha.to_number());
                added(NAME, input, product, beta, alpha, $holding(dtype))?.cast(NAME, dtype)
            })*
        }
    };
}

added_methods! {
    "`beta · self + alpha · a · b` of matrices `[m, k]` and `[k, n]`."
    addmm by compute_dtype = |a, b| a.product_of_ranks("addmm", b, (2, 2));
    "`beta · self + alpha · a · b` of a matrix `[m, k]` and a vector `[k]`."
    addmv by identity = |a, b| a.product_of_ranks("addmv", b, (2, 1));
    "`beta · self + alpha · a · bᵀ` of vectors `[m]` and `[n]`."
    addr by identity = |a, b| a.outer(b);
    "`beta · self + alpha · a · b` of batches of matrices `[b, m, k]` and `[b, k, n]`."
    baddbmm by compute_dtype = |a, b| a.bmm(b);
    "`beta · self + alpha · Σ a · b` of batches of matrices `[b, m, k]` and `[b, k, n]`, which are \
     added up."
    addbmm by compute_dtype = |a, b| products_added(a, b);
}

#[track_calls]
impl Tensor {
    /// The products of all pairs of elements of two vectors, `[m, n]`.
    ///
    /// # Errors
    /// Fails for operands other than vectors.
    #[doc(alias = "ger")]
    pub fn outer(&self, other: &Self) -> RusTorchResult<Self> {
        let got = format_args!("{} and {}", self.ty(), other.ty());
        let fits = self.rank() == 1 && other.rank() == 1;
        require("outer", fits, "two vectors", got)?;
        self.unsqueeze(1)?.mul(other)
    }

    /// [`Tensor::dot`] with the first vector conjugated.
    ///
    /// # Errors
    /// The same errors as [`Tensor::dot`].
    pub fn vdot(&self, other: &Self) -> RusTorchResult<Self> {
        self.conj()?.product_of_ranks("vdot", other, (1, 1))
    }

    /// The sums of products along both last dimensions, `[…of self, …of other]`; a number scales
    /// the other operand.
    ///
    /// # Errors
    /// Fails for last sizes or dtypes that differ.
    pub fn inner(&self, other: &Self) -> RusTorchResult<Self> {
        match self.rank() == 0 || other.rank() == 0 {
            true => self.mul(other),
            false => self.dotted("inner", other, &[self.rank() - 1], &[other.rank() - 1]),
        }
    }

    /// The Kronecker product: each element of `self` times the whole of `other`. Missing dimensions
    /// are added in front.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn kron(&self, other: &Self) -> RusTorchResult<Self> {
        let rank = self.rank().max(other.rank());
        let padded = |x: &Self| -> Vec<usize> {
            let ones = std::iter::repeat_n(1, rank - x.rank());
            ones.chain(x.shape().iter().copied()).collect()
        };
        let (a, b) = (padded(self), padded(other));
        let spread = |x: &[usize], first: bool| -> Vec<usize> {
            x.iter()
                .flat_map(|&d| if first { [d, 1] } else { [1, d] })
                .collect()
        };
        let product = self
            .reshape(spread(&a, true))?
            .mul(&other.reshape(spread(&b, false))?)?;
        let shape: Vec<usize> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
        product.reshape(shape)
    }

    /// The sums of products along pairs of dimensions. The result has `self`'s other dimensions
    /// before `other`'s. Sizes of 1 broadcast within a pair.
    ///
    /// # Errors
    /// Fails for lists of different lengths, or dimensions that are missing or listed twice. Also
    /// fails for sizes or dtypes that differ.
    pub fn tensordot(
        &self,
        other: &Self,
        dims: &[isize],
        other_dims: &[isize],
    ) -> RusTorchResult<Self> {
        const NAME: &str = "tensordot";
        let got = format_args!("{dims:?} and {other_dims:?}");
        require(
            NAME,
            dims.len() == other_dims.len(),
            "the same number of dimensions of both",
            got,
        )?;
        let resolved = |x: &Self, dims: &[isize]| {
            let dims = dims.iter().map(|&d| x.dim(NAME, d));
            dims.collect::<RusTorchResult<Vec<usize>>>()
        };
        let (a, b) = (resolved(self, dims)?, resolved(other, other_dims)?);
        // A size of 1 stands for the other's, whose elements are added up.
        let spread = |x: &Self, dims: &[usize], y: &Self, other_dims: &[usize]| {
            let is_one = |(d, e): &(&usize, &usize)| x.shape()[**d] == 1 && y.shape()[**e] != 1;
            let pairs = dims.iter().zip(other_dims).filter(is_one);
            let summed: Vec<isize> = pairs.map(|(_, &e)| e as isize).collect();
            match summed.is_empty() {
                true => Ok(y.clone()),
                false => y.sum(&summed[..], true)?.cast(NAME, y.dtype()),
            }
        };
        let right = spread(self, &a, other, &b)?;
        let left = spread(other, &b, self, &a)?;
        left.dotted(NAME, &right, &a, &b)
    }

    fn dotted(
        &self,
        name: &'static str,
        other: &Self,
        dims: &[usize],
        other_dims: &[usize],
    ) -> RusTorchResult<Self> {
        let got = format_args!("{} and {}", self.ty(), other.ty());
        for (list, x) in [(dims, self), (other_dims, other)] {
            let once = (1..list.len()).all(|i| !list[..i].contains(&list[i]));
            require(
                name,
                once,
                format!("each dimension of {} once", x.ty()),
                format!("{list:?}"),
            )?;
        }
        let equal = |(&a, &b): (&usize, &usize)| self.shape()[a] == other.shape()[b];
        let expected = "equal sizes of the dimensions that are summed over";
        require(name, dims.iter().zip(other_dims).all(equal), expected, got)?;
        let free = |x: &Self, dims: &[usize]| -> Vec<usize> {
            (0..x.rank()).filter(|d| !dims.contains(d)).collect()
        };
        let (rows, columns) = (free(self, dims), free(other, other_dims));
        let matrix = |x: &Self, order: [&[usize]; 2]| {
            let size = |dims: &[usize]| dims.iter().map(|&d| x.shape()[d]).product::<usize>();
            let dims: Vec<isize> = order.concat().iter().map(|&d| d as isize).collect();
            x.permute(&dims)?.reshape([size(order[0]), size(order[1])])
        };
        let product =
            matrix(self, [&rows, dims])?.matmul(&matrix(other, [other_dims, &columns])?)?;
        let sizes = |x: &Self, dims: &[usize]| -> Vec<usize> {
            dims.iter().map(|&d| x.shape()[d]).collect()
        };
        product.reshape([sizes(self, &rows), sizes(other, &columns)].concat())
    }
}

/// The sums of products of vectors along `dim`; the first vector is conjugated.
///
/// # Errors
/// Fails if the dimension does not exist or its sizes differ, or for shapes that do not broadcast.
/// Also fails for dtypes that differ.
#[track_calls(linalg)]
pub fn vecdot(x: &Tensor, y: &Tensor, dim: impl Integer) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.vecdot";
    let got = format_args!("{} and {}", x.ty(), y.ty());
    require(NAME, x.dtype() == y.dtype(), "operands of one dtype", got)?;
    x.conj()?.mul(y)?.sum(dim, false)?.cast(NAME, x.dtype())
}

/// The product of matrices in the order with the fewest multiplications. The first and the last may
/// be vectors.
///
/// # Errors
/// Fails for fewer than two tensors, for unsupported ranks, or for sizes or dtypes that do not
/// match.
#[track_calls(linalg)]
#[doc(alias = "chain_matmul")]
pub fn multi_dot(tensors: &[&Tensor]) -> RusTorchResult<Tensor> {
    const NAME: &str = "linalg.multi_dot";
    let [first, .., last] = tensors else {
        let got = tensors.len();
        return Err(OpError::new(NAME, "two tensors or more", got).into());
    };
    let mut matrices = Vec::new();
    for (i, x) in tensors.iter().enumerate() {
        let is_end = i == 0 || i + 1 == tensors.len();
        let fits = x.rank() == 2 || (is_end && x.rank() == 1);
        let expected = "matrices; vectors at the ends";
        require(NAME, fits, expected, x.ty())?;
        matrices.push(match (x.rank(), i) {
            (1, 0) => x.unsqueeze(0)?,
            (1, _) => x.unsqueeze(1)?,
            _ => (*x).clone(),
        });
    }
    let product = in_best_order(&matrices)?;
    let product = if first.rank() == 1 {
        product.squeeze(0)?
    } else {
        product
    };
    if last.rank() == 1 {
        product.squeeze(-1)
    } else {
        Ok(product)
    }
}

/// Multiplies a chain of matrices, split where that takes the fewest multiplications
/// ([Cormen et al., chapter 14.2](https://mitpress.mit.edu/9780262046305)).
fn in_best_order(matrices: &[Tensor]) -> RusTorchResult<Tensor> {
    let count = matrices.len();
    let rows = |i: usize| matrices[i].shape()[0] as f64;
    let columns = |i: usize| matrices[i].shape()[1] as f64;
    // Multiplications of the chains from `i` to `j`, and where they are split.
    let mut costs = vec![vec![(0.0, 0); count]; count];
    for length in 1..count {
        for i in 0..count - length {
            let j = i + length;
            let split = |k: usize| {
                let cost = costs[i][k].0 + costs[k + 1][j].0 + rows(i) * columns(k) * columns(j);
                (cost, k)
            };
            let best = (i..j).map(split).min_by(|a, b| a.0.total_cmp(&b.0));
            costs[i][j] = best.unwrap_or_default();
        }
    }
    chain(matrices, &costs, 0, count - 1)
}

fn chain(
    matrices: &[Tensor],
    costs: &[Vec<(f64, usize)>],
    first: usize,
    last: usize,
) -> RusTorchResult<Tensor> {
    if first == last {
        return Ok(matrices[first].clone());
    }
    let split = costs[first][last].1;
    let left = chain(matrices, costs, first, split)?;
    left.matmul(&chain(matrices, costs, split + 1, last)?)
}
