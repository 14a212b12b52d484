//! Programs written for graphs, and refusals.

use std::collections::BTreeMap;

use rustorch_coreml::proto::mil::{Block, DataType, Function, ValueSource};
use rustorch_coreml::proto::model::{ArrayDataType, ModelType};
use rustorch_coreml::{EmitError, Emitted, Emitter, Opset, Precision, Target, check};
use rustorch_ir::ops::{
    Activation, ActivationKind, Cast, Embedding, IndexSelect, Linear, Reduce, ReduceOp, Unary,
    UnaryOp, UpdateSlice,
};
use rustorch_ir::{DType, Graph, OpKind, Signature, TensorType};

fn target(opset: Opset, precision: Precision) -> Target {
    Target::new(opset, precision)
}

fn emit(graph: &Graph, opset: Opset, precision: Precision) -> Emitted {
    let emitter = Emitter::new(target(opset, precision));
    let emitted = emitter.emit(graph, &BTreeMap::new()).unwrap();
    let flaws = check(&emitted.package.model, emitted.package.weights.as_deref());
    assert_eq!(flaws, []);
    emitted
}

fn function(emitted: &Emitted) -> (&Function, &Block) {
    let Some(ModelType::MlProgram(program)) = &emitted.package.model.model_type else {
        panic!("no program");
    };
    let main = &program.functions["main"];
    (main, &main.block_specializations[&main.opset])
}

/// The operations but constants.
fn operations(emitted: &Emitted) -> Vec<&str> {
    let (_, block) = function(emitted);
    let kinds = block.operations.iter().map(|op| op.r#type.as_str());
    kinds.filter(|kind| *kind != "const").collect()
}

fn relu(dtype: DType) -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([2, 3], dtype)).unwrap();
    let kind = ActivationKind::Relu;
    let y = graph.push(Activation { kind }, &[x]).unwrap();
    graph.output(y);
    graph
}

/// A state `[2, 5, 4]` that some rows are written into, and what it is then; `twice` by a second update.
fn update(dtype: DType, rows: usize, twice: bool) -> Graph {
    let mut graph = Graph::new();
    let types = [
        TensorType::new([2, 5, 4], dtype),
        TensorType::new([2, rows, 4], DType::F32),
        TensorType::new([1], DType::I32),
    ];
    let [mut state, source, at] = types.map(|ty| graph.input(ty).unwrap());
    for _ in 0..1 + usize::from(twice) {
        let update = UpdateSlice { dim: 1 };
        state = graph.push(update, &[state, source, at]).unwrap();
    }
    let kind = ActivationKind::Relu;
    let read = graph.push(Activation { kind }, &[state]).unwrap();
    graph.output(read);
    graph
}

#[test]
fn states_are_kept_where_a_run_writes_one_row_of_halves() {
    for (graph, opset, states, is_kept) in [
        (update(DType::F16, 1, false), Opset::CoreML8, true, true),
        (update(DType::F16, 1, false), Opset::CoreML8, false, false),
        (update(DType::F16, 1, false), Opset::CoreML7, true, false),
        (update(DType::F32, 1, false), Opset::CoreML8, true, false),
        (update(DType::F16, 3, false), Opset::CoreML8, true, false),
        (update(DType::F16, 1, true), Opset::CoreML8, true, false),
    ] {
        let target = Target {
            states,
            ..target(opset, Precision::F16)
        };
        let emitted = Emitter::new(target).emit(&graph, &BTreeMap::new()).unwrap();
        assert_eq!(check(&emitted.package.model, None), []);
        let what = format!("{opset:?}, {states}:\n{graph}");
        let inputs: Vec<&str> = emitted.inputs.iter().map(|x| x.name.as_str()).collect();
        let kept = emitted.updates.iter().map(|update| update.kept.as_deref());
        let description = emitted.package.model.description.as_ref().unwrap();
        let operations = operations(&emitted);
        if is_kept {
            assert_eq!(inputs, ["x1", "x2"], "{what}");
            assert!(kept.eq([Some("x0")]), "{what}");
            assert_eq!(description.state[0].name, "x0");
            let at = operations.iter().position(|kind| *kind == "write_state");
            let around = at.map(|at| &operations[at - 1..at + 2]);
            let expected = ["slice_update", "write_state", "read_state"];
            assert_eq!(around, Some(&expected[..]), "{what}");
        } else {
            assert_eq!(inputs, ["x0", "x1", "x2"], "{what}");
            assert!(kept.into_iter().all(|kept| kept.is_none()), "{what}");
            assert_eq!(description.state, [], "{what}");
            assert!(!operations.contains(&"read_state"), "{what}");
        }
    }
}

