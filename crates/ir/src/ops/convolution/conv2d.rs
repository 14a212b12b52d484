use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes, Signature, ValueId};

/// 2-D convolution (cross-correlation, as in PyTorch).
///
/// Operands: `x` `[n, c, h, w]`; `weight` `[o, c / groups, kh, kw]`; optionally `bias` `[o]`;
/// one floating-point dtype. Result `[n, o, h', w']` with
/// `h' = (h + 2 padding - dilation (kh - 1) - 1) / stride + 1`. Pairs are (height, width).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Conv2d {
    /// Distance between windows.
    pub stride: [usize; 2],
    /// Zeros added on each side.
    pub padding: [usize; 2],
    /// Distance between the elements of a window.
    pub dilation: [usize; 2],
    /// Number of groups of channels that are convolved separately.
    pub groups: usize,
}

impl Default for Conv2d {
    fn default() -> Self {
        Self {
            stride: [1; 2],
            padding: [0; 2],
            dilation: [1; 2],
            groups: 1,
        }
    }
}

/// Number of windows of `kernel` elements along one side; `None` if not even one fits.
pub(crate) fn windows(
    size: usize,
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
) -> Option<usize> {
    let reach = dilation
        .checked_mul(kernel.checked_sub(1)?)?
        .checked_add(1)?;
    let padded = size.checked_add(padding.checked_mul(2)?)?;
    Some(padded.checked_sub(reach)?.checked_div(stride)? + 1)
}

/// Checks a convolution's operands: rank 4, one float dtype, a bias of `channels`.
pub(crate) fn require_conv(
    op: &'static str,
    inputs: &[&TensorType],
    channels: impl Fn(&TensorType) -> usize,
) -> Result<(), OpError> {
    require(
        op,
        matches!(inputs.len(), 2 | 3),
        "2 or 3 operands",
        inputs.len(),
    )?;
    let (x, weight) = (inputs[0], inputs[1]);
    require_float(op, x)?;
    require_same(op, x, weight)?;
    let ranks = x.rank() == 4 && weight.rank() == 4;
    require(
        op,
        ranks,
        "x and weight of rank 4",
        format!("{x} and {weight}"),
    )?;
    if let Some(bias) = inputs.get(2) {
        require_same(op, x, bias)?;
        let n = channels(weight);
        require(op, *bias.shape == [n], format_args!("a bias [{n}]"), bias)?;
    }
    Ok(())
}

impl Conv2d {
    /// The gradient of an operand of the type of `x` from that of the result: transposed, it is spread by
    /// the same windows.
    pub(crate) fn spread(
        &self,
        g: &mut Graph,
        ct: ValueId,
        weight: ValueId,
        x: ValueId,
    ) -> Result<ValueId, OpError> {
        let rest = |i: usize| {
            let (from, to) = (g.ty(ct).shape[2 + i], g.ty(x).shape[2 + i]);
            let reach = self.dilation[i] * (g.ty(weight).shape[2 + i] - 1);
            to + 2 * self.padding[i] - (from - 1) * self.stride[i] - reach - 1
        };
        let transposed = ConvTranspose2d {
            stride: self.stride,
            padding: self.padding,
            output_padding: [rest(0), rest(1)],
            dilation: self.dilation,
            groups: self.groups,
        };
        g.push(transposed, &[ct, weight])
    }

    /// The gradient of a weight of the type of `weight`, whose windows in `x` have the gradient `ct`.
    pub(crate) fn weight_gradient(
        &self,
        g: &mut Graph,
        x: ValueId,
        ct: ValueId,
        weight: ValueId,
    ) -> Result<ValueId, OpError> {
        let kernel = [2, 3].map(|d| g.ty(weight).shape[d]);
        let conv = self.clone();
        g.push(Conv2dWeight { conv, kernel }, &[x, ct])
    }
}

/// The first rows and columns of images: those that strides did not reach are more.
pub(crate) fn cut(g: &mut Graph, x: ValueId, sides: [usize; 2]) -> Result<ValueId, OpError> {
    let rows = g.slice(x, 2, 0, sides[0])?;
    g.slice(rows, 3, 0, sides[1])
}

