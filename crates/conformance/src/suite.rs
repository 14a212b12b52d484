//! Choice of the cases that are run.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};

use rustorch_ir::case::{Arrange, Case, Fill};
use rustorch_ir::{DType, Graph, Op, OpKind, Shape};
use rustorch_runtime::Backend;

use crate::extent::{Extent, mixed};
use crate::{Way, graph, lacks, mistakes};

/// A list of cases.
#[derive(Clone, Debug)]
pub struct Suite {
    pub(crate) entries: Vec<Entry>,
    pub(crate) is_sample: bool,
}

/// A case, and its required outcome.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: OpKind,
    pub(crate) case: Case,
    pub(crate) expect: Expect,
}

/// Required outcome of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// The reference's result.
    Result,
    /// The caller's mistake is reported.
    Refusal,
}

impl Suite {
    /// All cases of the operations that `kinds` chooses.
    pub fn full(kinds: impl Fn(OpKind) -> bool) -> Self {
        Self::of(kinds, |cases| cases)
    }

    /// About a twentieth of the cases, another one for each seed. In it each operation still has
    /// all its parameters and all [variants](Backend::variants) of its kernels. Each operand has
    /// all dtypes, shapes and arrangements in memory, though not all of these with each other.
    /// Operations take turns, so that the beginning of it has something of each.
    pub fn sample(kinds: impl Fn(OpKind) -> bool, seed: u64, backend: &dyn Backend) -> Self {
        Self::sample_by(kinds, seed, |graph| {
            let can_run = lacks(backend, graph).is_none();
            can_run.then(|| backend.variants(graph))
        })
    }

    /// The same, if these are the variants of a graph's kernels, or `None` where some are missing.
    fn sample_by(
        kinds: impl Fn(OpKind) -> bool,
        seed: u64,
        variants: impl Fn(&Graph) -> Option<Vec<String>>,
    ) -> Self {
        let mut turns = HashMap::new();
        let chosen = Self::of(kinds, |cases| cover(cases, seed, &variants));
        let numbered = chosen.entries.into_iter().map(|entry| {
            let turn = turns.entry(entry.kind).or_insert(0_usize);
            *turn += 1;
            (*turn, entry)
        });
        let mut numbered: Vec<(usize, Entry)> = numbered.collect();
        numbered.sort_by_key(|(turn, _)| *turn);
        Self {
            entries: numbered.into_iter().map(|(_, entry)| entry).collect(),
            is_sample: true,
        }
    }

    /// The suite that tests run on a device: [`Extent::of_tests`].
    pub fn of_tests(kinds: impl Fn(OpKind) -> bool, backend: &dyn Backend) -> Self {
        match Extent::of_tests() {
            Extent::Full => Self::full(kinds),
            Extent::Sample(seed) => Self::sample(kinds, seed, backend),
        }
    }

    fn of(kinds: impl Fn(OpKind) -> bool, choose: impl Fn(Vec<Case>) -> Vec<Case>) -> Self {
        let mut entries = Vec::new();
        for &kind in OpKind::ALL.iter().filter(|&&kind| kinds(kind)) {
            let lists = [
                (kind.cases(), Expect::Result),
                (mistakes::of(kind), Expect::Refusal),
            ];
            for (cases, expect) in lists {
                let entry = |case| Entry { kind, case, expect };
                entries.extend(choose(cases).into_iter().map(entry));
            }
        }
        Self {
            entries,
            is_sample: false,
        }
    }

