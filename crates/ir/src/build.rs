//! Short names for the nodes that decompositions are written in.

use crate::ops::{
    Arange, ArgReduce, Binary, BinaryOp, Cast, Compare, CompareOp, Expand, Full, Matmul, Permute,
    Reduce, ReduceOp, Reshape, Slice, Unary, UnaryOp, Where,
};
use crate::{DType, Graph, OpError, Scalar, Shape, ValueId};

type Value = Result<ValueId, OpError>;

/// Each method appends one node; see the operation of the same name.
impl Graph {
    /// A rank-0 constant.
    pub fn constant(&mut self, value: impl Into<Scalar>, dtype: DType) -> Value {
        self.full(Shape::default(), value, dtype)
    }

    /// A tensor of one value.
    pub fn full(&mut self, shape: Shape, value: impl Into<Scalar>, dtype: DType) -> Value {
        let value = value.into();
        self.push(
            Full {
                shape,
                value,
                dtype,
            },
            &[],
        )
    }

    /// `0, 1, 2, …` up to `len`.
    pub fn arange(&mut self, len: usize, dtype: DType) -> Value {
        let (start, step) = (Scalar::Int(0), Scalar::Int(1));
        self.push(
            Arange {
                start,
                step,
                len,
                dtype,
            },
            &[],
        )
    }

    /// A function of each element.
    pub fn unary(&mut self, op: UnaryOp, x: ValueId) -> Value {
        self.push(Unary { op }, &[x])
    }

    /// A function of two broadcast operands.
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> Value {
        self.push(Binary { op }, &[a, b])
    }

    /// `a + b`.
    pub fn add(&mut self, a: ValueId, b: ValueId) -> Value {
        self.binary(BinaryOp::Add, a, b)
    }

    /// `a - b`.
    pub fn sub(&mut self, a: ValueId, b: ValueId) -> Value {
        self.binary(BinaryOp::Sub, a, b)
    }

    /// `a * b`.
    pub fn mul(&mut self, a: ValueId, b: ValueId) -> Value {
        self.binary(BinaryOp::Mul, a, b)
    }

    /// `a / b`.
    pub fn div(&mut self, a: ValueId, b: ValueId) -> Value {
        self.binary(BinaryOp::Div, a, b)
    }

    /// `a + value` in `a`'s dtype.
    pub fn add_scalar(&mut self, a: ValueId, value: f64) -> Value {
        let c = self.constant(value, self.ty(a).dtype)?;
        self.add(a, c)
    }

    /// `a * value` in `a`'s dtype.
    pub fn mul_scalar(&mut self, a: ValueId, value: f64) -> Value {
        let c = self.constant(value, self.ty(a).dtype)?;
        self.mul(a, c)
    }

    /// A comparison of two broadcast operands.
    pub fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> Value {
        self.push(Compare { op }, &[a, b])
    }

    /// `a` where `condition`, else `b`.
    pub fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Value {
        self.push(Where, &[condition, a, b])
    }

    /// The values in another dtype; nothing is added where they have it already.
    pub fn cast(&mut self, x: ValueId, dtype: DType) -> Value {
        if self.ty(x).dtype == dtype {
            return Ok(x);
        }
        self.push(Cast { dtype }, &[x])
    }

    /// A reduction over one dimension, which is kept with size 1.
    pub fn reduce(&mut self, op: ReduceOp, x: ValueId, dim: usize) -> Value {
        let dims = [dim].into_iter().collect();
        self.push(
            Reduce {
                op,
                dims,
                keepdim: true,
            },
            &[x],
        )
    }

    /// The mean over one dimension, which is kept with size 1.
    pub fn mean(&mut self, x: ValueId, dim: usize) -> Value {
        let n = self.ty(x).shape[dim] as f64;
        let sum = self.reduce(ReduceOp::Sum, x, dim)?;
        let n = self.constant(n, self.ty(x).dtype)?;
        self.div(sum, n)
    }

    /// Index of the largest or smallest element over one dimension, which is dropped.
    pub fn arg_reduce(&mut self, largest: bool, x: ValueId, dim: usize) -> Value {
        let op = ArgReduce {
            largest,
            dim,
            values: false,
        };
        self.push(op, &[x])
    }

    /// Another shape, same elements.
    pub fn reshape(&mut self, x: ValueId, shape: impl Into<Shape>) -> Value {
        let shape = shape.into();
        self.push(Reshape { shape }, &[x])
    }

    /// Another order of dimensions.
    pub fn permute(&mut self, x: ValueId, dims: &[usize]) -> Value {
        let dims = dims.iter().copied().collect();
        self.push(Permute { dims }, &[x])
    }

    /// The last two dimensions exchanged.
    pub fn transpose(&mut self, x: ValueId) -> Value {
        let rank = self.ty(x).rank();
        let mut dims: Vec<usize> = (0..rank).collect();
        dims.swap(rank - 2, rank - 1);
        self.permute(x, &dims)
    }

    /// Broadcast to `shape`.
    pub fn broadcast(&mut self, x: ValueId, shape: impl Into<Shape>) -> Value {
        let shape = shape.into();
        self.push(Expand { shape }, &[x])
    }

    /// `start..end` of one dimension.
    pub fn slice(&mut self, x: ValueId, dim: usize, start: usize, end: usize) -> Value {
        self.push(
            Slice {
                dim,
                start,
                end,
                step: 1,
            },
            &[x],
        )
    }

    /// Batched matrix product.
    pub fn matmul(&mut self, a: ValueId, b: ValueId) -> Value {
        self.push(Matmul, &[a, b])
    }
}
