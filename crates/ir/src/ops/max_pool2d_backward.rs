use smallvec::smallvec;

use super::conv2d::windows;
use super::*;
use crate::case::{ARRANGEMENTS, Case, Fill, Operand};
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId};

/// The gradient of the operand of a [`Pool2d`] for maxima.
///
/// Operands: the places of the maxima `[n, c, h', w']`, `i64`, as the pool gives them: each in its window; and the gradient
/// of the maxima, of that shape, floating point. Result `[n, c, h, w]`: at each place the sum of the gradients of those
/// that are there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MaxPool2dBackward {
    /// Size of a window.
    pub kernel: [usize; 2],
    /// Distance between windows.
    pub stride: [usize; 2],
    /// Rows and columns added on each side.
    pub padding: [usize; 2],
    /// Distance between the elements of a window.
    pub dilation: [usize; 2],
    /// Sides of what has windows: h and w.
    pub sides: [usize; 2],
}

impl OpDef for MaxPool2dBackward {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Convolution)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [index, ct] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, ct)?;
        let is_index = index.dtype == DType::I64 && index.shape == ct.shape;
        let expected = format_args!("places i64{}", ct.shape);
        require(Self::NAME, is_index, expected, index)?;
        require(Self::NAME, ct.rank() == 4, "ct [n, c, h', w']", ct)?;
        let fits = (0..2).all(|i| {
            let count = windows(
                self.sides[i],
                self.kernel[i],
                self.stride[i],
                self.padding[i],
                self.dilation[i],
            );
            count == Some(ct.shape[2 + i]) && self.dilation[i] > 0
        });
        let got = format_args!("{ct}, {self:?}");
        require(Self::NAME, fits, "the gradient of such windows", got)?;
        let [h, w] = self.sides;
        let shape = [ct.shape[0], ct.shape[1], h, w];
        Ok(smallvec![TensorType::new(shape, ct.dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let shape = g.ty(inputs[1]).shape.clone();
        let [h, w] = self.sides;
        let planes = [shape[0], shape[1], shape[2] * shape[3]];
        let index = g.reshape(inputs[0], planes)?;
        let ct = g.reshape(inputs[1], planes)?;
        let plane = [shape[0], shape[1], h * w].into();
        let sums = g.scatter_add(plane, 2, index, ct)?;
        Ok(smallvec![g.reshape(sums, [shape[0], shape[1], h, w])?])
    }
}

impl Named for MaxPool2dBackward {
    const NAME: &'static str = "max_pool2d_backward";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |kernel, stride, padding, dilation, [lo, hi]: [i64; 2], arrange| {
                let op = Self {
                    kernel,
                    stride,
                    padding,
                    dilation,
                    sides: [7, 8],
                };
                let count =
                    |i: usize| windows(op.sides[i], kernel[i], stride[i], padding[i], dilation[i]);
                let (h, w) = (count(0).unwrap_or(0), count(1).unwrap_or(0));
                let ct = Operand::new([2, 16, h, w], dtype).arrange(arrange);
                let index = Operand::new([2, 16, h, w], DType::I64).fill(Fill::Ints(lo, hi));
                cases.push(Case::new(op, [index.arrange(arrange), ct]));
            };
            // Places that all windows see: with any others there are no such maxima.
            for arrange in ARRANGEMENTS {
                push([7, 9], [1, 1], [3, 4], [1, 1], [27, 29], arrange);
            }
            push([5, 6], [2, 2], [1, 1], [1, 1], [27, 29], ARRANGEMENTS[0]);
            push([4, 8], [1, 1], [0, 0], [2, 1], [16, 24], ARRANGEMENTS[0]);
            push([7, 8], [2, 2], [0, 0], [1, 1], [0, 56], ARRANGEMENTS[0]);
        }
        cases
    }
}
