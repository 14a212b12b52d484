//! Which cases are run.

use std::collections::{HashMap, HashSet};

use rustorch_ir::case::{Arrange, Case};
use rustorch_ir::{DType, Op, OpKind};

use crate::mistakes;

/// A list of cases, the same in every run.
#[derive(Clone, Debug)]
pub struct Suite {
    pub(crate) entries: Vec<Entry>,
}

/// A case, and what has to come of it.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) kind: OpKind,
    pub(crate) case: Case,
    pub(crate) expect: Expect,
}

/// What has to come of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expect {
    /// The reference's result.
    Result,
    /// To be told the caller's mistake.
    Refusal,
}

impl Suite {
    /// All cases of the operations that `kinds` chooses.
    pub fn full(kinds: impl Fn(OpKind) -> bool) -> Self {
        Self::of(kinds, |cases| cases)
    }

    /// About a twentieth of the cases, in which each operation still has all its parameters, and
    /// each of its operands all arrangements in memory and all dtypes, of integers one or more,
    /// though not all of these with each other. Operations take turns, so that the beginning of
    /// it has something of each.
    pub fn sample(kinds: impl Fn(OpKind) -> bool) -> Self {
        let mut turns = HashMap::new();
        let numbered = Self::of(kinds, cover).entries.into_iter().map(|entry| {
            let turn = turns.entry(entry.kind).or_insert(0_usize);
            *turn += 1;
            (*turn, entry)
        });
        let mut numbered: Vec<(usize, Entry)> = numbered.collect();
        numbered.sort_by_key(|(turn, _)| *turn);
        Self {
            entries: numbered.into_iter().map(|(_, entry)| entry).collect(),
        }
    }

    fn of(kinds: impl Fn(OpKind) -> bool, choose: impl Fn(Vec<Case>) -> Vec<Case>) -> Self {
        let mut entries = Vec::new();
        for &kind in OpKind::ALL.iter().filter(|&&kind| kinds(kind)) {
            let lists = [
                (choose(kind.cases()), Expect::Result),
                (mistakes::of(kind), Expect::Refusal),
            ];
            for (cases, expect) in lists {
                let entry = |case| Entry { kind, case, expect };
                entries.extend(cases.into_iter().map(entry));
            }
        }
        Self { entries }
    }

    /// Number of cases. Composites are run in two ways, so there may be more checks.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Is there no case?
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What a case can show of an operation.
#[derive(PartialEq, Eq, Hash)]
enum Feature<'a> {
    /// Its parameters.
    Parameters(&'a Op),
    /// The dtype of an operand; integers are much alike.
    DType(usize, DType),
    /// How an operand lies in memory.
    Arrangement(usize, Arrange),
    /// That nothing is no problem.
    Empty,
}

/// The cases that show something which none before them does. They are looked at in an order
/// that jumps about, because neighbours are alike.
fn cover(cases: Vec<Case>) -> Vec<Case> {
    let is_empty = |case: &Case| case.inputs.iter().any(|x| x.ty.shape.elements() == 0);
    // Those without elements show least, so they come last.
    let (empty, filled): (Vec<usize>, Vec<usize>) =
        (0..cases.len()).partition(|&i| is_empty(&cases[i]));
    let mut seen = HashSet::new();
    let mut chosen = HashSet::new();
    for i in jumping(&filled).chain(jumping(&empty)) {
        let case = &cases[i];
        let mut is_new = seen.insert(Feature::Parameters(&case.op));
        if is_empty(case) {
            is_new |= seen.insert(Feature::Empty);
        }
        for (position, operand) in case.inputs.iter().enumerate() {
            is_new |= seen.insert(Feature::DType(position, class(operand.ty.dtype)));
            is_new |= seen.insert(Feature::Arrangement(position, operand.arrange));
        }
        if is_new {
            chosen.insert(i);
        }
    }
    let cases = cases.into_iter().enumerate();
    cases
        .filter_map(|(i, case)| chosen.contains(&i).then_some(case))
        .collect()
}

/// A dtype that stands for those like it.
fn class(dtype: DType) -> DType {
    match dtype.is_int() {
        true => DType::I32,
        false => dtype,
    }
}

/// All of a list, each element far from the one before.
fn jumping(list: &[usize]) -> impl Iterator<Item = usize> {
    let n = list.len();
    // The golden section of the list, made coprime to its length so that all are met.
    let jump = (n * 618 / 1000..).find(|&jump| gcd(jump, n) <= 1);
    (0..n).map(move |i| list[i * jump.unwrap_or(1) % n])
}

fn gcd(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        _ => gcd(b, a % b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_small_and_shows_all() {
        let (full, sample) = (Suite::full(|_| true), Suite::sample(|_| true));
        println!("{} of {} cases", sample.len(), full.len());
        assert!(sample.len() < full.len() / 15, "{}", sample.len());
        let dtypes = |suite: &Suite| -> HashSet<(OpKind, usize, DType)> {
            let operands = suite.entries.iter().flat_map(|e| {
                let numbered = e.case.inputs.iter().enumerate();
                numbered.map(|(i, x)| (e.kind, i, class(x.ty.dtype)))
            });
            operands.collect()
        };
        assert_eq!(dtypes(&sample), dtypes(&full));
        let parameters = |suite: &Suite| -> HashSet<Op> {
            suite.entries.iter().map(|e| e.case.op.clone()).collect()
        };
        assert_eq!(parameters(&sample), parameters(&full));
    }

    #[test]
    fn operations_take_turns() {
        let kinds = OpKind::ALL.len();
        let sample = Suite::sample(|_| true);
        let first: HashSet<OpKind> = sample.entries[..kinds].iter().map(|e| e.kind).collect();
        assert_eq!(first.len(), kinds);
    }

    #[test]
    fn jumping_meets_all_once() {
        for n in 0..200 {
            let list: Vec<usize> = (0..n).collect();
            let mut met: Vec<usize> = jumping(&list).collect();
            met.sort_unstable();
            assert_eq!(met, list);
        }
    }
}
