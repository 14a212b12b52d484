//! Conformance sees: a processor whose results are a little wrong fails, in every operation.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use rustorch_conformance::{Check, Extent, Fault as Planting, Report, check};
use rustorch_cpu::Cpu;
use rustorch_ir::{DType, Graph, Node, OpKind, Signature, TensorType, ValueId};
use rustorch_reference::Values;
use rustorch_runtime::{
    Backend, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, Probe, Program,
};

/// A change of a result's bytes.
type Fault = fn(&mut [u8], &TensorType);

/// The processor, with a fault in every result.
struct Faulty {
    inner: Cpu,
    fault: Fault,
}

impl Backend for Faulty {
    fn info(&self) -> &DeviceInfo {
        self.inner.info()
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.inner.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.inner.memory()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        let types = graph.outputs().iter().map(|&v| graph.ty(v).clone());
        let overwritten = |node: &Node| {
            let states = node.overwrites().map(|(_, state)| node.inputs[state]);
            states.collect::<Vec<ValueId>>()
        };
        let states = graph.nodes().iter().flat_map(overwritten);
        let place = |state: ValueId| {
            let at = state.index();
            Some((at, graph.inputs().get(at)?.clone()))
        };
        Ok(Box::new(FaultyProgram {
            program: self.inner.compile(graph)?,
            types: types.collect(),
            states: states.filter_map(place).collect(),
            fault: self.fault,
        }))
    }
}

struct FaultyProgram {
    program: Box<dyn Program>,
    types: Vec<TensorType>,
    /// Inputs that are written over, by their places.
    states: Vec<(usize, TensorType)>,
    fault: Fault,
}

impl Program for FaultyProgram {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        self.program.run(inputs, outputs, probe)?;
        let states = self.states.iter().map(|(at, ty)| (&inputs[*at], ty));
        for (buffer, ty) in outputs.iter().zip(&self.types).chain(states) {
            let mut bytes = vec![0; ty.bytes()];
            // SAFETY: the run writes this memory, and has ended.
            unsafe { buffer.read(0, &mut bytes)? };
            (self.fault)(&mut bytes, ty);
            // SAFETY: the same.
            unsafe { buffer.write(0, &bytes)? };
        }
        Ok(())
    }
}

/// Every result of `f64` is rounded to `f32`, of `f32` to `f16`, and so on. Floats of a byte keep one bit of their
/// fraction.
fn in_fewer_digits(bytes: &mut [u8], ty: &TensorType) {
    let own = ty.dtype.real();
    let fewer = match own {
        DType::F64 => DType::F32,
        DType::F32 => DType::F16,
        DType::F16 => DType::BF16,
        DType::BF16 => DType::F8E5M2,
        DType::F8E4M3 => return bytes.iter_mut().for_each(|byte| *byte &= !0x03),
        DType::F8E5M2 => return bytes.iter_mut().for_each(|byte| *byte &= !0x01),
        _ => return,
    };
    let values = Values::decode(bytes.to_vec(), own);
    bytes.copy_from_slice(&Values::decode(values.encode(fewer), fewer).encode(own));
}

/// The last element is off by a quarter or more, or by 1. A zero becomes a 2 of every floating-point dtype.
fn in_one_element(bytes: &mut [u8], ty: &TensorType) {
    let Some(size) = ty.dtype.real().size().filter(|_| !bytes.is_empty()) else {
        return;
    };
    let start = bytes.len() - size;
    let (byte, bit) = match ty.dtype.real() {
        DType::F64 => (6, 0x08),
        DType::F32 => (2, 0x40),
        DType::F16 => (1, 0x02),
        DType::BF16 => (0, 0x40),
        _ => (0, 0x01),
    };
    let element = &mut bytes[start..];
    // A sign alone is a zero, too.
    let is_zero = element.iter().rev().enumerate().all(|(i, byte)| match i {
        0 => byte & 0x7f == 0,
        _ => *byte == 0,
    });
    match ty.dtype.real().is_float() && is_zero {
        true => element[size - 1] = 0x40,
        false => element[byte] ^= bit,
    }
}

/// The first row that differs from the next one has the next one's elements.
fn in_one_row(bytes: &mut [u8], ty: &TensorType) {
    let rows = ty.shape.elements() / ty.shape.last().copied().unwrap_or(1).max(1);
    let Some(width) = bytes.len().checked_div(rows).filter(|_| rows > 1) else {
        return;
    };
    let differs = |i: &usize| bytes[i * width..][..width] != bytes[(i + 1) * width..][..width];
    if let Some(row) = (0..rows - 1).find(differs) {
        bytes.copy_within((row + 1) * width..(row + 2) * width, row * width);
    }
}

/// Some of the operations, which the commit chooses: each is tried four times.
static KINDS: LazyLock<Vec<OpKind>> =
    LazyLock::new(|| Extent::of_tests().choose(OpKind::ALL.iter().copied(), 24));

/// The report of the processor as it is.
static RIGHT: LazyLock<Report> = LazyLock::new(|| {
    let report = check(Arc::new(Cpu::new(2)), |kind| KINDS.contains(&kind));
    assert_eq!(report.failed().count(), 0, "{report}");
    report
});

/// Every operation that a planted fault of this kind was found in fails where the processor itself has the fault.
fn check_fault(planted: Planting, fault: Fault) {
    let found = |check: &&Check| {
        let mut faults = check.faults.iter();
        faults.any(|fault| fault.fault == planted && fault.found)
    };
    let expected: BTreeSet<&str> = (RIGHT.checks.iter().filter(found))
        .map(|check| check.kind.name())
        .collect();
    let inner = Cpu::new(2);
    let wrong = check(Arc::new(Faulty { inner, fault }), |kind| {
        KINDS.contains(&kind)
    });
    let failed: BTreeSet<&str> = (wrong.failed())
        .map(|(check, _)| check.kind.name())
        .collect();
    let passed: Vec<&&str> = expected.difference(&failed).collect();
    assert!(!expected.is_empty() && passed.is_empty(), "{passed:?}");
}

#[test]
fn results_with_fewer_digits_fail() {
    check_fault(Planting::FewerDigits, in_fewer_digits);
}

#[test]
fn one_wrong_element_fails() {
    check_fault(Planting::OneElement, in_one_element);
}

#[test]
fn one_wrong_row_fails() {
    check_fault(Planting::OneRow, in_one_row);
}
