use smallvec::{SmallVec, smallvec};

use crate::autodiff::{Cotangents, Differentiated};
use crate::case::{ARRANGEMENTS, Arrange, Case, CaseOperand};
use crate::ops::*;
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, Param, ResultTypes, Results, Shape, ValueId};

/// `(x - mean) / √(var + eps) · weight + bias` for each channel, with the mean and the biased variance of `x` itself.
///
/// Operands: `x` `[n, c, …]`, floating point; `weight` and `bias` `[c]` of one floating-point dtype; another tensor of
/// `x`'s type, which is added, if there is one. Results: that, of `x`'s type, or its positive part; then the variance and
/// the mean, `[c]`, at least in single precision.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BatchNormTrain {
    /// Added to the variance.
    pub eps: Param,
    /// Whether another tensor is added.
    pub adds: bool,
    /// Whether the result is the positive part (ReLU).
    pub relu: bool,
}

/// All dimensions but that of the channels.
pub(in crate::ops) fn within_channels(rank: usize) -> SmallVec<[usize; 6]> {
    (0..rank).filter(|&dim| dim != 1).collect()
}

/// Numbers of channels as they broadcast with a tensor `[n, c, …]` of a rank, in another dtype.
pub(in crate::ops) fn by_channel(
    g: &mut Graph,
    v: ValueId,
    rank: usize,
    dtype: DType,
) -> Result<ValueId, OpError> {
    let v = g.cast(v, dtype)?;
    let channels = g.ty(v).shape[0];
    let shape: Shape = (1..rank)
        .map(|d| if d == 1 { channels } else { 1 })
        .collect();
    g.reshape(v, shape)
}

/// Fails unless there is a float of each channel of `x`, of one dtype.
pub(in crate::ops) fn require_channels(
    op: &'static str,
    x: &TensorType,
    of_channels: &[&TensorType],
) -> Result<(), OpError> {
    require_float(op, x)?;
    require(op, x.rank() >= 2, "x [n, c, ..]", x)?;
    for each in of_channels {
        require_float(op, each)?;
        let expected = format_args!("a number for each of {} channels", x.shape[1]);
        let fits = *each.shape == [x.shape[1]] && each.dtype == of_channels[0].dtype;
        require(op, fits, expected, each)?;
    }
    Ok(())
}

impl BatchNormTrain {
    fn statistics(rank: usize) -> VarMean {
        VarMean {
            dims: within_channels(rank),
            keepdim: false,
            correction: Param(0.0),
            root: false,
        }
    }
}

/// The norm by statistics, of operands that may have other dtypes than `x`.
pub(in crate::ops) fn normed(
    g: &mut Graph,
    eps: Param,
    [x, var, mean]: [ValueId; 3],
    [weight, bias]: [ValueId; 2],
) -> Result<ValueId, OpError> {
    let TensorType { shape, dtype } = g.ty(x).clone();
    if [mean, weight].iter().all(|&v| g.ty(v).dtype == dtype) {
        return g.push(BatchNorm { eps }, &[x, mean, var, weight, bias]);
    }
    let compute = compute_dtype(dtype);
    let var = g.add_scalar(var, eps.0)?;
    let inverse = g.unary(UnaryOp::Rsqrt, var)?;
    let x = g.cast(x, compute)?;
    let mut placed = |v| by_channel(g, v, shape.len(), compute);
    let [mean, inverse] = [placed(mean)?, placed(inverse)?];
    let [weight, bias] = [placed(weight)?, placed(bias)?];
    let y = g.sub(x, mean)?;
    let y = g.mul(y, inverse)?;
    let y = g.mul(y, weight)?;
    let y = g.add(y, bias)?;
    g.cast(y, dtype)
}

