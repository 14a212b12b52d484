//! Common parts of operations on batches of matrices.

use super::{Lu, LuPivotsToPermutation, SolveTriangular};
use crate::case::{Case, CaseOperand, Fill};
use crate::ops::{CompareOp, Gather, ReduceOp, Triangle, require};
use crate::{DType, Graph, Op, OpError, Shape, Signature, TensorType, ValueId};

type Value = Result<ValueId, OpError>;

/// Matrices `[…, rows, columns]`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Matrices {
    /// The dimensions before those of a matrix.
    pub(crate) batch: Shape,
    /// Rows of each.
    pub(crate) rows: usize,
    /// Columns of each.
    pub(crate) columns: usize,
    /// Their elements.
    pub(crate) dtype: DType,
}

impl Matrices {
    /// The dtypes that matrices can be factorised in.
    pub(crate) const DTYPES: [DType; 4] =
        [DType::F32, DType::F64, DType::Complex64, DType::Complex128];

    /// An operand as matrices.
    pub(crate) fn of(op: &'static str, x: &TensorType) -> Result<Self, OpError> {
        require(op, x.rank() >= 2, "matrices: a tensor of rank 2 or more", x)?;
        let expected = "elements of f32, f64, complex64 or complex128";
        require(op, Self::DTYPES.contains(&x.dtype), expected, x)?;
        let (batch, matrix) = x.shape.split_at(x.rank() - 2);
        Ok(Self {
            batch: batch.into(),
            rows: matrix[0],
            columns: matrix[1],
            dtype: x.dtype,
        })
    }

    /// An operand as square matrices.
    pub(crate) fn square(op: &'static str, x: &TensorType) -> Result<Self, OpError> {
        let found = Self::of(op, x)?;
        require(op, found.rows == found.columns, "square matrices", x)?;
        Ok(found)
    }

    /// The smaller of the two sizes.
    pub(crate) fn smaller(&self) -> usize {
        self.rows.min(self.columns)
    }

    /// The type of a matrix for each of these.
    pub(crate) fn matrix(&self, rows: usize, columns: usize) -> TensorType {
        let matrix = [rows, columns];
        let shape: Shape = self.batch.iter().copied().chain(matrix).collect();
        TensorType::new(shape, self.dtype)
    }

    /// The type of a vector for each of these.
    pub(crate) fn vector(&self, size: usize, dtype: DType) -> TensorType {
        let shape: Shape = self.batch.iter().copied().chain([size]).collect();
        TensorType::new(shape, dtype)
    }

    /// The type of a number for each of these.
    pub(crate) fn scalar(&self, dtype: DType) -> TensorType {
        TensorType::new(self.batch.clone(), dtype)
    }

    /// `m · n · min(m, n)` of the first operand's matrices together, which factorisations take a
    /// multiple of.
    pub(crate) fn macs(signature: &Signature) -> usize {
        let shape = &signature.inputs[0].shape;
        let smaller = shape.iter().rev().take(2).min().map_or(0, |&size| size);
        shape.elements().saturating_mul(smaller)
    }
}

/// A triangle of matrices, see [`Triangle`].
pub(crate) fn triangle(g: &mut Graph, x: ValueId, upper: bool, diagonal: i64) -> Value {
    g.push(Triangle { upper, diagonal }, &[x])
}

/// Is an element on the diagonal? `bool` `[n, n]`.
pub(crate) fn on_diagonal(g: &mut Graph, n: usize) -> Value {
    let columns = g.arange(n, DType::I64)?;
    let rows = g.reshape(columns, [n, 1])?;
    g.compare(CompareOp::Eq, rows, columns)
}

/// Matrices `[…, n, n]` with `x` `[…, n]` on the diagonal and 0 elsewhere.
pub(crate) fn diagonal(g: &mut Graph, x: ValueId) -> Value {
    let TensorType { shape, dtype } = g.ty(x).clone();
    let is_diagonal = on_diagonal(g, shape[shape.len() - 1])?;
    let rows = g.unsqueeze(x, shape.len())?;
    let zero = g.constant(0, dtype)?;
    g.select(is_diagonal, rows, zero)
}

/// Matrices with 0 beside the diagonal.
pub(crate) fn diagonal_alone(g: &mut Graph, x: ValueId) -> Value {
    let TensorType { shape, dtype } = g.ty(x).clone();
    let is_diagonal = on_diagonal(g, shape[shape.len() - 1])?;
    let zero = g.constant(0, dtype)?;
    g.select(is_diagonal, x, zero)
}

/// The diagonal `[…, n]` of matrices `[…, n, n]`.
pub(crate) fn diagonal_of(g: &mut Graph, x: ValueId) -> Value {
    let alone = diagonal_alone(g, x)?;
    reduced(g, ReduceOp::Sum, alone)
}

