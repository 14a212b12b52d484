//! From a graph to kernel launches on buffers: code that every backend needs.

mod arena;
mod chains;

use std::mem;
use std::ops::{Index, IndexMut};

use rustorch_ir::ops::{Concat, Contiguous};
use rustorch_ir::{Graph, Layout, Node, Op, OpError, Role, Signature, TensorType, ValueId};
use smallvec::SmallVec;

use crate::Layouts;
use crate::launch::{
    Draft, Lowered, Part, PartOperand, Place, Reduction, ResultId, Root, Slot, Step,
};
use crate::lower::arena::{Lifetime, arrange};
use crate::lower::chains::fuse;

/// The properties of a backend's kernels.
pub trait Kernels {
    /// The layouts that the kernel for this reads.
    fn layouts(&self, signature: &Signature) -> Layouts;

    /// Returns whether this is a kernel that the backend can fuse with others: of an elementwise operation, or of a
    /// reduction, which takes elementwise ones before and behind it.
    fn fuses(&self, signature: &Signature) -> bool;

    /// The largest buffer that the device has, in bytes.
    fn largest_buffer(&self) -> usize {
        usize::MAX
    }

    /// The operand in whose memory the first result may lie, if that operand has no later reader. The kernel reads an
    /// element for the last time before it writes in its place.
    fn writes_over(&self, _signature: &Signature) -> Option<usize> {
        None
    }

    /// The layouts in which the kernel for this can write its results, by the [places](Place) of a step. If a
    /// reader sees a result in another order, or joins it with others, it is written that way.
    fn result_layouts(&self, _signature: &Signature) -> Layouts {
        Layouts::Contiguous
    }

