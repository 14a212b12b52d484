use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, CaseOperand, Fill};
use crate::ops::*;
use crate::{BlockFormat, Graph, Named, OpDef, OpType, ResultTypes, Results, Signature, ValueId};

/// `x · wᵀ + bias`, with weights in any floating-point dtype or block format.
///
/// Operands: `x` `[…, k]`, floating point; `w` `[n, k]`; optionally `bias` `[n]` of `x`'s
/// dtype. Result `[…, n]` of `x`'s dtype. A backend may quantise `x` for block weights.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Linear;

impl OpDef for Linear {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::LinearAlgebra)
    }

    fn macs(&self, s: &Signature) -> usize {
        s.output().shape.elements() * s.inputs[0].shape.last().map_or(0, |&k| k)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let (x, w, bias) = match *inputs {
            [x, w] => (x, w, None),
            [x, w, bias] => (x, w, Some(bias)),
            _ => return Err(OpError::new(Self::NAME, "2 or 3 operands", inputs.len())),
        };
        require_float(Self::NAME, x)?;
        let weights = w.dtype.is_float() || w.dtype.is_block();
        require(
            Self::NAME,
            weights,
            "floating-point or block-quantised weights",
            w,
        )?;
        let fits = x.rank() >= 1 && w.rank() == 2 && x.shape.last() == w.shape.last();
        require(
            Self::NAME,
            fits,
            "x [.., k] and w [n, k]",
            format_args!("{x} and {w}"),
        )?;
        if let Some(bias) = bias {
            require_same(Self::NAME, x, bias)?;
            let fits = *bias.shape == w.shape[..1];
            require(
                Self::NAME,
                fits,
                format_args!("a bias [{}]", w.shape[0]),
                bias,
            )?;
        }
        let shape = x.shape.clone().with_dim(x.rank() - 1, w.shape[0]);
        Ok(smallvec![TensorType {
            shape,
            dtype: x.dtype,
        }])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let out = g.ty(inputs[0]).clone();
        let (k, n) = (out.shape[out.rank() - 1], g.ty(inputs[1]).shape[0]);
        let compute = compute_dtype(out.dtype);
        let x = g.cast(inputs[0], compute)?;
        let x = g.reshape(x, [out.shape[..out.rank() - 1].iter().product(), k])?;
        let w = g.cast(inputs[1], compute)?;
        let w = g.transpose(w)?;
        let mut y = g.matmul(x, w)?;
        if let Some(&bias) = inputs.get(2) {
            let bias = g.cast(bias, compute)?;
            y = g.add(y, bias)?;
        }
        let y = g.reshape(y, out.shape.clone().with_dim(out.rank() - 1, n))?;
        Ok(smallvec![g.cast(y, out.dtype)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let (x, w) = (node.inputs[0], node.inputs[1]);
        let (dtype, [n, k]) = (g.ty(x).dtype, [g.ty(w).shape[0], g.ty(w).shape[1]]);
        let shape = g.ty(x).shape.clone();
        let rows = shape[..shape.len() - 1].iter().product();
        let ct = node.cotangent(g, 0)?;
        let ct = g.reshape(ct, [rows, n])?;
        node.each(g, |g, i| match i {
            0 => {
                let w = g.cast(w, dtype)?;
                let x = g.matmul(ct, w)?;
                g.reshape(x, shape.clone())
            }
            1 => {
                let x = g.reshape(x, [rows, k])?;
                let ct = g.transpose(ct)?;
                g.matmul(ct, x)
            }
            // The bias was broadcast to the rows.
            _ => Ok(ct),
        })
    }
}

impl Named for Linear {
    const NAME: &'static str = "linear";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        let weights =
            |n: usize, k: usize, d| CaseOperand::new([n, k], d).fill(Fill::Uniform(-1.0, 1.0));
        for dtype in DType::FLOATS {
            let x = |shape: &[usize]| CaseOperand::new(shape, dtype);
            for w in DType::FLOATS {
                for rows in [1, 2, 9] {
                    cases.push(Case::new(Self, [x(&[rows, 75]), weights(37, 75, w)]));
                }
                cases.push(Case::new(Self, [x(&[70]), weights(5, 70, w), x(&[5])]));
                cases.push(Case::new(Self, [x(&[0, 70]), weights(5, 70, w)]));
                cases.push(Case::new(Self, [x(&[2, 3, 8]), weights(0, 8, w)]));
            }
        }
        for &format in BlockFormat::ALL {
            for dtype in DType::FLOATS {
                let x = |shape: &[usize]| CaseOperand::new(shape, dtype);
                let w = |n, k| weights(n, k, DType::Block(format));
                for rows in [1, 3, 5, 33] {
                    cases.push(Case::new(Self, [x(&[rows, 512]), w(37, 512)]));
                }
                cases.push(Case::new(Self, [x(&[256]), w(16, 256), x(&[16])]));
                cases.push(Case::new(Self, [x(&[2, 0, 256]), w(16, 256)]));
            }
        }
        cases
    }
}
