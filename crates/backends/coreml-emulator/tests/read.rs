//! Packages that are read, and packages that are refused.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use prost::Message;
use rustorch_coreml::proto::mil::{DataType, ValueType};
use rustorch_coreml::proto::model::{Model as Spec, ModelType};
use rustorch_coreml::{Emitter, Opset, Precision, Target};
use rustorch_coreml_emulator::{Data, Model, Tensor};
use rustorch_ir::ops::{Binary, BinaryOp};
use rustorch_ir::{DType, Graph, TensorType};

const MODEL: &str = "Data/com.apple.CoreML/model.mlmodel";
const WEIGHTS: &str = "Data/com.apple.CoreML/weights/weight.bin";

/// `x + w` of 12 numbers, `w` being 0, 1, 2 …
fn write(path: &Path) {
    let mut graph = Graph::new();
    let ty = TensorType::new([12], DType::F32);
    let [x, w] = [ty.clone(), ty].map(|ty| graph.input(ty).unwrap());
    let y = graph.push(Binary { op: BinaryOp::Add }, &[x, w]).unwrap();
    graph.output(y);
    let target = Target::new(Opset::CoreML6, Precision::F16);
    let bytes: Vec<u8> = (0..12).flat_map(|i| (i as f32).to_ne_bytes()).collect();
    let constants = BTreeMap::from([(1, &bytes[..])]);
    let emitted = Emitter::new(target).emit(&graph, &constants).unwrap();
    emitted.package.write(path).unwrap();
}

fn predict(path: &Path, x: f64) -> Result<Vec<Tensor>, String> {
    let model = Model::read(path).map_err(|e| e.to_string())?;
    let x = Tensor::floats(DataType::Float32, &[12], vec![x; 12]);
    let inputs = BTreeMap::from([("x0".to_owned(), x)]);
    model.predict(&inputs).map_err(|e| e.to_string())
}

#[test]
fn results_are_rounded_as_they_are_typed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mlpackage");
    write(&path);
    // Between 2048 and 4096 halves are whole and even numbers.
    let y = predict(&path, 2048.0).unwrap();
    let expected = [
        2048, 2048, 2050, 2052, 2052, 2052, 2054, 2056, 2056, 2056, 2058, 2060,
    ];
    assert_eq!(y[0].data, Data::Float(expected.map(f64::from).to_vec()));
    assert_eq!(y[0].data_type, DataType::Float32);
}

#[test]
fn damage_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mlpackage");
    write(&path);
    for (file, content) in [
        ("Manifest.json", &b"{}"[..]),
        ("Manifest.json", b"no JSON"),
        (MODEL, b"no model"),
        (WEIGHTS, &[0; 64]),
    ] {
        let file = path.join(file);
        let whole = fs::read(&file).unwrap();
        fs::write(&file, content).unwrap();
        assert!(predict(&path, 1.0).is_err(), "{}", file.display());
        fs::remove_file(&file).unwrap();
        assert!(predict(&path, 1.0).is_err(), "no {}", file.display());
        fs::write(&file, whole).unwrap();
    }
    assert!(predict(&path, 1.0).is_ok());
}

#[test]
fn a_result_that_is_not_what_is_declared_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.mlpackage");
    write(&path);
    let file = path.join(MODEL);
    let mut spec = Spec::decode(&fs::read(&file).unwrap()[..]).unwrap();
    let Some(ModelType::MlProgram(program)) = &mut spec.model_type else {
        panic!("no program");
    };
    let main = program.functions.get_mut("main").unwrap();
    let block = main.block_specializations.get_mut("CoreML6").unwrap();
    let add = block
        .operations
        .iter_mut()
        .find(|op| op.r#type == "add")
        .unwrap();
    add.outputs[0].r#type = Some(ValueType::tensor(DataType::Float32, &[12]));
    fs::write(&file, spec.encode_to_vec()).unwrap();
    let refused = predict(&path, 1.0).unwrap_err();
    let expected = "Float16[12], declared Float32[12]";
    assert!(
        refused.starts_with("add ") && refused.ends_with(expected),
        "{refused}"
    );
}
