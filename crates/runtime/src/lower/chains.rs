//! Chains of elementwise operations become one launch, so that intermediate results never reach
//! memory.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;

use smallvec::SmallVec;

use crate::launch::{Draft, Part, PartOperand, Place, ResultId, Root, Step};

/// Operands of a fused step, and numbers among its operands: a GPU's kernel has a limited number
/// of buffers.
const MAX_INPUTS: usize = 8;
const MAX_NUMBERS: usize = 8;

/// Operations of a fused step but constants, so that a processor's registers and caches hold its values.
const MAX_PARTS: usize = 24;

/// Fuses steps with the only step that reads them. `writers` are the results that are written to
/// the graph's outputs; their steps are renumbered.
pub(crate) fn fuse(drafts: Vec<Draft>, writers: &mut [ResultId]) -> Vec<Draft> {
    if drafts.len() < 2 {
        return drafts;
    }
    let mut users: Vec<SmallVec<[usize; 4]>> = vec![SmallVec::new(); drafts.len()];
    for (at, draft) in drafts.iter().enumerate() {
        for root in &draft.roots {
            if let Root::Result(ResultId { step, .. }) = *root
                && users[step].last() != Some(&at)
            {
                users[step].push(at);
            }
        }
    }
    let mut needed = vec![false; drafts.len()];
    writers.iter().for_each(|writer| needed[writer.step] = true);
    let mut overwriters = Overwriters::default();
    for (at, draft) in drafts.iter().enumerate() {
        overwriters.note(at, draft);
    }
    let mut drafts: Vec<Option<Draft>> = drafts.into_iter().map(Some).collect();
    // Repeated steps are chosen last: a step is computed once within a launch, so all else is fused
    // first.
    let count = drafts.len();
    let turns = [false, true].into_iter();
    for (repeating, at) in turns.flat_map(|repeating| (0..count).map(move |at| (repeating, at))) {
        while let Some(from) = candidate(&drafts, &overwriters, &users, &needed, at, repeating) {
            let Some(into) = drafts[at].take() else { break };
            let Some(producer) = drafts[from].take() else {
                break;
            };
            let alone = users[from].as_slice() == [at];
            for root in &producer.roots {
                if let Root::Result(ResultId { step: s, .. }) = *root {
                    // The producer stays a reader if others need its result, too.
                    users[s].retain(|u| *u != at && (*u != from || !alone));
                    users[s].push(at);
                }
            }
            users[from].retain(|u| *u != at);
            if !alone {
                drafts[from] = Some(producer.clone());
            }
            let merged = merge(producer, into, from);
            overwriters.note(at, &merged);
            drafts[at] = Some(merged);
        }
    }
    renumber(drafts, writers)
}

/// A step that can be made part of step `at`, which reads it.
fn candidate(
    drafts: &[Option<Draft>],
    overwriters: &Overwriters,
    users: &[SmallVec<[usize; 4]>],
    needed: &[bool],
    at: usize,
    repeating: bool,
) -> Option<usize> {
    let into = drafts[at].as_ref().filter(|d| d.fuses)?;
    // Random numbers alone are drawn otherwise, several at once: nothing comes before them.
    if into.step.last().op.def().draws() {
        return None;
    }
    let fits = |from: usize| {
        let producer = drafts[from].as_ref().filter(|d| d.fuses)?;
        if !takes(&into.step, &producer.step) {
            return None;
        }
        // A constant costs less to repeat than to read.
        let constant = is_constant(&producer.step);
        let free = constant
            || users[from].as_slice() == [at]
            || repeating && is_repeated(drafts, &users[from], &producer.step);
        let parts = computed(&into.step) + computed(&producer.step);
        if !free || needed[from] || parts > MAX_PARTS {
            return None;
        }
        // All of it, and not reshaped: operands of parts broadcast to one shape.
        let shape = into.step.domain();
        let same = producer.step.output().ty.shape == *shape;
        let whole = |place: &Place| {
            let layout = &place.layout;
            let whole = layout.shape == *shape && layout.offset == 0 && layout.is_contiguous();
            constant || (same && whole)
        };
        let read = into.step.inputs.iter().zip(&into.roots);
        let mut places = read
            .filter(|(_, root)| **root == from.into())
            .map(|(p, _)| p);
        let rest = into.step.inputs.iter().zip(&into.roots);
        let rest = rest
            .filter(|(_, root)| **root != from.into())
            .map(|(p, _)| p);
        let inputs = rest.chain(&producer.step.inputs);
        let (mut numbers, mut tensors) = (0, 0);
        for place in inputs {
            match place.ty.shape.elements() {
                1 => numbers += 1,
                _ => tensors += 1,
            }
        }
        let few = tensors <= MAX_INPUTS && numbers <= MAX_NUMBERS;
        let fits = few && places.all(whole);
        let is_written_over = || overwriters.are_among(drafts, &producer.roots, from..at);
        (fits && !is_written_over()).then_some(from)
    };
    // Elementwise steps first: there is no place for them before an epilogue.
    let reduces = |from: usize| {
        let producer = drafts[from].as_ref();
        producer.is_some_and(|producer| producer.step.reduction.is_some())
    };
    let find = |reduction: bool| {
        into.roots.iter().find_map(|root| match *root {
            Root::Result(id) if reduces(id.step) == reduction => fits(id.step),
            _ => None,
        })
    };
    find(false).or_else(|| find(true))
}

