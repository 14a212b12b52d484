use smallvec::smallvec;

use super::batch_norm_train::{by_channel, normed, require_channels, within_channels};
use crate::case::{ARRANGEMENTS, Case, CaseOperand, Fill};
use crate::ops::*;
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, Param, ResultTypes, Results, ValueId};

/// The gradients of a [`BatchNormTrain`].
///
/// Operands: the norm's `x` `[n, c, …]`, floating point. `ct`, the gradient of its result, of `x`'s type. The variance
/// and the mean of the batch, `[c]`, at least in single precision. The norm's `weight`. A gradient that is added to
/// `ct`, if there is one. The positive part after the norm, if there is one: if it is 0, so is the gradient. Both
/// have `x`'s type. If the norm alone became positive, its bias is enough for that. Results: the gradient of `x`,
/// of its type, and those of weight and bias, of the weight's. Then, on request, the gradient of the positive
/// part's operand.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BatchNormBackward {
    /// Number added to the variance.
    pub eps: Param,
    /// Whether there is another gradient of the norm's result.
    pub sums: bool,
    /// Whether the positive part of the result was taken (ReLU).
    pub relu: bool,
    /// Whether the norm's bias is given, in place of that.
    pub by_bias: bool,
    /// Whether the gradient of the positive part's operand is a result, too.
    pub also: bool,
}

impl BatchNormBackward {
    /// The gradient of the norm's result.
    fn of_result(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<ValueId, OpError> {
        let mut ct = inputs[1];
        if self.sums {
            ct = g.add(ct, inputs[5])?;
        }
        if let (true, Some(&last)) = (self.relu, inputs.last()) {
            let y = match self.by_bias {
                true => {
                    let [x, var, mean, weight] = [0, 2, 3, 4].map(|i| inputs[i]);
                    normed(g, self.eps, [x, var, mean], [weight, last])?
                }
                false => last,
            };
            let zero = g.constant(0.0, g.ty(y).dtype)?;
            let is_flat = g.compare(CompareOp::Le, y, zero)?;
            ct = g.select(is_flat, zero, ct)?;
        }
        Ok(ct)
    }
}

impl OpDef for BatchNormBackward {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let count = 5 + usize::from(self.sums) + usize::from(self.relu);
        let expected = format_args!("{count} operands");
        require(Self::NAME, inputs.len() == count, expected, inputs.len())?;
        let (x, weight) = (inputs[0], inputs[4]);
        require_channels(Self::NAME, x, &inputs[2..4])?;
        let (others, bias) = match (self.relu && self.by_bias, inputs.split_last()) {
            (true, Some((bias, others))) => (&others[5..], Some(*bias)),
            _ => (&inputs[5..], None),
        };
        let of_channels: Vec<&TensorType> = [weight].into_iter().chain(bias).collect();
        require_channels(Self::NAME, x, &of_channels)?;
        for same in inputs[1..2].iter().chain(others) {
            require(
                Self::NAME,
                *same == x,
                format_args!("another tensor {x}"),
                same,
            )?;
        }
        let mut results: ResultTypes = smallvec![x.clone(), weight.clone(), weight.clone()];
        results.extend(self.also.then(|| x.clone()));
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        let mut parts = Vec::new();
        if self.sums {
            parts.push(OpKind::Binary);
        }
        if self.relu {
            parts.extend([OpKind::Compare, OpKind::Where]);
        }
        if !parts.is_empty() {
            parts.push(OpKind::BatchNormBackward);
        }
        parts
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        if self.sums || self.relu || self.also {
            let alone = Self {
                sums: false,
                relu: false,
                by_bias: false,
                also: false,
                ..self.clone()
            };
            let ct = self.of_result(g, inputs)?;
            let dx = g.push(alone, &[inputs[0], ct, inputs[2], inputs[3], inputs[4]])?;
            let mut results = g.results(dx);
            results.extend(self.also.then_some(ct));
            return Ok(results);
        }
        let TensorType { shape, dtype } = g.ty(inputs[0]).clone();
        let compute = compute_dtype(dtype);
        let weight = g.ty(inputs[4]).dtype;
        let count: usize = within_channels(shape.len())
            .iter()
            .map(|&d| shape[d])
            .product();
        let var = g.add_scalar(inputs[2], self.eps.0)?;
        let inverse = g.unary(UnaryOp::Rsqrt, var)?;
        let placed = |g: &mut Graph, v| by_channel(g, v, shape.len(), compute);
        let [mean, inverse] = [placed(g, inputs[3])?, placed(g, inverse)?];
        let scale = placed(g, inputs[4])?;
        let (x, ct) = (g.cast(inputs[0], compute)?, g.cast(inputs[1], compute)?);
        let x = g.sub(x, mean)?;
        let normed = g.mul(x, inverse)?;
        let sum = |g: &mut Graph, x| {
            let sum = Reduce {
                op: ReduceOp::Sum,
                dims: within_channels(shape.len()),
                keepdim: false,
            };
            g.push(sum, &[x])
        };
        let of_bias = sum(g, ct)?;
        let along = g.mul(ct, normed)?;
        let of_weight = sum(g, along)?;
        let share = 1.0 / count.max(1) as f64;
        let level = g.mul_scalar(of_bias, share)?;
        let level = placed(g, level)?;
        let along = g.mul_scalar(of_weight, share)?;
        let along = placed(g, along)?;
        let dx = g.sub(ct, level)?;
        let slope = g.mul(normed, along)?;
        let dx = g.sub(dx, slope)?;
        let scale = g.mul(inverse, scale)?;
        let dx = g.mul(dx, scale)?;
        Ok(smallvec![
            g.cast(dx, dtype)?,
            g.cast(of_weight, weight)?,
            g.cast(of_bias, weight)?
        ])
    }
}