    /// Number of cases. Composites are run in two ways, so there may be more checks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Is the suite empty?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// Features of an operation that a case can show.
#[derive(PartialEq, Eq, Hash, Debug)]
enum Feature {
    /// Its parameters.
    Parameters(Op),
    /// The dtype of an operand.
    DType(usize, DType),
    /// The shape of an operand.
    Shape(usize, Shape),
    /// Arrangement of an operand in memory.
    Arrangement(usize, Arrange),
    /// Choice of an operand's elements.
    Fill(usize, Discriminant<Fill>),
    /// Name of a kernel among the device's.
    Variant(String),
}

fn features(case: &Case, variants: &impl Fn(&Graph) -> Option<Vec<String>>) -> Vec<Feature> {
    let operands = || case.inputs.iter().enumerate();
    let ways = Way::of(case).iter();
    let graphs: Vec<Graph> = ways.flat_map(|&way| graph(case, way).ok()).collect();
    let kernels: Vec<Vec<String>> = graphs.iter().filter_map(variants).collect();
    if kernels.is_empty() {
        // The device can only say that it cannot.
        return operands()
            .map(|(i, x)| Feature::DType(i, x.ty.dtype))
            .collect();
    }
    let shapes = operands().map(|(i, x)| Feature::Shape(i, x.ty.shape.clone()));
    let variants = kernels.into_iter().flatten().map(Feature::Variant);
    let mut features: Vec<Feature> = shapes.chain(variants).collect();
    // Results without elements show no more.
    let results = graphs.iter().map(|graph| graph.ty(graph.outputs()[0]));
    if results.map(|ty| ty.shape.elements()).sum::<usize>() > 0 {
        features.push(Feature::Parameters(case.op.clone()));
        for (i, operand) in operands() {
            features.extend([
                Feature::DType(i, operand.ty.dtype),
                Feature::Arrangement(i, operand.arrange),
                Feature::Fill(i, discriminant(&operand.fill)),
            ]);
        }
    }
    features
}

/// Cases that together show all features of the given ones.
fn cover(
    cases: Vec<Case>,
    seed: u64,
    variants: &impl Fn(&Graph) -> Option<Vec<String>>,
) -> Vec<Case> {
    let mut numbers = HashMap::new();
    let mut left: Vec<(Vec<usize>, Case)> = Vec::with_capacity(cases.len());
    for case in cases {
        let number = |feature| {
            let next = numbers.len();
            *numbers.entry(feature).or_insert(next)
        };
        let shown = features(&case, variants).into_iter().map(number).collect();
        left.push((shown, case));
    }
    let mut order: Vec<usize> = (0..left.len()).collect();
    order.sort_by_key(|&i| mixed(seed ^ i as u64));
    let mut is_new = vec![true; numbers.len()];
    let mut chosen = Vec::new();
    loop {
        let gain = |&i: &usize| left[i].0.iter().filter(|&&number| is_new[number]).count();
        // A case that shows nothing new now never will.
        order.retain(|i| gain(i) > 0);
        let Some(best) = order.iter().copied().max_by_key(gain) else {
            return chosen;
        };
        let (shown, case) = &left[best];
        for &number in shown {
            is_new[number] = false;
        }
        chosen.push(case.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn sample(seed: u64) -> Suite {
        Suite::sample_by(|_| true, seed, |_| Some(Vec::new()))
    }

    #[test]
    fn a_sample_is_small_and_shows_all() {
        let shown = |suite: &Suite| -> HashSet<(OpKind, Feature)> {
            let entries = suite.entries.iter();
            let pairs = entries.flat_map(|Entry { kind, case, .. }| {
                let operands = case.inputs.iter().enumerate();
                let of_operands = operands.flat_map(|(i, x)| {
                    [
                        Feature::DType(i, x.ty.dtype),
                        Feature::Shape(i, x.ty.shape.clone()),
                        Feature::Arrangement(i, x.arrange),
                    ]
                });
                let graph = graph(case, Way::definition(case)).ok();
                let elements = graph.map(|graph| graph.ty(graph.outputs()[0]).shape.elements());
                let parameters = || Feature::Parameters(case.op.clone());
                let parameters = elements.is_some_and(|n| n > 0).then(parameters);
                of_operands
                    .chain(parameters)
                    .map(|feature| (*kind, feature))
            });
            pairs.collect()
        };
        let full = Suite::full(|_| true);
        for seed in 0..3 {
            let sample = sample(seed);
            println!("{} of {} cases", sample.len(), full.len());
            assert!(sample.len() < full.len() / 10, "{}", sample.len());
            let (shown, all) = (shown(&sample), shown(&full));
            let missing: Vec<_> = all.difference(&shown).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    }

    #[test]
    fn every_kernel_variant_is_in_a_sample() {
        // Each operation of a decomposition is a kernel.
        let named = |graph: &Graph| -> Vec<String> {
            let nodes = graph.nodes().iter();
            nodes.map(|node| format!("{:?}", node.op)).collect()
        };
        let variants = |suite: &Suite| -> HashSet<String> {
            suite.graphs(1).flat_map(|graph| named(&graph)).collect()
        };
        let kind = |kind| kind == OpKind::Attention;
        let sample = Suite::sample_by(kind, 1, |graph| Some(named(graph)));
        assert_eq!(variants(&sample), variants(&Suite::full(kind)));
    }

    #[test]
    fn a_seed_gives_its_sample_and_others_give_others() {
        let cases = |seed| -> Vec<String> {
            let sample = sample(seed);
            sample
                .entries
                .iter()
                .map(|e| format!("{:?}", e.case))
                .collect()
        };
        assert_eq!(cases(7), cases(7));
        assert_ne!(cases(7), cases(8));
    }

    #[test]
    fn operations_take_turns() {
        let kinds = OpKind::ALL.len();
        let first: HashSet<OpKind> = sample(0).entries[..kinds].iter().map(|e| e.kind).collect();
        assert_eq!(first.len(), kinds);
    }
}
