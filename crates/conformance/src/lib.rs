//! Every operation's cases on every backend, against the reference.
//!
//! [`Suite::run`] runs cases of [`OpKind::cases`] on the device under test and on the
//! [`Reference`], from the same bytes, and compares the results. Composite operations are
//! run twice, with the device's own kernel and decomposed. A caller's mistakes at run time have to
//! be reported as the caller's mistakes. A [`Suite`] is a choice of cases: tests run a sample that
//! changes with the commit, or all, as [`Extent`] says.

mod accuracy;
mod bounds;
mod compare;
mod composite;
mod dropout;
mod elements;
mod extent;
mod faults;
mod gradients;
mod long_sums;
mod mistakes;
mod operand;
mod precision;
#[cfg(feature = "replay")]
pub mod replay;
mod report;
mod suite;
mod times;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use rustorch_ir::case::Case;
use rustorch_ir::ops::{AsStrided, ScatterMode};
use rustorch_ir::{DType, Graph, Op, OpError, OpKind, OpType, Results, Role, TensorType, ValueId};
use rustorch_reference::{Reference, Values};
use rustorch_runtime::{
    Backend, FailureClass, Hardware, HostBuffer, Routing, RunError, Runtime, Storage,
};

use crate::accuracy::Accuracy;
use crate::bounds::Bounded;
use crate::composite::Composite;
pub use crate::dropout::check_dropout;
pub use crate::extent::Extent;
pub use crate::gradients::check_gradients;
pub use crate::long_sums::check_long_sums;
pub use crate::report::{Check, Closeness, Fault, MissingKernel, Outcome, Planted, Report};
pub use crate::suite::Suite;
use crate::suite::{Entry, Expect};
pub use crate::times::check_times;

/// Cases that GPUs compile before the first of them runs.
const TOGETHER: usize = 128;

/// Runs the cases that [tests](Suite::of_tests) try of the operations that `kinds` chooses.
pub fn check(backend: Arc<dyn Backend>, kinds: impl Fn(OpKind) -> bool) -> Report {
    let suite = Suite::of_tests(kinds, &*backend);
    suite.run(backend, || ControlFlow::Continue(()))
}

/// [`check`] of the operations of these families; `None` are those that only move data. A short run
/// checks one operation of every `one_of`, since a processor that compiles kernels takes minutes
/// for all.
pub fn check_types(backend: Arc<dyn Backend>, types: &[Option<OpType>], one_of: usize) -> Report {
    let is_meant = |kind: &&OpKind| {
        let mut cases = kind.cases().into_iter();
        cases.any(|case| types.contains(&case.op.def().op_type()))
    };
    let kinds: Vec<OpKind> = OpKind::ALL.iter().filter(is_meant).copied().collect();
    let count = kinds.len().div_ceil(one_of);
    let kinds = Extent::of_tests().choose(kinds, count);
    check(backend, |kind| kinds.contains(&kind))
}

impl Suite {
    /// Runs the cases on `backend`; `each` is called after every one, and may end it there.
    pub fn run(
        &self,
        backend: Arc<dyn Backend>,
        mut each: impl FnMut() -> ControlFlow<()>,
    ) -> Report {
        let device = backend.info().device;
        let bench = Bench {
            reference: Reference::new(),
            accuracy: Accuracy::of(backend.info()),
            tested: Runtime::new([backend.clone()]),
            backend,
        };
        let mut checks = Vec::new();
        let is_gpu = bench.backend.info().hardware == Hardware::Gpu;
        'all: for entries in self.entries.chunks(TOGETHER) {
            if is_gpu {
                compile(&*bench.backend, entries);
            }
            for Entry { kind, case, expect } in entries {
                match expect {
                    Expect::Result => bench.check(*kind, case, &mut checks),
                    Expect::Refusal => bench.check_refused(*kind, case, &mut checks),
                }
                if each().is_break() {
                    break 'all;
                }
            }
        }
        let place = |kind| OpKind::ALL.iter().position(|&other| other == kind);
        checks.sort_by_key(|check: &Check| place(check.kind));
        Report {
            device,
            checks,
            is_sample: self.is_sample,
        }
    }

    /// The graphs that [`Self::run`] gives a device, composites in both ways. Operands are `scale`
    /// times as long in each dimension. Cases that are then invalid are left out.
    pub fn graphs(&self, scale: usize) -> impl Iterator<Item = Graph> {
        self.entries.iter().flat_map(move |Entry { case, .. }| {
            let mut case = case.clone();
            for operand in &mut case.inputs {
                let shape = operand.ty.shape.iter();
                operand.ty.shape = shape.map(|size| size.saturating_mul(scale)).collect();
            }
            [Way::Native, Way::Decomposed]
                .into_iter()
                .filter_map(move |way| graph(&case, way).ok())
        })
    }
}