    /// Do values with separate lifetimes share memory? Otherwise each has its own, which helps to
    /// find values that are overwritten too early.
    fn shares_memory(&self) -> bool {
        true
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
/// Never fails for graphs of verified nodes. The types of inserted copies are inferred.
pub fn lower(graph: &Graph, kernels: &impl Kernels) -> Result<Lowered, OpError> {
    let mut builder = Builder {
        graph,
        kernels,
        steps: Vec::with_capacity(graph.nodes().len()),
        values: Vec::with_capacity(graph.len()),
    };
    let inputs = graph.inputs().iter().enumerate();
    let inputs = inputs.map(|(i, ty)| (Root::Input(i), Layout::contiguous(&ty.shape)));
    builder.values.extend(inputs);
    for (index, node) in graph.nodes().iter().enumerate() {
        builder.node(index, node);
    }
    let writers = builder.outputs();
    let mut lowering = Lowering {
        steps: builder.steps,
        writers,
        lifetimes: Vec::new(),
        heirs: Vec::new(),
        kernels,
    };
    LOWERED.iter().for_each(|(_, pass)| pass(&mut lowering));
    Ok(place(lowering))
}

/// The launches of a graph in the making.
struct Lowering<'k> {
    steps: Vec<Draft>,
    /// The results that are written to the graph's outputs.
    writers: Vec<ResultId>,
    /// The results that are intermediate values.
    lifetimes: Vec<(ResultId, Lifetime)>,
    heirs: Vec<Heir>,
    kernels: &'k dyn Kernels,
}

/// A pass over the launches of a graph: its name, and what it does.
type LoweringPass = (&'static str, fn(&mut Lowering));

/// Passes over the launches of a graph, in order. Views are layouts before them; buffers come after them.
const LOWERED: [LoweringPass; 4] = [
    ("chains", chains),
    ("lifetimes", lifetimes),
    ("joins in place", join_in_place),
    ("results over operands", inherit),
];

/// Names of the passes over the launches of a graph, in order.
pub fn lowering_passes() -> impl Iterator<Item = &'static str> {
    LOWERED.iter().map(|(name, _)| *name)
}

/// Chains of elementwise operations, with reductions, become one launch.
fn chains(lowering: &mut Lowering) {
    let steps = mem::take(&mut lowering.steps);
    lowering.steps = fuse(steps, &mut lowering.writers);
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
            Role::Compute if node.op.def().reloads() && !self.waits(node.inputs[0]) => {
                let stays = self.value(node.inputs[0]).clone();
                self.values.push(stays);
            }
            Role::Compute => {
                let operands = self.operands(index, node);
                let op = node.op.clone();
                let first = self.push(index, op, operands, &node.outputs);
                for (result, ty) in node.outputs.iter().enumerate() {
                    // A result that writes over an operand is found in the operand's memory.
                    let value = match node.op.def().overwrites(result) {
                        Some(state) => self.value(node.inputs[state]).clone(),
                        None => {
                            let id = ResultId {
                                step: first,
                                result,
                            };
                            let layout = match self.wanted(index, node, result) {
                                Some(layout) => {
                                    self.steps[first].step.outputs[result].layout = layout.clone();
                                    layout
                                }
                                None => Layout::contiguous(&ty.shape),
                            };
                            (Root::Result(id), layout)
                        }
                    };
                    self.values.push(value);
                }
            }
        }
    }

    /// Is a value in the host's memory, as it was offloaded?
    fn waits(&self, value: ValueId) -> bool {
        match self.value(value).0 {
            Root::Result(id) => self.steps[id.step].step.last().op.def().offloads(),
            Root::Input(_) => false,
        }
    }

    /// The layout that readers of a node's result want, if it is not row-major and the kernel can write it: the
    /// one that makes the first reordering of its dimensions dense, if all others read it as well.
    fn wanted(&self, index: usize, node: &Node, result: usize) -> Option<Layout> {
        let graph = self.graph;
        let accepted = graph.with_signature(node, |s| self.kernels.result_layouts(s));
        (accepted != Layouts::Contiguous).then_some(())?;
        let value = node.result(result);
        let ty = graph.ty(value);
        // Also of what shows it as it is.
        let mut shown: SmallVec<[ValueId; 2]> = [value].into_iter().collect();
        let mut readers: SmallVec<[&Node; 4]> = SmallVec::new();
        for reader in &graph.nodes()[index + 1..] {
            if !reader.inputs.iter().any(|x| shown.contains(x)) {
                continue;
            }
            match matches!(reader.op, Op::Reshape(_)) && graph.ty(reader.result(0)) == ty {
                true => shown.push(reader.result(0)),
                false => readers.push(reader),
            }
        }
        let permute = readers.iter().find_map(|reader| match &reader.op {
            Op::Permute(permute) => Some(permute),
            _ => None,
        })?;
        let mut inverse = permute.dims.clone();
        for (to, &from) in permute.dims.iter().enumerate() {
            inverse[from] = to;
        }
        let dense = Layout::contiguous(&ty.shape).permute(&permute.dims);
        let layout = Layout::contiguous(&dense.shape).permute(&inverse);
        let is_readable = |reader: &&Node| match reader.op.def().role() {
            Role::View => reader.op.def().view(&layout).is_some(),
            Role::Compute => {
                let read = graph.with_signature(reader, |s| self.kernels.layouts(s));
                read.include(&layout, ty.dtype)
            }
        };
        let fits = accepted.include(&layout, ty.dtype)
            && !graph.outputs().iter().any(|output| shown.contains(output))
            && readers.iter().all(is_readable);
        fits.then_some(layout)
    }

    fn value(&self, value: ValueId) -> &(Root, Layout) {
        &self.values[value.index()]
    }

    /// The operands as the kernel reads them; those that it writes over are never copied.
    fn operands(&mut self, index: usize, node: &Node) -> Vec<(Root, Layout, TensorType)> {
        let accepted = self.graph.with_signature(node, |s| self.kernels.layouts(s));
        let mut is_state = vec![false; node.inputs.len()];
        for (_, operand) in node.overwrites() {
            is_state[operand] = true;
        }
        let mut operands = Vec::with_capacity(node.inputs.len());
        for (&input, is_state) in node.inputs.iter().zip(is_state) {
            let (root, layout) = self.value(input).clone();
            let ty = self.graph.ty(input).clone();
            let readable = accepted.include(&layout, ty.dtype);
            let (root, layout) = match readable || is_state {
                true => (root, layout),
                false => self.copy(index, root, layout, ty.clone()),
            };
            operands.push((root, layout, ty));
        }
        match node.op {
            Op::Random(_) => operands.into_iter().flat_map(as_numbers).collect(),
            _ => operands,
        }
    }

    fn copy(&mut self, index: usize, root: Root, layout: Layout, ty: TensorType) -> (Root, Layout) {
        let whole = Layout::contiguous(&ty.shape);
        let operand = (root, layout, ty.clone());
        let step = self.push(index, Contiguous.into(), vec![operand], &[ty]);
        (Root::Result(ResultId { step, result: 0 }), whole)
    }

    /// Adds a step and returns its index.
    fn push(
        &mut self,
        node: usize,
        op: Op,
        operands: Vec<(Root, Layout, TensorType)>,
        results: &[TensorType],
    ) -> usize {
        let roots = operands.iter().map(|o| o.0).collect();
        let fuses = {
            let types: SmallVec<[&TensorType; 4]> = operands.iter().map(|o| &o.2).collect();
            self.kernels.fuses(&Signature {
                op: &op,
                inputs: &types,
                outputs: results,
            })
        };
        let place = |layout, ty| Place {
            slot: Slot::Arena { buffer: 0, at: 0 },
            layout,
            ty,
        };
        let part = Part {
            node,
            op,
            operands: (0..operands.len()).map(PartOperand::Input).collect(),
            dtype: results[0].dtype,
        };
        let whole = |ty: &TensorType| place(Layout::contiguous(&ty.shape), ty.clone());
        let reduction = part.op.def().reduces().then(|| Reduction {
            part: 0,
            shape: operands[0].2.shape.clone(),
        });
        let step = Step {
            parts: [part].into_iter().collect(),
            reduction,
            inputs: operands.into_iter().map(|(_, l, t)| place(l, t)).collect(),
            outputs: results.iter().map(whole).collect(),
        };
        self.steps.push(Draft {
            step: Box::new(step),
            roots,
            fuses,
        });
        self.steps.len() - 1
    }

    /// Gives each graph output a result that is written to it, and returns those results.
    fn outputs(&mut self) -> Vec<ResultId> {
        let mut writers: Vec<ResultId> = Vec::with_capacity(self.graph.outputs().len());
        let mut known = PerResult::new(&self.steps, |_| false);
        for &output in self.graph.outputs() {
            let (root, layout) = self.value(output).clone();
            let whole = layout.offset == 0 && layout.is_contiguous();
            let direct = match root {
                Root::Result(id) if whole && !known[id] => {
                    let ty = &self.steps[id.step].step.outputs[id.result].ty;
                    (ty.shape.elements() == layout.elements()).then_some(id)
                }
                _ => None,
            };
            if let Some(writer) = direct {
                known[writer] = true;
                writers.push(writer);
                continue;
            }
            let last = self.graph.nodes().len().saturating_sub(1);
            let ty = self.graph.ty(output).clone();
            self.copy(last, root, layout, ty);
            writers.push(ResultId {
                step: self.steps.len() - 1,
                result: 0,
            });
        }
        writers
    }
}

