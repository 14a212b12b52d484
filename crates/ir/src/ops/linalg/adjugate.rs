use smallvec::smallvec;

use super::matrices::{Matrices, cases};
use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The adjugate `[…, n, n]` of each matrix `[…, n, n]`, the transposed matrix of its cofactors: the determinant
/// times the inverse, and defined for singular matrices, too.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Adjugate;

impl OpDef for Adjugate {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn is_of_processor(&self) -> bool {
        true
    }

    fn macs(&self, s: &Signature) -> usize {
        Matrices::macs(s) / 3 * 4
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [a] = operands(Self::NAME, inputs)?;
        let a = Matrices::square(Self::NAME, a)?;
        Ok(smallvec![a.matrix(a.rows, a.columns)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    /// Decomposes by `P·A = L·D·U`. The diagonal of `D` is positive. The diagonal of `U` is of modulus 1, or small
    /// and perhaps 0. Nothing is divided by an element of `U`: with `u` its diagonal,
    /// `adj U = diag(Π u before) · (1 + W)⁻¹ · diag(Π u behind)`. `W` is `U` above the diagonal times the products of
    /// `u` between row and column.
    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let TensorType { shape, dtype } = g.ty(inputs[0]).clone();
        let (rank, n) = (shape.len(), shape[shape.len() - 1]);
        if n == 0 {
            return Ok(inputs.into());
        }
        let packed = g.push(Lu { check: false }, inputs)?;
        let signs = matrices::signs(g, packed)?;
        let sizes = sizes(g, packed)?;
        let others = others(g, sizes)?;
        let upper = matrices::triangle(g, packed, true, 0)?;
        let rows = g.cast(sizes, dtype)?;
        let rows = g.unsqueeze(rows, rank - 1)?;
        let upper = g.div(upper, rows)?;
        let diagonal = matrices::diagonal_of(g, upper)?;
        let [before, between, behind] = products(g, diagonal)?;
        let w = g.mul(upper, between)?;

        // L⁻¹·P, its rows times the products behind and those of D.
        let one = g.constant(1, dtype)?;
        let one = g.broadcast(one, shape)?;
        let one = matrices::diagonal_alone(g, one)?;
        let exchanged = matrices::exchanged(g, packed, one)?;
        let lower = SolveTriangular {
            upper: false,
            unitriangular: true,
        };
        let x = g.push(lower, &[packed, exchanged])?;
        let others = g.cast(others, dtype)?;
        let factors = g.mul(behind, others)?;
        let sign = g.reduce(ReduceOp::Prod, signs, rank - 2)?;
        let factors = g.mul(factors, sign)?;
        let factors = g.unsqueeze(factors, rank - 1)?;
        let x = g.mul(x, factors)?;
        let raised = SolveTriangular {
            upper: true,
            unitriangular: true,
        };
        let x = g.push(raised, &[w, x])?;
        let before = g.unsqueeze(before, rank - 1)?;
        Ok(smallvec![g.mul(x, before)?])
    }

    /// With `A = U·S·Vᴴ` and `α = det U · det Vᴴ` it is `α·V·adj(S)·Uᴴ`. A change of one diagonal element of `S`
    /// changes all others of `adj(S)`, by the product of the rest. A change beside the diagonal changes
    /// the same element, by that product with its sign turned.
    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let a = node.inputs[0];
        let TensorType { shape, dtype } = g.ty(a).clone();
        let (rank, n) = (shape.len(), shape[shape.len() - 1]);
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, _| {
            if n == 0 {
                return g.zeros_like(a);
            }
            let vectors = SvdVectors::Reduced;
            let u = g.push(Svd { vectors }, &[a])?;
            let (s, vh) = (g.results(u)[1], g.results(u)[2]);
            let [before, between, behind] = products(g, s)?;
            let before = g.unsqueeze(before, rank - 1)?;
            let behind = g.unsqueeze(behind, rank - 2)?;
            let neither = g.mul(before, between)?;
            let neither = g.mul(neither, behind)?;
            let neither = matrices::triangle(g, neither, true, 1)?;
            let mirrored = g.transpose(neither)?;
            let neither = g.add(neither, mirrored)?;
            let neither = g.cast(neither, dtype)?;

            let inner = g.matmul(vh, ct)?;
            let inner = g.matmul(inner, u)?;
            let diagonal = matrices::diagonal_of(g, inner)?;
            let diagonal = g.unsqueeze(diagonal, rank - 1)?;
            let along = g.matmul(neither, diagonal)?;
            let along = g.reshape(along, &shape[..rank - 1])?;
            let along = matrices::diagonal(g, along)?;
            let beside = g.mul(neither, inner)?;
            let inner = g.sub(along, beside)?;

            let [left, right] = [u, vh].map(|x| g.push(Determinant, &[x]));
            let phase = g.mul(left?, right?)?;
            let phase = g.conj(phase)?;
            let phase = matrices::for_each_element(g, phase)?;
            let inner = g.mul(inner, phase)?;
            let left = g.matmul(u, inner)?;
            g.matmul(left, vh)
        })
    }
}

