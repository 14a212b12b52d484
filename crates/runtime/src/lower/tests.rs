use std::collections::HashMap;

use super::*;
use rustorch_ir::ops::{Offload, Reload, UnaryOp};
use rustorch_ir::{DType, OpKind};

/// Kernels that read these layouts and are not fused.
struct Reads(Layouts);

impl Kernels for Reads {
    fn layouts(&self, _: &Signature) -> Layouts {
        self.0
    }

    fn fuses(&self, _: &Signature) -> bool {
        false
    }
}

fn chain(n: usize) -> Graph {
    let mut g = Graph::new();
    let mut x = g.input(TensorType::new([64], DType::F32)).unwrap();
    for _ in 0..n {
        x = g.unary(UnaryOp::Neg, x).unwrap();
    }
    g.output(x);
    g
}

#[test]
fn a_chain_needs_two_buffers() {
    let lowered = lower(&chain(10), &Reads(Layouts::Any)).unwrap();
    assert_eq!(lowered.steps.len(), 10);
    assert_eq!(lowered.arena, [2 * 64 * 4]);
    assert_eq!(lowered.steps[9].output().slot, Slot::Output(0));
}

/// Kernels whose results may lie where their operands were.
struct WritesOver;

impl Kernels for WritesOver {
    fn layouts(&self, _: &Signature) -> Layouts {
        Layouts::Any
    }

    fn fuses(&self, _: &Signature) -> bool {
        false
    }

    fn writes_over(&self, _: &Signature) -> Option<usize> {
        Some(0)
    }
}

#[test]
fn results_take_over_what_nobody_needs_any_more() {
    // The first one reads a graph's input, and the last one is its output.
    let lowered = lower(&chain(10), &WritesOver).unwrap();
    assert_eq!(lowered.arena, [64 * 4]);
    let mut g = Graph::new();
    let x = g.input(TensorType::new([64], DType::F32)).unwrap();
    let a = g.unary(UnaryOp::Neg, x).unwrap();
    let b = g.unary(UnaryOp::Exp, a).unwrap();
    let both = g.add(b, a).unwrap();
    let twice = g.add(both, both).unwrap();
    let half = g.cast(twice, DType::F16).unwrap();
    g.output(half);
    let Lowered { steps, arena, .. } = lower(&g, &WritesOver).unwrap();
    // `a` is needed behind `b`, `both` is read twice, and a half is smaller.
    assert_eq!(arena, [2 * 64 * 4]);
    assert_eq!(steps[2].output().slot, steps[1].output().slot);
    assert_ne!(steps[1].output().slot, steps[0].output().slot);
    assert_ne!(steps[3].output().slot, steps[2].output().slot);
}

/// Kernels that write rows wherever they are wanted.
struct WritesRows;

impl Kernels for WritesRows {
    fn layouts(&self, _: &Signature) -> Layouts {
        Layouts::Any
    }

    fn fuses(&self, _: &Signature) -> bool {
        false
    }

    fn result_layouts(&self, signature: &Signature) -> Layouts {
        match signature.op.kind() {
            OpKind::Unary => Layouts::AlignedRows,
            _ => Layouts::Contiguous,
        }
    }
}

/// The exponentials of each of three inputs `[2, 3, 5, 8]`, seen as `[2, 5, 24]`.
fn heads(g: &mut Graph) -> [ValueId; 3] {
    let heads = TensorType::new([2, 3, 5, 8], DType::F32);
    let inputs = [(); 3].map(|()| g.input(heads.clone()).unwrap());
    inputs.map(|x| {
        let y = g.unary(UnaryOp::Exp, x).unwrap();
        let rows = g.permute(y, &[0, 2, 1, 3]).unwrap();
        g.reshape(rows, [2, 5, 24]).unwrap()
    })
}

#[test]
fn results_lie_as_readers_see_them() {
    let mut g = Graph::new();
    let [a, ..] = heads(&mut g);
    let y = g.unary(UnaryOp::Neg, a).unwrap();
    g.output(y);
    let steps = lower(&g, &WritesRows).unwrap().steps;
    let count = |steps: &[Step]| {
        steps
            .iter()
            .filter(|s| s.last().op.kind() == OpKind::Contiguous)
            .count()
    };
    assert_eq!(count(&steps), 0);
    assert_eq!(steps[0].output().layout.strides[..], [120, 8, 24, 1]);
    assert!(steps[3].inputs[0].layout.is_contiguous());
    // Readers have to accept the layout, too.
    let steps = lower(&g, &Reads(Layouts::Any)).unwrap().steps;
    assert_eq!(count(&steps), 3);
}

