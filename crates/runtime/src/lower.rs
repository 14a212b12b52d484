//! From a graph to kernel launches on buffers: what every backend needs and none should
//! write again. Views become layouts, copies are put in where a kernel needs them, chains of
//! elementwise operations become one launch, and intermediate values share one arena by their
//! lifetimes.

use rustorch_ir::ops::Contiguous;
use rustorch_ir::{DType, Graph, Layout, Node, Op, OpError, Role, Signature, TensorType, ValueId};
use smallvec::SmallVec;

use crate::Layouts;
use crate::fuse::fuse;

/// The buffer a value lies in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Slot {
    /// A graph input.
    Input(usize),
    /// A graph output.
    Output(usize),
    /// Bytes of the arena, from an offset on.
    Arena(usize),
}

/// Where an operand or result lies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The buffer.
    pub slot: Slot,
    /// The elements in it.
    pub layout: Layout,
    /// Shape and element type.
    pub ty: TensorType,
}

/// One kernel launch: an operation, or several elementwise ones fused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What is done, in order. The result of the last part is the step's. Several parts are
    /// elementwise operations on one shape, the result's.
    pub parts: SmallVec<[Part; 1]>,
    /// The operands.
    pub inputs: SmallVec<[Place; 4]>,
    /// The result, contiguous; for a state operation the state itself.
    pub output: Place,
}

/// One operation of a [`Step`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Index of the node in the graph that it is for.
    pub node: usize,
    /// The operation.
    pub op: Op,
    /// Its operands.
    pub operands: SmallVec<[Operand; 4]>,
    /// Element type of its result.
    pub dtype: DType,
}

/// Where a [`Part`] has an operand from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operand {
    /// The step's operand of this index.
    Input(usize),
    /// The result of the part of this index.
    Part(usize),
}

impl Step {
    /// The last part: the only one, unless the step is fused.
    pub fn last(&self) -> &Part {
        &self.parts[self.parts.len() - 1]
    }
}

/// A graph as kernel launches.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lowered {
    /// The launches in order.
    pub steps: Vec<Step>,
    /// For each step, how many from it on are launched together, as
    /// [`Kernels::together`] says; of the steps among them, only the first's number counts.
    pub together: Vec<usize>,
    /// For each step, the last one that reads its result; `usize::MAX` for those that a graph
    /// output or a state keeps.
    pub last_uses: Vec<usize>,
    /// Size of the arena for intermediate values.
    pub arena_bytes: usize,
}

/// Alignment of values in the arena: a cache line, and what vector loads like best.
const ARENA_ALIGNMENT: usize = 64;

/// Values while their buffers are not known yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Root {
    Input(usize),
    /// Result of the step with this index.
    Step(usize),
}

/// A step before its buffers are known.
pub(crate) struct Draft {
    pub(crate) step: Step,
    /// Where each operand is from.
    pub(crate) roots: SmallVec<[Root; 4]>,
    /// May it be fused with its neighbours?
    pub(crate) fuses: bool,
}

/// What a backend's kernels are like.
pub trait Kernels {
    /// The layouts that the kernel for this reads.
    fn layouts(&self, signature: &Signature) -> Layouts;

    /// Is this an elementwise kernel that the backend can fuse with others?
    fn fuses(&self, signature: &Signature) -> bool;

    /// How many steps, from `steps[at]` on, the backend launches together: 1 or more. All their
    /// operands and results have memory of their own until the last of them is done. Places are
    /// not final yet, but those of different values differ.
    fn together(&self, steps: &[Step], at: usize) -> usize {
        let _ = (steps, at);
        1
    }
}

struct Builder<'g, K> {
    graph: &'g Graph,
    kernels: &'g K,
    steps: Vec<Draft>,
    /// For each value, its root and layout.
    values: Vec<(Root, Layout)>,
}

/// Lowers `graph` to `kernels`.
///
/// # Errors
/// None for graphs of verified nodes; the types of inserted copies are inferred.
pub fn lower(graph: &Graph, kernels: &impl Kernels) -> Result<Lowered, OpError> {
    let mut builder = Builder {
        graph,
        kernels,
        steps: Vec::with_capacity(graph.nodes().len()),
        values: (graph.inputs().iter().enumerate())
            .map(|(i, ty)| (Root::Input(i), Layout::contiguous(&ty.shape)))
            .collect(),
    };
    for (index, node) in graph.nodes().iter().enumerate() {
        builder.node(index, node);
    }
    let mut writers = builder.outputs();
    let steps = fuse(builder.steps, &mut writers);
    Ok(place(steps, &writers, kernels))
}

