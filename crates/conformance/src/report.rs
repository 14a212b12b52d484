//! What was checked, and how it went.

use std::collections::BTreeMap;
use std::fmt;

use rustorch_ir::{DType, Graph, Node, OpKind};
use rustorch_runtime::DeviceType;

/// What only the CPU computes.
const FACTORISATIONS: [OpKind; 17] = [
    OpKind::Cholesky,
    OpKind::Ldl,
    OpKind::LdlSolve,
    OpKind::Lu,
    OpKind::LuPivotsToPermutation,
    OpKind::Determinant,
    OpKind::LogDeterminant,
    OpKind::Adjugate,
    OpKind::Qr,
    OpKind::Svd,
    OpKind::PseudoInverse,
    OpKind::Eigh,
    OpKind::Eig,
    OpKind::Geqrf,
    OpKind::HouseholderProduct,
    OpKind::SolveTriangular,
    OpKind::MatrixExp,
];

/// The checks of one device. Prints as a table of the operations, the failures, and the
/// reasons for what was skipped.
#[derive(Clone, Debug)]
pub struct Report {
    /// The device.
    pub device: DeviceType,
    /// The checks, operation by operation.
    pub checks: Vec<Check>,
}

/// One case, run in one way.
#[derive(Clone, Debug)]
pub struct Check {
    /// The operation.
    pub kind: OpKind,
    /// Its parameters and operands, and how it was run.
    pub case: String,
    /// How it went.
    pub outcome: Outcome,
    /// How near the result is to the reference's; `None` where the check did not pass, or
    /// compares no result.
    pub closeness: Option<Closeness>,
}

/// How near a result is. Both are squared errors, normalised by the squares of what is
/// expected; 0 is exact.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Closeness {
    /// The error of the result.
    pub error: f64,
    /// The largest that passes.
    pub allowed: f64,
}

/// How a check went.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The result is the reference's.
    Passed,
    /// It is not, or there is none.
    Failed(String),
    /// The device cannot run it.
    Skipped(MissingKernel),
}

/// What a device has no kernel for. Prints as the reason for what was skipped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MissingKernel {
    /// The operation: that of the case, or one that it is made of.
    pub kind: OpKind,
    /// The dtypes of its operands.
    pub operands: Vec<DType>,
    /// The dtype of its result.
    pub result: DType,
}

impl Report {
    /// Number of checks that passed.
    pub fn passed(&self) -> usize {
        self.checks
            .iter()
            .filter(|c| c.outcome == Outcome::Passed)
            .count()
    }

    /// The checks that failed, with what is wrong.
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

    /// Those of the skipped checks whose case was not run decomposed either: what the device
    /// cannot do at all.
    pub fn left_out(&self) -> impl Iterator<Item = (&Check, &MissingKernel)> {
        self.skipped().filter(|(skipped, _)| {
            let name = format!("{}, decomposed", skipped.case);
            let mut checks = self.checks.iter();
            !checks.any(|check| check.kind == skipped.kind && check.case == name)
        })
    }

    /// Holds the device to everything that it should do.
    ///
    /// # Panics
    /// If a check failed, or what was [left out](Self::left_out) is not what such a device may
    /// leave out. Printing the report shows the failures.
    pub fn assert_complete(&self) {
        assert_eq!(self.failed().count(), 0, "see the report");
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
        }
    }

    /// May a device do without it?
    fn is_optional(&self, device: DeviceType) -> bool {
        // Caches of blocks are the CPU's alone.
        let writes_blocks = self.kind == OpKind::UpdateSlice && self.result.is_block();
        // Of Fourier transforms GPUs make those of 2, 3 and 5's powers; functions of the host's are its own.
        let is_of_cpu =
            matches!(self.kind, OpKind::Fft | OpKind::Host) || FACTORISATIONS.contains(&self.kind);
        let is_optional = writes_blocks || is_of_cpu;
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