/// Lets a device compile cases on several threads. It keeps the kernels for their runs, which would
/// wait for one after the other.
fn compile(backend: &dyn Backend, entries: &[Entry]) {
    let next = AtomicUsize::new(0);
    let turns = || {
        while let Some(Entry { case, .. }) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
            for graph in Way::of(case).iter().flat_map(|&way| graph(case, way).ok()) {
                if lacks(backend, &graph).is_none() {
                    // The run of the graph reports the error again.
                    let _ = backend.compile(&graph);
                }
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(turns);
        }
        turns();
    });
}

/// Form of an operation in a graph.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The composite itself.
    Native,
    /// The parts of the composite.
    Decomposed,
}

impl Way {
    /// The ways to run a case.
    fn of(case: &Case) -> &'static [Self] {
        match case.op.def().is_composite() {
            true => &[Self::Native, Self::Decomposed],
            false => &[Self::Native],
        }
    }

    /// The one that defines its result.
    fn definition(case: &Case) -> Self {
        match case.op.def().is_composite() {
            true => Self::Decomposed,
            false => Self::Native,
        }
    }
}

struct Bench {
    backend: Arc<dyn Backend>,
    tested: Runtime,
    reference: Reference,
    accuracy: Accuracy,
}

impl Bench {
    /// Compares a case's results with the reference's.
    fn check(&self, kind: OpKind, case: &Case, checks: &mut Vec<Check>) {
        let operands = operand::prepare(case);
        let expected = self.expected(case, &operands);
        for &way in Way::of(case) {
            let compared = match &expected {
                Ok(expected) => self.compare(case, &operands, way, expected),
                Err(e) => Err(Outcome::Failed(format!("the reference: {e}"))),
            };
            let how = match way {
                Way::Decomposed => ", decomposed",
                Way::Native => "",
            };
            let (outcome, closeness, faults) = match compared {
                Ok((closeness, faults)) => (Outcome::Passed, Some(closeness), faults),
                Err(outcome) => (outcome, None, Vec::new()),
            };
            checks.push(Check {
                kind,
                case: format!("{}{how}", describe(case)),
                outcome,
                closeness,
                faults,
            });
        }
    }

    /// The results by the case's definition, and how far the device may be off.
    fn expected(&self, case: &Case, operands: &[Vec<u8>]) -> Result<Vec<Bounded>, String> {
        let way = Way::definition(case);
        let graph = graph(case, way).map_err(|e| e.to_string())?;
        let composite = (way == Way::Decomposed).then(|| Composite::of(case));
        bounds::evaluate(&self.reference, &graph, operands, self.accuracy, composite)
    }

    /// Closeness of the device's result, and the planted faults that would be found. Or the reason why
    /// it does not pass.
    fn compare(
        &self,
        case: &Case,
        operands: &[Vec<u8>],
        way: Way,
        expected: &[Bounded],
    ) -> Result<(Closeness, Vec<Planted>), Outcome> {
        let graph = graph(case, way).map_err(|e| Outcome::Failed(e.to_string()))?;
        if let Some(reason) = lacks(&*self.backend, &graph) {
            return Err(Outcome::Skipped(reason));
        }
        let results = run(&self.tested, &graph, operands);
        let results = results.map_err(|e| self.outcome(&graph, way, &e))?;
        let mut worst: Option<Closeness> = None;
        let mut faults = Vec::new();
        for (i, (result, expected)) in results.iter().zip(expected).enumerate() {
            let ty = graph.ty(graph.outputs()[i]);
            let compared = compare::compare(result, expected, ty.dtype);
            let this = compared.map_err(|difference| {
                Outcome::Failed(match results.len() {
                    1 => difference,
                    _ => format!("result {i}: {difference}"),
                })
            })?;
            worst = Some(worst.map_or(this, |worst| worst.or(this)));
            let planted = faults::plant(result, expected, ty).into_iter();
            let kernel = kernel(case, ty.dtype);
            let rounds_inside = self.rounds_inside(case);
            faults.extend(planted.map(|(fault, found)| Planted {
                function: case.op.function(),
                kernel: kernel.clone(),
                fault,
                found,
                may_hide: rounds_inside && matches!(fault, Fault::FewerDigits | Fault::Bias),
            }));
        }
        let worst = worst.ok_or_else(|| Outcome::Failed("no results".to_owned()))?;
        Ok((worst, faults))
    }

