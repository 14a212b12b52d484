use smallvec::smallvec;

use super::*;
use crate::ops::{
    Activation, ActivationKind, BatchNormTrain, BinaryOp, CrossEntropy, CrossEntropyBackward,
    LayerNorm, Linear, NormBackward, RmsNorm, UnaryOp,
};
use crate::ops::{UpdateSlice, add_rms_norm::add_rms_norm};
use crate::passes::OneDevice;
use crate::{DType, OpKind, Param};

fn all(graph: &Graph) -> Option<Rewritten> {
    let fusion = Fusion::default();
    fusion.run(graph, &OneDevice(|_| true)).unwrap()
}

/// A device for each node.
struct Apart;

impl Places for Apart {
    fn device(&self, at: usize) -> usize {
        at
    }

    fn supports(&self, _at: usize, _signature: &Signature) -> bool {
        true
    }

    fn follow(&mut self, _before: &Graph, _rewritten: &Rewritten) {}
}

fn names(fused: &Rewritten) -> Vec<&'static str> {
    fused
        .graph
        .nodes()
        .iter()
        .map(|node| node.op.name())
        .collect()
}

fn input(g: &mut Graph, shape: &[usize]) -> ValueId {
    g.input(TensorType::new(shape, DType::F32)).unwrap()
}

fn norm(g: &mut Graph, x: ValueId) -> ValueId {
    g.push(RmsNorm { eps: Param(1e-5) }, &[x]).unwrap()
}

#[test]
fn what_others_need_is_not_hidden() {
    let mut g = Graph::new();
    let (x, w) = (input(&mut g, &[1, 8]), input(&mut g, &[8, 8]));
    let normed = norm(&mut g, x);
    let y = g.push(Linear, &[normed, w]).unwrap();
    g.output(y);
    assert_eq!(names(&all(&g).unwrap()), ["fused_linear"]);
    // Also read by a sum, or an output of the graph.
    let mut also = g.clone();
    let sum = also.add(normed, x).unwrap();
    also.output(sum);
    assert!(all(&also).is_none());
    g.output(normed);
    assert!(all(&g).is_none());
}

#[test]
fn a_gate_is_fused_whichever_function_it_has() {
    for &kind in ActivationKind::ALL {
        let mut g = Graph::new();
        let x = input(&mut g, &[1, 8]);
        let [a, b] = [0, 1].map(|_| input(&mut g, &[12, 8]));
        let [a, b] = [a, b].map(|w| g.push(Linear, &[x, w]).unwrap());
        let gate = g.push(Activation { kind }, &[a]).unwrap();
        let y = g.binary(BinaryOp::Mul, b, gate).unwrap();
        g.output(y);
        let fused = all(&g).unwrap();
        assert_eq!(names(&fused), ["fused_linear"]);
        assert_eq!(fused.origins[0].as_slice(), [0, 1, 2, 3]);
    }
}

#[test]
fn what_has_to_run_in_between_forbids_it() {
    // The second product's weights depend on the first product: both cannot be at once.
    let mut g = Graph::new();
    let (x, w) = (input(&mut g, &[8, 8]), input(&mut g, &[8, 8]));
    let a = g.push(Linear, &[x, w]).unwrap();
    let a = g.unary(UnaryOp::Exp, a).unwrap();
    let b = g.push(Linear, &[x, a]).unwrap();
    g.output(b);
    assert!(all(&g).is_none());
}

#[test]
fn two_matches_are_not_each_other_s_condition() {
    // Each pair alone could be one node, but each reads a result of the other.
    let mut g = Graph::new();
    let x = input(&mut g, &[8, 8]);
    let [v, w] = [0, 1].map(|_| input(&mut g, &[8, 8]));
    let a = g.push(Linear, &[x, w]).unwrap();
    let z = g.unary(UnaryOp::Exp, v).unwrap();
    let c = g.push(Linear, &[z, w]).unwrap();
    let b = g.push(Linear, &[x, c]).unwrap();
    let d = g.push(Linear, &[z, a]).unwrap();
    let y = g.sub(b, d).unwrap();
    g.output(y);
    let fused = all(&g).unwrap();
    assert_eq!(
        names(&fused),
        ["unary", "linear", "fused_linear", "linear", "binary"]
    );
}

#[test]
fn states_are_read_before_they_are_written_over() {
    // The norm of the old state must not move behind the write, nor the write before it.
    let mut g = Graph::new();
    let state = input(&mut g, &[4, 8]);
    let row = input(&mut g, &[1, 8]);
    let start = g.input(TensorType::new([1], DType::I32)).unwrap();
    let sum = g.add(state, state).unwrap();
    let new = g
        .push(UpdateSlice { dim: 0 }, &[state, row, start])
        .unwrap();
    let other = g.unary(UnaryOp::Exp, new).unwrap();
    let normed = norm(&mut g, sum);
    let y = g.add(normed, other).unwrap();
    g.output(y);
    let fused = all(&g).unwrap();
    assert_eq!(
        names(&fused),
        ["add_rms_norm", "update_slice", "unary", "binary"]
    );
}