#[test]
fn versions_follow_the_target() {
    for (opset, version) in Opset::ALL.into_iter().zip([6, 7, 8, 9]) {
        let emitted = emit(&relu(DType::F32), opset, Precision::F32);
        assert_eq!(emitted.package.model.specification_version, version);
        assert_eq!(function(&emitted).0.opset, opset.name());
    }
}

#[test]
fn features_are_what_systems_have() {
    for (opset, elements, inside) in [
        (
            Opset::CoreML5,
            ArrayDataType::Float32,
            &["cast", "relu", "cast", "identity"][..],
        ),
        (
            Opset::CoreML6,
            ArrayDataType::Float16,
            &["relu", "identity"],
        ),
    ] {
        let emitted = emit(&relu(DType::F16), opset, Precision::F32);
        assert_eq!(emitted.inputs[0].elements, elements);
        assert_eq!(emitted.outputs[0].elements, elements);
        assert_eq!(operations(&emitted), inside);
    }
}

#[test]
fn half_precision_is_inside() {
    let emitted = emit(&relu(DType::F32), Opset::CoreML7, Precision::F16);
    assert_eq!(emitted.inputs[0].elements, ArrayDataType::Float32);
    assert_eq!(operations(&emitted), ["cast", "relu", "cast", "identity"]);
    let (_, block) = function(&emitted);
    let relu = block.operations.iter().find(|op| op.r#type == "relu");
    let ty = relu.unwrap().outputs[0].r#type.clone();
    assert_eq!(
        ty.unwrap().as_tensor(),
        Some((DataType::Float16, vec![2, 3]))
    );
}

#[test]
fn equal_graphs_are_equal_bytes() {
    let [a, b] = [(), ()].map(|()| emit(&relu(DType::F32), Opset::CoreML7, Precision::F16));
    assert_eq!(a.package.files(), b.package.files());
}

#[test]
fn numbers_are_arrays_of_one() {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([4, 5], DType::F32)).unwrap();
    let (op, dims, keepdim) = (ReduceOp::Sum, [0, 1].into_iter().collect(), false);
    let y = graph.push(Reduce { op, dims, keepdim }, &[x]).unwrap();
    graph.output(y);
    let emitted = emit(&graph, Opset::CoreML5, Precision::F32);
    assert_eq!(*emitted.outputs[0].shape, [1]);
    assert!(emitted.outputs[0].ty.shape.is_empty());
}

#[test]
fn outputs_have_names_of_their_own() {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([3], DType::F32)).unwrap();
    [x, x].into_iter().for_each(|x| graph.output(x));
    let emitted = emit(&graph, Opset::CoreML5, Precision::F32);
    assert_eq!(function(&emitted).1.outputs, ["y0", "y1"]);
    assert_eq!(operations(&emitted), ["identity", "identity"]);
}

fn linear() -> Graph {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([2, 8], DType::F32)).unwrap();
    let w = graph.input(TensorType::new([4, 8], DType::F32)).unwrap();
    let y = graph.push(Linear, &[x, w]).unwrap();
    graph.output(y);
    graph
}

#[test]
fn constants_are_weights() {
    let emitter = Emitter::new(target(Opset::CoreML6, Precision::F32));
    let bytes: Vec<u8> = (0..32).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let constants = BTreeMap::from([(1, &bytes[..])]);
    let emitted = emitter.emit(&linear(), &constants).unwrap();
    assert_eq!(operations(&emitted), ["linear", "identity"]);
    assert_eq!(emitted.inputs.len(), 1);
    let (_, block) = function(&emitted);
    let value = block.operations[0].attributes["val"].value.clone();
    let Some(ValueSource::BlobFile(file)) = value else {
        panic!("{value:?}");
    };
    let weights = emitted.package.weights.as_deref().unwrap();
    let blob = rustorch_coreml::weights::blob(weights, file.offset).unwrap();
    assert_eq!(blob.elements, bytes);
    // The same weights as an input of the program.
    let emitted = emit(&linear(), Opset::CoreML6, Precision::F32);
    assert_eq!(operations(&emitted), ["matmul", "identity"]);
    assert_eq!(emitted.package.weights, None);
    // Too few bytes.
    let constants = BTreeMap::from([(1, &bytes[1..])]);
    let refused = emitter.emit(&linear(), &constants).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "constant 1 of type f32[4, 8]: another number of bytes"
    );
}

