use std::sync::Arc;

use smallvec::SmallVec;

use super::*;
use crate::case::{ARRANGEMENTS, Arrange, Case, CaseOperand};
use crate::ops::{Assign, Reduce};
use crate::{Graph, Named, Op, OpDef, OpKind, OpType, ResultTypes, Results, Shape, ValueId};

/// The shape that stands for any in a [`Foreach::body`].
pub(super) const ANY: [usize; 1] = [2];

/// The same elementwise operations on each of several groups of tensors, as in PyTorch's `_foreach_`
/// functions. An example is an optimiser's update of all parameters.
///
/// Operands: those of each group, one group after the other, then those that all groups read. A group's are
/// of one shape, or numbers of rank 0. Results: those of each group, one group after the other, of the
/// group's shape.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Foreach {
    /// Operations on a group. Inputs of one dimension stand for tensors of the group's shape, those of none
    /// for numbers. Outputs by [`Assign`] are written over their states.
    pub body: Arc<Graph>,
    /// Number of the body's inputs that differ between groups.
    pub own: usize,
    /// Number of groups.
    pub count: usize,
}

impl Foreach {
    /// The operand of a group for an input of the body.
    pub fn operand(&self, group: usize, input: usize) -> usize {
        match input < self.own {
            true => group * self.own + input,
            false => self.count * self.own + input - self.own,
        }
    }

    /// Returns whether an input of the body is a number.
    pub fn is_number(&self, input: usize) -> bool {
        self.body.inputs()[input].rank() == 0
    }

    /// The input of the body that the output with this index overwrites.
    pub fn state(&self, output: usize) -> Option<usize> {
        let value = *self.body.outputs().get(output)?;
        self.body.previous(value).map(ValueId::index)
    }

    /// The shape of each group, if the operands fit.
    pub(super) fn shapes(
        &self,
        name: &'static str,
        inputs: &[&TensorType],
    ) -> Result<Vec<Shape>, OpError> {
        let (body, own) = (&self.body, self.own);
        let all = body.inputs().len();
        let is_sound = own <= all && self.count > 0 && !body.outputs().is_empty();
        require(
            name,
            is_sound,
            "at least one group, with results",
            self.count,
        )?;
        let count = self.count * own + all - own;
        let expected = format_args!("{count} operands");
        require(name, inputs.len() == count, expected, inputs.len())?;
        let tensor = (0..own).find(|&input| !self.is_number(input));
        let mut shapes = Vec::with_capacity(self.count);
        for group in 0..self.count {
            let shape = match tensor {
                Some(input) => inputs[self.operand(group, input)].shape.clone(),
                None => Shape::default(),
            };
            for (input, ty) in body.inputs().iter().enumerate() {
                let operand = inputs[self.operand(group, input)];
                let wanted = match self.is_number(input) {
                    true => TensorType::new([], ty.dtype),
                    false => TensorType::new(shape.clone(), ty.dtype),
                };
                let expected = format_args!("an operand {wanted} of group {group}");
                require(name, *operand == wanted, expected, operand)?;
            }
            shapes.push(shape);
        }
        Ok(shapes)
    }

    /// The operands of a group, in the order of the body's inputs.
    pub(super) fn operands<T: Copy>(&self, group: usize, inputs: &[T]) -> Vec<T> {
        let all = 0..self.body.inputs().len();
        all.map(|input| inputs[self.operand(group, input)])
            .collect()
    }
}

/// Appends the operations of `body` on operands.
pub(super) fn instantiate(
    g: &mut Graph,
    body: &Graph,
    operands: &[ValueId],
) -> Result<Results, OpError> {
    let mut values = operands.to_vec();
    for node in body.nodes() {
        let inputs: SmallVec<[ValueId; 4]> = node
            .inputs
            .iter()
            .map(|value| values[value.index()])
            .collect();
        let op = match &node.op {
            Op::Reduce(reduce) => Reduce {
                dims: (0..g.ty(inputs[0]).rank()).collect(),
                ..reduce.clone()
            }
            .into(),
            op => op.clone(),
        };
        values.push(g.push(op, &inputs)?);
    }
    let results = body.outputs().iter().map(|value| values[value.index()]);
    Ok(results.collect())
}

