//! The checks, and their outcomes.

use std::collections::BTreeMap;
use std::fmt;

use rustorch_ir::{DType, Graph, Node, OpKind};
use rustorch_runtime::DeviceType;

/// The checks of one device. Prints as a table of the operations, the failures, and the reasons for
/// skipped checks.
#[derive(Clone, Debug)]
pub struct Report {
    /// The device.
    pub device: DeviceType,
    /// The checks, operation by operation.
    pub checks: Vec<Check>,
    /// Are the checks a sample of the device's?
    pub is_sample: bool,
}

/// One case, run in one way.
#[derive(Clone, Debug)]
pub struct Check {
    /// The operation.
    pub kind: OpKind,
    /// Its parameters and operands, and the way of running it.
    pub case: String,
    /// Outcome of the check.
    pub outcome: Outcome,
    /// Closeness of the result to the reference's; `None` if the check did not pass, or compares no
    /// result.
    pub closeness: Option<Closeness>,
    /// Faults that were planted into the result after it passed.
    pub faults: Vec<Planted>,
}

/// Closeness of a result, at the element that is nearest to its bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Closeness {
    /// The element's error.
    pub error: f64,
    /// The largest allowed error.
    pub allowed: f64,
}

impl Closeness {
    /// The result has to be the same, and is.
    pub(crate) const EXACT: Self = Self {
        error: 0.0,
        allowed: 0.0,
    };

    /// The one that is nearer to its bound; of two exact ones, the one with the wider bound.
    pub fn or(self, other: Self) -> Self {
        let share = |c: Self| match c.error > 0.0 {
            true => c.error / c.allowed,
            false => 0.0,
        };
        let by_share = share(self).total_cmp(&share(other));
        match by_share
            .then(self.allowed.total_cmp(&other.allowed))
            .is_ge()
        {
            true => self,
            false => other,
        }
    }
}

/// Kinds of planted faults.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Every element becomes the next one towards zero: for exact results, or results that are
    /// rounded once.
    NextSmaller,
    /// Every element loses digits: `f64` keeps those of `f32`, `f32` of `f16`, `f16` of `bf16`.
    /// `bf16` loses three bits.
    FewerDigits,
    /// Every element grows by half of the loss in [`Self::FewerDigits`].
    Bias,
    /// One element is off by 8 units in the last place. With a bound above 4, it is off by twice the bound and one. A whole number is off by 1.
    OneElement,
    /// One row has the elements of the next row.
    OneRow,
}

impl Fault {
    /// Every fault.
    pub const ALL: [Self; 5] = [
        Self::NextSmaller,
        Self::FewerDigits,
        Self::Bias,
        Self::OneElement,
        Self::OneRow,
    ];
}

/// A fault that was planted into a right result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planted {
    /// The function.
    pub function: &'static str,
    /// The function, with the dtypes of its operands and of the result.
    pub kernel: String,
    /// The fault.
    pub fault: Fault,
    /// Did the result then fail?
    pub found: bool,
    /// Whether it is within the loss that the kernel may have.
    pub may_hide: bool,
}

/// Outcomes of a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The check found no fault.
    Passed,
    /// The check failed, for this reason.
    Failed(String),
    /// The device cannot run it.
    Skipped(MissingKernel),
}

/// A kernel that a device lacks. Prints as the reason for skipping a check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingKernel {
    /// The operation of the case, or one of its parts.
    pub kind: OpKind,
    /// The dtypes of its operands.
    pub operands: Vec<DType>,
    /// The dtype of its result.
    pub result: DType,
    /// Is it an operation that no device but the processor has to have a kernel for?
    is_of_processor: bool,
}

impl Report {
    /// Number of checks that passed.
    pub fn passed(&self) -> usize {
        self.checks
            .iter()
            .filter(|c| c.outcome == Outcome::Passed)
            .count()
    }

    /// The failed checks, with the reasons.
    pub fn failed(&self) -> impl Iterator<Item = (&Check, &str)> {
        self.checks.iter().filter_map(|check| match &check.outcome {
            Outcome::Failed(why) => Some((check, why.as_str())),
            _ => None,
        })
    }

    /// The checks that were skipped, with the reason.
    pub fn skipped(&self) -> impl Iterator<Item = (&Check, &MissingKernel)> {
        self.checks.iter().filter_map(|check| match &check.outcome {
            Outcome::Skipped(why) => Some((check, why)),
            _ => None,
        })
    }

    /// The skipped checks whose case was not run decomposed either: the device does not support
    /// these at all.
    pub fn left_out(&self) -> impl Iterator<Item = (&Check, &MissingKernel)> {
        self.skipped().filter(|(skipped, _)| {
            let name = format!("{}, decomposed", skipped.case);
            let mut checks = self.checks.iter();
            !checks.any(|check| check.kind == skipped.kind && check.case == name)
        })
    }

