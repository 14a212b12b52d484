//! Faults that the checker finds: one at a time in a sound model.

use std::collections::BTreeMap;

use rustorch_coreml::proto::mil::{
    Argument, Binding, BindingKind, Block, DataType, Function, ImmediateKind, Operation,
    TensorElements, ValueSource, ValueType,
};
use rustorch_coreml::proto::model::{FeatureKind, Model, ModelType};
use rustorch_coreml::{Emitter, Opset, Package, Precision, Target, check};
use rustorch_ir::ops::{Conv2d, Softmax, UpdateSlice};
use rustorch_ir::{DType, Graph, TensorType};

/// A convolution with constant weights, and softmax of it.
fn package() -> Package {
    let mut graph = Graph::new();
    let x = graph
        .input(TensorType::new([1, 3, 6, 6], DType::F32))
        .unwrap();
    let w = graph
        .input(TensorType::new([4, 3, 3, 3], DType::F32))
        .unwrap();
    let y = graph.push(Conv2d::default(), &[x, w]).unwrap();
    let y = graph.push(Softmax { dim: 1, log: false }, &[y]).unwrap();
    graph.output(y);
    let target = Target::new(Opset::CoreML5, Precision::F32);
    let weights = vec![0; 4 * 4 * 27];
    let constants = BTreeMap::from([(1, &weights[..])]);
    let emitted = Emitter::new(target).emit(&graph, &constants).unwrap();
    emitted.package
}

fn function(model: &mut Model) -> &mut Function {
    let Some(ModelType::MlProgram(program)) = &mut model.model_type else {
        panic!("no program");
    };
    program.functions.get_mut("main").unwrap()
}

fn block(model: &mut Model) -> &mut Block {
    let function = function(model);
    let blocks = &mut function.block_specializations;
    blocks.get_mut(&function.opset).unwrap()
}

fn operation<'a>(model: &'a mut Model, kind: &str) -> &'a mut Operation {
    let operations = &mut block(model).operations;
    operations.iter_mut().find(|op| op.r#type == kind).unwrap()
}

fn bind(model: &mut Model, kind: &str, parameter: &str, value: &str) {
    let binding = Some(BindingKind::Name(value.to_owned()));
    let arguments = vec![Binding { binding }];
    let inputs = &mut operation(model, kind).inputs;
    inputs.insert(parameter.to_owned(), Argument { arguments });
}

fn named(operation: &mut Operation, name: &str) {
    let value = operation.attributes.get_mut("name").unwrap();
    let Some(ValueSource::Immediate(immediate)) = &mut value.value else {
        panic!("{value:?}");
    };
    let Some(ImmediateKind::Tensor(tensor)) = &mut immediate.value else {
        panic!("{immediate:?}");
    };
    let Some(TensorElements::Strings(strings)) = &mut tensor.value else {
        panic!("{tensor:?}");
    };
    strings.values = vec![name.to_owned()];
}

