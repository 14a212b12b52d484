//! Tensors joined into one.

use std::borrow::{Borrow, Cow};

use rustorch_ir::ops::Concat;
use rustorch_ir::{OpError, Shape};
use rustorch_macros::track_calls;
use smallvec::SmallVec;

use crate::Tensor;
use crate::api::promote::{Operand, result_dtype};
use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require, with_room};

/// The order of the dimensions in [`Tensor::meshgrid`]'s results.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Indexing {
    /// Matrix indexing: the first vector runs along dimension 0.
    Ij,
    /// Cartesian indexing: the first vector runs along dimension 1, the second along dimension 0.
    Xy,
}

/// References to the tensors of a list of them, or of references to them.
fn borrowed<T: Borrow<Tensor>>(tensors: &[T]) -> SmallVec<[&Tensor; 4]> {
    tensors.iter().map(T::borrow).collect()
}

/// References to tensors, which functions of several take.
fn references(tensors: &[Tensor]) -> SmallVec<[&Tensor; 4]> {
    tensors.iter().collect()
}

/// The results of `change` on each.
fn each(
    tensors: &[&Tensor],
    change: impl Fn(&Tensor) -> RusTorchResult<Tensor>,
) -> RusTorchResult<Vec<Tensor>> {
    tensors.iter().map(|t| change(t)).collect()
}

#[track_calls]
impl Tensor {
    /// Joins tensors along an existing dimension. Their other sizes are equal; their dtypes promote. Tensors of shape
    /// `[0]` join any others, as in PyTorch.
    ///
    /// # Errors
    /// Fails for an empty list of tensors, rank 0, or other sizes that differ. Also fails if the
    /// dimension does not exist.
    pub fn cat(tensors: &[impl Borrow<Self>], dim: impl Integer) -> RusTorchResult<Self> {
        Self::joined("cat", &borrowed(tensors), dim.to_isize())
    }

    /// NumPy's name of [`Tensor::cat`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::cat`].
    pub fn concatenate(tensors: &[impl Borrow<Self>], dim: impl Integer) -> RusTorchResult<Self> {
        Self::joined("concatenate", &borrowed(tensors), dim.to_isize())
    }

    /// Another name of [`Tensor::cat`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::cat`].
    pub fn concat(tensors: &[impl Borrow<Self>], dim: impl Integer) -> RusTorchResult<Self> {
        Self::joined("concat", &borrowed(tensors), dim.to_isize())
    }

    fn joined(name: &'static str, tensors: &[&Self], dim: isize) -> RusTorchResult<Self> {
        let is_nothing = |t: &&Self| t.shape() == [0];
        let Some(first) = tensors.iter().find(|t| !is_nothing(t)).or(tensors.first()) else {
            return Err(OpError::new(name, "at least one tensor", "none").into());
        };
        let ranked = tensors.iter().all(|t| t.rank() > 0);
        require(name, ranked, "tensors of rank 1 or more", "one of rank 0")?;
        let operands: SmallVec<[Operand; 4]> = tensors.iter().map(|&t| t.into()).collect();
        let dtype = result_dtype(name, &operands)?;
        // Of nothing but nothing any dimension is one.
        if is_nothing(first) {
            return first.cast(name, dtype);
        }
        let dim = first.dim(name, dim)?;
        let some = (tensors.iter()).filter(|t| first.rank() == 1 || !is_nothing(t));
        let tensors = some.map(|t| t.as_dtype(name, dtype));
        let tensors = tensors.collect::<RusTorchResult<SmallVec<[Cow<Self>; 4]>>>()?;
        let tensors: SmallVec<[&Self; 4]> = tensors.iter().map(|t| &**t).collect();
        Self::apply(name, Concat { dim }, &tensors)
    }