impl<K: Kernels> Builder<'_, K> {
    fn node(&mut self, index: usize, node: &Node) {
        match node.op.def().role() {
            Role::View => {
                let (root, layout) = self.value(node.inputs[0]).clone();
                let seen = node.op.def().view(&layout);
                let (root, layout) = match seen {
                    Some(layout) => (root, layout),
                    None => {
                        let ty = self.graph.ty(node.inputs[0]).clone();
                        let (root, layout) = self.copy(index, root, layout, ty);
                        let layout = node.op.def().view(&layout).unwrap_or(layout);
                        (root, layout)
                    }
                };
                self.values.push((root, layout));
            }
            Role::State => {
                let operands = self.operands(index, node, 1);
                let (root, layout) = self.value(node.inputs[0]).clone();
                self.push(index, node.op.clone(), operands, node.output().clone());
                self.values.push((root, layout));
            }
            Role::Compute => {
                let operands = self.operands(index, node, 0);
                let value = self.push(index, node.op.clone(), operands, node.output().clone());
                self.values.push(value);
            }
        }
    }

    fn value(&self, value: ValueId) -> &(Root, Layout) {
        &self.values[value.index()]
    }

    /// The operands as the kernel reads them; the first `keep` are never copied.
    fn operands(
        &mut self,
        index: usize,
        node: &Node,
        keep: usize,
    ) -> Vec<(Root, Layout, TensorType)> {
        let accepted = self.graph.with_signature(node, |s| self.kernels.layouts(s));
        let mut operands = Vec::with_capacity(node.inputs.len());
        for (i, &input) in node.inputs.iter().enumerate() {
            let (root, layout) = self.value(input).clone();
            let ty = self.graph.ty(input).clone();
            let readable = match accepted {
                Layouts::Any => true,
                Layouts::DenseRows => layout.has_dense_rows(),
                Layouts::Contiguous => layout.is_contiguous(),
            };
            let (root, layout) = match readable || i < keep {
                true => (root, layout),
                false => self.copy(index, root, layout, ty.clone()),
            };
            operands.push((root, layout, ty));
        }
        operands
    }

    fn copy(&mut self, index: usize, root: Root, layout: Layout, ty: TensorType) -> (Root, Layout) {
        self.push(
            index,
            Contiguous.into(),
            vec![(root, layout, ty.clone())],
            ty,
        )
    }

    fn push(
        &mut self,
        node: usize,
        op: Op,
        operands: Vec<(Root, Layout, TensorType)>,
        ty: TensorType,
    ) -> (Root, Layout) {
        let roots = operands.iter().map(|o| o.0).collect();
        let fuses = {
            let types: SmallVec<[&TensorType; 4]> = operands.iter().map(|o| &o.2).collect();
            self.kernels.fuses(&Signature {
                op: &op,
                inputs: &types,
                output: &ty,
            })
        };
        let place = |layout, ty| Place {
            slot: Slot::Arena(0),
            layout,
            ty,
        };
        let layout = Layout::contiguous(&ty.shape);
        let part = Part {
            node,
            op,
            operands: (0..operands.len()).map(Operand::Input).collect(),
            dtype: ty.dtype,
        };
        let step = Step {
            parts: [part].into_iter().collect(),
            inputs: operands.into_iter().map(|(_, l, t)| place(l, t)).collect(),
            output: place(layout.clone(), ty),
        };
        self.steps.push(Draft { step, roots, fuses });
        (Root::Step(self.steps.len() - 1), layout)
    }

    /// Gives each graph output a step that writes it, and returns those steps.
    fn outputs(&mut self) -> Vec<usize> {
        let mut writers: Vec<usize> = Vec::new();
        for &output in self.graph.outputs() {
            let (root, layout) = self.value(output).clone();
            let whole = layout.offset == 0 && layout.is_contiguous();
            let direct = match root {
                Root::Step(s) if whole && !writers.contains(&s) => {
                    let ty = &self.steps[s].step.output().ty;
                    (ty.shape.elements() == layout.elements()).then_some(s)
                }
                _ => None,
            };
            let writer = direct.unwrap_or_else(|| {
                let last = self.graph.nodes().len().saturating_sub(1);
                let ty = self.graph.ty(output).clone();
                self.copy(last, root, layout, ty);
                self.steps.len() - 1
            });
            writers.push(writer);
        }
        writers
    }
}

