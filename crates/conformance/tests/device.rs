//! The checks themselves: the reference passes, a device that is wrong does not.

use std::ops::ControlFlow;
use std::sync::Arc;

use rustorch_conformance::{Report, Suite, check};
use rustorch_ir::{Graph, OpKind, Signature};
use rustorch_reference::Reference;
use rustorch_runtime::{
    Backend, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, FailureClass, Probe, Program,
};

#[test]
fn the_reference_agrees_with_itself() {
    let report = check(Arc::new(Reference::new()), |_| true);
    println!("{report}");
    assert_eq!(report.failed().count(), 0);
    // Composites have no kernels of their own here.
    assert!(report.skipped().all(|(check, _)| {
        let mut cases = check.kind.cases().into_iter();
        cases.all(|c| c.op.def().is_composite())
    }));
    for &kind in OpKind::ALL {
        let of_kind = |c: &&rustorch_conformance::Check| c.kind == kind;
        assert!(report.checks.iter().any(|c| of_kind(&c)), "{}", kind.name());
    }
}

#[test]
fn a_run_can_be_ended() {
    let suite = Suite::sample(|_| true, 0, &Reference::new());
    let mut left = OpKind::ALL.len();
    let report = suite.run(Arc::new(Reference::new()), || {
        left -= 1;
        match left {
            0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    let kinds: Vec<OpKind> = (report.checks)
        .chunk_by(|a, b| a.kind == b.kind)
        .map(|checks| checks[0].kind)
        .collect();
    assert_eq!(kinds, OpKind::ALL, "one case of each operation");
}

/// The reference, but every result has one bit of its first element wrong.
struct Wrong(Reference);

impl Backend for Wrong {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.0.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.0.memory()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        let program = self.0.compile(graph)?;
        // The most significant of the first element's bytes.
        let byte = graph
            .outputs()
            .first()
            .and_then(|&v| graph.ty(v).dtype.size());
        let byte = byte.unwrap_or(1) - 1;
        Ok(Box::new(WrongProgram { program, byte }))
    }
}

struct WrongProgram {
    program: Box<dyn Program>,
    byte: usize,
}

impl Program for WrongProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.program.run(inputs, outputs, probe)?;
        for output in outputs.iter().filter(|o| o.bytes() > self.byte) {
            let mut byte = [0];
            // SAFETY: the output is this run's own.
            unsafe {
                output.read(self.byte, &mut byte)?;
                output.write(self.byte, &[byte[0] ^ 1])?;
            }
        }
        Ok(())
    }
}

#[test]
fn a_wrong_result_is_found() {
    for kind in [
        OpKind::Matmul,
        OpKind::Compare,
        OpKind::Concat,
        OpKind::TopK,
    ] {
        let report = check(Arc::new(Wrong(Reference::new())), |k| k == kind);
        // Empty results have nothing wrong, and bit 24 of some numbers is small change.
        let wrong = report.failed().count();
        let name = kind.name();
        assert!(
            wrong > report.passed(),
            "{name}: {wrong} of {}",
            report.checks.len()
        );
    }
}

/// The processor, but no kernel of an operation can be made. Whether that is to be expected of it.
struct Lacking {
    inner: rustorch_cpu::Cpu,
    kind: OpKind,
    may_lack: bool,
}

impl Backend for Lacking {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.inner.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.inner.memory()
    }

    fn may_lack(&self, kind: OpKind) -> bool {
        self.may_lack && kind == self.kind
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        let mut nodes = graph.nodes().iter();
        match nodes.position(|node| node.op.kind() == self.kind) {
            Some(at) => {
                let class = FailureClass::Unsupported;
                let error = DeviceError::new(self.info().device, class, "no such kernel");
                Err(error.at(at, self.kind.name()))
            }
            None => self.inner.compile(graph),
        }
    }
}

fn check_lacking(kind: OpKind, may_lack: bool) -> Report {
    let inner = rustorch_cpu::Cpu::new(1);
    let device = Lacking {
        inner,
        kind,
        may_lack,
    };
    check(Arc::new(device), |k| k == kind)
}

#[test]
fn only_composites_that_are_known_to_may_lack_a_kernel() {
    let report = check_lacking(OpKind::Softmax, true);
    assert_eq!(report.failed().count(), 0, "{report}");
    assert!(report.passed() > 0, "decomposed");
    assert!(report.skipped().all(|(_, why)| why.kind == OpKind::Softmax));
    assert_eq!(report.skipped().count(), report.passed());
    assert_eq!(report.left_out().count(), 0);
    for (kind, may_lack) in [(OpKind::Softmax, false), (OpKind::Gather, true)] {
        let report = check_lacking(kind, may_lack);
        assert!(report.failed().count() > 0, "{}: {report}", kind.name());
        assert_eq!(report.skipped().count(), 0, "{}", kind.name());
    }
}

/// The reference, but it writes to its first input.
struct Careless(Reference);

impl Backend for Careless {
    fn info(&self) -> &DeviceInfo {
        self.0.info()
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.0.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.0.memory()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        Ok(Box::new(CarelessProgram(self.0.compile(graph)?)))
    }
}

struct CarelessProgram(Box<dyn Program>);

impl Program for CarelessProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.0.run(inputs, outputs, probe)?;
        for input in inputs.iter().filter(|i| i.bytes() > 0) {
            // SAFETY: the test's runs do not overlap.
            unsafe { input.write(0, &[0xA5])? };
        }
        Ok(())
    }
}

#[test]
fn writing_to_an_operand_is_found() {
    let report = check(Arc::new(Careless(Reference::new())), |k| k == OpKind::Where);
    let overwritten = report
        .failed()
        .filter(|(_, why)| why.contains("was written to"));
    assert_eq!(overwritten.count(), report.checks.len());
}
