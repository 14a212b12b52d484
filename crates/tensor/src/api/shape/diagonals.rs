//! Diagonals and triangles of matrices.

use rustorch_ir::ops::{Compare, CompareOp, Contiguous, Triangle, Where};
use rustorch_ir::{DType, OpError};
use rustorch_macros::track_calls;

use crate::Tensor;
use crate::args::dims::Integer;
use crate::error::{RusTorchResult, require, with_room};

/// Start and length of a diagonal.
struct Diagonal {
    row: usize,
    column: usize,
    length: usize,
}

impl Diagonal {
    /// The diagonal of a matrix `rows` × `columns`, `offset` to the right of the main one.
    fn new(rows: usize, columns: usize, offset: isize) -> Self {
        let away = offset.unsigned_abs();
        let (row, column) = if offset < 0 { (away, 0) } else { (0, away) };
        let length = rows.saturating_sub(row).min(columns.saturating_sub(column));
        Self {
            row,
            column,
            length,
        }
    }
}

/// A mask of the diagonal `offset` to the right of the main one.
fn places(
    name: &'static str,
    [rows, columns]: [usize; 2],
    offset: isize,
) -> RusTorchResult<Tensor> {
    let line = |n: usize| Tensor::arange_with(0, n as i64, 1, DType::I64);
    // What is outside of the matrix is as far as its corners.
    let offset = offset.clamp(-(rows as isize), columns as isize);
    let offset = Tensor::number(name, (offset as i64).into(), DType::I64, None)?;
    let bound = line(rows)?.unsqueeze(1)?.add(&offset)?;
    let op = CompareOp::Eq;
    Tensor::apply(name, Compare { op }, &[&line(columns)?, &bound])
}

#[track_calls]
impl Tensor {
    /// The elements where a mask is true, 0 elsewhere.
    pub(crate) fn kept_where(&self, name: &'static str, mask: &Self) -> RusTorchResult<Self> {
        let zero = Self::number(name, 0.into(), self.dtype(), None)?;
        Self::apply(name, Where, &[mask, self, &zero])
    }

    /// The sizes of the matrices that the last two dimensions are.
    fn matrices(&self, name: &'static str) -> RusTorchResult<[usize; 2]> {
        let sizes = self.shape().last_chunk().copied();
        Ok(sizes.ok_or_else(|| OpError::new(name, "rank 2 or more", self.ty()))?)
    }

    /// The lower triangle of each matrix of the last two dimensions. It ends at the diagonal that
    /// is `diagonal` to the right of the main one; other elements are 0.
    ///
    /// # Errors
    /// Fails for rank below 2, or a block format.
    pub fn tril(&self, diagonal: impl Integer) -> RusTorchResult<Self> {
        self.triangle_of("tril", false, diagonal.to_isize())
    }

    /// The upper triangle of each matrix of the last two dimensions. It begins at the diagonal that
    /// is `diagonal` to the right of the main one; other elements are 0.
    ///
    /// # Errors
    /// Fails for rank below 2, or a block format.
    pub fn triu(&self, diagonal: impl Integer) -> RusTorchResult<Self> {
        self.triangle_of("triu", true, diagonal.to_isize())
    }

    fn triangle_of(
        &self,
        name: &'static str,
        upper: bool,
        diagonal: isize,
    ) -> RusTorchResult<Self> {
        // What is outside of the matrix is as far as its corners.
        let [rows, columns] = self.matrices(name)?;
        let diagonal = diagonal.clamp(-(rows as isize), columns as isize) as i64;
        Self::apply(name, Triangle { upper, diagonal }, &[self])
    }

    /// Indices of the lower triangle ([`Tensor::tril`]) of a matrix, row by row: rows and columns, `i64` `[2, n]`.
    ///
    /// # Errors
    /// Fails for a matrix whose indices are too large for memory.
    pub fn tril_indices(rows: usize, columns: usize, offset: impl Integer) -> RusTorchResult<Self> {
        let offset = offset.to_isize();
        let count = lower_places(rows, columns, offset as i128);
        Self::triangle("tril_indices", 0..rows, count, |row| {
            let end = (row as isize).saturating_add(offset).saturating_add(1);
            0..usize::try_from(end).unwrap_or(0).min(columns)
        })
    }

