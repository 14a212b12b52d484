//! Short names of nodes, for decompositions.

use smallvec::SmallVec;

use crate::ops::{
    Arange, ArgReduce, Binary, BinaryOp, Cast, Compare, CompareOp, Expand, Flip, Full, Matmul, Pad,
    Permute, Reduce, ReduceOp, Reshape, Scatter, ScatterMode, Slice, Unary, UnaryOp, Where,
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

    /// Zeros of the type of `x`.
    pub fn zeros_like(&mut self, x: ValueId) -> Value {
        let ty = self.ty(x).clone();
        self.full(ty.shape, 0, ty.dtype)
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

    /// An elementwise function.
    pub fn unary(&mut self, op: UnaryOp, x: ValueId) -> Value {
        self.push(Unary { op }, &[x])
    }

    /// A binary function of broadcast operands.
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

    /// `-x`.
    pub fn neg(&mut self, x: ValueId) -> Value {
        self.unary(UnaryOp::Neg, x)
    }

    /// `x²`.
    pub fn square(&mut self, x: ValueId) -> Value {
        self.mul(x, x)
    }

    /// The complex conjugate; nothing is added for real numbers.
    pub fn conj(&mut self, x: ValueId) -> Value {
        match self.ty(x).dtype.is_complex() {
            true => self.unary(UnaryOp::Conj, x),
            false => Ok(x),
        }
    }

    /// The real part; nothing is added for real numbers.
    pub fn real(&mut self, x: ValueId) -> Value {
        match self.ty(x).dtype.is_complex() {
            true => self.unary(UnaryOp::Real, x),
            false => Ok(x),
        }
    }

    /// A comparison of two broadcast operands.
    pub fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> Value {
        self.push(Compare { op }, &[a, b])
    }

    /// `a` if `condition` is true, else `b`.
    pub fn select(&mut self, condition: ValueId, a: ValueId, b: ValueId) -> Value {
        self.push(Where, &[condition, a, b])
    }

    /// The values in another dtype; nothing is added if they have it already.
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

    /// The sum over the dimensions in which `shape` was broadcast to that of `x`. The result has
    /// `shape`; nothing is added if both are equal.
    pub fn sum_to(&mut self, x: ValueId, shape: &Shape) -> Value {
        let from = self.ty(x).shape.clone();
        if from == *shape {
            return Ok(x);
        }
        let new = from.len() - shape.len();
        let is_summed = |&d: &usize| d < new || shape[d - new] != from[d];
        let dims = (0..from.len()).filter(is_summed).collect();
        let sum = Reduce {
            op: ReduceOp::Sum,
            dims,
            keepdim: true,
        };
        let sum = self.push(sum, &[x])?;
        self.reshape(sum, shape.clone())
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

    /// The matrices of the last two dimensions transposed and conjugated.
    pub fn adjoint(&mut self, x: ValueId) -> Value {
        let x = self.transpose(x)?;
        self.conj(x)
    }

    /// A new dimension of size 1 at `dim`.
    pub fn unsqueeze(&mut self, x: ValueId, dim: usize) -> Value {
        let mut shape = self.ty(x).shape.clone();
        shape.to_mut().insert(dim, 1);
        self.reshape(x, shape)
    }

    /// Reverses one dimension.
    pub fn flip(&mut self, x: ValueId, dim: usize) -> Value {
        let dims = [dim].into_iter().collect();
        self.push(Flip { dims }, &[x])
    }

    /// Zeros before and after the indices of one dimension.
    pub fn pad(&mut self, x: ValueId, dim: usize, before: usize, after: usize) -> Value {
        let mut padding: SmallVec<[(usize, usize); 6]> = SmallVec::new();
        padding.resize(self.ty(x).rank(), (0, 0));
        padding[dim] = (before, after);
        let value = Scalar::Int(0);
        self.push(Pad { padding, value }, &[x])
    }

    /// Zeros of `shape` with the elements of `x` added. `index`, of the same shape as `x`, has
    /// their indices along `dim`.
    pub fn scatter_add(&mut self, shape: Shape, dim: usize, index: ValueId, x: ValueId) -> Value {
        let zeros = self.full(shape, 0, self.ty(x).dtype)?;
        let mode = ScatterMode::Add;
        self.push(Scatter { dim, mode }, &[zeros, index, x])
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
