use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{Case, CaseOperand, Fill, elementwise};
use crate::ops::*;
use crate::{BlockFormat, Graph, Named, OpDef, OpType, ResultTypes};

/// The values in another dtype.
///
/// Floating point to integer cuts towards zero and saturates (NaN becomes 0); to a smaller
/// integer the upper bits are dropped; to a smaller float rounds to nearest even
/// ([`F8E4M3`](crate::F8E4M3) saturates); complex to drops the imaginary part; to `bool`
/// is `!= 0`. From a block format: dequantised ([`BlockFormat::dequantize`]); no cast makes one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Cast {
    /// Type of the result.
    pub dtype: DType,
}

impl OpDef for Cast {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn converts(&self) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let [x] = operands(Self::NAME, inputs)?;
        let out = TensorType::new(x.shape.clone(), self.dtype);
        require_scalar(Self::NAME, &out)?;
        let legal = !x.dtype.is_block() || self.dtype.is_float();
        require(
            Self::NAME,
            legal,
            "a float dtype for dequantised values",
            &out,
        )?;
        Ok(smallvec![out])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        // In the operand's dtype it comes out of every operation.
        let ct = node.cotangent(g, 0)?;
        node.each(g, |_, _| Ok(ct))
    }
}

impl Named for Cast {
    const NAME: &'static str = "cast";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            cases.extend(elementwise(&Self { dtype }.into(), &[DType::F32], |x| x));
            for from in DType::SCALARS {
                let x = CaseOperand::new([37], from);
                let x = match from {
                    f if f.is_float() && !dtype.is_float() => x.fill(Fill::Uniform(0.0, 100.0)),
                    _ => x,
                };
                cases.push(Case::new(Self { dtype }, [x]));
            }
        }
        // Numbers that do not fit: floats saturate, integers are cut.
        for dtype in DType::INTS {
            for from in DType::FLOATS {
                let x = CaseOperand::new([55], from);
                cases.push(Case::new(Self { dtype }, [x.clone().fill(Fill::Special)]));
                cases.push(Case::new(
                    Self { dtype },
                    [x.fill(Fill::Uniform(-300.0, 300.0))],
                ));
            }
            for from in [DType::I64, DType::I32, DType::U64] {
                let x =
                    CaseOperand::new([55], from).fill(Fill::Ints(-1_000_000_000, 1_000_000_000));
                cases.push(Case::new(Self { dtype }, [x]));
            }
        }
        // Numbers that 8-bit floats cannot hold, and subnormal ones.
        for dtype in DType::FLOATS8 {
            for from in DType::FLOATS {
                let x = CaseOperand::new([155], from);
                cases.push(Case::new(Self { dtype }, [x.clone().fill(Fill::Special)]));
                for most in [1e-4, 0.03, 600.0] {
                    let x = x.clone().fill(Fill::Uniform(-most, most));
                    cases.push(Case::new(Self { dtype }, [x]));
                }
            }
            let x = CaseOperand::new([55], DType::I64).fill(Fill::Ints(-70_000, 70_000));
            cases.push(Case::new(Self { dtype }, [x]));
            for to in DType::SCALARS {
                let x = CaseOperand::new([55], dtype).fill(Fill::Special);
                cases.push(Case::new(Self { dtype: to }, [x]));
            }
        }
        // Beyond the largest signed integer.
        for dtype in DType::FLOATS {
            let x = CaseOperand::new([55], DType::U64).fill(Fill::Ints(-1 << 40, 1 << 40));
            cases.push(Case::new(Self { dtype }, [x]));
        }
        for &format in BlockFormat::ALL {
            for dtype in DType::FLOATS {
                let w = CaseOperand::new([3, 256], DType::Block(format));
                cases.push(Case::new(Self { dtype }, [w]));
            }
        }
        cases
    }
}