#[test]
fn indices_are_bounded_where_they_come_in() {
    let mut graph = Graph::new();
    let table = graph.input(TensorType::new([7, 4], DType::F32)).unwrap();
    let ids = graph.input(TensorType::new([5], DType::I64)).unwrap();
    let rows = graph
        .push(Embedding { dtype: DType::F32 }, &[table, ids])
        .unwrap();
    let rows = graph.push(IndexSelect { dim: 1 }, &[rows, ids]).unwrap();
    graph.output(rows);
    let emitted = emit(&graph, Opset::CoreML7, Precision::F32);
    let below = |i: usize| -> Vec<usize> {
        let bounds = emitted.inputs[i].bounds.iter();
        bounds.map(|bound| bound.below).collect()
    };
    assert_eq!([vec![], vec![7, 4]], [0, 1].map(below));
    assert_eq!(emitted.inputs[1].elements, ArrayDataType::Int32);
    let emitter = Emitter::new(target(Opset::CoreML7, Precision::F32));
    for (id, fits) in [(3_i64, true), (4, false), (-1, false)] {
        let bytes = id.to_ne_bytes().repeat(5);
        let constants = BTreeMap::from([(1, &bytes[..])]);
        assert_eq!(emitter.emit(&graph, &constants).is_ok(), fits, "{id}");
    }
    // Nobody could look at these.
    let mut graph = Graph::new();
    let table = graph.input(TensorType::new([7, 4], DType::F32)).unwrap();
    let ids = graph.input(TensorType::new([5], DType::Bool)).unwrap();
    let ids = graph.push(Cast { dtype: DType::I32 }, &[ids]).unwrap();
    let rows = graph.push(IndexSelect { dim: 0 }, &[table, ids]).unwrap();
    graph.output(rows);
    let refused = emitter.emit(&graph, &BTreeMap::new()).unwrap_err();
    assert!(
        matches!(refused, EmitError::Unsupported { node: 1, .. }),
        "{refused}"
    );
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let mut graph = Graph::new();
    let x = graph.input(TensorType::new([3], DType::F32)).unwrap();
    let y = graph.push(Unary { op: UnaryOp::Round }, &[x]).unwrap();
    graph.output(y);
    let emitter = Emitter::new(target(Opset::CoreML8, Precision::F32));
    let refused = emitter.emit(&graph, &BTreeMap::new()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "no ML Program for unary (node 0) of f32[3]"
    );
    for ty in [
        TensorType::new([3], DType::F64),
        TensorType::new([0, 3], DType::F32),
        TensorType::new([1, 1, 1, 1, 1, 1], DType::F32),
    ] {
        let mut graph = Graph::new();
        let x = graph.input(ty).unwrap();
        graph.output(x);
        let refused = emitter.emit(&graph, &BTreeMap::new()).unwrap_err();
        assert!(matches!(refused, EmitError::Feature { .. }), "{refused}");
    }
}

/// An operation that is claimed as supported is written.
#[test]
fn support_and_emission_agree() {
    for (opset, precision) in [
        (Opset::CoreML5, Precision::F32),
        (Opset::CoreML8, Precision::F16),
    ] {
        let emitter = Emitter::new(target(opset, precision));
        let (mut supported, mut refused) = (0, 0);
        for &kind in OpKind::ALL {
            for case in kind.cases().into_iter().step_by(7) {
                let inputs: Vec<&TensorType> = case.inputs.iter().map(|x| &x.ty).collect();
                let mut graph = Graph::new();
                let values: Vec<_> = inputs
                    .iter()
                    .map(|ty| graph.input((*ty).clone()).unwrap())
                    .collect();
                let Ok(first) = graph.push(case.op.clone(), &values) else {
                    continue;
                };
                let results = graph.results(first);
                results.into_iter().for_each(|result| graph.output(result));
                let outputs = case.op.infer(&inputs).unwrap();
                let signature = Signature {
                    op: &case.op,
                    inputs: &inputs,
                    outputs: &outputs,
                };
                let claims = emitter.supports(&signature, &vec![false; inputs.len()]);
                let emitted = emitter.emit(&graph, &BTreeMap::new());
                assert_eq!(claims, emitted.is_ok(), "{graph}");
                supported += usize::from(claims);
                refused += usize::from(!claims);
            }
        }
        assert!(supported > 300 && refused > 300, "{supported}, {refused}");
    }
}
