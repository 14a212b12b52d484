//! Mistakes in the data are told with what is wrong and where.

use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_ir::ops::{BinaryOp, Gather, IndexSelect, Scatter, ScatterMode};
use rustorch_ir::{DType, Graph, OpError, Scalar, ValueId};
use rustorch_runtime::{Backend, FailureClass, Routing, RunError, Runtime};

/// The message for a graph without inputs.
fn message(build: impl Fn(&mut Graph) -> Result<ValueId, OpError>) -> String {
    let mut graph = Graph::new();
    let result = build(&mut graph).unwrap();
    graph.output(result);
    let runtime = Runtime::new([Arc::new(Cpu::new(2)) as Arc<dyn Backend>]);
    match runtime.prepare(graph, Routing::default()).run(&[]) {
        Err(RunError::Device(e)) if e.class == FailureClass::Caller => e.message,
        other => panic!("not the caller's mistake: {other:?}"),
    }
}

/// 0, 1, 2, … in the given shape.
fn counted(g: &mut Graph, shape: &[usize], dtype: DType) -> Result<ValueId, OpError> {
    let count = g.arange(shape.iter().product(), dtype)?;
    g.reshape(count, shape)
}

#[test]
fn indices_outside() {
    let said = message(|g| {
        let (x, index) = (
            counted(g, &[3, 4], DType::F32)?,
            counted(g, &[9], DType::I32)?,
        );
        g.push(IndexSelect { dim: 1 }, &[x, index])
    });
    assert_eq!(
        said,
        "the index 4 at [4] is outside the 4 indices of dimension 1 of f32[3, 4]"
    );
    let negative = |g: &mut Graph| {
        let index = counted(g, &[2, 3], DType::I64)?;
        let two = g.constant(Scalar::Int(2), DType::I64)?;
        g.sub(two, index)
    };
    let expected = "the index -1 at [1, 0] is outside the 3 indices of dimension 0 of f32[3, 4]";
    let said = message(|g| {
        let (x, index) = (counted(g, &[3, 4], DType::F32)?, negative(g)?);
        g.push(Gather { dim: 0 }, &[x, index])
    });
    assert_eq!(said, expected);
    let said = message(|g| {
        let (x, index) = (counted(g, &[3, 4], DType::F32)?, negative(g)?);
        let source = counted(g, &[2, 3], DType::F32)?;
        let mode = ScatterMode::Add;
        g.push(Scatter { dim: 0, mode }, &[x, index, source])
    });
    assert_eq!(said, expected);
    // The first of many, whatever thread meets one first.
    let said = message(|g| {
        let (x, index) = (
            counted(g, &[3], DType::F32)?,
            counted(g, &[100_000], DType::I64)?,
        );
        g.push(Gather { dim: 0 }, &[x, index])
    });
    assert!(said.starts_with("the index 3 at [3] is outside"), "{said}");
}

#[test]
fn divisions_by_zero() {
    for op in [BinaryOp::FloorDivide, BinaryOp::Remainder] {
        let said = message(|g| {
            let a = counted(g, &[2, 3], DType::I32)?;
            let two = g.constant(Scalar::Int(2), DType::I32)?;
            let b = g.sub(a, two)?;
            let b = g.transpose(b)?;
            let a = g.transpose(a)?;
            g.binary(op, a, b)
        });
        assert_eq!(said, "integer division by zero: the divisor at [2, 0] is 0");
    }
    // Nothing is divided.
    let mut graph = Graph::new();
    let none = graph.full([0].into(), Scalar::Int(1), DType::I32).unwrap();
    let zero = graph.constant(Scalar::Int(0), DType::I32).unwrap();
    let result = graph.binary(BinaryOp::Remainder, none, zero).unwrap();
    graph.output(result);
    let runtime = Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>]);
    assert!(runtime.prepare(graph, Routing::default()).run(&[]).is_ok());
}