/// Spoils a sound model and returns what is found.
fn flaws(spoil: impl FnOnce(&mut Model)) -> Vec<String> {
    let mut package = package();
    spoil(&mut package.model);
    let found = check(&package.model, package.weights.as_deref());
    found.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn finds(what: &str, spoil: impl FnOnce(&mut Model)) {
    let flaws = flaws(spoil);
    assert!(flaws.iter().any(|flaw| flaw.contains(what)), "{flaws:#?}");
}

#[test]
fn a_sound_model_has_no_flaws() {
    assert_eq!(flaws(|_| ()), Vec::<String>::new());
}

#[test]
fn names() {
    finds("no name", |m| {
        operation(m, "softmax").attributes.clear();
    });
    finds("name \"a b\" is not an identifier", |m| {
        named(operation(m, "softmax"), "a b")
    });
    finds("\"1v\" is not an identifier", |m| {
        operation(m, "conv").outputs[0].name = "1v".into()
    });
    finds("\"\" is not an identifier", |m| {
        function(m).inputs[0].name.clear()
    });
    finds("a name that is taken", |m| {
        operation(m, "softmax").outputs[0].name = "x0".into()
    });
}

#[test]
fn descriptions() {
    let description = |m: &mut Model| m.description.clone().unwrap();
    finds("no description", |m| m.description = None);
    finds("inputs [\"z\"], but the function has [\"x0\"]", |m| {
        let mut other = description(m);
        other.input[0].name = "z".into();
        m.description = Some(other);
    });
    finds("outputs [], but", |m| {
        let mut other = description(m);
        other.output.clear();
        m.description = Some(other);
    });
    finds(
        "described input x0: Float32[1, 3, 6, 7], but it is Float32[1, 3, 6, 6]",
        |m| {
            let mut other = description(m);
            let ty = other.input[0].r#type.as_mut().unwrap();
            if let Some(FeatureKind::MultiArray(array)) = &mut ty.kind {
                array.shape[3] = 7;
            }
            m.description = Some(other);
        },
    );
    finds("described output y0: no type of a multi-array", |m| {
        let mut other = description(m);
        other.output[0].r#type = None;
        m.description = Some(other);
    });
}

#[test]
fn versions() {
    finds("specification version 5, but CoreML5 needs 6", |m| {
        m.specification_version = 5
    });
    finds("set of operations \"CoreML4\" is not known", |m| {
        function(m).opset = "CoreML4".into()
    });
    finds("no block for CoreML6", |m| {
        function(m).opset = "CoreML6".into()
    });
    finds("is not an ML Program", |m| m.model_type = None);
}

#[test]
fn operations() {
    finds("no operation \"conv4d\"", |m| {
        operation(m, "conv").r#type = "conv4d".into()
    });
    finds("no parameter \"alpha\"", |m| {
        bind(m, "softmax", "alpha", "x0")
    });
    finds("0 values for weight", |m| {
        operation(m, "conv").inputs.remove("weight");
    });
    finds("\"later\" is not a value before it", |m| {
        bind(m, "softmax", "x", "later")
    });
    finds("bias has to be a constant", |m| {
        bind(m, "conv", "bias", "x0")
    });
    finds("not of [Int32]", |m| {
        let text = operation(m, "conv").inputs["pad_type"].clone();
        operation(m, "softmax").inputs.insert("axis".into(), text);
    });
    finds("is not a value before it", |m| {
        block(m).operations.reverse()
    });
}

#[test]
fn types() {
    let shape = |m: &mut Model, kind: &str, data_type, shape: &[usize]| {
        operation(m, kind).outputs[0].r#type = Some(ValueType::tensor(data_type, shape));
    };
    let wrong = "gives Float32[1, 4, 4, 4], not Float32[1, 4, 4, 5]";
    finds(wrong, |m| {
        shape(m, "conv", DataType::Float32, &[1, 4, 4, 5])
    });
    finds("not Float16[1, 4, 4, 4]", |m| {
        shape(m, "conv", DataType::Float16, &[1, 4, 4, 4])
    });
    finds("elements of Bool, which no feature has", |m| {
        shape(m, "identity", DataType::Bool, &[1, 4, 4, 4]);
    });
    finds("halves, which features have from CoreML6 on", |m| {
        function(m).inputs[0].r#type = Some(ValueType::tensor(DataType::Float16, &[1, 3, 6, 6]));
    });
    // Sizes that no memory has are told, too.
    for huge in [usize::MAX, usize::MAX / 2] {
        finds("described input", |m| {
            function(m).inputs[0].r#type =
                Some(ValueType::tensor(DataType::Float32, &[1, 3, huge, huge]));
        });
        finds("gives", |m| shape(m, "softmax", DataType::Float32, &[huge]));
    }
    finds("no type of a tensor", |m| {
        operation(m, "conv").outputs[0].r#type = None
    });
}

/// A program that keeps a state, which it writes a row into.
fn keeping() -> Model {
    let mut graph = Graph::new();
    let types = [
        TensorType::new([2, 5], DType::F16),
        TensorType::new([1, 5], DType::F16),
        TensorType::new([1], DType::I32),
    ];
    let operands = types.map(|ty| graph.input(ty).unwrap());
    let state = graph.push(UpdateSlice { dim: 0 }, &operands).unwrap();
    let read = graph.push(Softmax { dim: 1, log: false }, &[state]);
    graph.output(read.unwrap());
    let target = Target {
        states: true,
        ..Target::new(Opset::CoreML8, Precision::F16)
    };
    let emitted = Emitter::new(target).emit(&graph, &BTreeMap::new());
    emitted.unwrap().package.model
}

#[test]
fn states() {
    assert_eq!(check(&keeping(), None), []);
    let finds = |what: &str, spoil: &dyn Fn(&mut Model)| {
        let mut model = keeping();
        spoil(&mut model);
        let found = check(&model, None);
        let flaws: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert!(flaws.iter().any(|flaw| flaw.contains(what)), "{flaws:#?}");
    };
    let state = |data_type, rows| Some(ValueType::state(data_type, &[rows, 5]));
    finds("but states hold halves", &|m| {
        function(m).inputs[2].r#type = state(DataType::Float32, 2);
    });
    finds("a state, which functions have from CoreML8 on", &|m| {
        let function = function(m);
        let block = function.block_specializations.remove("CoreML8").unwrap();
        function.opset = "CoreML7".into();
        (function.block_specializations).insert("CoreML7".into(), block);
    });
    finds("Float16[2, 5] into a state of Float16[3, 5]", &|m| {
        function(m).inputs[2].r#type = state(DataType::Float16, 3);
    });
    finds("input is not a state", &|m| {
        bind(m, "read_state", "input", "x1")
    });
    finds("x is a state", &|m| bind(m, "softmax", "x", "x0"));
    finds("begin of Int32[1]", &|m| {
        bind(m, "slice_update", "begin", "x2")
    });
    finds("Float16[2, 5] into Float16[1, 5]", &|m| {
        let before = operation(m, "read_state").outputs[0].name.clone();
        bind(m, "slice_update", "update", &before);
        bind(m, "slice_update", "x", "x1");
    });
    finds("states [], but the function has [\"x0\"]", &|m| {
        m.description.as_mut().unwrap().state.clear();
    });
    finds("described state x0: no type of a multi-array", &|m| {
        let description = m.description.as_mut().unwrap();
        description.state[0].r#type = description.input[0].r#type.clone();
    });
}

#[test]
fn weights() {
    let package = package();
    let weights = package.weights.as_deref().unwrap();
    let found = |weights| !check(&package.model, weights).is_empty();
    assert!(!found(Some(weights)));
    assert!(found(None));
    assert!(found(Some(&weights[..weights.len() - 1])));
    let mut other = weights.to_vec();
    // Halves in place of single precision.
    other[68] = 1;
    assert!(found(Some(&other)));
}
