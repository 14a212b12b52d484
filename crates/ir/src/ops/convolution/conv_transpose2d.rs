use super::conv2d::{channel_sums, cut, require_conv};
use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature};

/// Transposed 2-D convolution: `torch.nn.functional.conv_transpose2d`.
///
/// Operands: `x` `[n, c, h, w]`; `weight` `[c, o / groups, kh, kw]`; optionally `bias` `[o]`;
/// one floating-point dtype. Result `[n, o, h', w']` with
/// `h' = (h - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ConvTranspose2d {
    /// Distance between the windows of neighbouring inputs.
    pub stride: [usize; 2],
    /// Rows and columns cut from each side of the result.
    pub padding: [usize; 2],
    /// Rows and columns added at the end of the result; fewer than stride or dilation.
    pub output_padding: [usize; 2],
    /// Distance between the elements of a window.
    pub dilation: [usize; 2],
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl Default for ConvTranspose2d {
    fn default() -> Self {
        Self {
            stride: [1; 2],
            padding: [0; 2],
            output_padding: [0; 2],
            dilation: [1; 2],
            groups: 1,
        }
    }
}

impl ConvTranspose2d {
    fn side(&self, i: usize, size: usize, kernel: usize) -> Option<usize> {
        let spread = size.checked_sub(1)?.checked_mul(self.stride[i])?;
        let reach = self.dilation[i].checked_mul(kernel.checked_sub(1)?)?;
        let extra = self.output_padding[i].checked_add(1)?;
        (spread.checked_add(reach)?.checked_add(extra)?)
            .checked_sub(self.padding[i].checked_mul(2)?)
            .filter(|&size| size > 0 && self.stride[i] > 0 && self.dilation[i] > 0)
            .filter(|_| self.output_padding[i] < self.stride[i].max(self.dilation[i]))
    }
}

impl OpDef for ConvTranspose2d {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Convolution)
    }

    fn macs(&self, s: &Signature) -> usize {
        s.inputs[0].shape.elements() * s.inputs[1].shape[1..].iter().product::<usize>()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        require_conv(Self::NAME, inputs, |w| {
            w.shape[1].saturating_mul(self.groups)
        })?;
        let (x, w) = (inputs[0], inputs[1]);
        let got = format_args!("{x} and {w} in {} groups", self.groups);
        let channels = w.shape[1].checked_mul(self.groups);
        let grouped =
            self.groups > 0 && w.shape[0] == x.shape[1] && x.shape[1].is_multiple_of(self.groups);
        let (true, Some(channels)) = (grouped, channels) else {
            let expected = "weight [c, o / groups, kh, kw] for x [n, c, h, w]";
            return Err(OpError::new(Self::NAME, expected, got));
        };
        let side = |i: usize| self.side(i, x.shape[2 + i], w.shape[2 + i]);
        let (Some(h), Some(width)) = (side(0), side(1)) else {
            let expected = "a result of at least one element, output_padding < stride or dilation";
            return Err(OpError::new(
                Self::NAME,
                expected,
                format!("{got}, {self:?}"),
            ));
        };
        Ok(smallvec![TensorType::new(
            [x.shape[0], channels, h, width],
            x.dtype
        )])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        // The gradient of a transposed convolution is a convolution with the same options.
        let conv = Conv2d {
            stride: self.stride,
            padding: self.padding,
            dilation: self.dilation,
            groups: self.groups,
        };
        let sides = [2, 3].map(|d| g.ty(x).shape[d]);
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, i| match i {
            0 => {
                let x = g.push(conv.clone(), &[ct, weight])?;
                cut(g, x, sides)
            }
            1 => conv.weight_gradient(g, ct, x, weight),
            _ => channel_sums(g, ct),
        })
    }
}

impl Named for ConvTranspose2d {
    const NAME: &'static str = "conv_transpose2d";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            for (stride, output_padding) in [([1, 1], [0, 0]), ([2, 3], [1, 2])] {
                for padding in [[0, 0], [1, 1]] {
                    for dilation in [[1, 1], [2, 1]] {
                        for groups in [1, 2] {
                            let op = Self {
                                stride,
                                padding,
                                output_padding,
                                dilation,
                                groups,
                            };
                            let x = CaseOperand::new([2, 4, 5, 6], dtype);
                            let w = CaseOperand::new([4, 6 / groups, 3, 2], dtype);
                            let bias = CaseOperand::new([6], dtype);
                            cases.push(Case::new(op.clone(), [x.clone(), w.clone()]));
                            cases.push(Case::new(op, [x, w, bias]));
                        }
                    }
                }
            }
            for arrange in ARRANGEMENTS {
                let x = CaseOperand::new([1, 3, 4, 4], dtype).arrange(arrange);
                let w = CaseOperand::new([3, 5, 2, 2], dtype).arrange(arrange);
                cases.push(Case::new(Self::default(), [x, w]));
            }
            let (groups, padding) = (2, [1, 1]);
            let op = Self {
                groups,
                padding,
                ..Self::default()
            };
            let many = [[2, 6, 5, 7], [6, 8, 3, 3]].map(|shape| CaseOperand::new(shape, dtype));
            cases.push(Case::new(op, many));
        }
        cases
    }
}