    /// May kernels for a case lose as many digits inside of sums as halves or quantised operands lack?
    fn rounds_inside(&self, case: &Case) -> bool {
        let adds = |mode| matches!(mode, ScatterMode::Add | ScatterMode::Prod);
        let is_affected = match &case.op {
            Op::Scatter(scatter) => adds(scatter.mode),
            op => op.def().is_composite() || self.accuracy.halves(),
        };
        is_affected && Composite::of(case).rounds_inside()
    }

    /// Outcome of a failure to run a case in a way.
    fn outcome(&self, graph: &Graph, way: Way, failure: &Failure) -> Outcome {
        let is_unsupported = matches!(
            failure,
            Failure::Run(RunError::Device(e)) if e.class == FailureClass::Unsupported
        );
        // The operation comes last. Its parts, which are tried as well, run in its place.
        let may_lack = |op: &Op| op.def().is_composite() && self.backend.may_lack(op.kind());
        match graph.nodes().last() {
            Some(node) if way == Way::Native && is_unsupported && may_lack(&node.op) => {
                Outcome::Skipped(MissingKernel::of(graph, node))
            }
            _ => Outcome::Failed(failure.to_string()),
        }
    }

    /// A case that the caller got wrong has to be refused as such.
    fn check_refused(&self, kind: OpKind, case: &Case, checks: &mut Vec<Check>) {
        let operands = operand::prepare(case);
        let outcome = match graph(case, Way::definition(case)) {
            Ok(graph) => match lacks(&*self.backend, &graph) {
                Some(reason) => Outcome::Skipped(reason),
                None => match run(&self.tested, &graph, &operands) {
                    Err(Failure::Run(RunError::Device(e))) if e.class == FailureClass::Caller => {
                        match mistakes::is_told(case, &e.message) {
                            true => Outcome::Passed,
                            false => Outcome::Failed(format!("the value is not named: {e}")),
                        }
                    }
                    Err(e) => Outcome::Failed(format!("not told to be the caller's mistake: {e}")),
                    Ok(_) => Outcome::Failed("was not refused".to_owned()),
                },
            },
            Err(e) => Outcome::Failed(e.to_string()),
        };
        checks.push(Check {
            kind,
            case: format!("{}, a mistake", describe(case)),
            outcome,
            closeness: None,
            faults: Vec::new(),
        });
    }
}

/// Why the device cannot run `graph`.
fn lacks(backend: &dyn Backend, graph: &Graph) -> Option<MissingKernel> {
    let missing = graph.nodes().iter().find(|node| {
        let is_view = node.op.def().role() == Role::View;
        !is_view && !graph.with_signature(node, |s| backend.supports(s))
    })?;
    Some(MissingKernel::of(graph, missing))
}

/// The function of a case, with the dtypes that its operands have and that of a result.
fn kernel(case: &Case, dtype: DType) -> String {
    let mut operands: Vec<String> = Vec::new();
    for operand in case.inputs.iter().map(|x| x.ty.dtype.to_string()) {
        if !operands.contains(&operand) {
            operands.push(operand);
        }
    }
    format!("{}({}) -> {dtype}", case.op.function(), operands.join(", "))
}

fn describe(case: &Case) -> String {
    let operands: Vec<String> = case.inputs.iter().map(operand::describe).collect();
    match operands.is_empty() {
        true => format!("{:?}", case.op),
        false => format!("{:?} of {}", case.op, operands.join(", ")),
    }
}

