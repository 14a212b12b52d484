//! Every operation against the reference.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustorch_conformance::{Check, Closeness, MissingKernel, Outcome as Went, Suite};
use rustorch_ir::{Graph, OpKind, Signature};
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, DeviceType, HostBuffer, Program,
};

use super::findings::{Figure, Findings, Outcome, Row};
use crate::progress;

/// Time for a device; a kernel that has to be compiled can take a second on a busy machine.
const BUDGET: Duration = Duration::from_secs(90);
/// Number of reasons for skipping that are named.
const REASONS: usize = 3;

/// Checks a device's operations, those in `ops` if there are any.
pub(super) fn check(backend: &Arc<dyn Backend>, ops: &[OpKind], full: bool) -> Findings {
    let chosen = |kind| ops.is_empty() || ops.contains(&kind);
    let all = Suite::full(chosen);
    let cases = all.len();
    let suite = match full {
        true => all,
        false => Suite::sample(chosen, 0, &**backend),
    };
    let bar = progress::steps("conformance", suite.len());
    let (start, mut done) = (Instant::now(), 0);
    let report = suite.run(Everywhere::of(backend), || {
        bar.inc(1);
        done += 1;
        match !full && start.elapsed() > BUDGET {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    bar.finish_and_clear();

    let rows: Vec<Row> = (report.checks)
        .chunk_by(|a, b| a.kind == b.kind)
        .map(row)
        .collect();
    let mut left_out = Vec::new();
    if done < suite.len() {
        left_out.push(format!(
            "{} cases beyond the time limit of {} s (--full has no limit)",
            suite.len() - done,
            BUDGET.as_secs(),
        ));
    }
    if suite.len() < cases {
        left_out.push(format!(
            "{} further combinations of the same parameters, dtypes and memory layouts (--full \
             runs all)",
            cases - suite.len()
        ));
    }
    if !ops.is_empty() {
        left_out.push(format!(
            "{} operations that --ops excludes",
            OpKind::ALL.len() - rows.len()
        ));
    }
    let [planted, found] = report.planted();
    Findings {
        did: format!(
            "{} checks in {} cases of {} operations, compared with the reference. Composites are \
             checked with the device's own kernel and decomposed. Wrong input must be reported \
             as such. Each element has a bound. The error is that of the element nearest to its \
             bound, in units in the last place; 0 is exact. {found} of {planted} planted faults \
             were found.",
            report.checks.len(),
            done,
            rows.len(),
        ),
        left_out,
        rows,
        ..Findings::default()
    }
}

/// A wrapper that offers every operation to its device, whatever the placement rules are.
struct Everywhere {
    info: DeviceInfo,
    inner: Arc<dyn Backend>,
}

impl Everywhere {
    /// Wraps Core ML as a CPU, since placement rules withhold operations from it. Other devices stay as they are.
    fn of(backend: &Arc<dyn Backend>) -> Arc<dyn Backend> {
        let info = backend.info().clone();
        match info.device {
            DeviceType::CoreML(_) => Arc::new(Self {
                info: DeviceInfo {
                    device: DeviceType::Cpu,
                    ..info
                },
                inner: backend.clone(),
            }),
            _ => backend.clone(),
        }
    }
}

impl Backend for Everywhere {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.inner.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.inner.memory()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.inner.compile(graph)
    }

    fn compile_with(
        &self,
        graph: &Graph,
        constants: &[Option<HostBuffer>],
    ) -> Result<Box<dyn Program>, DeviceError> {
        self.inner.compile_with(graph, constants)
    }

    fn takes_constants(&self) -> bool {
        self.inner.takes_constants()
    }
}

/// The checks of one operation.
fn row(checks: &[Check]) -> Row {
    let count = |of: fn(&Went) -> bool| checks.iter().filter(|c| of(&c.outcome)).count();
    let passed = count(|o| matches!(o, Went::Passed));
    let failures = checks.iter().filter_map(|c| match &c.outcome {
        Went::Failed(why) => Some(format!("{}: {why}", c.case)),
        _ => None,
    });
    let mut reasons: Vec<&MissingKernel> = Vec::new();
    for check in checks {
        match &check.outcome {
            Went::Skipped(why) if !reasons.contains(&why) => reasons.push(why),
            _ => {}
        }
    }
    // The result that came nearest to not passing.
    let nearest = checks
        .iter()
        .filter_map(|c| c.closeness)
        .reduce(Closeness::or);
    let mut figures = vec![
        Figure::count("checks", checks.len()),
        Figure::count("failed", count(|o| matches!(o, Went::Failed(_)))),
        Figure::count("no kernel", count(|o| matches!(o, Went::Skipped(_)))),
    ];
    let error = nearest.map(|c| Figure::new("largest error", c.error).at_most(c.allowed));
    figures.extend(error);
    let mut row = Row::passed(checks[0].kind.name(), figures);
    if passed == 0 {
        row.outcome = Outcome::Skipped;
    }
    if !reasons.is_empty() {
        let more = match reasons.len().saturating_sub(REASONS) {
            0 => String::new(),
            n => format!(", and {n} other types"),
        };
        let named = reasons.iter().take(REASONS).map(|why| why.to_string());
        row = row.remark(named.collect::<Vec<_>>().join("; ") + &more);
    }
    row.judged(failures)
}
