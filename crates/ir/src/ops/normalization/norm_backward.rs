use smallvec::smallvec;

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Case, CaseOperand};
use crate::ops::*;
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, Param, ResultTypes, Results, ValueId};

/// The gradients of a [`LayerNorm`] or [`RmsNorm`].
///
/// Operands: `x`, floating point; `ct`, the gradient of the norm, of `x`'s shape and any floating-point dtype; the norm's
/// `weight`, of `x`'s dtype, if it has one; a gradient that `x` has from elsewhere, of `x`'s type, if there is one. Results,
/// of `x`'s dtype: the gradient of `x`, with the other one added; of the weight, if there is one; and of the bias, if it
/// is a layer norm with a weight. Behind them, if that is asked, the first one in another dtype.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NormBackward {
    /// Number of last dimensions that were normalised together.
    pub dims: usize,
    /// Number added to the variance, or to the mean square.
    pub eps: Param,
    /// Whether it is a layer norm, which subtracts the mean.
    pub is_centred: bool,
    /// Whether there is a weight.
    pub has_weight: bool,
    /// Whether there is another gradient of `x`.
    pub adds: bool,
    /// The dtype, floating point and not `x`'s, that the gradient of `x` is wanted in as well.
    pub also: Option<DType>,
}

impl NormBackward {
    /// The place of the other gradient among the operands.
    fn other(&self) -> usize {
        2 + usize::from(self.has_weight)
    }

    /// The sizes that are normalised apart, and together.
    pub fn lines(&self, x: &TensorType) -> [usize; 2] {
        let (dims, eps) = (self.dims, self.eps);
        LayerNorm { dims, eps }.lines(x)
    }

    /// The gradients of a norm's operands that are needed: `x`, weight, bias.
    pub(in crate::ops) fn of(
        &self,
        g: &mut Graph,
        node: &Differentiated,
    ) -> Result<Cotangents, OpError> {
        let ct = node.cotangent(g, 0)?;
        let mut operands = vec![node.inputs[0], ct];
        operands.extend(node.inputs.get(1).filter(|_| self.has_weight));
        let dx = g.push(self.clone(), &operands)?;
        let results = g.results(dx);
        node.each(g, |_, operand| Ok(results[operand]))
    }
}

impl OpDef for NormBackward {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let count = self.other() + usize::from(self.adds);
        let expected = format_args!("{count} operands");
        require(Self::NAME, inputs.len() == count, expected, inputs.len())?;
        let (x, ct) = (inputs[0], inputs[1]);
        require_float(Self::NAME, x)?;
        require_float(Self::NAME, ct)?;
        let valid = (1..=x.rank()).contains(&self.dims);
        let expected = format_args!("1 to {} dimensions", x.rank());
        require(Self::NAME, valid, expected, self.dims)?;
        let expected = format_args!("a gradient {}", x.shape);
        require(Self::NAME, ct.shape == x.shape, expected, ct)?;
        let mut results: ResultTypes = smallvec![x.clone()];
        if self.has_weight {
            let weight = TensorType::new(&x.shape[x.rank() - self.dims..], x.dtype);
            let expected = format_args!("a weight {weight}");
            require(Self::NAME, *inputs[2] == weight, expected, inputs[2])?;
            results.push(weight.clone());
            results.extend(self.is_centred.then_some(weight));
        }
        if self.adds {
            let other = inputs[self.other()];
            let expected = format_args!("another gradient {x}");
            require(Self::NAME, other == x, expected, other)?;
        }
        if let Some(dtype) = self.also {
            let fits = dtype.is_float() && dtype != x.dtype;
            let expected = format_args!("a float dtype other than {}", x.dtype);
            require(Self::NAME, fits, expected, dtype)?;
            results.push(TensorType::new(x.shape.clone(), dtype));
        }
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        let others = [
            self.adds.then_some(OpKind::Binary),
            self.also.map(|_| OpKind::Cast),
        ];
        let others: Vec<OpKind> = others.into_iter().flatten().collect();
        match others.is_empty() {
            true => Vec::new(),
            false => [vec![OpKind::NormBackward], others].concat(),
        }
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let ty = g.ty(inputs[0]).clone();
        if self.adds || self.also.is_some() {
            let alone = Self {
                adds: false,
                also: None,
                ..self.clone()
            };
            let dx = g.push(alone, &inputs[..self.other()])?;
            let mut results = g.results(dx);
            if self.adds {
                results[0] = g.add(results[0], inputs[self.other()])?;
            }
            if let Some(dtype) = self.also {
                results.push(g.cast(results[0], dtype)?);
            }
            return Ok(results);
        }
        let compute = compute_dtype(ty.dtype);
        let lines = self.lines(&ty);
        let mut of_lines = |v| {
            let v = g.cast(v, compute)?;
            g.reshape(v, lines)
        };
        let (mut x, ct) = (of_lines(inputs[0])?, of_lines(inputs[1])?);
        if self.is_centred {
            let mean = g.mean(x, 1)?;
            x = g.sub(x, mean)?;
        }
        let square = g.square(x)?;
        let variance = g.mean(square, 1)?;
        let variance = g.add_scalar(variance, self.eps.0)?;
        let inverse = g.unary(UnaryOp::Rsqrt, variance)?;
        let normed = g.mul(x, inverse)?;
        let mut of_normed = ct;
        if self.has_weight {
            let weight = g.cast(inputs[2], compute)?;
            let weight = g.reshape(weight, [lines[1]])?;
            of_normed = g.mul(ct, weight)?;
        }
        let along = g.mul(of_normed, normed)?;
        let along = g.mean(along, 1)?;
        let along = g.mul(normed, along)?;
        let mut dx = g.sub(of_normed, along)?;
        if self.is_centred {
            let mean = g.mean(of_normed, 1)?;
            dx = g.sub(dx, mean)?;
        }
        let dx = g.mul(dx, inverse)?;
        let dx = g.reshape(dx, ty.shape.clone())?;
        let mut results: Results = smallvec![g.cast(dx, ty.dtype)?];
        if self.has_weight {
            let weighted = g.mul(ct, normed)?;
            let each = [Some(weighted), self.is_centred.then_some(ct)];
            for of_lines in each.into_iter().flatten() {
                let sum = g.reduce(ReduceOp::Sum, of_lines, 0)?;
                let sum = g.reshape(sum, &ty.shape[ty.rank() - self.dims..])?;
                results.push(g.cast(sum, ty.dtype)?);
            }
        }
        Ok(results)
    }
}