/// Reduces the last dimension, which is left out.
pub(crate) fn reduced(g: &mut Graph, op: ReduceOp, x: ValueId) -> Value {
    let shape = g.ty(x).shape.clone();
    let last = shape.len() - 1;
    let reduced = g.reduce(op, x, last)?;
    g.reshape(reduced, &shape[..last])
}

/// A number for each matrix `[…]`, as it is multiplied with matrices: `[…, 1, 1]`.
pub(crate) fn for_each_element(g: &mut Graph, x: ValueId) -> Value {
    let rank = g.ty(x).rank();
    let x = g.unsqueeze(x, rank)?;
    g.unsqueeze(x, rank)
}

/// 1 in place of 0.
pub(crate) fn or_one(g: &mut Graph, x: ValueId) -> Value {
    let dtype = g.ty(x).dtype;
    let (zero, one) = (g.constant(0, dtype)?, g.constant(1, dtype)?);
    let is_zero = g.compare(CompareOp::Eq, x, zero)?;
    g.select(is_zero, one, x)
}

/// Matrices with 0 on the diagonal.
pub(crate) fn without_diagonal(g: &mut Graph, x: ValueId) -> Value {
    let TensorType { shape, dtype } = g.ty(x).clone();
    let is_diagonal = on_diagonal(g, shape[shape.len() - 1])?;
    let zero = g.constant(0, dtype)?;
    g.select(is_diagonal, zero, x)
}

/// `xⱼ - xᵢ` of `x` `[…, n]` for row i and column j, and 1 on the diagonal.
pub(crate) fn differences(g: &mut Graph, x: ValueId) -> Value {
    let TensorType { shape, dtype } = g.ty(x).clone();
    let rows = g.unsqueeze(x, shape.len())?;
    let columns = g.unsqueeze(x, shape.len() - 1)?;
    let differences = g.sub(columns, rows)?;
    let is_diagonal = on_diagonal(g, shape[shape.len() - 1])?;
    let one = g.constant(1, dtype)?;
    g.select(is_diagonal, one, differences)
}

/// The sign of each exchange `[…, k]` that an [`Lu`], whose first result is given, makes: −1, or 1 where a row stays.
pub(crate) fn signs(g: &mut Graph, packed: ValueId) -> Value {
    let (dtype, pivots) = (g.ty(packed).dtype, g.results(packed)[1]);
    let count = g.ty(pivots).shape.last().map_or(0, |&count| count);
    let rows = g.arange(count, DType::I32)?;
    let numbers = g.add_scalar(rows, 1.0)?;
    let stays = g.compare(CompareOp::Eq, pivots, numbers)?;
    let (plus, minus) = (g.constant(1, dtype)?, g.constant(-1, dtype)?);
    g.select(stays, plus, minus)
}

/// The rows of `b` as an [`Lu`], whose first result is given, exchanged those of its matrix.
pub(crate) fn exchanged(g: &mut Graph, packed: ValueId, b: ValueId) -> Value {
    let pivots = g.results(packed)[1];
    let shape = g.ty(b).shape.clone();
    let rank = shape.len();
    let rows = shape[rank - 2];
    let order = g.push(LuPivotsToPermutation { rows }, &[pivots])?;
    let order = g.unsqueeze(order, rank - 1)?;
    let order = g.broadcast(order, shape)?;
    g.push(Gather { dim: rank - 2 }, &[b, order])
}

/// Solves `A·X = B` for matrices of the same leading dimensions.
pub(crate) fn solve(g: &mut Graph, a: ValueId, b: ValueId) -> Value {
    let packed = g.push(Lu { check: false }, &[a])?;
    let mut x = exchanged(g, packed, b)?;
    for upper in [false, true] {
        let unitriangular = !upper;
        let solve = SolveTriangular {
            upper,
            unitriangular,
        };
        x = g.push(solve, &[packed, x])?;
    }
    Ok(x)
}

/// Cases of factorisations: the sizes of matrices that `fits` admits.
pub(crate) fn cases<T: Into<Op> + Clone>(
    ops: impl IntoIterator<Item = T>,
    fill: Fill,
    fits: impl Fn([usize; 2]) -> bool,
) -> Vec<Case> {
    let shapes: [&[usize]; 8] = [
        &[1, 1],
        &[5, 5],
        &[2, 3, 4, 4],
        &[7, 4],
        &[3, 6],
        &[0, 0],
        &[2, 0, 3],
        &[0, 3, 3],
    ];
    let fits = |shape: &&[usize]| fits([shape[shape.len() - 2], shape[shape.len() - 1]]);
    let mut cases = Vec::new();
    for op in ops {
        for dtype in Matrices::DTYPES {
            let x = |shape: &[usize]| CaseOperand::new(shape, dtype).fill(fill);
            for shape in shapes.into_iter().filter(fits) {
                cases.push(Case::new(op.clone(), [x(shape)]));
            }
        }
    }
    cases
}
