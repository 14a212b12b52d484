use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::{Graph, Named, OpDef, OpType, Param, ResultTypes, Results, ValueId};

/// `(x - mean) / √(var + eps) · weight + bias` over the last `dims` dimensions.
///
/// Operands: `x`, floating point; optionally `weight`, then `bias`, of `x`'s dtype and the
/// shape of those dimensions. The variance is the biased one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct LayerNorm {
    /// Number of trailing dimensions that are normalised together.
    pub dims: usize,
    /// Added to the variance.
    pub eps: Param,
}

impl LayerNorm {
    /// The sizes that are normalised apart, and together.
    pub fn lines(&self, x: &TensorType) -> [usize; 2] {
        let (outer, inner) = x.shape.split_at(x.rank() - self.dims);
        [outer, inner].map(|sizes| sizes.iter().product())
    }
}

impl OpDef for LayerNorm {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        require(
            Self::NAME,
            matches!(inputs.len(), 1..=3),
            "1 to 3 operands",
            inputs.len(),
        )?;
        let x = inputs[0];
        require_float(Self::NAME, x)?;
        let valid = (1..=x.rank()).contains(&self.dims);
        require(
            Self::NAME,
            valid,
            format!("1 to {} dimensions", x.rank()),
            self.dims,
        )?;
        let inner = &x.shape[x.rank() - self.dims..];
        for affine in &inputs[1..] {
            require_same(Self::NAME, x, affine)?;
            let expected = format_args!("weight and bias {inner:?}");
            require(Self::NAME, *affine.shape == *inner, expected, affine)?;
        }
        Ok(smallvec![x.clone()])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let out = g.ty(inputs[0]).clone();
        let compute = compute_dtype(out.dtype);
        let [outer, inner] = self.lines(&out);
        let x = g.cast(inputs[0], compute)?;
        let x = g.reshape(x, [outer, inner])?;
        let mean = g.mean(x, 1)?;
        let centred = g.sub(x, mean)?;
        let square = g.mul(centred, centred)?;
        let variance = g.mean(square, 1)?;
        let variance = g.add_scalar(variance, self.eps.0)?;
        let inverse = g.unary(UnaryOp::Rsqrt, variance)?;
        let mut y = g.mul(centred, inverse)?;
        if let Some(&weight) = inputs.get(1) {
            let weight = g.cast(weight, compute)?;
            let weight = g.reshape(weight, [inner])?;
            y = g.mul(y, weight)?;
        }
        if let Some(&bias) = inputs.get(2) {
            let bias = g.cast(bias, compute)?;
            let bias = g.reshape(bias, [inner])?;
            y = g.add(y, bias)?;
        }
        let y = g.reshape(y, out.shape)?;
        Ok(smallvec![g.cast(y, out.dtype)?])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let backward = NormBackward {
            dims: self.dims,
            eps: self.eps,
            is_centred: true,
            has_weight: node.inputs.len() > 1,
            adds: false,
            also: None,
        };
        backward.of(g, node)
    }
}

impl Named for LayerNorm {
    const NAME: &'static str = "layer_norm";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            for dims in [1, 2] {
                for arrange in ARRANGEMENTS {
                    let op = Self {
                        dims,
                        eps: 1e-5.into(),
                    };
                    // Broadcast, the last dimension still differs: of equal elements
                    // only rounding errors would be left.
                    let x = CaseOperand::new([2, 3, 4, 37], dtype).arrange(arrange);
                    let inner = if dims == 1 { vec![37] } else { vec![4, 37] };
                    let affine = CaseOperand::new(inner, dtype);
                    cases.push(Case::new(op.clone(), [x.clone()]));
                    cases.push(Case::new(op.clone(), [x.clone(), affine.clone()]));
                    cases.push(Case::new(op, [x, affine.clone(), affine]));
                }
            }
            let op = Self {
                dims: 1,
                eps: 1e-5.into(),
            };
            let affine = CaseOperand::new([9000], dtype);
            let long = [CaseOperand::new([2, 9000], dtype), affine.clone(), affine];
            cases.push(Case::new(op.clone(), long));
            cases.push(Case::new(op, [CaseOperand::new([0, 8], dtype)]));
        }
        cases
    }
}
