use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::scan::products_before;
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Shape, ValueId};
use smallvec::SmallVec;

/// Elements reduced over some dimensions.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Reduce {
    /// Combination of two elements.
    pub op: ReduceOp,
    /// The dimensions, in ascending order.
    pub dims: SmallVec<[usize; 6]>,
    /// Keep the reduced dimensions with size 1?
    pub keepdim: bool,
}

/// Reductions.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReduceOp {
    /// Sum; an `i64` for integers and booleans, as in PyTorch.
    Sum,
    /// Product; an `i64` for integers and booleans.
    Prod,
    /// Largest element; NaN if one is NaN. For `bool`: any.
    Max,
    /// Smallest element; NaN if one is NaN. For `bool`: all.
    Min,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: &[Self] = &[Self::Sum, Self::Prod, Self::Max, Self::Min];

    /// Returns whether the reduction is defined for elements of `dtype`.
    pub fn accepts(self, dtype: DType) -> bool {
        match self {
            Self::Sum | Self::Prod => dtype.is_arithmetic(),
            Self::Max | Self::Min => dtype.is_arithmetic() && !dtype.is_complex(),
        }
    }

    /// Type of the result for elements of `dtype`.
    pub fn output(self, dtype: DType) -> DType {
        match self {
            Self::Sum | Self::Prod if dtype.is_int() || dtype == DType::Bool => DType::I64,
            _ => dtype,
        }
    }
}

/// The shape of `x` without `dims`, which are in rising order, or with size 1 there.
pub(crate) fn reduced_shape(
    op: &'static str,
    x: &TensorType,
    dims: &[usize],
    keepdim: bool,
) -> Result<Shape, OpError> {
    require_dims(op, x, dims)?;
    let keep = |(d, &size): (usize, &usize)| match dims.contains(&d) {
        true => keepdim.then_some(1),
        false => Some(size),
    };
    Ok(x.shape.iter().enumerate().filter_map(keep).collect())
}

impl Reduce {
    /// For each element of `x` the product of the others that it is combined with, also where some are
    /// 0: of those before and those behind it.
    fn product_of_others(&self, g: &mut Graph, x: ValueId) -> Result<ValueId, OpError> {
        let shape = g.ty(x).shape.clone();
        // The reduced dimensions become the last one.
        let (reduced, others): (Vec<usize>, Vec<usize>) =
            (0..shape.len()).partition(|d| self.dims.contains(d));
        let order = [others, reduced].concat();
        let permuted = g.permute(x, &order)?;
        let moved = g.ty(permuted).shape.clone();
        let size: usize = self.dims.iter().map(|&d| shape[d]).product();
        let rows = moved[..shape.len() - self.dims.len()].iter().product();
        let lines = g.reshape(permuted, [rows, size])?;
        let before = products_before(g, lines, 1)?;
        let reversed = g.flip(lines, 1)?;
        let behind = products_before(g, reversed, 1)?;
        let behind = g.flip(behind, 1)?;
        let product = g.mul(before, behind)?;
        let product = g.reshape(product, moved)?;
        let mut back = order.clone();
        for (to, &from) in order.iter().enumerate() {
            back[from] = to;
        }
        g.permute(product, &back)
    }
}

impl OpDef for Reduce {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn reduces(&self) -> bool {
        true
    }

