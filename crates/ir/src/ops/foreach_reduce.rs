use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::foreach::instantiate;
use super::groups::{Group, chain, each, hidden};
use super::*;
use crate::case::{ARRANGEMENTS, Arrange, Case, CaseOperand};
use crate::ops::{Concat, Foreach, Reduce};
use crate::passes::{Finder, Match};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, Role, ValueId};

/// One number of each of several groups of tensors, such as the norms of all gradients, as PyTorch's
/// `_foreach_norm`.
///
/// Operands are those of [`Foreach`]. The result has the groups' numbers, `[count]`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ForeachReduce {
    /// Operations on each group: elementwise ones, then a [`Reduce`] of all dimensions, then ones on its result
    /// alone. The last result is the only output.
    pub each: Foreach,
}

impl ForeachReduce {
    /// The reduction among the body's nodes.
    pub fn reduction(&self) -> Option<(usize, &Reduce)> {
        let mut nodes = self.each.body.nodes().iter().enumerate();
        nodes.find_map(|(at, node)| match &node.op {
            Op::Reduce(reduce) => Some((at, reduce)),
            _ => None,
        })
    }
}

impl OpDef for ForeachReduce {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Reduction)
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let shapes = self.each.shapes(Self::NAME, inputs)?;
        let body = &self.each.body;
        let expected = "a reduction to one number";
        let &[output] = body.outputs() else {
            return Err(OpError::new(Self::NAME, expected, body.outputs().len()));
        };
        let ty = body.ty(output);
        let reduction = self.reduction().filter(|_| ty.rank() == 0);
        require(Self::NAME, reduction.is_some(), expected, ty)?;
        let behind = reduction.map_or(&[][..], |(at, _)| &body.nodes()[at + 1..]);
        let is_behind = |value: &ValueId| {
            let made = body.producer(*value);
            made.is_some_and(|made| {
                let is_constant = body.nodes()[made].op.kind() == OpKind::Full;
                is_constant || reduction.is_some_and(|(at, _)| made >= at)
            })
        };
        let reads_result = behind.iter().flat_map(|node| &node.inputs).all(is_behind);
        let expected = "operations on the reduction's result behind it";
        require(Self::NAME, reads_result, expected, "others")?;
        let needs_one =
            reduction.is_some_and(|(_, r)| matches!(r.op, ReduceOp::Max | ReduceOp::Min));
        let empty = shapes.iter().any(|shape| shape.elements() == 0);
        let expected = "at least one element to choose from";
        require(Self::NAME, !needs_one || !empty, expected, "none")?;
        Ok(smallvec![TensorType::new([self.each.count], ty.dtype)])
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        let body = self.each.body.nodes().iter().map(|node| node.op.kind());
        let group: Vec<OpKind> = body.chain([OpKind::Reshape]).collect();
        [group.repeat(self.each.count), vec![OpKind::Concat]].concat()
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let mut numbers = Vec::with_capacity(self.each.count);
        for group in 0..self.each.count {
            let operands = self.each.operands(group, inputs);
            let number = instantiate(g, &self.each.body, &operands)?[0];
            numbers.push(g.reshape(number, [1])?);
        }
        Ok(smallvec![g.push(Concat { dim: 0 }, &numbers)?])
    }
}

/// Reductions of several tensors, found by their common readers.
pub(crate) fn foreach_reduce(f: &Finder, at: usize) -> Vec<Match> {
    find(f, at).into_iter().collect()
}

fn find(f: &Finder, at: usize) -> Option<Match> {
    let numbers = f.operands(at);
    let is_join = matches!(f.op(at), Op::Concat(concat) if concat.dim == 0);
    if !is_join || numbers.len() < 2 || numbers.iter().any(|&x| f.ty(x).shape[..] != [1]) {
        return None;
    }
    let (mut groups, mut nodes): (Vec<Group>, SmallVec<[usize; 8]>) = (Vec::new(), smallvec![at]);
    let mut first: Option<Graph> = None;
    for &number in numbers {
        let (group, views) = group(f, number)?;
        let body = group.body(f, &group.operands)?;
        match &first {
            Some(first) if *first != body => return None,
            Some(_) => {}
            None => first = Some(body),
        }
        let all = [&group.nodes[..], &views, &[at]].concat();
        nodes.extend(
            hidden(f, &all, &[at])
                .into_iter()
                .filter(|&node| node != at),
        );
        groups.push(group);
    }
    let (each, inputs) = each(f, &groups)?;
    Some(Match {
        op: ForeachReduce { each }.into(),
        inputs,
        nodes,
        results: smallvec![f.result(at)],
    })
}