#[test]
fn what_is_joined_is_written_there() {
    let mut g = Graph::new();
    let [a, b, c] = heads(&mut g);
    // Another node needs one of the operands, too.
    let other = g.unary(UnaryOp::Neg, c).unwrap();
    let all = g.push(Concat { dim: 2 }, &[a, b, c]).unwrap();
    let y = g.unary(UnaryOp::Neg, all).unwrap();
    g.output(other);
    g.output(y);
    let Lowered { steps, arena, .. } = lower(&g, &WritesRows).unwrap();
    let join = steps
        .iter()
        .find(|s| s.last().op.kind() == OpKind::Concat)
        .unwrap();
    for (k, offset) in [(0, 0), (1, 24)] {
        assert_eq!(join.inputs[k].slot, join.output().slot);
        assert_eq!(steps[k].output().slot, join.output().slot);
        assert_eq!(steps[k].output().layout.offset, offset);
        assert_eq!(steps[k].output().layout.strides[..], [360, 8, 72, 1]);
    }
    assert_ne!(join.inputs[2].slot, join.output().slot);
    // The arena holds the joined tensor, and the operand that is copied into it.
    assert_eq!(arena.iter().sum::<usize>(), 4 * 240 * 4);
}

#[test]
fn no_two_live_values_overlap() {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([100], DType::F32)).unwrap();
    let mut values = vec![x];
    for i in 0..30 {
        let (a, b) = (values[i / 2], values[i]);
        values.push(g.add(a, b).unwrap());
    }
    g.output(values[30]);
    let Lowered { steps, arena, .. } = lower(&g, &Reads(Layouts::Any)).unwrap();
    let mut owners: Vec<Option<usize>> = vec![None; arena[0] / 64];
    let writer = |place: &Place| match place.slot {
        Slot::Arena { at, .. } => Some(at / 64..(at + 400).div_ceil(64)),
        _ => None,
    };
    // Each value that is read is the one that the graph says.
    let mut places: HashMap<usize, std::ops::Range<usize>> = HashMap::new();
    for (i, step) in steps.iter().enumerate() {
        for (operand, place) in g.nodes()[i].inputs.iter().zip(&step.inputs) {
            let Some(made) = operand.index().checked_sub(1) else {
                continue;
            };
            assert_eq!(writer(place).as_ref(), places.get(&made));
            let whole = owners[places[&made].clone()]
                .iter()
                .all(|o| *o == Some(made));
            assert!(whole, "step {made} is overwritten before step {i} reads it");
        }
        if let Some(range) = writer(step.output()) {
            owners[range.clone()].fill(Some(i));
            places.insert(i, range);
        }
    }
}

#[test]
fn what_waits_on_the_host_takes_none_of_the_arena() {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([64], DType::F32)).unwrap();
    let a = g.unary(UnaryOp::Exp, x).unwrap();
    let waits = g.push(Offload, &[a]).unwrap();
    let mut y = a;
    for _ in 0..4 {
        y = g.unary(UnaryOp::Neg, y).unwrap();
    }
    let back = g.push(Reload, &[waits]).unwrap();
    let y = g.add(y, back).unwrap();
    g.output(y);
    let lowered = lower(&g, &Reads(Layouts::Any)).unwrap();
    assert_eq!(
        (&lowered.arena[..], &lowered.offloaded[..]),
        (&[512][..], &[256][..])
    );
    let waiting = Slot::Arena { buffer: 1, at: 0 };
    assert_eq!(lowered.steps[1].output().slot, waiting);
    assert_eq!(lowered.steps[6].inputs[0].slot, waiting);
}

#[test]
fn what_stays_on_the_device_is_not_brought_back() {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([64], DType::F32)).unwrap();
    let a = g.unary(UnaryOp::Exp, x).unwrap();
    let back = g.push(Reload, &[a]).unwrap();
    let y = g.unary(UnaryOp::Neg, back).unwrap();
    g.output(y);
    let lowered = lower(&g, &Reads(Layouts::Any)).unwrap();
    assert_eq!((lowered.steps.len(), &lowered.arena[..]), (2, &[256][..]));
    assert_eq!(
        lowered.steps[1].inputs[0].slot,
        lowered.steps[0].output().slot
    );
}

#[test]
fn views_cost_nothing_until_a_kernel_needs_rows() {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([4, 6], DType::F32)).unwrap();
    let t = g.permute(x, &[1, 0]).unwrap();
    let y = g.unary(UnaryOp::Exp, t).unwrap();
    g.output(y);
    assert_eq!(lower(&g, &Reads(Layouts::Any)).unwrap().steps.len(), 1);
    let dense = lower(&g, &Reads(Layouts::DenseRows)).unwrap();
    assert_eq!(dense.steps.len(), 2);
    assert_eq!(dense.steps[0].last().op, Contiguous.into());
}

#[test]
fn outputs_that_are_views_or_inputs_are_copied() {
    let mut g = Graph::new();
    let x = g.input(TensorType::new([4, 6], DType::F32)).unwrap();
    let t = g.permute(x, &[1, 0]).unwrap();
    let y = g.unary(UnaryOp::Exp, x).unwrap();
    for v in [x, t, y, y] {
        g.output(v);
    }
    let steps = lower(&g, &Reads(Layouts::Any)).unwrap().steps;
    let mut outputs: Vec<Slot> = steps.iter().map(|s| s.output().slot).collect();
    outputs.sort_by_key(|s| format!("{s:?}"));
    assert_eq!(outputs, [0, 1, 2, 3].map(Slot::Output));
}