/// The elements of a vector, each as a number: operands of any shape can be beside them.
fn as_numbers(
    (root, layout, ty): (Root, Layout, TensorType),
) -> impl Iterator<Item = (Root, Layout, TensorType)> {
    let (first, stride) = (layout.offset, layout.strides[0]);
    (0..layout.shape[0]).map(move |i| {
        let mut number = Layout::contiguous(&[].into());
        number.offset = first + i * stride;
        (root, number, TensorType::new([], ty.dtype))
    })
}

/// Something of each result of each step.
struct PerResult<T>(Vec<SmallVec<[T; 1]>>);

impl<T: Clone> PerResult<T> {
    /// The common properties of a step's results, by the step's index.
    fn new(drafts: &[Draft], of_step: impl Fn(usize) -> T) -> Self {
        let steps = drafts.iter().enumerate();
        let all =
            steps.map(|(at, draft)| SmallVec::from_elem(of_step(at), draft.step.outputs.len()));
        Self(all.collect())
    }
}

impl<T> Index<ResultId> for PerResult<T> {
    type Output = T;

    fn index(&self, id: ResultId) -> &T {
        &self.0[id.step][id.result]
    }
}

impl<T> IndexMut<ResultId> for PerResult<T> {
    fn index_mut(&mut self, id: ResultId) -> &mut T {
        &mut self.0[id.step][id.result]
    }
}