impl OpDef for Foreach {
    fn op_type(&self) -> Option<OpType> {
        Some(OpType::Activation)
    }

    fn overwrites(&self, result: usize) -> Option<usize> {
        let outputs = self.body.outputs().len();
        let state = self.state(result % outputs.max(1))?;
        Some(self.operand(result / outputs, state))
    }

    fn reads_state(&self, result: usize) -> bool {
        let outputs = self.body.outputs().len();
        self.state(result % outputs.max(1)).is_some_and(|state| {
            let readers = self.body.nodes().iter().flat_map(|node| &node.inputs);
            readers.filter(|value| value.index() == state).count() > 1
        })
    }

    fn source(&self, result: usize) -> usize {
        self.overwrites(result).unwrap_or_default()
    }

    fn infer(&self, inputs: &[&TensorType]) -> Result<ResultTypes, OpError> {
        let mut results = ResultTypes::new();
        for shape in self.shapes(Self::NAME, inputs)? {
            for &output in self.body.outputs() {
                let ty = self.body.ty(output);
                require(Self::NAME, ty.rank() == 1, "results of a group's shape", ty)?;
                results.push(TensorType::new(shape.clone(), ty.dtype));
            }
        }
        Ok(results)
    }

    fn is_composite(&self) -> bool {
        true
    }

    fn replaces(&self) -> Vec<OpKind> {
        let body: Vec<OpKind> = self
            .body
            .nodes()
            .iter()
            .map(|node| node.op.kind())
            .collect();
        body.repeat(self.count)
    }

    fn decompose(&self, g: &mut Graph, inputs: &[ValueId]) -> Result<Results, OpError> {
        let mut results = Results::new();
        for group in 0..self.count {
            results.extend(instantiate(g, &self.body, &self.operands(group, inputs))?);
        }
        Ok(results)
    }
}

impl Named for Foreach {
    const NAME: &'static str = "foreach";

    fn cases() -> Vec<Case> {
        let mut cases = Vec::new();
        for dtype in DType::FLOATS {
            let Some(momentum) = momentum(dtype) else {
                continue;
            };
            let tensor = |shape: &[usize]| CaseOperand::new(shape, dtype);
            let number = CaseOperand::new([], dtype);
            let shapes: [&[usize]; 6] = [&[], &[1], &[0, 3], &[67], &[2, 3, 4, 17], &[40, 300]];
            for shapes in [&shapes[..1], &shapes[3..5], &shapes[..]] {
                let groups = shapes
                    .iter()
                    .flat_map(|shape| [(); 3].map(|()| tensor(shape)));
                let op = Self {
                    count: shapes.len(),
                    ..momentum.clone()
                };
                cases.push(Case::new(
                    op,
                    groups.chain([number.clone()]).collect::<Vec<_>>(),
                ));
            }
            // More groups than a launch has room for.
            let op = Self {
                count: 90,
                ..momentum.clone()
            };
            let groups = (0..3 * 90).map(|i| tensor(&[1 + i / 3 % 5]));
            cases.push(Case::new(
                op,
                groups.chain([number.clone()]).collect::<Vec<_>>(),
            ));
            for arrange in ARRANGEMENTS
                .into_iter()
                .filter(|&a| a != Arrange::Contiguous)
            {
                let op = Self {
                    count: 2,
                    ..momentum.clone()
                };
                let group = || {
                    let x = tensor(&[3, 5, 7]);
                    [x.clone(), x.clone(), x.arrange(arrange)]
                };
                let groups = group().into_iter().chain(group());
                cases.push(Case::new(
                    op,
                    groups.chain([number.clone()]).collect::<Vec<_>>(),
                ));
            }
        }
        cases
    }
}