    /// Tensors of one shape joined along a new dimension, between −rank − 1 and rank.
    ///
    /// # Errors
    /// Fails for an empty list of tensors, or shapes that differ. Also fails if the dimension does
    /// not exist.
    pub fn stack(tensors: &[impl Borrow<Self>], dim: impl Integer) -> RusTorchResult<Self> {
        const NAME: &str = "stack";
        let tensors = borrowed(tensors);
        for pair in tensors.windows(2) {
            let same = pair[0].shape() == pair[1].shape();
            let got = format_args!("{} and {}", pair[0].ty(), pair[1].ty());
            require(NAME, same, "tensors of one shape", got)?;
        }
        let rows = each(&tensors, |t| t.unsqueeze(dim))?;
        Self::joined(NAME, &references(&rows), dim.to_isize())
    }

    /// Joins tensors side by side: along dimension 1, vectors along 0. Numbers become vectors.
    ///
    /// # Errors
    /// The same errors as [`Tensor::cat`].
    pub fn hstack(tensors: &[impl Borrow<Self>]) -> RusTorchResult<Self> {
        Self::beside("hstack", &each(&borrowed(tensors), Self::atleast_1d)?)
    }

    fn beside(name: &'static str, tensors: &[Self]) -> RusTorchResult<Self> {
        let dim = isize::from(tensors.first().is_some_and(|t| t.rank() > 1));
        Self::joined(name, &references(tensors), dim)
    }

    /// Joins tensors one below the other: along dimension 0. Vectors become rows.
    ///
    /// # Errors
    /// The same errors as [`Tensor::cat`].
    pub fn vstack(tensors: &[impl Borrow<Self>]) -> RusTorchResult<Self> {
        let rows = each(&borrowed(tensors), Self::atleast_2d)?;
        Self::joined("vstack", &references(&rows), 0)
    }

    /// Another name of [`Tensor::vstack`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::cat`].
    pub fn row_stack(tensors: &[&Self]) -> RusTorchResult<Self> {
        let rows = each(tensors, Self::atleast_2d)?;
        Self::joined("row_stack", &references(&rows), 0)
    }

    /// Joins tensors along dimension 2, see [`Tensor::atleast_3d`].
    ///
    /// # Errors
    /// The same errors as [`Tensor::cat`].
    pub fn dstack(tensors: &[&Self]) -> RusTorchResult<Self> {
        let planes = each(tensors, Self::atleast_3d)?;
        Self::joined("dstack", &references(&planes), 2)
    }

    /// Columns side by side: vectors and numbers become columns.
    ///
    /// # Errors
    /// The same errors as [`Tensor::cat`].
    pub fn column_stack(tensors: &[&Self]) -> RusTorchResult<Self> {
        let columns = each(tensors, |t| match t.rank() {
            0 | 1 => t.reshape([t.numel(), 1]),
            _ => Ok(t.clone()),
        })?;
        Self::beside("column_stack", &columns)
    }

    /// The block-diagonal matrix of these matrices; vectors are rows. Dtypes promote. `[1, 0]` for
    /// an empty list.
    ///
    /// # Errors
    /// Fails for rank above 2, or dtypes that do not promote.
    pub fn block_diag(tensors: &[&Self]) -> RusTorchResult<Self> {
        const NAME: &str = "block_diag";
        let blocks = each(tensors, |t| {
            require(NAME, t.rank() <= 2, "tensors of rank 2 or less", t.ty())?;
            t.atleast_2d()
        })?;
        let width: usize = blocks.iter().map(|block| block.shape()[1]).sum();
        let mut left = 0;
        let rows = (blocks.iter()).map(|block| {
            let own = block.shape()[1];
            left += own;
            block.pad([(left - own) as isize, (width - left) as isize], 0)
        });
        let rows = rows.collect::<RusTorchResult<Vec<Self>>>()?;
        match rows.is_empty() {
            true => Self::zeros([1, 0], rustorch_ir::DType::F32),
            false => Self::joined(NAME, &references(&rows), 0),
        }
    }