impl Named for Adjugate {
    const NAME: &'static str = "adjugate";

    fn cases() -> Vec<Case> {
        cases([Self], Fill::Dominant, |[m, n]| m == n)
    }
}

/// Divisors of the rows of `U`, by which products of the diagonal stay in range. Each is the modulus of the diagonal
/// element, or of the largest one where that is far larger. It is 1 where all are 0.
fn sizes(g: &mut Graph, packed: ValueId) -> Result<ValueId, OpError> {
    let TensorType { shape, dtype } = g.ty(packed).clone();
    let rank = shape.len();
    let moduli = g.unary(UnaryOp::Abs, packed)?;
    let diagonal = matrices::diagonal_of(g, moduli)?;
    let upper = matrices::triangle(g, moduli, true, 0)?;
    let largest = g.reduce(ReduceOp::Max, upper, rank - 1)?;
    let largest = g.reshape(largest, &shape[..rank - 1])?;
    let epsilon = match dtype.real() {
        DType::F64 => f64::EPSILON,
        _ => f64::from(f32::EPSILON),
    };
    let bound = g.mul_scalar(largest, epsilon)?;
    let counts = g.compare(CompareOp::Ge, diagonal, bound)?;
    let sizes = g.select(counts, diagonal, largest)?;
    matrices::or_one(g, sizes)
}

/// The product of all other elements, for each of `x` `[…, n]`.
fn others(g: &mut Graph, x: ValueId) -> Result<ValueId, OpError> {
    let TensorType { shape, dtype } = g.ty(x).clone();
    let rank = shape.len();
    let columns = g.unsqueeze(x, rank - 1)?;
    let one = g.constant(1, dtype)?;
    let is_diagonal = matrices::on_diagonal(g, shape[rank - 1])?;
    let others = g.select(is_diagonal, one, columns)?;
    matrices::reduced(g, ReduceOp::Prod, others)
}

/// Products of the elements of `x` `[…, n]`, n at least 1. The first are of those before each `[…, n]`. The second
/// are of those between row and column `[…, n, n]`, 1 below the diagonal. The third are of those behind each
/// `[…, n]`.
fn products(g: &mut Graph, x: ValueId) -> Result<[ValueId; 3], OpError> {
    let TensorType { shape, dtype } = g.ty(x).clone();
    let (rank, n) = (shape.len(), shape[shape.len() - 1]);
    let one = g.constant(1, dtype)?;
    let columns = g.arange(n, DType::I64)?;
    let rows = g.reshape(columns, [n, 1])?;
    let op = ScanOp::Prod;
    // Each element's place is that of the next.
    let moved = |g: &mut Graph, x| {
        let x = g.slice(x, rank - 1, 0, n - 1)?;
        g.pad(x, rank - 1, 1, 0)
    };
    let before = |g: &mut Graph, x| {
        let moved = moved(g, x)?;
        let first = g.constant(0, DType::I64)?;
        let is_first = g.compare(CompareOp::Eq, columns, first)?;
        let factors = g.select(is_first, one, moved)?;
        g.push(Scan { op, dim: rank - 1 }, &[factors])
    };
    let reversed = g.flip(x, rank - 1)?;
    let behind = before(g, reversed)?;
    let behind = g.flip(behind, rank - 1)?;

    let moved = moved(g, x)?;
    let moved = g.unsqueeze(moved, rank - 1)?;
    let next = g.add_scalar(rows, 1.0)?;
    let is_between = g.compare(CompareOp::Gt, columns, next)?;
    let factors = g.select(is_between, moved, one)?;
    let between = g.push(Scan { op, dim: rank }, &[factors])?;
    Ok([before(g, x)?, between, behind])
}
