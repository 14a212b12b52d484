use super::conv2d::windows;
use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, ResultTypes};

/// The maximum or average of 2-D windows of `x` `[n, c, h, w]`, floating point.
///
/// The result's sides are those of a convolution. Padding counts as −∞ for the maximum,
/// and as zeros that are counted for the average (`count_include_pad`, PyTorch's default).
///
/// Results: the maximum or average, of the operand's dtype; then, if `indices`, where the maximum
/// is: the first one where several are equal, the last NaN, as in PyTorch; 0 for a window that is
/// all padding.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pool2d {
    /// Kind of the pool.
    pub kind: PoolKind,
    /// Size of a window.
    pub kernel: [usize; 2],
    /// Distance between windows.
    pub stride: [usize; 2],
    /// Rows and columns added on each side, at most half the kernel.
    pub padding: [usize; 2],
    /// Distance between the elements of a window.
    pub dilation: [usize; 2],
    /// Whether indices of maxima are a result, too, and in which form.
    pub indices: Option<PoolIndices>,
}

/// Form of the index of a window's maximum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PoolIndices {
    /// In its plane of the operand: `row · w + column`, `i64`.
    Plane,
    /// In its window, of fewer than 256 elements without gaps: `row · width + column`, `u8`. It
    /// takes less memory, and gradients need no more.
    Window,
}

impl PoolIndices {
    /// The dtype of places with the least memory, for windows of `kernel` elements, `dilation`
    /// apart.
    pub fn narrowest(kernel: [usize; 2], dilation: [usize; 2]) -> Self {
        let elements = kernel[0].saturating_mul(kernel[1]);
        match elements <= usize::from(u8::MAX) && dilation == [1; 2] {
            true => Self::Window,
            false => Self::Plane,
        }
    }

    /// The dtype of indices.
    pub fn dtype(self) -> DType {
        match self {
            Self::Plane => DType::I64,
            Self::Window => DType::U8,
        }
    }
}

/// Reduction of a window.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PoolKind {
    /// Its largest element; NaN if one is NaN.
    Max,
    /// Its mean.
    Average,
}

impl OpDef for Pool2d {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Convolution)
    }

    fn function(&self) -> Option<&'static str> {
        Some(match self.kind {
            PoolKind::Max => "max_pool2d",
            PoolKind::Average => "avg_pool2d",
        })
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        require_float(Self::NAME, x)?;
        require(Self::NAME, x.rank() == 4, "x [n, c, h, w]", x)?;
        let legal = self.kind == PoolKind::Max || self.indices.is_none();
        require(Self::NAME, legal, "indices of maxima", "those of averages")?;
        let is_short = self.indices != Some(PoolIndices::Window)
            || PoolIndices::narrowest(self.kernel, self.dilation) == PoolIndices::Window;
        let expected = "fewer than 256 elements without gaps for indices in windows";
        require(Self::NAME, is_short, expected, format_args!("{self:?}"))?;
        let side = |i: usize| {
            windows(
                x.shape[2 + i],
                self.kernel[i],
                self.stride[i],
                self.padding[i],
                self.dilation[i],
            )
            .filter(|_| self.padding[i] <= self.kernel[i] / 2 && self.dilation[i] > 0)
        };
        let (Some(h), Some(w)) = (side(0), side(1)) else {
            let expected = "a window that fits, stride and dilation > 0, padding <= kernel / 2";
            return Err(OpError::new(Self::NAME, expected, format!("{x}, {self:?}")));
        };
        let result = |dtype| TensorType::new([x.shape[0], x.shape[1], h, w], dtype);
        let mut results = smallvec![result(x.dtype)];
        results.extend(self.indices.map(|indices| result(indices.dtype())));
        Ok(results)
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let x = node.inputs[0];
        let shape = g.ty(x).shape.clone();
        let ct = node.cotangent(g, 0)?;
        let [h, w] = [2, 3].map(|d| g.ty(ct).shape[d]);
        node.each(g, |g, _| match self.kind {
            PoolKind::Max => {
                let index = match self.indices {
                    Some(_) => node.results[1],
                    None => {
                        let indices = Some(PoolIndices::narrowest(self.kernel, self.dilation));
                        let both = g.push(
                            Self {
                                indices,
                                ..self.clone()
                            },
                            &[x],
                        )?;
                        g.results(both)[1]
                    }
                };
                let backward = MaxPool2dBackward {
                    kernel: self.kernel,
                    stride: self.stride,
                    padding: self.padding,
                    dilation: self.dilation,
                    sides: [shape[2], shape[3]],
                };
                g.push(backward, &[index, ct])
            }
            PoolKind::Average => {
                let dtype = compute_dtype(g.ty(x).dtype);
                let planes = shape[0] * shape[1];
                let ct = g.cast(ct, dtype)?;
                let ct = g.reshape(ct, [planes, 1, h, w])?;
                let like = g.reshape(x, [planes, 1, shape[2], shape[3]])?;
                let [kh, kw] = self.kernel;
                let share = 1.0 / (kh * kw) as f64;
                let are_tiles = self.stride == self.kernel
                    && self.padding == [0; 2]
                    && self.dilation == [1; 2]
                    && shape[2..] == [h * kh, w * kw];
                if are_tiles {
                    // All elements of a window get the same gradient.
                    let ct = g.mul_scalar(ct, share)?;
                    let ct = g.cast(ct, g.ty(x).dtype)?;
                    let ct = g.reshape(ct, [planes, h, 1, w, 1])?;
                    let ct = g.broadcast(ct, [planes, h, kh, w, kw])?;
                    return g.reshape(ct, shape.clone());
                }
                let window = g.full([1, 1, kh, kw].into(), share, dtype)?;
                let conv = Conv2d {
                    stride: self.stride,
                    padding: self.padding,
                    dilation: self.dilation,
                    groups: 1,
                };
                let spread = conv.spread(g, ct, window, like)?;
                g.reshape(spread, shape.clone())
            }
        })
    }
}

impl Named for Pool2d {
    const NAME: &'static str = "pool2d";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            for (kind, indices) in [
                (PoolKind::Max, None),
                (PoolKind::Max, Some(PoolIndices::Plane)),
                (PoolKind::Max, Some(PoolIndices::Window)),
                (PoolKind::Average, None),
            ] {
                for (kernel, stride, padding, dilation) in [
                    ([2, 2], [2, 2], [0, 0], [1, 1]),
                    ([3, 2], [1, 2], [1, 1], [1, 1]),
                    ([3, 3], [2, 1], [1, 0], [2, 1]),
                    ([7, 2], [7, 2], [0, 0], [1, 1]),
                ] {
                    let is_short = PoolIndices::narrowest(kernel, dilation) == PoolIndices::Window;
                    if indices == Some(PoolIndices::Window) && !is_short {
                        continue;
                    }
                    let op = Self {
                        kind,
                        kernel,
                        stride,
                        padding,
                        dilation,
                        indices,
                    };
                    if kind == PoolKind::Max {
                        let x = CaseOperand::new([1, 1, 7, 8], dtype).fill(Fill::Special);
                        cases.push(Case::new(op.clone(), [x]));
                    }
                    for arrange in ARRANGEMENTS {
                        let x = CaseOperand::new([2, 3, 7, 8], dtype).arrange(arrange);
                        cases.push(Case::new(op.clone(), [x]));
                    }
                    // With their channels last, vectors of them.
                    let x = CaseOperand::new([2, 16, 7, 8], dtype);
                    cases.push(Case::new(op, [x]));
                }
            }
        }
        cases
    }
}