    /// Coordinates on a grid. The elements of each vector run along its own dimension, and
    /// broadcast to the shape of the grid. Numbers are vectors of one element.
    ///
    /// # Errors
    /// Fails for rank above 1, dtypes that differ, or an empty list of tensors.
    pub fn meshgrid(tensors: &[&Self], indexing: Indexing) -> RusTorchResult<Vec<Self>> {
        const NAME: &str = "meshgrid";
        require(NAME, !tensors.is_empty(), "at least one tensor", "none")?;
        for t in tensors {
            require(NAME, t.rank() <= 1, "vectors, or numbers", t.ty())?;
            let got = format_args!("{} and {}", tensors[0].dtype(), t.dtype());
            require(NAME, t.dtype() == tensors[0].dtype(), "one dtype", got)?;
        }
        let swaps = indexing == Indexing::Xy && tensors.len() > 1;
        let dim_of = |i: usize| if swaps && i < 2 { 1 - i } else { i };
        let size_of = |dim: usize| tensors[dim_of(dim)].numel();
        let grid: Shape = (0..tensors.len()).map(size_of).collect();
        let spread = |(i, t): (usize, &&Self)| {
            let line = Shape::from(vec![1; tensors.len()]).with_dim(dim_of(i), t.numel());
            t.reshape(&line)?.expand(&grid)
        };
        tensors.iter().enumerate().map(spread).collect()
    }

    /// All combinations of one element from each vector,
    /// `[product of their sizes, number of vectors]`. A single vector is returned unchanged.
    ///
    /// # Errors
    /// Fails for an unsupported rank, an empty list of tensors, or dtypes that differ.
    pub fn cartesian_prod(tensors: &[&Self]) -> RusTorchResult<Self> {
        const NAME: &str = "cartesian_prod";
        for t in tensors {
            require(NAME, t.rank() == 1, "vectors", t.ty())?;
            let got = format_args!("{} and {}", tensors[0].dtype(), t.dtype());
            require(NAME, t.dtype() == tensors[0].dtype(), "one dtype", got)?;
        }
        if let [one] = tensors {
            return Ok((*one).clone());
        }
        let grid = Self::meshgrid(tensors, Indexing::Ij)?;
        let columns = each(&references(&grid), Self::ravel)?;
        Self::stack(&columns, 1)
    }

    /// All combinations of `r` elements of a vector, in the order of their indices, `[count, r]`.
    /// `with_replacement` allows repeated elements.
    ///
    /// # Errors
    /// Fails for an unsupported rank, or for too many combinations for memory.
    pub fn combinations(&self, r: usize, with_replacement: bool) -> RusTorchResult<Self> {
        const NAME: &str = "combinations";
        require(NAME, self.rank() == 1, "a vector", self.ty())?;
        let n = self.numel();
        if r == 0 {
            return Self::zeros([0], self.dtype());
        }
        let step = usize::from(!with_replacement);
        let count = choices(n, r, with_replacement);
        if count == 0 {
            return Self::zeros([0, r], self.dtype());
        }
        let length = count.saturating_mul(r);
        let mut index: Vec<i64> = with_room(NAME, length)?;
        // The first choice, then the next one as long as there is one: each element has a last
        // index that leaves enough for those behind it.
        let mut choice: Vec<usize> = (0..r).map(|i| i * step).collect();
        let most = |i: usize| n - 1 - (r - 1 - i) * step;
        loop {
            index.extend(choice.iter().map(|&i| i as i64));
            let Some(at) = (0..r).rev().find(|&i| choice[i] < most(i)) else {
                break;
            };
            choice[at] += 1;
            for i in at + 1..r {
                choice[i] = choice[i - 1] + step;
            }
        }
        let index = Self::from_vec(index, [length])?;
        self.picked(NAME, 0, &index)?.reshape([count, r])
    }
}

/// Number of choices of `r` of `n` elements, at most the largest countable number.
fn choices(n: usize, r: usize, with_replacement: bool) -> usize {
    let n = match with_replacement {
        true if n > 0 => n.saturating_add(r - 1),
        _ => n,
    };
    let r = match n.checked_sub(r) {
        Some(rest) => r.min(rest),
        None => return 0,
    };
    let mut count = 1u128;
    for i in 0..r as u128 {
        count = count.saturating_mul(n as u128 - i) / (i + 1);
        if count > usize::MAX as u128 {
            return usize::MAX;
        }
    }
    count as usize
}
