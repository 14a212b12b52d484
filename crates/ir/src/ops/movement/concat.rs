use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::order::sort_by_key;
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpType, ResultTypes, Scalar, Signature};

/// Operands of one dtype joined along a dimension; their other sizes are equal.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Concat {
    /// The dimension.
    pub dim: usize,
}

impl OpDef for Concat {
    fn op_type(&self) -> Option<OpType> {
        None
    }

    fn only_moves(&self, _signature: &Signature) -> bool {
        true
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let (first, rest) = inputs
            .split_first()
            .ok_or_else(|| OpError::new(Self::NAME, "at least one operand", "none"))?;
        require_scalar(Self::NAME, first)?;
        require_dim(Self::NAME, first, self.dim)?;
        let mut size = first.shape[self.dim];
        for x in rest {
            require_same(Self::NAME, first, x)?;
            let fits = x.rank() == first.rank()
                && x.shape.clone().with_dim(self.dim, first.shape[self.dim]) == first.shape;
            let expected = format_args!("sizes equal except in dim {}", self.dim);
            require(Self::NAME, fits, expected, format_args!("{first} and {x}"))?;
            size = size
                .checked_add(x.shape[self.dim])
                .ok_or_else(|| OpError::new(Self::NAME, "a size that fits", "an overflow"))?;
        }
        let shape = first.shape.clone().with_dim(self.dim, size);
        Ok(smallvec![TensorType::new(shape, first.dtype)])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let mut end = 0;
        let parts = node.inputs.iter().map(|&x| {
            end += g.ty(x).shape[self.dim];
            end - g.ty(x).shape[self.dim]..end
        });
        let parts: Vec<_> = parts.collect();
        node.each(g, |g, i| {
            g.slice(ct, self.dim, parts[i].start, parts[i].end)
        })
    }
}

/// The sum of tensors that lie behind each other along a dimension, with zeros around each. Gradients of the parts of a
/// tensor are such sums.
pub(crate) fn sum_of_parts(f: &Finder, at: usize) -> Vec<Match> {
    find(f, at).into_iter().collect()
}

fn find(f: &Finder, at: usize) -> Option<Match> {
    let (mut dim, mut parts) = (None, Vec::new());
    let (mut nodes, mut left) = (vec![at], f.terms(at)?.to_vec());
    while let Some(value) = left.pop() {
        let by = f.producer(value)?;
        f.only_reader(value)?;
        nodes.push(by);
        if let Some(terms) = f.terms(by) {
            left.extend(terms);
            continue;
        }
        let Op::Pad(pad) = f.op(by) else { return None };
        let zero = Scalar::Int(0).to_bytes(f.ty(value).dtype);
        let padded = |&(_, &(before, after)): &(usize, &(usize, usize))| before + after > 0;
        let mut padded = pad.padding.iter().enumerate().filter(padded);
        let (along, &(before, _)) = padded.next()?;
        let fits = padded.next().is_none()
            && *dim.get_or_insert(along) == along
            && pad.value.to_bytes(f.ty(value).dtype) == zero;
        fits.then(|| parts.push((before, f.operands(by)[0])))?;
    }
    let dim = dim?;
    sort_by_key(&mut parts, |part| *part);
    let mut end = 0;
    for &(start, part) in &parts {
        (start == end).then_some(())?;
        end += f.ty(part).shape[dim];
    }
    (end == f.ty(f.result(at)).shape[dim]).then_some(())?;
    sort_by_key(&mut nodes, |node| *node);
    Some(Match {
        op: Concat { dim }.into(),
        inputs: parts.into_iter().map(|(_, part)| part).collect(),
        nodes: nodes.into(),
        results: smallvec![f.result(at)],
    })
}

impl Named for Concat {
    const NAME: &'static str = "concat";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::SCALARS {
            for dim in 0..3 {
                let x = |n| CaseOperand::new(crate::Shape::from([2, 3, 4]).with_dim(dim, n), dtype);
                cases.push(Case::new(Self { dim }, [x(2)]));
                cases.push(Case::new(Self { dim }, [x(1), x(0), x(5)]));
            }
            for arrange in ARRANGEMENTS {
                let x = CaseOperand::new([3, 4], dtype).arrange(arrange);
                cases.push(Case::new(Self { dim: 1 }, [x.clone(), x]));
            }
        }
        cases
    }
}