impl OpDef for BatchNormTrain {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Normalization)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let count = 3 + usize::from(self.adds);
        let expected = format_args!("{count} operands");
        require(Self::NAME, inputs.len() == count, expected, inputs.len())?;
        let x = inputs[0];
        require_channels(Self::NAME, x, &inputs[1..3])?;
        for other in &inputs[3..] {
            let expected = format_args!("another tensor {x}");
            require(Self::NAME, *other == x, expected, other)?;
        }
        let of_channels = TensorType::new([x.shape[1]], compute_dtype(x.dtype));
        Ok(smallvec![x.clone(), of_channels.clone(), of_channels])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        let others = [
            self.adds.then_some(OpKind::Binary),
            self.relu.then_some(OpKind::Activation),
        ];
        let others: Vec<OpKind> = others.into_iter().flatten().collect();
        match others.is_empty() {
            true => Vec::new(),
            false => [vec![OpKind::BatchNormTrain], others].concat(),
        }
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let x = inputs[0];
        if self.adds || self.relu {
            let alone = Self {
                adds: false,
                relu: false,
                ..self.clone()
            };
            let y = g.push(alone, &inputs[..3])?;
            let mut results = g.results(y);
            if self.adds {
                results[0] = g.add(results[0], inputs[3])?;
            }
            if self.relu {
                let kind = ActivationKind::Relu;
                results[0] = g.push(Activation { kind }, &[results[0]])?;
            }
            return Ok(results);
        }
        let statistics = g.push(Self::statistics(g.ty(x).rank()), &[x])?;
        let [var, mean] = [g.results(statistics)[0], g.results(statistics)[1]];
        let y = normed(g, self.eps, [x, var, mean], [inputs[1], inputs[2]])?;
        Ok(smallvec![y, var, mean])
    }

    fn vjp(&self, g: &mut Graph, node: &Differentiated) -> Result<Cotangents, OpError> {
        if self.adds || self.relu {
            return node.through_parts(g, |g, inputs| self.decompose(g, inputs));
        }
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        let of_statistics = match node.cotangents[1..].iter().any(Option::is_some) && node.needed[0]
        {
            true => {
                let statistics = Differentiated {
                    inputs: &[x],
                    results: &node.results[1..],
                    cotangents: &node.cotangents[1..],
                    needed: &[true],
                };
                let of_x = Self::statistics(g.ty(x).rank()).vjp(g, &statistics)?;
                of_x.into_iter().next().flatten()
            }
            false => None,
        };
        let ct = node.cotangent(g, 0)?;
        let backward = BatchNormBackward {
            eps: self.eps,
            sums: false,
            relu: false,
            by_bias: false,
            also: false,
        };
        let (var, mean) = (node.results[1], node.results[2]);
        let dx = g.push(backward, &[x, ct, var, mean, weight])?;
        let results = g.results(dx);
        node.each(g, |g, operand| match of_statistics {
            Some(more) if operand == 0 => {
                let of_norm = g.cast(results[0], g.ty(more).dtype)?;
                g.add(of_norm, more)
            }
            _ => Ok(results[operand]),
        })
    }
}

/// The norm, with the sum behind it and the positive part of the sum, if there are any.
pub(crate) fn batch_norm_train(f: &Finder, at: usize) -> Vec<Match> {
    let Op::BatchNormTrain(op) = f.op(at) else {
        return Vec::new();
    };
    let alone = Match {
        op: op.clone().into(),
        inputs: f.operands(at).into(),
        nodes: smallvec![at],
        results: f.graph().nodes()[at].results().collect(),
    };
    let with_sum = with_sum(f, op, &alone);
    let found = [with_sum, Some(alone)].into_iter().flatten();
    let each = found.flat_map(|found| [with_relu(f, &found), Some(found)]);
    each.flatten()
        .filter(|found| found.nodes.len() > 1)
        .collect()
}

fn with_sum(f: &Finder, op: &BatchNormTrain, found: &Match) -> Option<Match> {
    let (reader, other) = f.sum_with(found.results[0])?;
    (!op.adds && !op.relu).then_some(())?;
    let mut found = found.clone();
    found.op = BatchNormTrain {
        adds: true,
        ..op.clone()
    }
    .into();
    found.inputs.push(other);
    found.nodes.push(reader);
    found.results[0] = f.result(reader);
    Some(found)
}

fn with_relu(f: &Finder, found: &Match) -> Option<Match> {
    let Op::BatchNormTrain(op) = &found.op else {
        return None;
    };
    let reader = f.only_reader(found.results[0])?;
    let is_relu = matches!(f.op(reader), Op::Activation(op) if op.kind == ActivationKind::Relu);
    (is_relu && !op.relu).then_some(())?;
    let mut found = found.clone();
    found.op = BatchNormTrain {
        relu: true,
        ..op.clone()
    }
    .into();
    found.nodes.push(reader);
    found.results[0] = f.result(reader);
    Some(found)
}

impl Named for BatchNormTrain {
    const NAME: &'static str = "batch_norm_train";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let mut push = |adds, relu, shape: &[usize], weight: DType, arrange| {
                let eps = 1e-5.into();
                let op = Self { eps, adds, relu };
                let x = CaseOperand::new(shape, dtype).arrange(arrange);
                let of_channels = CaseOperand::new([shape[1]], weight);
                let mut operands = vec![x.clone(), of_channels.clone(), of_channels];
                operands.extend(adds.then_some(x));
                cases.push(Case::new(op, operands));
            };
            for (adds, relu) in [(false, false), (true, true), (false, true), (true, false)] {
                // There is no variance within channels that are broadcast, of which no error is a small part.
                for arrange in ARRANGEMENTS {
                    if arrange != Arrange::Broadcast && (arrange == ARRANGEMENTS[0] || adds && relu)
                    {
                        push(adds, relu, &[3, 4, 5, 7], dtype, arrange);
                    }
                }
                push(adds, relu, &[2, 24, 9, 8], DType::F32, ARRANGEMENTS[0]);
            }
            push(false, false, &[60, 5], dtype, ARRANGEMENTS[0]);
            push(false, true, &[2, 16, 40, 41], DType::F32, ARRANGEMENTS[0]);
        }
        cases
    }
}
