//! The reference itself, against numbers from elsewhere: worked out by hand, or by NumPy
//! from the formulas that the operations' documentation names.

mod composites;
mod primitives;

use std::sync::Arc;

use rustorch_ir::{DType, Graph, Op, Shape, TensorType, ValueId};
use rustorch_reference::{Reference, Values};
use rustorch_runtime::{Backend, DeviceType, HostBuffer, Routing, RunError, Runtime, Storage};

/// A tensor and its elements.
#[derive(Clone)]
struct Tensor {
    ty: TensorType,
    values: Values,
}

fn float(shape: impl Into<Shape>, dtype: DType, values: &[f64]) -> Tensor {
    let values = Values::Float(values.to_vec());
    let ty = TensorType::new(shape, dtype);
    Tensor { ty, values }
}

/// In double precision.
fn double(shape: impl Into<Shape>, values: &[f64]) -> Tensor {
    float(shape, DType::F64, values)
}

fn int(shape: impl Into<Shape>, dtype: DType, values: &[i64]) -> Tensor {
    let values = Values::Int(values.iter().copied().map(i128::from).collect());
    let ty = TensorType::new(shape, dtype);
    Tensor { ty, values }
}

/// `f(0), f(1), …` in double precision.
fn filled(shape: impl Into<Shape>, f: impl Fn(f64) -> f64) -> Tensor {
    let shape = shape.into();
    let values: Vec<f64> = (0..shape.elements()).map(|i| f(i as f64)).collect();
    double(shape, &values)
}

const STRICT: Routing = Routing {
    device: DeviceType::Reference,
    strict: true,
    ..Routing::AUTO
};

fn runtime() -> Runtime {
    Runtime::new([Arc::new(Reference::new()) as Arc<dyn Backend>])
}

/// The results that the reference computes of `op`; of a composite one, of its decomposition.
fn try_eval_all(op: impl Into<Op>, inputs: &[Tensor]) -> Result<Vec<Values>, RunError> {
    let op = op.into();
    let mut graph = Graph::new();
    let operands = (inputs.iter())
        .map(|x| graph.input(x.ty.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let is_state = op.def().overwrites(0) == Some(0);
    let first = graph.push(op, &operands)?;
    let results = graph.results(first);
    results.iter().for_each(|&result| graph.output(result));
    let runtime = runtime();
    let storages: Vec<Storage> = (inputs.iter())
        .map(|x| HostBuffer::copy_of(&x.values.encode(x.ty.dtype)).unwrap())
        .map(Storage::from_host)
        .collect();
    let outputs = runtime.run(&graph, &storages, STRICT)?;
    let in_place = storages.first().is_some_and(|x| x.same_as(&outputs[0]));
    assert_eq!(in_place, is_state);
    let read = |(output, &result): (&Storage, &ValueId)| {
        let mut bytes = vec![0; output.bytes()];
        runtime.read(output, 0, &mut bytes)?;
        Ok(Values::decode(bytes, graph.ty(result).dtype))
    };
    outputs.iter().zip(&results).map(read).collect()
}

/// The first result, for most operations the only one.
fn try_eval(op: impl Into<Op>, inputs: &[Tensor]) -> Result<Values, RunError> {
    Ok(try_eval_all(op, inputs)?.remove(0))
}

fn eval_all(op: impl Into<Op>, inputs: &[Tensor]) -> Vec<Values> {
    try_eval_all(op, inputs).unwrap()
}

fn eval(op: impl Into<Op>, inputs: &[Tensor]) -> Values {
    try_eval(op, inputs).unwrap()
}

#[track_caller]
fn assert_floats(got: &Values, expected: &[f64]) {
    let Values::Float(got) = got else {
        panic!("{got:?} are not floating-point");
    };
    assert_eq!(got.len(), expected.len());
    for (i, (&a, &b)) in got.iter().zip(expected).enumerate() {
        let same = a == b || (a.is_nan() && b.is_nan());
        let close = (a - b).abs() <= 1e-12 * b.abs().max(1.0);
        assert!(same || close, "element {i} is {a}, should be {b}");
    }
}

#[track_caller]
fn assert_ints(got: &Values, expected: &[i64]) {
    let expected = expected.iter().copied().map(i128::from).collect();
    assert_eq!(got, &Values::Int(expected));
}