#[test]
fn a_norm_has_the_residual_before_it_and_the_conversion_behind() {
    let layer_norm = LayerNorm {
        dims: 1,
        eps: Param(1e-5),
    };
    let rms_norm = RmsNorm { eps: Param(1e-5) };
    for norm in [Op::from(layer_norm), rms_norm.into()] {
        let mut g = Graph::new();
        let x = input(&mut g, &[4, 8]);
        let half = g.input(TensorType::new([4, 8], DType::BF16)).unwrap();
        let added = g.cast(half, DType::F32).unwrap();
        let sum = g.add(x, added).unwrap();
        let normed = g.push(norm, &[sum]).unwrap();
        let normed = g.cast(normed, DType::BF16).unwrap();
        // The sum is needed once more, behind the norm.
        let next = g.unary(UnaryOp::Exp, sum).unwrap();
        g.output(normed);
        g.output(next);
        let fused = all(&g).unwrap();
        assert_eq!(names(&fused), ["fused_norm", "unary"]);
        let node = &fused.graph.nodes()[0];
        let types: Vec<DType> = node.results().map(|v| fused.graph.ty(v).dtype).collect();
        assert_eq!(types, [DType::F32, DType::BF16]);
    }
}

#[test]
fn a_norm_s_gradient_reads_halves_and_adds_what_comes_from_elsewhere() {
    let mut g = Graph::new();
    let (x, other) = (input(&mut g, &[4, 8]), input(&mut g, &[4, 8]));
    let half = g.input(TensorType::new([4, 8], DType::BF16)).unwrap();
    let ct = g.cast(half, DType::F32).unwrap();
    let backward = NormBackward {
        dims: 1,
        eps: Param(1e-5),
        is_centred: true,
        has_weight: false,
        adds: false,
        also: None,
    };
    let dx = g.push(backward, &[x, ct]).unwrap();
    let sum = g.add(other, dx).unwrap();
    g.output(sum);
    let fused = all(&g).unwrap();
    assert_eq!(names(&fused), ["norm_backward"]);
    let inputs = &fused.graph.nodes()[0].inputs;
    assert_eq!(inputs.as_slice(), [x, half, other]);
}

#[test]
fn a_loss_and_its_gradient_are_one_pass() {
    let fused = |of_loss: bool| {
        let mut g = Graph::new();
        let x = input(&mut g, &[4, 8]);
        let class = g.input(TensorType::new([4], DType::I64)).unwrap();
        let given = input(&mut g, &[4]);
        let loss = CrossEntropy {
            dim: 1,
            ignore_index: -100,
        };
        let losses = g.push(loss.clone(), &[x, class]).unwrap();
        let ct = match of_loss {
            true => g.unary(UnaryOp::Exp, losses).unwrap(),
            false => given,
        };
        let backward = CrossEntropyBackward {
            loss,
            also_loss: false,
        };
        let dx = g.push(backward, &[x, class, ct]).unwrap();
        g.output(losses);
        g.output(dx);
        all(&g)
    };
    let together = fused(false).unwrap();
    assert_eq!(names(&together), ["cross_entropy_backward"]);
    let types: Vec<usize> = together.graph.nodes()[0]
        .results()
        .map(|value| together.graph.ty(value).rank())
        .collect();
    assert_eq!(types, [2, 1]);
    // A factor that follows from the loss comes after it.
    assert!(fused(true).is_none());
}

#[test]
fn norms_of_batches_and_their_gradients_take_in_sums_and_positive_parts() {
    let mut g = Graph::new();
    let (x, other) = (input(&mut g, &[4, 3, 2]), input(&mut g, &[4, 3, 2]));
    let (w, b) = (input(&mut g, &[3]), input(&mut g, &[3]));
    let cts = [(); 2].map(|()| input(&mut g, &[4, 3, 2]));
    let norm = BatchNormTrain {
        eps: Param(1e-5),
        adds: false,
        relu: false,
    };
    let y = g.push(norm, &[x, w, b]).unwrap();
    let sum = g.add(y, other).unwrap();
    let kind = ActivationKind::Relu;
    let y = g.push(Activation { kind }, &[sum]).unwrap();
    g.output(y);
    let forward = 0..g.nodes().len();
    let ct = g.add(cts[0], cts[1]).unwrap();
    let wanted = [x, w, b, other];
    let gradients = crate::autodiff::backward(&mut g, forward, &[(y, ct)], &wanted).unwrap();
    for gradient in gradients.into_iter().flatten() {
        g.output(gradient);
    }
    let fused = all(&g).unwrap();
    assert_eq!(names(&fused), ["batch_norm_train", "batch_norm_backward"]);
    let backward = &fused.graph.nodes()[1];
    assert_eq!([backward.inputs.len(), backward.outputs.len()], [7, 4]);
}