    /// Planted faults that no result of a kernel showed, and wrong elements that one did not show. The second list
    /// has those that may hide. A sample has few results of a kernel, and their bounds may all be wide. There the
    /// kernels of a function count as one.
    pub fn unseen(&self) -> [Vec<String>; 2] {
        let mut counts: BTreeMap<(bool, &str, Fault), [usize; 2]> = BTreeMap::new();
        for planted in self.checks.iter().flat_map(|check| &check.faults) {
            let kernel = match self.is_sample {
                true => planted.function,
                false => &planted.kernel[..],
            };
            let key = (planted.may_hide, kernel, planted.fault);
            counts.entry(key).or_default()[usize::from(planted.found)] += 1;
        }
        let is_unseen = |fault: Fault, [missed, seen]: [usize; 2]| match fault {
            Fault::OneElement => missed > 0,
            _ => seen == 0,
        };
        let mut unseen = [Vec::new(), Vec::new()];
        for ((may_hide, kernel, fault), counts) in counts {
            if is_unseen(fault, counts) {
                let [missed, seen] = counts;
                let of = missed + seen;
                let line = format!("{kernel}: {fault:?} was found in {seen} of {of} results");
                unseen[usize::from(may_hide)].push(line);
            }
        }
        unseen
    }

    /// Number of planted faults, and how many of them were found.
    pub fn planted(&self) -> [usize; 2] {
        let faults = || self.checks.iter().flat_map(|check| &check.faults);
        [
            faults().count(),
            faults().filter(|planted| planted.found).count(),
        ]
    }

    /// Panics unless the device passes everything.
    ///
    /// # Panics
    /// Panics if a check failed, or if a planted fault that must show was [not seen](Self::unseen).
    /// Panics if the [left out](Self::left_out) checks are not those that such a device may leave
    /// out. Printing the report shows the failures.
    pub fn assert_complete(&self) {
        assert_eq!(self.failed().count(), 0, "see the report");
        let [unseen, _] = self.unseen();
        assert!(unseen.is_empty(), "{unseen:#?}");
        let missing: Vec<String> = (self.left_out())
            .filter(|(_, why)| !why.is_optional(self.device))
            .map(|(check, why)| format!("{}: {why}", check.case))
            .collect();
        assert!(missing.is_empty(), "{missing:#?}");
    }
}

impl MissingKernel {
    /// The kernel of a node.
    pub(crate) fn of(graph: &Graph, node: &Node) -> Self {
        let operands = node.inputs.iter().map(|&v| graph.ty(v).dtype);
        Self {
            kind: node.op.kind(),
            operands: operands.collect(),
            result: node.output().dtype,
            is_of_processor: node.op.def().is_of_processor(),
        }
    }

    /// May a device do without it?
    fn is_optional(&self, device: DeviceType) -> bool {
        // Caches of blocks are the CPU's alone.
        let writes_blocks = self.kind == OpKind::UpdateSlice && self.result.is_block();
        let is_optional = writes_blocks || self.is_of_processor;
        // Metal's language has no double precision.
        let is_double = |dtype: &DType| matches!(dtype, DType::F64 | DType::Complex128);
        let is_double = self.operands.iter().chain([&self.result]).any(is_double);
        match device {
            DeviceType::Cpu => false,
            DeviceType::Metal(_) => is_optional || is_double,
            _ => is_optional,
        }
    }
}

impl fmt::Display for MissingKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = match self.operands.is_empty() {
            true => &[self.result][..],
            false => &self.operands[..],
        };
        let types: Vec<String> = types.iter().map(DType::to_string).collect();
        write!(
            f,
            "no kernel for {} of {}",
            self.kind.name(),
            types.join(", ")
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<18}{:>8}{:>8}{:>8}",
            self.device.to_string(),
            "passed",
            "failed",
            "skipped"
        )?;
        for checks in self.checks.chunk_by(|a, b| a.kind == b.kind) {
            let count = |of: fn(&Outcome) -> bool| checks.iter().filter(|c| of(&c.outcome)).count();
            writeln!(
                f,
                "{:<18}{:>8}{:>8}{:>8}",
                checks[0].kind.name(),
                count(|o| matches!(o, Outcome::Passed)),
                count(|o| matches!(o, Outcome::Failed(_))),
                count(|o| matches!(o, Outcome::Skipped(_))),
            )?;
        }
        let [planted, found] = self.planted();
        writeln!(f, "{found} of {planted} planted faults found")?;
        for line in self.unseen().iter().flatten() {
            writeln!(f, "not seen: {line}")?;
        }
        for (check, why) in self.failed() {
            writeln!(f, "failed: {}: {why}", check.case)?;
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for (_, why) in self.skipped() {
            *reasons.entry(why.to_string()).or_default() += 1;
        }
        for (why, count) in reasons {
            writeln!(f, "skipped {count}: {why}")?;
        }
        Ok(())
    }
}