/// The gradients, with the choice of positive elements before them. The sum of gradients before that joins, if there
/// is one.
pub(crate) fn batch_norm_backward(f: &Finder, at: usize) -> Vec<Match> {
    let Op::BatchNormBackward(op) = f.op(at) else {
        return Vec::new();
    };
    if op.sums || op.relu || op.also {
        return Vec::new();
    }
    let alone = Match {
        op: op.clone().into(),
        inputs: f.operands(at).into(),
        nodes: smallvec![at],
        results: f.graph().nodes()[at].results().collect(),
    };
    let Some(with_relu) = with_relu(f, op, &alone) else {
        return Vec::new();
    };
    [with_sum(f, &with_relu), Some(with_relu)]
        .into_iter()
        .flatten()
        .collect()
}

/// The same with the zeros that the gradient has where a positive part is 0.
fn with_relu(f: &Finder, op: &BatchNormBackward, found: &Match) -> Option<Match> {
    let masked = found.inputs[1];
    let choice = f.producer(masked)?;
    let (Op::Where(_), &[condition, zero, ct]) = (f.op(choice), f.operands(choice)) else {
        return None;
    };
    let compare = f.producer(condition)?;
    let is_le = matches!(f.op(compare), Op::Compare(op) if op.op == CompareOp::Le);
    let &[y, least] = f.operands(compare) else {
        return None;
    };
    let is_zero = |v| {
        let full = f.producer(v).map(|at| f.op(at));
        matches!(full, Some(Op::Full(full)) if full.value.as_f64() == 0.0)
    };
    let same = [y, ct].iter().all(|&v| f.ty(v) == f.ty(masked));
    (is_le && same && is_zero(zero) && is_zero(least)).then_some(())?;
    let also = f.only_reader(masked).is_none();
    let mut found = found.clone();
    let bias = bias_of(f, y, &found.inputs);
    found.op = BatchNormBackward {
        relu: true,
        by_bias: bias.is_some(),
        also,
        ..op.clone()
    }
    .into();
    found.inputs[1] = ct;
    found.inputs.push(bias.unwrap_or(y));
    // Others may ask the same of y.
    if f.only_reader(condition).is_some() {
        found.nodes.insert(0, compare);
    }
    let before_last = found.nodes.len() - 1;
    found.nodes.insert(before_last, choice);
    found.results.extend(also.then_some(masked));
    Some(found)
}

/// The bias of the norm whose positive part `y` is, if that norm belongs to the gradients with these
/// operands.
fn bias_of(f: &Finder, y: ValueId, inputs: &[ValueId]) -> Option<ValueId> {
    let relu = f.producer(y)?;
    let is_relu = matches!(f.op(relu), Op::Activation(op) if op.kind == ActivationKind::Relu);
    let &normed = f.operands(relu).first().filter(|_| is_relu)?;
    let norm = f.producer(normed)?;
    let (Op::BatchNormTrain(op), &[x, weight, bias]) = (f.op(norm), f.operands(norm)) else {
        return None;
    };
    let is_it = f.result(norm) == normed && [x, weight] == [inputs[0], inputs[4]];
    (is_it && !op.relu).then_some(bias)
}

/// The same with the sum that `ct` is.
fn with_sum(f: &Finder, found: &Match) -> Option<Match> {
    let Op::BatchNormBackward(op) = &found.op else {
        return None;
    };
    let ct = found.inputs[1];
    let by = f.producer(ct)?;
    let [a, b] = f.terms(by)?;
    let same = [a, b].iter().all(|&v| f.ty(v) == f.ty(ct));
    (same && f.only_reader(ct).is_some()).then_some(())?;
    let mut found = found.clone();
    found.op = BatchNormBackward {
        sums: true,
        ..op.clone()
    }
    .into();
    found.inputs[1] = a;
    found.inputs.insert(5, b);
    found.nodes.insert(0, by);
    Some(found)
}

impl Named for BatchNormBackward {
    const NAME: &'static str = "batch_norm_backward";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |[sums, relu, by_bias, also]: [bool; 4],
                            shape: &[usize],
                            weight: DType,
                            arrange| {
                let op = Self {
                    eps: 1e-5.into(),
                    sums,
                    relu,
                    by_bias,
                    also,
                };
                let x = CaseOperand::new(shape, dtype).arrange(arrange);
                let of_channels = CaseOperand::new([shape[1]], compute_dtype(dtype));
                let var = of_channels.clone().fill(Fill::Uniform(0.1, 2.0));
                let weight = CaseOperand::new([shape[1]], weight);
                let mut operands = vec![x.clone(), x.clone(), var, of_channels, weight.clone()];
                operands.extend(sums.then(|| x.clone()));
                operands.extend(relu.then_some(if by_bias { weight } else { x }));
                cases.push(Case::new(op, operands));
            };
            for options in [
                [false; 4],
                [false, true, false, false],
                [false, true, true, false],
                [true, true, false, true],
                [true; 4],
            ] {
                let all = match options[0] {
                    true => &ARRANGEMENTS[..],
                    false => &ARRANGEMENTS[..1],
                };
                for &arrange in all {
                    push(options, &[3, 4, 5, 7], dtype, arrange);
                }
                push(options, &[2, 24, 9, 8], DType::F32, ARRANGEMENTS[0]);
            }
            push([false; 4], &[60, 5], dtype, ARRANGEMENTS[0]);
            push([true; 4], &[2, 16, 40, 41], DType::F32, ARRANGEMENTS[0]);
            push([false; 4], &[0, 4, 2], dtype, ARRANGEMENTS[0]);
        }
        cases
    }
}