/// Returns whether it is better that all readers of `producer` repeat it, and its result is not written.
fn is_repeated(drafts: &[Option<Draft>], users: &[usize], producer: &Step) -> bool {
    let result = producer.output();
    let costs_no_more = match (producer.inputs.as_slice(), producer.parts.as_slice()) {
        ([operand], [part]) => {
            operand.layout == result.layout && operand.ty.dtype.size() <= part.dtype.size()
        }
        (inputs, _) => {
            producer.draws() && inputs.iter().all(|place| place.ty.shape.elements() == 1)
        }
    };
    let is_taken = |user: &usize| {
        let into = drafts[*user].as_ref().filter(|into| into.fuses);
        into.is_some_and(|into| {
            into.step.reduction.is_none() && *into.step.domain() == result.ty.shape
        })
    };
    producer.reduction.is_none() && costs_no_more && users.iter().all(is_taken)
}

/// Returns whether there is a place in `into` for `producer`. A step has one reduction and no random numbers beside it.
/// Only constants can come before its epilogue.
fn takes(into: &Step, producer: &Step) -> bool {
    let draws = into.draws() || producer.draws();
    if draws && (into.reduction.is_some() || producer.reduction.is_some()) {
        return false;
    }
    match &into.reduction {
        None => true,
        Some(reduction) if reduction.part + 1 == into.parts.len() => {
            producer.reduction.is_none() && !is_constant(producer)
        }
        Some(_) => is_constant(producer),
    }
}

/// The steps that write over each state, in their order. So the steps between two others are not looked through.
#[derive(Default)]
struct Overwriters(HashMap<Root, SmallVec<[usize; 1]>>);

impl Overwriters {
    /// Notes the states that a step writes over.
    fn note(&mut self, at: usize, draft: &Draft) {
        let results = 0..draft.step.outputs.len();
        for state in results.filter_map(|result| draft.step.overwrites(result)) {
            let steps = self.0.entry(draft.roots[state]).or_default();
            if let Err(place) = steps.binary_search(&at) {
                steps.insert(place, at);
            }
        }
    }

    /// Is any of `roots` written over by one of these steps?
    fn are_among(&self, drafts: &[Option<Draft>], roots: &[Root], steps: Range<usize>) -> bool {
        let mut known = roots.iter().filter_map(|root| self.0.get(root));
        known.any(|known| {
            let first = known.partition_point(|at| *at < steps.start);
            let mut among = known[first..].iter().take_while(|at| **at < steps.end);
            among.any(|at| drafts[*at].is_some())
        })
    }
}

/// The result of an elementwise step.
impl From<usize> for Root {
    fn from(step: usize) -> Self {
        Self::Result(ResultId { step, result: 0 })
    }
}

/// The number of parts that are not constants.
fn computed(step: &Step) -> usize {
    let parts = step.parts.iter();
    parts.filter(|part| !part.op.def().is_number()).count()
}

/// Returns whether it is one number everywhere.
fn is_constant(step: &Step) -> bool {
    step.parts.len() == 1 && step.last().op.def().is_number()
}