/// The gradients, with the neighbours that can be fused. These are the conversion of `ct` before, and the
/// operations on the first gradient behind. The sum behind that and its conversion join, too.
pub(crate) fn norm_backward(f: &Finder, at: usize) -> Vec<Match> {
    let Op::NormBackward(op) = f.op(at) else {
        return Vec::new();
    };
    let alone = Match {
        op: op.clone().into(),
        inputs: f.operands(at).into(),
        nodes: smallvec![at],
        results: f.graph().nodes()[at].results().collect(),
    };
    let with_sum = with_sum(f, op, &alone).unwrap_or(alone);
    let with_copy = with_copy(f, &with_sum);
    let found = [with_copy, Some(with_sum)].into_iter().flatten();
    let each = found.flat_map(|found| [with_cast(f, &found), Some(found)]);
    each.flatten()
        .filter(|found| found.nodes.len() > 1)
        .collect()
}

/// The same with the sum that the gradient of `x` is an operand of.
fn with_sum(f: &Finder, op: &NormBackward, found: &Match) -> Option<Match> {
    let (reader, other) = f.sum_with(found.results[0])?;
    (!op.adds && op.also.is_none()).then_some(())?;
    let mut found = found.clone();
    found.op = NormBackward {
        adds: true,
        ..op.clone()
    }
    .into();
    found.inputs.push(other);
    found.nodes.push(reader);
    found.results[0] = f.result(reader);
    Some(found)
}

/// The same with a conversion of the gradient of `x`.
fn with_copy(f: &Finder, found: &Match) -> Option<Match> {
    let Op::NormBackward(op) = &found.op else {
        return None;
    };
    let dx = found.results[0];
    let is_cast =
        |&&reader: &&usize| matches!(f.op(reader), Op::Cast(cast) if cast.dtype.is_float());
    let &reader = f.readers(dx).iter().find(is_cast)?;
    let copy = f.result(reader);
    let fits = op.also.is_none() && f.ty(copy).dtype != f.ty(dx).dtype;
    fits.then_some(())?;
    let mut with_copy = found.clone();
    with_copy.op = NormBackward {
        also: Some(f.ty(copy).dtype),
        ..op.clone()
    }
    .into();
    with_copy.nodes.push(reader);
    with_copy.results.push(copy);
    Some(with_copy)
}

/// The same without the conversion of `ct` from less precision.
fn with_cast(f: &Finder, found: &Match) -> Option<Match> {
    let ct = found.inputs[1];
    let by = f.producer(ct)?;
    let from = *f.operands(by).first()?;
    let fits = matches!(f.op(by), Op::Cast(_))
        && f.only_reader(ct).is_some()
        && f.ty(from).dtype.is_float()
        && f.ty(from).dtype.size() < f.ty(ct).dtype.size();
    fits.then_some(())?;
    let mut found = found.clone();
    found.inputs[1] = from;
    found.nodes.insert(0, by);
    Some(found)
}

impl Named for NormBackward {
    const NAME: &'static str = "norm_backward";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |op: Self, shape: &[usize], ct: DType, arrange| {
                let x = CaseOperand::new(shape, dtype).arrange(arrange);
                let mut operands = vec![x.clone(), CaseOperand::new(shape, ct).arrange(arrange)];
                let weight = &shape[shape.len() - op.dims..];
                operands.extend(op.has_weight.then(|| CaseOperand::new(weight, dtype)));
                operands.extend(op.adds.then_some(x));
                cases.push(Case::new(op, operands));
            };
            let contiguous = ARRANGEMENTS[0];
            for is_centred in [false, true] {
                for (dims, has_weight, adds, copies) in [
                    (1, false, false, false),
                    (1, true, false, false),
                    (1, true, true, false),
                    (1, true, true, true),
                    (2, true, false, true),
                ] {
                    let copy = match dtype {
                        DType::BF16 => DType::F32,
                        _ => DType::BF16,
                    };
                    let op = Self {
                        dims,
                        eps: 1e-5.into(),
                        is_centred,
                        has_weight,
                        adds,
                        also: copies.then_some(copy),
                    };
                    // Every option is a kernel of its own, so that one of them is tried in every arrangement.
                    let all = match adds && !copies {
                        true => &ARRANGEMENTS[..],
                        false => &ARRANGEMENTS[..1],
                    };
                    for &arrange in all {
                        push(op.clone(), &[2, 3, 4, 37], dtype, arrange);
                    }
                    push(op.clone(), &[70, 3, 64], dtype, contiguous);
                    push(op.clone(), &[0, 3, 8], dtype, contiguous);
                    if dims == 1 {
                        push(op.clone(), &[9, 768], dtype, contiguous);
                        push(op.clone(), &[600, 48], DType::BF16, contiguous);
                        push(op.clone(), &[2, 9000], dtype, contiguous);
                    }
                }
            }
        }
        cases
    }
}