/// Finds the results that are intermediate values: neither outputs nor written over others.
fn lifetimes(lowering: &mut Lowering) {
    let (drafts, shares) = (&lowering.steps, lowering.kernels.shares_memory());
    let mut last_uses = PerResult::new(drafts, |at| at);
    for (at, draft) in drafts.iter().enumerate() {
        for root in &draft.roots {
            if let Root::Result(id) = *root {
                last_uses[id] = at;
            }
        }
    }
    let mut is_output = PerResult::new(drafts, |_| false);
    for &id in &lowering.writers {
        is_output[id] = true;
    }
    for (at, draft) in drafts.iter().enumerate() {
        let step = &draft.step;
        for (result, place) in step.outputs.iter().enumerate() {
            let id = ResultId { step: at, result };
            if step.overwrites(result).is_none() && !is_output[id] {
                let (first, last) = match shares {
                    true => (at, last_uses[id]),
                    false => (0, drafts.len()),
                };
                let bytes = place.ty.bytes();
                let lifetime = Lifetime { bytes, first, last };
                lowering.lifetimes.push((id, lifetime));
            }
        }
    }
}

/// A result and the value whose memory it takes over.
type Heir = (ResultId, ResultId);

/// Finds results that are joined with others and can be written at their final place. The join then does
/// nothing for them.
fn join_in_place(lowering: &mut Lowering) {
    let kernels = lowering.kernels;
    if !kernels.shares_memory() {
        return;
    }
    let (drafts, values) = (&mut lowering.steps, &mut lowering.lifetimes);
    let joins = drafts.iter().enumerate();
    let joins = joins.filter_map(|(at, draft)| match draft.step.last().op {
        Op::Concat(Concat { dim }) => Some((at, dim)),
        _ => None,
    });
    for (at, dim) in joins.collect::<Vec<_>>() {
        let whole = ResultId {
            step: at,
            result: 0,
        };
        let joined = drafts[at].step.output().layout.clone();
        let mut start = 0;
        for k in 0..drafts[at].roots.len() {
            let size = drafts[at].step.inputs[k].ty.shape[dim];
            let part = joined.slice(dim, start, size, 1);
            start += size;
            let Root::Result(id) = drafts[at].roots[k] else {
                continue;
            };
            let Some(layout) = in_join(
                drafts,
                id,
                &drafts[at].step.inputs[k],
                [&part, &joined],
                dim,
                kernels,
            ) else {
                continue;
            };
            let place = |id: ResultId| values.iter().position(|(known, _)| *known == id);
            let (Some(own), Some(theirs)) = (place(whole), place(id)) else {
                continue;
            };
            values[own].1.first = values[own].1.first.min(values[theirs].1.first);
            values.remove(theirs);
            drafts[id.step].step.outputs[id.result].layout = layout;
            drafts[at].step.inputs[k].layout = part;
            lowering.heirs.push((id, whole));
        }
    }
}

/// The layout of a result in `part` of `joined`, where it is the `operand` that is joined along `dim`. Its
/// kernel must be able to write it, and nothing else may read it.
fn in_join(
    drafts: &[Draft],
    id: ResultId,
    operand: &Place,
    [part, joined]: [&Layout; 2],
    dim: usize,
    kernels: &dyn Kernels,
) -> Option<Layout> {
    let step = &drafts[id.step].step;
    let result = &step.outputs[id.result];
    let inputs: SmallVec<[&TensorType; 4]> = step.inputs.iter().map(|x| &x.ty).collect();
    let outputs: SmallVec<[TensorType; 2]> = step.outputs.iter().map(|y| y.ty.clone()).collect();
    let accepted = kernels.result_layouts(&Signature {
        op: &step.last().op,
        inputs: &inputs,
        outputs: &outputs,
    });
    let roots = drafts.iter().flat_map(|draft| &draft.roots);
    let is_dense = |layout: &Layout| layout.offset == 0 && layout.is_contiguous();
    let fits = accepted != Layouts::Contiguous
        && is_dense(&operand.layout)
        && operand.layout.elements() == result.layout.elements()
        && roots.filter(|&&root| root == Root::Result(id)).count() == 1;
    fits.then_some(())?;
    // Numbers of elements that lie together before and after.
    let [piece, step] = [part, joined].map(|layout| layout.shape[dim..].iter().product::<usize>());
    let layout = result.layout.spread(piece, step, part.offset)?;
    accepted.include(&layout, result.ty.dtype).then_some(layout)
}