/// `into`, which reads step `from`, with the operations of `producer` in it.
fn merge(mut producer: Draft, into: Draft, from: usize) -> Draft {
    let Draft { step, roots, fuses } = &mut producer;
    let (parts, inputs) = (&mut step.parts, &mut step.inputs);
    let before = parts.len();
    // An operand that is read twice is one.
    let own = mem::take(inputs).into_iter().zip(mem::take(roots));
    let mut input = |place: Place, root: Root| {
        let mut known = roots.iter().zip(inputs.iter());
        let at = known.position(|(r, p)| *r == root && *p == place);
        PartOperand::Input(at.unwrap_or_else(|| {
            inputs.push(place);
            roots.push(root);
            inputs.len() - 1
        }))
    };
    let own: SmallVec<[PartOperand; 4]> = own.map(|(place, root)| input(place, root)).collect();
    for operand in parts.iter_mut().flat_map(|part| &mut part.operands) {
        if let PartOperand::Input(i) = *operand {
            *operand = own[i];
        }
    }
    // The new place of each operand of `into`.
    let moved = into.step.inputs.into_iter().zip(into.roots);
    let moved: SmallVec<[PartOperand; 4]> = moved
        .map(|(place, root)| match root == from.into() {
            true => PartOperand::Part(before - 1),
            false => input(place, root),
        })
        .collect();
    let rename = |mut part: Part| {
        for operand in &mut part.operands {
            *operand = match *operand {
                PartOperand::Input(i) => moved[i],
                PartOperand::Part(i) => PartOperand::Part(i + before),
            };
        }
        part
    };
    if let Some(mut reduction) = into.step.reduction {
        reduction.part += before;
        step.reduction = Some(reduction);
    }
    parts.extend(into.step.parts.into_iter().map(rename));
    step.outputs = into.step.outputs;
    *fuses = true;
    producer
}

