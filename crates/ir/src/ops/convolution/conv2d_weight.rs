use smallvec::smallvec;

use super::conv2d::{cut, windows};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// The gradient of a convolution's weight: `torch.nn.grad.conv2d_weight`.
///
/// Operands: the convolution's `x` `[n, c, h, w]`, and the gradient of its result, `[n, o, h', w']`; one
/// floating-point dtype. Result `[o, c / groups, kh, kw]`: the sums over all windows of their elements times their
/// gradients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Conv2dWeight {
    /// The convolution.
    pub conv: Conv2d,
    /// Sides of a window.
    pub kernel: [usize; 2],
}

impl OpDef for Conv2dWeight {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Convolution)
    }

    fn macs(&self, s: &Signature) -> usize {
        s.inputs[1].shape.elements() * s.output().shape[1..].iter().product::<usize>()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x, ct] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        require_same(Self::NAME, x, ct)?;
        let got = format_args!("{x} and {ct}, {self:?}");
        let ranks = x.rank() == 4 && ct.rank() == 4;
        require(Self::NAME, ranks, "operands of rank 4", got)?;
        let conv = &self.conv;
        let fits = |i: usize| {
            let side = windows(
                x.shape[2 + i],
                self.kernel[i],
                conv.stride[i],
                conv.padding[i],
                conv.dilation[i],
            );
            side == Some(ct.shape[2 + i]) && conv.dilation[i] > 0
        };
        let grouped = conv.groups > 0
            && x.shape[1].is_multiple_of(conv.groups)
            && ct.shape[1].is_multiple_of(conv.groups);
        let fits = grouped && x.shape[0] == ct.shape[0] && fits(0) && fits(1);
        let expected = "the gradient of the result of such a convolution of x";
        require(Self::NAME, fits, expected, got)?;
        let [kh, kw] = self.kernel;
        let shape = [ct.shape[1], x.shape[1] / conv.groups, kh, kw];
        Ok(smallvec![TensorType::new(shape, x.dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    /// A convolution of the operand by the result's gradient. Batch and channels change places, and so do stride
    /// and dilation.
    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let groups = self.conv.groups;
        let mut by_group = |v: ValueId, order: [usize; 5]| {
            let [n, c, h, w] = [0, 1, 2, 3].map(|d| g.ty(v).shape[d]);
            let split = g.reshape(v, [n, groups, c / groups, h, w])?;
            Ok::<_, OpError>((g.permute(split, &order)?, n, c / groups, [h, w]))
        };
        let (x, n, channels, [h, w]) = by_group(inputs[0], [2, 1, 0, 3, 4])?;
        let (ct, _, outputs, [kh, kw]) = by_group(inputs[1], [1, 2, 0, 3, 4])?;
        let x = g.reshape(x, [channels, groups * n, h, w])?;
        let ct = g.reshape(ct, [groups * outputs, n, kh, kw])?;
        let conv = Conv2d {
            stride: self.conv.dilation,
            padding: self.conv.padding,
            dilation: self.conv.stride,
            groups,
        };
        let gradient = g.push(conv, &[x, ct])?;
        let gradient = g.permute(gradient, &[1, 0, 2, 3])?;
        Ok(smallvec![cut(g, gradient, self.kernel)?])
    }
}

impl Named for Conv2dWeight {
    const NAME: &'static str = "conv2d_weight";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push =
                |conv: &Conv2d, [n, c, h, w]: [usize; 4], o, kernel: [usize; 2], arrange| {
                    let side = |i: usize, size| {
                        let [stride, padding, dilation] =
                            [conv.stride[i], conv.padding[i], conv.dilation[i]];
                        windows(size, kernel[i], stride, padding, dilation).unwrap_or(0)
                    };
                    let op = Self {
                        conv: conv.clone(),
                        kernel,
                    };
                    let x = CaseOperand::new([n, c, h, w], dtype).arrange(arrange);
                    let ct =
                        CaseOperand::new([n, o, side(0, h), side(1, w)], dtype).arrange(arrange);
                    cases.push(Case::new(op, [x, ct]));
                };
            let whole = ARRANGEMENTS[0];
            for stride in [[1, 1], [2, 3]] {
                for padding in [[0, 0], [1, 2]] {
                    for dilation in [[1, 1], [2, 1]] {
                        for groups in [1, 2] {
                            let conv = Conv2d {
                                stride,
                                padding,
                                dilation,
                                groups,
                            };
                            push(&conv, [2, 4, 9, 8], 6, [3, 2], whole);
                        }
                    }
                }
            }
            for arrange in ARRANGEMENTS {
                push(&Conv2d::default(), [2, 3, 5, 5], 4, [2, 2], arrange);
            }
            // Many channels, and windows in more than one block.
            let padded = Conv2d {
                padding: [1, 1],
                ..Conv2d::default()
            };
            push(&padded, [2, 3, 18, 17], 40, [3, 3], whole);
            push(&Conv2d::default(), [2, 7, 4, 4], 70, [1, 1], whole);
            // Few channels of many pixels, as first layers have them.
            for (padding, kernel) in [([3, 3], [7, 7]), ([0, 0], [2, 4]), ([1, 2], [3, 5])] {
                let conv = Conv2d {
                    stride: [2, 2],
                    padding,
                    ..Conv2d::default()
                };
                push(&conv, [2, 3, 12, 15], 16, kernel, whole);
            }
            push(&Conv2d::default(), [0, 3, 6, 6], 5, [3, 3], whole);
        }
        cases
    }
}