/// Finds results that take over the memory of an operand, which then lives as long as they do.
fn inherit(lowering: &mut Lowering) {
    let kernels = lowering.kernels;
    if !kernels.shares_memory() {
        return;
    }
    let (drafts, values) = (&lowering.steps, &mut lowering.lifetimes);
    let mut heirs: Vec<Heir> = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        let ([_], [result, ..]) = (&draft.step.parts[..], &draft.step.outputs[..]) else {
            continue;
        };
        let several: SmallVec<[TensorType; 2]>;
        let outputs = match &draft.step.outputs[..] {
            [only] => std::slice::from_ref(&only.ty),
            outputs => {
                several = outputs.iter().map(|y| y.ty.clone()).collect();
                &several
            }
        };
        let types: SmallVec<[&TensorType; 4]> = draft.step.inputs.iter().map(|x| &x.ty).collect();
        let signature = Signature {
            op: &draft.step.last().op,
            inputs: &types,
            outputs,
        };
        let Some(operand) = kernels.writes_over(&signature) else {
            continue;
        };
        let (id, root) = (
            ResultId {
                step: at,
                result: 0,
            },
            draft.roots[operand],
        );
        let Root::Result(from) = root else { continue };
        // It may itself be in memory of another's.
        let owner = heirs.iter().find(|(heir, _)| *heir == from);
        let owner = owner.map_or(from, |&(_, owner)| owner);
        let place = |id: ResultId| values.iter().position(|(known, _)| *known == id);
        let (Some(own), Some(theirs)) = (place(id), place(owner)) else {
            continue;
        };
        let layout = &draft.step.inputs[operand].layout;
        let fits = values[theirs].1.last == at
            && values[own].1.bytes == drafts[from.step].step.outputs[from.result].ty.bytes()
            && (layout.offset == 0 && layout.is_contiguous() && layout.shape == result.ty.shape)
            && draft.roots.iter().filter(|&&other| other == root).count() == 1;
        if fits {
            values[theirs].1.last = values[own].1.last;
            values.remove(own);
            heirs.push((id, owner));
        }
    }
    lowering.heirs.extend(heirs);
}

/// Finds a buffer for each result: an output, the state that it overwrites, or bytes of the arena that no live
/// value uses.
fn place(lowering: Lowering) -> Lowered {
    let Lowering {
        steps: drafts,
        writers,
        lifetimes: values,
        heirs,
        kernels,
    } = lowering;
    let largest_buffer = kernels.largest_buffer();
    let mut slots = PerResult::new(&drafts, |_| Slot::Arena { buffer: 0, at: 0 });
    for (i, &id) in writers.iter().enumerate() {
        slots[id] = Slot::Output(i);
    }
    let offloads = |id: ResultId| drafts[id.step].step.last().op.def().offloads();
    let mut arranged = |is_offloaded: bool, before: usize| {
        let values = || {
            values
                .iter()
                .filter(|(id, _)| offloads(*id) == is_offloaded)
        };
        let lifetimes: Vec<Lifetime> = values().map(|(_, lifetime)| *lifetime).collect();
        let arena = arrange(&lifetimes, largest_buffer);
        for (&(id, _), &(buffer, at)) in values().zip(&arena.places) {
            let buffer = before + buffer;
            slots[id] = Slot::Arena { buffer, at };
        }
        arena.buffers
    };
    let arena = arranged(false, 0);
    let offloaded = arranged(true, arena.len());
    for (heir, owner) in heirs {
        slots[heir] = slots[owner];
    }
    let finish = |(at, draft): (usize, Draft)| {
        let Draft {
            mut step, roots, ..
        } = draft;
        for (place, root) in step.inputs.iter_mut().zip(roots) {
            place.slot = match root {
                Root::Input(i) => Slot::Input(i),
                Root::Result(id) => slots[id],
            };
        }
        for result in 0..step.outputs.len() {
            step.outputs[result].slot = match step.overwrites(result) {
                Some(state) => step.inputs[state].slot,
                None => slots[ResultId { step: at, result }],
            };
        }
        *step
    };
    Lowered {
        steps: drafts.into_iter().enumerate().map(finish).collect(),
        arena,
        offloaded,
    }
}

#[cfg(test)]
mod tests;