/// The reduction that gives `number`, and the views between them.
fn group(f: &Finder, number: ValueId) -> Option<(Group, Vec<usize>)> {
    let (mut value, mut views) = (number, Vec::new());
    let producer = |value| f.only_reader(value).and(f.producer(value));
    while let Some(at) = producer(value).filter(|&at| f.op(at).def().role() == Role::View) {
        views.push(at);
        value = f.operands(at)[0];
    }
    views.reverse();
    let (result, mut behind) = (value, Vec::new());
    loop {
        let at = producer(value)?;
        match f.op(at) {
            Op::Reduce(reduce) => {
                let x = f.operands(at)[0];
                let is_whole = reduce.dims.len() == f.ty(x).rank() && !reduce.keepdim;
                let shape = &f.ty(x).shape;
                behind.reverse();
                let nodes = [chain(f, &[at]), behind].concat();
                let group = is_whole.then(|| Group::new(f, shape, nodes, vec![result]));
                return Some((group??, views));
            }
            // A scalar operation of one operand and constants.
            op if op.kind().is_elementwise() && f.ty(value).rank() == 0 => {
                let is_constant = |x: &ValueId| {
                    let made = f.producer(*x);
                    made.is_some_and(|made| f.op(made).kind() == OpKind::Full)
                };
                let mut others = f.operands(at).iter().filter(|x| !is_constant(x));
                let (&next, None) = (others.next()?, others.next()) else {
                    return None;
                };
                behind.push(at);
                value = next;
            }
            _ => return None,
        }
    }
}

impl Named for ForeachReduce {
    const NAME: &'static str = "foreach_reduce";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let Some(norm) = norm(dtype) else { continue };
            let tensor = |shape: &[usize]| CaseOperand::new(shape, dtype);
            let number = CaseOperand::new([], dtype);
            let shapes: [&[usize]; 6] = [&[], &[1], &[0, 3], &[67], &[2, 3, 4, 17], &[40, 900]];
            let of = |groups: Vec<CaseOperand>| {
                let each = Foreach {
                    count: groups.len(),
                    ..norm.clone()
                };
                Case::new(
                    ForeachReduce { each },
                    [groups, vec![number.clone()]].concat(),
                )
            };
            cases.push(of(shapes.map(tensor).to_vec()));
            cases.push(of(vec![tensor(&[5])]));
            // More groups than a launch has room for.
            cases.push(of((0..300).map(|i| tensor(&[1 + i % 5])).collect()));
            for arrange in ARRANGEMENTS
                .into_iter()
                .filter(|&a| a != Arrange::Contiguous)
            {
                cases.push(of(vec![tensor(&[3, 5, 7]).arrange(arrange), tensor(&[2])]));
            }
        }
        cases
    }
}

/// `√Σ(x · scale)²`, with the scale as a number of all.
fn norm(dtype: DType) -> Option<Foreach> {
    let build = || -> Result<Graph, OpError> {
        let mut g = Graph::new();
        let x = g.input(TensorType::new([2], dtype))?;
        let scale = g.input(TensorType::new([], dtype))?;
        let wide = compute_dtype(dtype);
        let scaled = g.mul(x, scale)?;
        let scaled = g.cast(scaled, wide)?;
        let square = g.mul(scaled, scaled)?;
        let (op, dims, keepdim) = (ReduceOp::Sum, smallvec![0], false);
        let sum = g.push(Reduce { op, dims, keepdim }, &[square])?;
        let norm = g.unary(UnaryOp::Sqrt, sum)?;
        let norm = g.cast(norm, dtype)?;
        g.output(norm);
        Ok(g)
    };
    let body = Arc::new(build().ok()?);
    let (own, count) = (1, 1);
    Some(Foreach { body, own, count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passes::{Fusion, OneDevice, Pass};

    /// The largest of the norms of tensors of these shapes.
    fn norms(shapes: &[&[usize]]) -> Graph {
        let mut g = Graph::new();
        let inputs: Vec<ValueId> = (shapes.iter())
            .map(|shape| g.input(TensorType::new(*shape, DType::F32)).unwrap())
            .collect();
        let mut numbers = Vec::new();
        for &x in &inputs {
            let square = g.mul(x, x).unwrap();
            let dims = (0..g.ty(x).rank()).collect();
            let (op, keepdim) = (ReduceOp::Sum, false);
            let sum = g.push(Reduce { op, dims, keepdim }, &[square]).unwrap();
            let root = g.unary(UnaryOp::Sqrt, sum).unwrap();
            numbers.push(g.reshape(root, [1]).unwrap());
        }
        let all = g.push(Concat { dim: 0 }, &numbers).unwrap();
        let most = g.reduce(ReduceOp::Max, all, 0).unwrap();
        g.output(most);
        g
    }

    #[test]
    fn norms_of_many_tensors_are_one_operation() {
        let g = norms(&[&[3, 4], &[5], &[2, 2, 2]]);
        let fusion = Fusion::default();
        let fused = fusion.run(&g, &OneDevice(|_| true)).unwrap().unwrap();
        let names: Vec<&str> = (fused.graph.nodes().iter())
            .map(|node| node.op.name())
            .collect();
        assert_eq!(names, ["foreach_reduce", "reduce"]);
    }

    #[test]
    fn a_number_that_others_need_stays_apart() {
        let mut g = norms(&[&[3, 4], &[5]]);
        let sum = g.nodes()[1].result(0);
        g.output(sum);
        let fusion = Fusion::default();
        let fused = fusion.run(&g, &OneDevice(|_| true)).unwrap();
        let is_found = |node: &crate::Node| node.op.kind() == OpKind::ForeachReduce;
        assert!(!fused.is_some_and(|fused| fused.graph.nodes().iter().any(is_found)));
    }
}