/// The case as a graph of one operation on operands that lie as the case says.
fn graph(case: &Case, way: Way) -> Result<Graph, OpError> {
    let operands = operand::place(case);
    let mut graph = Graph::new();
    let stored = (operands.iter())
        .map(|x| graph.input(x.stored.clone()))
        .collect::<Result<Vec<ValueId>, _>>()?;
    let mut inputs = Vec::with_capacity(stored.len());
    for (value, operand) in stored.into_iter().zip(&operands) {
        inputs.push(match &operand.view {
            Some(layout) => {
                let layout = layout.clone();
                graph.push(AsStrided { layout }, &[value])?
            }
            None => value,
        });
    }
    let results = match way {
        Way::Native => {
            let first = graph.push(case.op.clone(), &inputs)?;
            graph.results(first)
        }
        Way::Decomposed => decompose(&mut graph, &case.op, &inputs)?,
    };
    for result in results {
        graph.output(result);
    }
    Ok(graph)
}

/// Appends the primitives that a composite is made of, by way of other composites or not, and
/// returns its results.
fn decompose(graph: &mut Graph, op: &Op, inputs: &[ValueId]) -> Result<Results, OpError> {
    let mut parts = Graph::new();
    let types = inputs.iter().map(|&v| graph.ty(v).clone());
    let operands = types.map(|ty| parts.input(ty));
    let operands = operands.collect::<Result<Vec<ValueId>, _>>()?;
    let results = parts.expand(op, &operands)?;
    let mut values = inputs.to_vec();
    for node in parts.nodes() {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| values[v.index()]).collect();
        values.extend(match node.op.def().is_composite() {
            true => decompose(graph, &node.op, &inputs)?,
            false => {
                let first = graph.push(node.op.clone(), &inputs)?;
                graph.results(first)
            }
        });
    }
    Ok(results.iter().map(|v| values[v.index()]).collect())
}

/// Why there is no result to compare.
enum Failure {
    Run(RunError),
    /// An operand that is not a state has changed.
    Overwritten(usize),
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Run(e) => e.fmt(f),
            Self::Overwritten(i) => write!(f, "operand {i} was written to"),
        }
    }
}

impl From<RunError> for Failure {
    fn from(e: RunError) -> Self {
        Self::Run(e)
    }
}

/// Runs a graph on fresh copies of the operands and returns its outputs.
fn run(runtime: &Runtime, graph: &Graph, operands: &[Vec<u8>]) -> Result<Vec<Values>, Failure> {
    let inputs = graph.inputs().iter().zip(operands);
    let inputs: Vec<Storage> = inputs.map(|(ty, bytes)| stored(ty, bytes)).collect();
    let routing = Routing {
        strict: true,
        // Fusion would put decomposed operations together again.
        fuses: false,
        ..Routing::default()
    };
    let outputs = runtime.prepare(graph.clone(), routing).run(&inputs)?;
    let is_state = |i: usize| {
        let states = graph.nodes().iter().flat_map(|node| {
            let written = node.overwrites();
            written.filter_map(|(_, state)| graph.state_root(node.inputs[state]))
        });
        states.into_iter().any(|root| root.index() == i)
    };
    for (i, (input, operand)) in inputs.iter().zip(operands).enumerate() {
        if !is_state(i) && read(runtime, input)? != *operand {
            return Err(Failure::Overwritten(i));
        }
    }
    let decoded = |(output, &value): (&Storage, &ValueId)| {
        Ok(Values::decode(
            read(runtime, output)?,
            graph.ty(value).dtype,
        ))
    };
    outputs.iter().zip(graph.outputs()).map(decoded).collect()
}

/// A stored operand: weights in blocks are in read-only memory, as those of a mapped file.
fn stored(ty: &TensorType, bytes: &[u8]) -> Storage {
    match ty.dtype.is_block() {
        true => Storage::from_host(HostBuffer::borrowed(bytes.to_vec())),
        false => storage(bytes),
    }
}

fn storage(bytes: &[u8]) -> Storage {
    let buffer = HostBuffer::copy_of(bytes);
    Storage::from_host(buffer.expect("the host has memory for a small operand"))
}

fn read(runtime: &Runtime, storage: &Storage) -> Result<Vec<u8>, RunError> {
    let mut bytes = vec![0; storage.bytes()];
    runtime.read(storage, 0, &mut bytes)?;
    Ok(bytes)
}
