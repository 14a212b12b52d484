use smallvec::smallvec;

use super::conv2d::windows;
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, ValueId};

/// The gradient of the operand of a [`Pool2d`] for maxima.
///
/// Operands: the places of the maxima `[n, c, h', w']`, `i64` or `u8`, as the pool gives them, see [`PoolIndices`]; and the
/// gradient of the maxima, of that shape, floating point. Result `[n, c, h, w]`: at each place the sum of the gradients of those
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
    /// Sides of the operand with windows: h and w.
    pub sides: [usize; 2],
}

impl MaxPool2dBackward {
    fn narrowest(&self) -> PoolIndices {
        PoolIndices::narrowest(self.kernel, self.dilation)
    }

    /// Places of maxima as numbers of elements of planes.
    fn in_planes(&self, g: &mut Graph, index: ValueId) -> Result<ValueId, OpError> {
        let TensorType { shape, dtype } = g.ty(index).clone();
        if dtype == DType::I64 {
            return Ok(index);
        }
        let width = self.sides[1] as f64;
        // Places at which windows begin, which may be in the padding.
        let mut first = |i: usize, shape: [usize; 2], step: f64| {
            let at = g.arange(shape[i], DType::I64)?;
            let at = g.mul_scalar(at, self.stride[i] as f64 * step)?;
            let at = g.add_scalar(at, -(self.padding[i] as f64) * step)?;
            g.reshape(at, shape)
        };
        let row = first(0, [shape[2], 1], width)?;
        let column = first(1, [1, shape[3]], 1.0)?;
        let first = g.add(row, column)?;
        // Element i of a window is i + (i div its width) · (the plane's width - its width) further.
        let index = g.cast(index, DType::I64)?;
        let columns = g.constant(self.kernel[1] as f64, DType::I64)?;
        let line = g.binary(BinaryOp::FloorDivide, index, columns)?;
        let line = g.mul_scalar(line, width - self.kernel[1] as f64)?;
        let index = g.add(index, line)?;
        g.add(index, first)
    }
}

impl OpDef for MaxPool2dBackward {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Convolution)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [index, ct] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, ct)?;
        let is_index = [PoolIndices::Plane, self.narrowest()]
            .iter()
            .any(|indices| indices.dtype() == index.dtype);
        let expected = format_args!("places i64{}, or u8 in windows of fewer than 256", ct.shape);
        let fits = is_index && index.shape == ct.shape;
        require(Self::NAME, fits, expected, index)?;
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
        let index = self.in_planes(g, inputs[0])?;
        let index = g.reshape(index, planes)?;
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
            let mut push =
                |kernel, stride, padding, dilation, places, [lo, hi]: [i64; 2], arrange| {
                    // Rows that are whole vectors, and others.
                    let sides = if places == DType::I64 { [7, 8] } else { [8, 7] };
                    let op = Self {
                        kernel,
                        stride,
                        padding,
                        dilation,
                        sides,
                    };
                    let count = |i: usize| {
                        windows(op.sides[i], kernel[i], stride[i], padding[i], dilation[i])
                    };
                    let (h, w) = (count(0).unwrap_or(0), count(1).unwrap_or(0));
                    let ct = CaseOperand::new([2, 16, h, w], dtype).arrange(arrange);
                    let index = CaseOperand::new([2, 16, h, w], places).fill(Fill::Ints(lo, hi));
                    cases.push(Case::new(op, [index.arrange(arrange), ct]));
                };
            // Places that all windows see: with any others there are no such maxima.
            let plane = DType::I64;
            for arrange in ARRANGEMENTS {
                push([7, 9], [1, 1], [3, 4], [1, 1], plane, [27, 29], arrange);
            }
            let [contiguous, ..] = ARRANGEMENTS;
            push([5, 6], [2, 2], [1, 1], [1, 1], plane, [27, 29], contiguous);
            push([4, 8], [1, 1], [0, 0], [2, 1], plane, [16, 24], contiguous);
            push([7, 8], [2, 2], [0, 0], [1, 1], plane, [0, 56], contiguous);
            // Elements of windows that are in the plane, of all windows.
            let window = DType::U8;
            for arrange in ARRANGEMENTS {
                push([3, 3], [2, 2], [1, 1], [1, 1], window, [4, 5], arrange);
            }
            push([2, 3], [1, 2], [0, 0], [1, 1], window, [0, 6], contiguous);
            push([2, 2], [3, 3], [0, 0], [1, 1], window, [0, 4], contiguous);
            push([3, 2], [1, 1], [1, 0], [1, 1], window, [2, 4], contiguous);
        }
        cases
    }
}