/// Finds a buffer for each step's result: an output, or bytes of the arena that no value alive
/// at that time uses.
fn place(drafts: Vec<Draft>, writers: &[usize], kernels: &impl Kernels) -> Lowered {
    let is_state = |step: &Step| step.last().op.def().role() == Role::State;
    let mut last_uses: Vec<usize> = (0..drafts.len()).collect();
    for (at, draft) in drafts.iter().enumerate() {
        for root in &draft.roots {
            if let Root::Step(s) = root {
                last_uses[*s] = at;
            }
        }
    }
    let mut roots = Vec::with_capacity(drafts.len());
    let mut steps = Vec::with_capacity(drafts.len());
    for (at, draft) in drafts.into_iter().enumerate() {
        if writers.contains(&at) || is_state(&draft.step) {
            last_uses[at] = usize::MAX;
        }
        roots.push(draft.roots);
        steps.push(draft.step);
    }
    let assign = |steps: &mut [Step], take: &mut dyn FnMut(usize, usize) -> usize| {
        let mut slots: Vec<Slot> = Vec::with_capacity(steps.len());
        for (at, step) in steps.iter_mut().enumerate() {
            for (place, root) in step.inputs.iter_mut().zip(&roots[at]) {
                place.slot = match *root {
                    Root::Input(i) => Slot::Input(i),
                    Root::Step(s) => slots[s],
                };
            }
            step.output().slot = match writers.iter().position(|&w| w == at) {
                _ if is_state(step) => step.inputs[0].slot,
                Some(output) => Slot::Output(output),
                None => Slot::Arena(take(at, step.output().ty.bytes())),
            };
            slots.push(step.output().slot);
        }
    };

    // Every value has a place of its own while it is asked what goes together.
    assign(&mut steps, &mut |at, _| at * ARENA_ALIGNMENT);
    let mut together = vec![1; steps.len()];
    // For each step, the first and the last of those that it goes with.
    let mut groups = Vec::with_capacity(steps.len());
    while groups.len() < steps.len() {
        let at = groups.len();
        let count = kernels.together(&steps, at);
        let count = count.clamp(1, steps.len() - at);
        together[at] = count;
        groups.extend(std::iter::repeat_n((at, at + count - 1), count));
    }
    let mut arena = Arena::default();
    assign(&mut steps, &mut |at, bytes| {
        arena.take(bytes, groups[at].0, groups[last_uses[at]].1)
    });
    Lowered {
        steps,
        together,
        last_uses,
        arena_bytes: arena.size,
    }
}

/// First-fit allocation of byte ranges over time.
#[derive(Default)]
struct Arena {
    /// Ranges in use, by offset: start, end, step of the last use.
    live: Vec<(usize, usize, usize)>,
    size: usize,
}

impl Arena {
    /// A range that is free from step `now` to step `last`.
    fn take(&mut self, bytes: usize, now: usize, last: usize) -> usize {
        self.live.retain(|&(_, _, until)| until >= now);
        let bytes = bytes.next_multiple_of(ARENA_ALIGNMENT);
        let mut start = 0;
        let mut at = 0;
        for (i, &(from, to, _)) in self.live.iter().enumerate() {
            if from >= start + bytes {
                break;
            }
            start = to;
            at = i + 1;
        }
        self.live.insert(at, (start, start + bytes, last));
        self.size = self.size.max(start + bytes);
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustorch_ir::DType;
    use rustorch_ir::ops::UnaryOp;

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
        assert_eq!(lowered.arena_bytes, 2 * 64 * 4);
        assert_eq!(lowered.steps[9].output().slot, Slot::Output(0));
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
        let steps = lower(&g, &Reads(Layouts::Any)).unwrap().steps;
        for (i, step) in steps.iter().enumerate() {
            let Slot::Arena(start) = step.output().slot else {
                continue;
            };
            let last = (i..steps.len())
                .rfind(|&j| steps[j].inputs.iter().any(|p| p.slot == step.output().slot))
                .unwrap();
            // Between the write and the last read, nothing else writes here.
            for other in &steps[i + 1..=last] {
                if let Slot::Arena(s) = other.output().slot
                    && s.abs_diff(start) < 448
                {
                    assert_eq!(s, start);
                    let reread = steps[last]
                        .inputs
                        .iter()
                        .any(|p| p.slot == other.output().slot);
                    assert!(reread, "step {i} is overwritten while alive");
                }
            }
        }
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
}