#[test]
fn what_a_norm_of_a_batch_became_is_found_again_in_its_gradient() {
    let mut g = Graph::new();
    let (x, ct) = (input(&mut g, &[4, 3, 2]), input(&mut g, &[4, 3, 2]));
    let (w, b) = (input(&mut g, &[3]), input(&mut g, &[3]));
    let norm = BatchNormTrain {
        eps: Param(1e-5),
        adds: false,
        relu: false,
    };
    let y = g.push(norm, &[x, w, b]).unwrap();
    let kind = ActivationKind::Relu;
    let y = g.push(Activation { kind }, &[y]).unwrap();
    let forward = 0..g.nodes().len();
    let gradients = crate::autodiff::backward(&mut g, forward, &[(y, ct)], &[x]).unwrap();
    g.output(gradients[0].unwrap());
    let fused = all(&g).unwrap();
    let backward = fused.graph.nodes().last().unwrap();
    assert!(matches!(&backward.op, Op::BatchNormBackward(op) if op.relu && op.by_bias));
    assert_eq!(backward.inputs.last(), Some(&b));
}

#[test]
fn gradients_of_parts_are_joined() {
    let sum_of = |starts: [usize; 3]| {
        let mut g = Graph::new();
        let parts = starts.map(|_| input(&mut g, &[4, 2]));
        let mut pads = Vec::new();
        for (start, part) in starts.into_iter().zip(parts) {
            pads.push(g.pad(part, 1, start, 4 - start).unwrap());
        }
        let sum = g.add(pads[0], pads[1]).unwrap();
        let sum = g.add(pads[2], sum).unwrap();
        g.output(sum);
        (parts, all(&g))
    };
    let (parts, fused) = sum_of([2, 0, 4]);
    let fused = fused.unwrap();
    assert_eq!(names(&fused), ["concat"]);
    let inputs = &fused.graph.nodes()[0].inputs;
    assert_eq!(inputs.as_slice(), [parts[1], parts[0], parts[2]]);
    // Two at one place are added.
    assert!(sum_of([2, 0, 2]).1.is_none());
}

#[test]
fn devices_and_support_limit_it() {
    let mut g = Graph::new();
    let x = input(&mut g, &[4, 8]);
    let sum = g.add(x, x).unwrap();
    let normed = norm(&mut g, sum);
    g.output(normed);
    let fusion = Fusion::default();
    let unsupported = fusion.run(&g, &OneDevice(|_| false)).unwrap();
    assert!(unsupported.is_none());
    assert!(fusion.run(&g, &Apart).unwrap().is_none());
    let rules: &[Rule] = &[add_rms_norm];
    let one = Fusion { rules }.run(&g, &OneDevice(|_| true)).unwrap();
    assert!(one.is_some());
}

#[test]
fn composites_say_what_they_replace() {
    let kinds = [
        OpKind::FusedLinear,
        OpKind::CachedAttention,
        OpKind::AddRmsNorm,
        OpKind::Foreach,
        OpKind::ForeachReduce,
        OpKind::FusedNorm,
    ];
    for case in kinds.into_iter().flat_map(OpKind::cases) {
        let mut g = Graph::new();
        let inputs: Vec<ValueId> = (case.inputs.iter())
            .map(|operand| g.input(operand.ty.clone()).unwrap())
            .collect();
        g.expand(&case.op, &inputs).unwrap();
        let parts: Vec<OpKind> = g.nodes().iter().map(|node| node.op.kind()).collect();
        assert_eq!(case.op.def().replaces(), parts, "{:?}", case.op);
    }
}

#[test]
fn a_rule_of_other_types_is_an_error() {
    fn wrong(f: &Finder, at: usize) -> Vec<Match> {
        let x = f.operands(at)[0];
        vec![Match {
            op: crate::ops::Cast { dtype: DType::F16 }.into(),
            inputs: smallvec![x],
            nodes: smallvec![at],
            results: smallvec![f.result(at)],
        }]
    }
    let mut g = Graph::new();
    let x = input(&mut g, &[4]);
    let y = g.unary(UnaryOp::Exp, x).unwrap();
    let z = g.unary(UnaryOp::Exp, y).unwrap();
    g.output(z);
    let rules: &[Rule] = &[wrong];
    let error = Fusion { rules }.run(&g, &OneDevice(|_| true)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cast: expected values of its results' types, got a rule that replaces f32[4]"
    );
}