/// The gradient of a bias: sums over all but the channels.
pub(crate) fn channel_sums(g: &mut Graph, ct: ValueId) -> Result<ValueId, OpError> {
    let sum = Reduce {
        op: ReduceOp::Sum,
        dims: [0, 2, 3].into_iter().collect(),
        keepdim: false,
    };
    g.push(sum, &[ct])
}

impl OpDef for Conv2d {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Convolution)
    }

    fn macs(&self, s: &Signature) -> usize {
        s.output().shape.elements() * s.inputs[1].shape[1..].iter().product::<usize>()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        require_conv(Self::NAME, inputs, |w| w.shape[0])?;
        let (x, w) = (inputs[0], inputs[1]);
        let got = format_args!("{x} and {w} in {} groups", self.groups);
        let grouped = self.groups > 0
            && w.shape[0].is_multiple_of(self.groups)
            && w.shape[1].checked_mul(self.groups) == Some(x.shape[1]);
        require(
            Self::NAME,
            grouped,
            "channels of x = weight's · groups",
            got,
        )?;
        let side = |i: usize| {
            windows(
                x.shape[2 + i],
                w.shape[2 + i],
                self.stride[i],
                self.padding[i],
                self.dilation[i],
            )
            .filter(|_| self.dilation[i] > 0)
        };
        let (Some(h), Some(width)) = (side(0), side(1)) else {
            let expected = "a window that fits the padded input, stride and dilation > 0";
            return Err(OpError::new(
                Self::NAME,
                expected,
                format!("{got}, {self:?}"),
            ));
        };
        Ok(smallvec![TensorType::new(
            [x.shape[0], w.shape[0], h, width],
            x.dtype
        )])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let ct = node.cotangent(g, 0)?;
        node.each(g, |g, i| match i {
            0 => self.spread(g, ct, weight, x),
            1 => self.weight_gradient(g, x, ct, weight),
            _ => channel_sums(g, ct),
        })
    }
}

impl Named for Conv2d {
    const NAME: &'static str = "conv2d";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            for stride in [[1, 1], [2, 1]] {
                for padding in [[0, 0], [1, 2]] {
                    for dilation in [[1, 1], [1, 2]] {
                        for groups in [1, 2] {
                            let op = Self {
                                stride,
                                padding,
                                dilation,
                                groups,
                            };
                            let x = CaseOperand::new([2, 4, 7, 9], dtype);
                            let w = CaseOperand::new([6, 4 / groups, 3, 2], dtype);
                            let bias = CaseOperand::new([6], dtype);
                            cases.push(Case::new(op.clone(), [x.clone(), w.clone()]));
                            cases.push(Case::new(op, [x, w, bias]));
                        }
                    }
                }
            }
            for arrange in ARRANGEMENTS {
                let x = CaseOperand::new([1, 3, 6, 6], dtype).arrange(arrange);
                let w = CaseOperand::new([5, 3, 1, 1], dtype).arrange(arrange);
                cases.push(Case::new(Self::default(), [x, w]));
            }
            let (groups, padding) = (2, [1, 1]);
            let op = Self {
                groups,
                padding,
                ..Self::default()
            };
            let many = [[2, 6, 5, 7], [16, 3, 3, 3]].map(|shape| CaseOperand::new(shape, dtype));
            cases.push(Case::new(op, many));
            // Few channels of many pixels, as first layers have them.
            for (padding, kernel) in [([3, 3], [7, 7]), ([0, 0], [2, 4]), ([1, 2], [3, 5])] {
                let op = Self {
                    stride: [2, 2],
                    padding,
                    ..Self::default()
                };
                for channels in [1, 3, 4] {
                    let x = CaseOperand::new([2, channels, 12, 15], dtype);
                    let w = CaseOperand::new([16, channels, kernel[0], kernel[1]], dtype);
                    cases.push(Case::new(op.clone(), [x, w]));
                }
            }
            let (x, w) = (
                CaseOperand::new([0, 3, 6, 6], dtype),
                CaseOperand::new([5, 3, 3, 3], dtype),
            );
            cases.push(Case::new(Self::default(), [x, w]));
        }
        cases
    }
}