    /// Indices of the upper triangle ([`Tensor::triu`]) of a matrix, row by row: rows and columns, `i64` `[2, n]`.
    ///
    /// # Errors
    /// Fails for a matrix whose indices are too large for memory.
    pub fn triu_indices(rows: usize, columns: usize, offset: impl Integer) -> RusTorchResult<Self> {
        let offset = offset.to_isize();
        let below = lower_places(rows, columns, offset as i128 - 1);
        let count = (rows as u128 * columns as u128).saturating_sub(below);
        Self::triangle("triu_indices", 0..rows, count, |row| {
            let start = (row as isize).saturating_add(offset);
            usize::try_from(start).unwrap_or(0).min(columns)..columns
        })
    }

    /// The places in rows, of which there are `count`, by the columns of each row.
    fn triangle(
        name: &'static str,
        rows: std::ops::Range<usize>,
        count: u128,
        columns: impl Fn(usize) -> std::ops::Range<usize>,
    ) -> RusTorchResult<Self> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let mut all = with_room(name, count.saturating_mul(2))?;
        if count > 0 {
            let places = || {
                let rows = rows.clone();
                rows.flat_map(|row| columns(row).map(move |column| (row, column)))
            };
            all.extend(places().map(|(row, _)| row as i64).take(count));
            all.extend(places().map(|(_, column)| column as i64).take(count));
        }
        Self::from_vec(all, [2, count])
    }

    /// The diagonal of a matrix of two dimensions, `offset` to the right of the main one. The
    /// diagonal becomes a new last dimension. A view.
    ///
    /// # Errors
    /// Fails if a dimension does not exist, or both are the same, or for a block format.
    pub fn diagonal(
        &self,
        offset: impl Integer,
        dim1: impl Integer,
        dim2: impl Integer,
    ) -> RusTorchResult<Self> {
        self.diagonal_of(
            "diagonal",
            offset.to_isize(),
            [dim1.to_isize(), dim2.to_isize()],
        )
    }

    fn diagonal_of(
        &self,
        name: &'static str,
        offset: isize,
        dims: [isize; 2],
    ) -> RusTorchResult<Self> {
        let [a, b] = [self.dim(name, dims[0])?, self.dim(name, dims[1])?];
        require(name, a != b, "two dimensions", format_args!("{dims:?}"))?;
        let diagonal = Diagonal::new(self.shape()[a], self.shape()[b], offset);
        self.restrided(name, |layout| {
            let mut out = layout.clone();
            let (shape, strides) = (out.shape.to_mut(), &mut out.strides);
            for dim in [a.max(b), a.min(b)] {
                shape.remove(dim);
                strides.remove(dim);
            }
            shape.push(diagonal.length);
            strides.push(layout.strides[a] + layout.strides[b]);
            if diagonal.length > 0 {
                out.offset +=
                    diagonal.row * layout.strides[a] + diagonal.column * layout.strides[b];
            }
            out
        })
    }

    /// Matrices of two new dimensions `dim1` and `dim2`. Their diagonals, `offset` to the right of the main
    /// one, are the last dimension; 0 elsewhere.
    ///
    /// # Errors
    /// Fails for rank 0, or if a dimension does not exist, or both are the same. Also fails for a
    /// block format.
    pub fn diag_embed(
        &self,
        offset: impl Integer,
        dim1: impl Integer,
        dim2: impl Integer,
    ) -> RusTorchResult<Self> {
        self.on_diagonal(
            "diag_embed",
            offset.to_isize(),
            [dim1.to_isize(), dim2.to_isize()],
        )
    }

    fn on_diagonal(
        &self,
        name: &'static str,
        offset: isize,
        [dim1, dim2]: [isize; 2],
    ) -> RusTorchResult<Self> {
        let rank = self.rank() + 1;
        require(name, self.rank() > 0, "rank 1 or more", self.ty())?;
        let wrap = |dim| rustorch_ir::normalize_dim(name, dim, rank);
        let [a, b] = [wrap(dim1)?, wrap(dim2)?];
        require(
            name,
            a != b,
            "two dimensions",
            format_args!("{dim1} and {dim2}"),
        )?;
        let length = self.shape()[self.rank() - 1];
        let size = length.checked_add(offset.unsigned_abs());
        let overflow = || OpError::new(name, "a matrix that fits", "an overflow");
        let size = size.ok_or_else(overflow)?;
        let embedded = self.along_diagonal(name, [size, size], offset)?;
        let (a, b) = (a as isize, b as isize);
        // Below the main diagonal, rows and columns keep their roles.
        embedded.movedim([-2, -1], [a, b])
    }

    /// Matrices of these sizes with the elements of the last dimension on a diagonal, 0 elsewhere.
    fn along_diagonal(
        &self,
        name: &'static str,
        sizes: [usize; 2],
        offset: isize,
    ) -> RusTorchResult<Self> {
        let along = if offset < 0 { sizes[1] } else { sizes[0] };
        let rest = along - self.shape()[self.rank() - 1];
        // Each element stands in its row, or where the diagonal begins below, in its column.
        let lines = self
            .pad([0, rest as isize], 0)?
            .unsqueeze(if offset < 0 { -2 } else { -1 })?;
        lines.kept_where(name, &places(name, sizes, offset)?)
    }

    /// The matrix with a vector on its diagonal, or a copy of a matrix's diagonal.
    ///
    /// # Errors
    /// Fails for an unsupported rank, or a block format.
    pub fn diag(&self, offset: impl Integer) -> RusTorchResult<Self> {
        let offset = offset.to_isize();
        const NAME: &str = "diag";
        match self.rank() {
            1 => self.on_diagonal(NAME, offset, [0, 1]),
            2 => {
                let diagonal = self.diagonal_of(NAME, offset, [0, 1])?;
                Self::apply(NAME, Contiguous, &[&diagonal])
            }
            _ => Err(OpError::new(NAME, "rank 1 or 2", self.ty()).into()),
        }
    }

    /// The matrix with all elements, in row-major order, on its diagonal.
    ///
    /// # Errors
    /// Fails for a block format.
    pub fn diagflat(&self, offset: impl Integer) -> RusTorchResult<Self> {
        self.ravel()?
            .on_diagonal("diagflat", offset.to_isize(), [0, 1])
    }

    /// The sum of a matrix's diagonal; an `i64` for integers and booleans.
    ///
    /// # Errors
    /// Fails for an unsupported rank, or a block format.
    pub fn trace(&self) -> RusTorchResult<Self> {
        require("trace", self.rank() == 2, "a matrix", self.ty())?;
        self.diagonal_of("trace", 0, [0, 1])?.sum(0, false)
    }

    /// A copy with `source` on its diagonal, converted to this dtype. `source` has the shape of
    /// [`Tensor::diagonal`] with the same arguments.
    ///
    /// # Errors
    /// The same errors as [`Tensor::diagonal`]. Also fails for an unsupported source.
    pub fn diagonal_scatter(
        &self,
        source: &Self,
        offset: impl Integer,
        dim1: impl Integer,
        dim2: impl Integer,
    ) -> RusTorchResult<Self> {
        let offset = offset.to_isize();
        const NAME: &str = "diagonal_scatter";
        let there = self.diagonal_of(NAME, offset, [dim1.to_isize(), dim2.to_isize()])?;
        let source = self.source(NAME, source, there.shape())?;
        if source.numel() == 0 {
            return Self::apply(NAME, Contiguous, &[self]);
        }
        let planes = self.movedim((dim1, dim2), (-2, -1))?;
        let sizes = planes.matrices(NAME)?;
        let embedded = source.along_diagonal(NAME, sizes, offset)?;
        let mask = places(NAME, sizes, offset)?;
        let put = Self::apply(NAME, Where, &[&mask, &embedded, &planes])?;
        put.movedim((-2, -1), (dim1, dim2))
    }
}

/// Counts the places of a matrix in its lower triangle, up to the diagonal that is `offset` to the right.
fn lower_places(rows: usize, columns: usize, offset: i128) -> u128 {
    let (rows, columns) = (rows as i128, columns as i128);
    // Rows before `first` have none, those from `full` on have all.
    let first = (-offset).clamp(0, rows);
    let full = (columns - offset - 1).clamp(first, rows);
    let between = (full - first).saturating_mul(first + full + 2 * offset + 1) / 2;
    between.saturating_add((rows - full).saturating_mul(columns)) as u128
}