    fn function(&self) -> Option<&'static str> {
        Some(match self.op {
            ReduceOp::Sum => "sum",
            ReduceOp::Prod => "prod",
            ReduceOp::Max => "amax",
            ReduceOp::Min => "amin",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let expected = "a dtype that it is defined for";
        require(Self::NAME, self.op.accepts(x.dtype), expected, x)?;
        let shape = reduced_shape(Self::NAME, x, &self.dims, self.keepdim)?;
        let empty = self.dims.iter().any(|&d| x.shape[d] == 0);
        let has_identity = matches!(self.op, ReduceOp::Sum | ReduceOp::Prod);
        require(
            Self::NAME,
            has_identity || !empty,
            "at least one element to choose from",
            x,
        )?;
        Ok(smallvec![TensorType {
            shape,
            dtype: self.op.output(x.dtype),
        }])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (x, y) = (node.inputs[0], node.results[0]);
        let ct = node.cotangent(g, 0)?;
        let shape = g.ty(x).shape.clone();
        let kept = reduced_shape(Self::NAME, g.ty(x), &self.dims, true)?;
        let ct = g.reshape(ct, kept.clone())?;
        node.each(g, |g, _| match self.op {
            ReduceOp::Sum => g.broadcast(ct, shape.clone()),
            ReduceOp::Prod => {
                let others = self.product_of_others(g, x)?;
                let others = g.conj(others)?;
                g.mul(ct, others)
            }
            // Equal elements share the gradient, as with `torch.amax`.
            ReduceOp::Max | ReduceOp::Min => {
                let y = g.reshape(y, kept.clone())?;
                let is_extreme = g.compare(CompareOp::Eq, x, y)?;
                let ones = g.cast(is_extreme, g.ty(x).dtype)?;
                let count = Self {
                    op: ReduceOp::Sum,
                    dims: self.dims.clone(),
                    keepdim: true,
                };
                let count = g.push(count, &[ones])?;
                let share = g.div(ct, count)?;
                g.mul(ones, share)
            }
        })
    }
}

impl Named for Reduce {
    const NAME: &'static str = "reduce";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for &op in ReduceOp::ALL {
            for dtype in DType::SCALARS.into_iter().filter(|&d| op.accepts(d)) {
                let fill = match op {
                    // About 1 in magnitude, so that no product overflows.
                    ReduceOp::Prod if dtype.is_complex() => Fill::Uniform(0.6, 0.8),
                    ReduceOp::Prod if !dtype.is_float() => Fill::Ints(1, 3),
                    ReduceOp::Prod => Fill::Uniform(0.8, 1.2),
                    _ => CaseOperand::new([], dtype).fill,
                };
                let mut push = |shape: &[usize], dims: &[usize], keepdim, arrange| {
                    let dims = dims.into();
                    let x = CaseOperand::new(shape, dtype).fill(fill).arrange(arrange);
                    cases.push(Case::new(Self { op, dims, keepdim }, [x]));
                };
                for arrange in ARRANGEMENTS {
                    for dims in [&[0][..], &[1], &[2], &[0, 2], &[0, 1, 2], &[]] {
                        push(&[3, 4, 9], dims, dims.len() == 1, arrange);
                    }
                }
                push(&[], &[], false, ARRANGEMENTS[0]);
                push(&[0, 3], &[1], false, ARRANGEMENTS[0]);
                push(&[2, 1000], &[1], false, ARRANGEMENTS[0]);
                push(&[2, 1024], &[1], false, ARRANGEMENTS[0]);
                if matches!(op, ReduceOp::Sum | ReduceOp::Prod) {
                    push(&[0, 3], &[0], true, ARRANGEMENTS[0]);
                } else if dtype.is_float() {
                    let x = CaseOperand::new([15, 5], dtype).fill(Fill::Special);
                    for dims in [&[0][..], &[1]] {
                        let (dims, keepdim) = (dims.into(), false);
                        cases.push(Case::new(Self { op, dims, keepdim }, [x.clone()]));
                    }
                }
            }
            // Few results of many elements.
            for (shape, dims) in [
                ([2, 9000], &[1][..]),
                ([9000, 3], &[0]),
                ([9000, 3], &[0, 1]),
                ([3000, 40], &[0]),
            ] {
                let x = CaseOperand::new(shape, DType::F32);
                let (dims, keepdim) = (dims.into(), false);
                let x = match op {
                    ReduceOp::Prod => x.fill(Fill::Uniform(0.95, 1.05)),
                    _ => x,
                };
                cases.push(Case::new(Self { op, dims, keepdim }, [x]));
            }
        }
        cases
    }
}