/// Momentum and descent: `m ← 0.5 m + g`, `p ← p − lr · m` of `p`, `m` and `g`, with the rate as a number of all;
/// and `|m|`.
fn momentum(dtype: DType) -> Option<Foreach> {
    let build = || -> Result<Graph, OpError> {
        let mut g = Graph::new();
        let [p, m, gradient] = [(); 3].map(|()| g.input(TensorType::new(ANY, dtype)));
        let (p, m, gradient) = (p?, m?, gradient?);
        let lr = g.input(TensorType::new([], dtype))?;
        let half = g.mul_scalar(m, 0.5)?;
        let next = g.add(half, gradient)?;
        let step = g.mul(next, lr)?;
        let size = g.unary(UnaryOp::Abs, next)?;
        let descended = g.sub(p, step)?;
        let p = g.push(Assign, &[p, descended])?;
        let m = g.push(Assign, &[m, next])?;
        for value in [p, m, size] {
            g.output(value);
        }
        Ok(g)
    };
    let body = Arc::new(build().ok()?);
    Some(Foreach {
        body,
        own: 3,
        count: 1,
    })
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;
    use crate::Node;
    use crate::passes::{Fusion, OneDevice, Pass, Rewritten};

    fn fused(g: &Graph) -> Option<Rewritten> {
        let fusion = Fusion::default();
        fusion.run(g, &OneDevice(|_| true)).unwrap()
    }

    /// Descent with momentum of tensors of these shapes. A factor that follows from all gradients
    /// scales each of them.
    fn descent(shapes: &[&[usize]]) -> Graph {
        let mut g = Graph::new();
        let mut input = |shape: &[usize]| g.input(TensorType::new(shape, DType::F32)).unwrap();
        let lr = input(&[]);
        let groups: Vec<[ValueId; 3]> = shapes
            .iter()
            .map(|shape| [(); 3].map(|()| input(shape)))
            .collect();
        let mut norm = lr;
        for (&[_, _, gradient], shape) in groups.iter().zip(shapes) {
            let square = g.mul(gradient, gradient).unwrap();
            let (op, dims, keepdim) = (ReduceOp::Sum, (0..shape.len()).collect(), false);
            let sum = g.push(Reduce { op, dims, keepdim }, &[square]).unwrap();
            norm = g.add(norm, sum).unwrap();
        }
        let factor = g.unary(UnaryOp::Rsqrt, norm).unwrap();
        for &[p, m, gradient] in &groups {
            let clipped = g.mul(gradient, factor).unwrap();
            let half = g.mul_scalar(m, 0.5).unwrap();
            let next = g.add(half, clipped).unwrap();
            let step = g.mul(next, lr).unwrap();
            let descended = g.sub(p, step).unwrap();
            for (state, next) in [(p, descended), (m, next)] {
                // Recorded writes contain these operations, too.
                let shape = g.ty(state).shape.clone();
                let next = g.push(crate::ops::Expand { shape }, &[next]).unwrap();
                let next = g.push(crate::ops::Contiguous, &[next]).unwrap();
                let state = g.push(Assign, &[state, next]).unwrap();
                g.output(state);
            }
        }
        g
    }

    #[test]
    fn updates_of_many_tensors_are_one_operation() {
        let g = descent(&[&[3, 4], &[5], &[2, 2]]);
        let fused = fused(&g).unwrap();
        let found: Vec<&Node> = (fused.graph.nodes().iter())
            .filter(|node| node.op.kind() == OpKind::Foreach)
            .collect();
        let [node] = found[..] else {
            panic!("{}", fused.graph)
        };
        let Op::Foreach(op) = &node.op else {
            panic!("{}", fused.graph)
        };
        // The rate and the factor are of all groups.
        assert_eq!((op.count, op.own, op.body.inputs().len()), (3, 3, 5));
        assert!((0..6).all(|result| op.overwrites(result).is_some() && op.reads_state(result)));
        assert!(
            !fused
                .graph
                .nodes()
                .iter()
                .any(|node| node.op.kind() == OpKind::Assign)
        );
        assert_eq!(fused.graph.outputs().len(), g.outputs().len());
    }

    #[test]
    fn conversions_are_made_together() {
        let mut g = Graph::new();
        let tensor = TensorType::new([3, 4], DType::F32);
        let states = [(); 2].map(|()| g.input(tensor.clone()).unwrap());
        let x = g.input(TensorType::new([3, 4], DType::BF16)).unwrap();
        let halves = states.map(|p| {
            let half = g.cast(p, DType::BF16).unwrap();
            let half = g.transpose(half).unwrap();
            g.matmul(x, half).unwrap()
        });
        // A reduction and an update read these conversions of computed values.
        let gradients = halves.map(|y| {
            let y = g.matmul(y, x).unwrap();
            g.cast(y, DType::F32).unwrap()
        });
        let norms = gradients.map(|gradient| {
            let (op, dims, keepdim) = (ReduceOp::Sum, smallvec![0, 1], false);
            g.push(Reduce { op, dims, keepdim }, &[gradient]).unwrap()
        });
        let norm = g.add(norms[0], norms[1]).unwrap();
        for (p, gradient) in states.into_iter().zip(gradients) {
            let change = g.mul(gradient, norm).unwrap();
            let next = g.sub(p, change).unwrap();
            let p = g.push(Assign, &[p, next]).unwrap();
            g.output(p);
        }
        let fused = fused(&g).unwrap();
        let kinds = |kind: OpKind| {
            fused
                .graph
                .nodes()
                .iter()
                .filter(move |node| node.op.kind() == kind)
        };
        assert_eq!(kinds(OpKind::Cast).count(), 0, "{}", fused.graph);
        let counts: Vec<usize> = kinds(OpKind::Foreach)
            .filter_map(|node| match &node.op {
                Op::Foreach(op) => Some(op.count),
                _ => None,
            })
            .collect();
        assert_eq!(counts, [2, 2, 2], "{}", fused.graph);
    }

    #[test]
    fn what_reads_another_s_state_stays_apart() {
        // The second is updated by the first's state as it was.
        let mut g = Graph::new();
        let [a, b, x] = [(); 3].map(|()| g.input(TensorType::new([4], DType::F32)).unwrap());
        let next_a = g.mul(a, x).unwrap();
        let next_b = g.mul(b, a).unwrap();
        let b = g.push(Assign, &[b, next_b]).unwrap();
        let a = g.push(Assign, &[a, next_a]).unwrap();
        g.output(a);
        g.output(b);
        let fused = fused(&g).unwrap();
        let counts: Vec<usize> = (fused.graph.nodes().iter())
            .filter_map(|node| match &node.op {
                Op::Foreach(op) => Some(op.count),
                _ => None,
            })
            .collect();
        assert!(counts.iter().all(|&count| count == 1), "{}", fused.graph);
    }

    #[test]
    fn held_values_and_other_shapes_stay_outside() {
        let mut g = Graph::new();
        let p = g.input(TensorType::new([4, 2], DType::F32)).unwrap();
        let row = g.input(TensorType::new([2], DType::F32)).unwrap();
        let scaled = g.mul(p, row).unwrap();
        let held = g.unary(UnaryOp::Exp, scaled).unwrap();
        let next = g.sub(p, held).unwrap();
        let p = g.push(Assign, &[p, next]).unwrap();
        g.output(p);
        g.output(held);
        let fused = fused(&g).unwrap();
        let names: Vec<&str> = fused
            .graph
            .nodes()
            .iter()
            .map(|node| node.op.name())
            .collect();
        assert_eq!(names, ["binary", "unary", "foreach"]);
    }
}