/// The steps that are left, numbered anew.
fn renumber(drafts: Vec<Option<Draft>>, writers: &mut [ResultId]) -> Vec<Draft> {
    let mut numbers = Vec::with_capacity(drafts.len());
    let mut next = 0;
    for draft in &drafts {
        numbers.push(next);
        next += usize::from(draft.is_some());
    }
    writers.iter_mut().for_each(|w| w.step = numbers[w.step]);
    let mut left: Vec<Draft> = drafts.into_iter().flatten().collect();
    for root in left.iter_mut().flat_map(|draft| &mut draft.roots) {
        if let Root::Result(id) = root {
            id.step = numbers[id.step];
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use crate::{Kernels, Layouts, Lowered, Step, lower};
    use rustorch_ir::ops::{BinaryOp, Contiguous, Distribution, Random, ReduceOp, UnaryOp};
    use rustorch_ir::{DType, Graph, OpKind, Signature, TensorType, ValueId};

    struct Elementwise;

    impl Kernels for Elementwise {
        fn layouts(&self, _: &Signature) -> Layouts {
            Layouts::Any
        }

        fn fuses(&self, s: &Signature) -> bool {
            let kind = s.op.kind();
            matches!(
                kind,
                OpKind::Unary | OpKind::Binary | OpKind::Full | OpKind::Reduce | OpKind::Random
            )
        }
    }

    fn lowered(build: impl FnOnce(&mut Graph, ValueId)) -> Lowered {
        let mut g = Graph::new();
        let x = g.input(TensorType::new([4, 6], DType::F32)).unwrap();
        build(&mut g, x);
        lower(&g, &Elementwise).unwrap()
    }

    #[test]
    fn a_chain_with_constants_is_one_launch() {
        let lowered = lowered(|g, x| {
            let y = g.mul_scalar(x, 2.0).unwrap();
            let y = g.unary(UnaryOp::Exp, y).unwrap();
            let y = g.binary(BinaryOp::Add, y, x).unwrap();
            g.output(y);
        });
        assert_eq!((lowered.steps.len(), lowered.arena_bytes()), (1, 0));
        let step = &lowered.steps[0];
        assert_eq!((step.inputs.len(), step.parts.len()), (1, 4));
    }

    #[test]
    fn an_operand_that_is_read_twice_is_one_operand() {
        let lowered = lowered(|g, x| {
            let y = g.mul(x, x).unwrap();
            let y = g.unary(UnaryOp::Sqrt, y).unwrap();
            g.output(y);
        });
        assert_eq!(lowered.steps.len(), 1);
        let step = &lowered.steps[0];
        assert_eq!((step.inputs.len(), step.parts.len()), (1, 2));
    }

    #[test]
    fn a_value_read_twice_in_one_launch_is_computed_once() {
        let lowered = lowered(|g, x| {
            let t = g.unary(UnaryOp::Exp, x).unwrap();
            let u = g.unary(UnaryOp::Neg, t).unwrap();
            let y = g.binary(BinaryOp::Mul, t, u).unwrap();
            g.output(y);
        });
        assert_eq!(lowered.steps.len(), 1);
        assert_eq!(lowered.steps[0].parts.len(), 3);
    }

    #[test]
    fn what_others_need_is_not_swallowed() {
        let lowered = lowered(|g, x| {
            let t = g.unary(UnaryOp::Exp, x).unwrap();
            let y = g.unary(UnaryOp::Neg, t).unwrap();
            let turned = g.permute(t, &[1, 0]).unwrap();
            let z = g.unary(UnaryOp::Neg, turned).unwrap();
            let out = g.unary(UnaryOp::Abs, y).unwrap();
            g.output(y);
            g.output(z);
            g.output(out);
        });
        // exp is read in two orders, and the first neg is an output of its own.
        assert_eq!(lowered.steps.len(), 4);
        assert!(lowered.steps.iter().all(|s| s.parts.len() == 1));
    }

    #[test]
    fn what_costs_no_more_to_read_before_is_repeated() {
        let lowered = lowered(|g, x| {
            let other = g.input(TensorType::new([4, 6], DType::F32)).unwrap();
            let turned = g.permute(x, &[1, 0]).unwrap();
            let turned = g.push(Contiguous, &[turned]).unwrap();
            let back = g.reshape(turned, [4, 6]).unwrap();
            let t = g.unary(UnaryOp::Exp, back).unwrap();
            let y = g.mul(t, other).unwrap();
            let z = g.sub(other, t).unwrap();
            g.output(y);
            g.output(z);
        });
        // The copy stays one step for all readers. The exponential is repeated.
        let parts: Vec<usize> = lowered.steps.iter().map(|s| s.parts.len()).collect();
        assert_eq!(parts, [1, 2, 2]);
    }

    /// Random numbers of the shape of `x`.
    fn drawn(g: &mut Graph, x: ValueId) -> ValueId {
        let key = g.input(TensorType::new([2], DType::I64)).unwrap();
        let random = Random {
            distribution: Distribution::Uniform,
            shape: g.ty(x).shape.clone(),
            dtype: DType::F32,
        };
        g.push(random, &[key]).unwrap()
    }

    #[test]
    fn random_numbers_are_drawn_by_all_who_read_them() {
        let lowered = lowered(|g, x| {
            let numbers = drawn(g, x);
            let half = g.mul_scalar(numbers, 0.5).unwrap();
            let y = g.mul(x, half).unwrap();
            let z = g.sub(x, half).unwrap();
            g.output(y);
            g.output(z);
        });
        assert_eq!((lowered.steps.len(), lowered.arena_bytes()), (2, 0));
        for step in &lowered.steps {
            let numbers = step.inputs.iter().filter(|p| p.ty.shape.elements() == 1);
            let offsets: Vec<usize> = numbers.map(|place| place.layout.offset).collect();
            assert_eq!((offsets.as_slice(), step.inputs.len()), (&[0, 1][..], 3));
            assert_eq!(step.parts.len(), 4);
        }
    }

    #[test]
    fn random_numbers_that_others_need_or_that_are_reduced_stay_apart() {
        let lowered = lowered(|g, x| {
            let numbers = drawn(g, x);
            let y = g.mul(x, numbers).unwrap();
            let sum = g.reduce(ReduceOp::Sum, y, 1).unwrap();
            g.output(numbers);
            g.output(sum);
        });
        let parts: Vec<usize> = lowered.steps.iter().map(|step| step.parts.len()).collect();
        assert_eq!(parts, [1, 2]);
        let lowered = self::lowered(|g, x| {
            let numbers = drawn(g, x);
            let sum = g.reduce(ReduceOp::Sum, numbers, 1).unwrap();
            g.output(sum);
        });
        assert_eq!(lowered.steps.len(), 2);
    }

    #[test]
    fn what_is_reshaped_stays_apart() {
        let lowered = lowered(|g, x| {
            let t = g.unary(UnaryOp::Exp, x).unwrap();
            let t = g.reshape(t, [24]).unwrap();
            let y = g.unary(UnaryOp::Neg, t).unwrap();
            g.output(y);
        });
        assert_eq!(lowered.steps.len(), 2);
    }

    #[test]
    fn numbers_do_not_count_as_tensors() {
        let steps = |numbers: usize, tensors: usize| {
            let mut g = Graph::new();
            let mut inputs = Vec::new();
            for _ in 0..=tensors {
                inputs.push(g.input(TensorType::new([6], DType::F32)).unwrap());
            }
            for _ in 0..numbers {
                inputs.push(g.input(TensorType::new([], DType::F32)).unwrap());
            }
            let mut y = inputs[0];
            for &x in &inputs[1..] {
                y = g.binary(BinaryOp::Mul, y, x).unwrap();
            }
            g.output(y);
            lower(&g, &Elementwise).unwrap().steps.len()
        };
        assert_eq!([steps(0, 7), steps(0, 8)], [1, 2]);
        assert_eq!([steps(8, 7), steps(9, 0)], [1, 2]);
    }

    /// The parts of each step of a graph, and where its reduction is.
    fn reductions(build: impl FnOnce(&mut Graph, ValueId)) -> Vec<(usize, Option<usize>)> {
        let steps = lowered(build).steps;
        let place = |step: &Step| step.reduction.as_ref().map(|reduction| reduction.part);
        steps
            .iter()
            .map(|step| (step.parts.len(), place(step)))
            .collect()
    }

    #[test]
    fn a_reduction_has_a_prologue_and_an_epilogue() {
        let norm = reductions(|g, x| {
            let square = g.mul(x, x).unwrap();
            let sum = g.reduce(ReduceOp::Sum, square, 1).unwrap();
            let scaled = g.mul_scalar(sum, 0.5).unwrap();
            let y = g.unary(UnaryOp::Sqrt, scaled).unwrap();
            g.output(y);
        });
        assert_eq!(norm, [(5, Some(1))]);
    }

    #[test]
    fn a_step_has_one_reduction() {
        let means = reductions(|g, x| {
            let mean = g.mean(x, 1).unwrap();
            let centred = g.sub(x, mean).unwrap();
            let square = g.mul(centred, centred).unwrap();
            let variance = g.mean(square, 1).unwrap();
            g.output(variance);
        });
        assert_eq!(means, [(3, Some(0)), (5, Some(2))]);
        let both = reductions(|g, x| {
            let [a, b] = [ReduceOp::Sum, ReduceOp::Max].map(|op| g.reduce(op, x, 0).unwrap());
            let exp = g.unary(UnaryOp::Exp, b).unwrap();
            let y = g.add(a, exp).unwrap();
            g.output(y);
        });
        assert_eq!(both, [(2, Some(0)); 2]);
    }

    #[test]
    fn what_is_reduced_in_another_shape_or_is_needed_stays_apart() {
        let reshaped = reductions(|g, x| {
            let exp = g.unary(UnaryOp::Exp, x).unwrap();
            let exp = g.reshape(exp, [24]).unwrap();
            let sum = g.reduce(ReduceOp::Sum, exp, 0).unwrap();
            g.output(sum);
        });
        assert_eq!(reshaped, [(1, None), (1, Some(0))]);
        let needed = reductions(|g, x| {
            let exp = g.unary(UnaryOp::Exp, x).unwrap();
            let sum = g.reduce(ReduceOp::Sum, exp, 1).unwrap();
            let y = g.div(exp, sum).unwrap();
            g.output(y);
        });
        assert_eq!(needed, [(1, None), (1, Some(0)), (1, None)]);
    }

    #[test]
    fn long_chains_are_cut() {
        let lowered = lowered(|g, mut x| {
            for _ in 0..60 {
                x = g.unary(UnaryOp::Neg, x).unwrap();
            }
            g.output(x);
        });
        let parts: usize = lowered.steps.iter().map(|s| s.parts.len()).sum();
        assert_eq!((lowered.steps.len(), parts), (3, 60));
    }
}
