//! Models: the whole of a file.

use std::path::Path;

use bytes::Bytes;
use prost::Message;
use rustorch_dispatch::Value;
use rustorch_files::Source;
use rustorch_macros::track_calls;

use crate::error::{OnnxError, OnnxResult};
use crate::external::Folder;
use crate::graph::{Graph, Reader};
use crate::info::{Info, Kind};
use crate::narrow;
use crate::operators::LATEST;
use crate::proto;

/// A model: a graph with its inputs, outputs and constants.
pub struct Model {
    graph: Graph,
    /// All inputs, those with an initializer among them.
    all: Vec<Info>,
    inputs: Vec<Info>,
    outputs: Vec<Info>,
    opset: i64,
}

impl Model {
    /// Reads a file. Its tensors stay in the mapped file until a node reads them. Elements in other files have to be in
    /// the same folder.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is damaged, or has unsupported parts. One error names them
    /// all.
    #[track_calls(onnx)]
    pub fn load(path: impl AsRef<Path>) -> OnnxResult<Self> {
        let path = path.as_ref();
        let source = Source::open(path)?;
        let mut folder = Folder::of(path);
        Self::read(source, Some(&mut folder)).map_err(|e| e.in_file(path))
    }

    /// Reads a model that is in memory. All elements have to be in it.
    ///
    /// # Errors
    /// The same errors as [`Model::load`].
    #[track_calls(onnx)]
    pub fn from_bytes(bytes: impl Into<Source>) -> OnnxResult<Self> {
        Self::read(bytes.into(), None)
    }

    fn read(source: Source, folder: Option<&mut Folder>) -> OnnxResult<Self> {
        let model = decode(source)?;
        let own = model.opsets.iter().find(|opset| is_own(&opset.domain));
        let opset = own.map_or(LATEST, |opset| opset.version);
        let mut graph = model.graph.unwrap_or_default();
        narrow::note_types(&mut graph);
        let mut reader = Reader {
            opset,
            folder,
            unsupported: Vec::new(),
        };
        if !(1..=LATEST).contains(&opset) {
            reader.refuse(format!("operator set {opset} (1 to {LATEST} are)"));
        }
        let infos = |infos: &[proto::ValueInfo]| infos.iter().map(Info::of).collect::<Vec<_>>();
        let (all, outputs) = (infos(&graph.inputs), infos(&graph.outputs));
        for info in all.iter().filter(|info| info.kind == Kind::Other) {
            reader.refuse(format!("the type of the input {:?}", info.name));
        }
        let graph = reader.graph(&graph)?;
        if !reader.unsupported.is_empty() {
            return Err(OnnxError::Unsupported {
                parts: reader.unsupported,
            });
        }
        let inputs = all.iter().filter(|info| !graph.has_constant(&info.name));
        Ok(Self {
            inputs: inputs.cloned().collect(),
            graph,
            all,
            outputs,
            opset,
        })
    }

    /// The required inputs, in order.
    pub fn inputs(&self) -> &[Info] {
        &self.inputs
    }

    /// The outputs, in order.
    pub fn outputs(&self) -> &[Info] {
        &self.outputs
    }

    /// The version of ONNX's operator set that the model uses.
    pub fn opset(&self) -> i64 {
        self.opset
    }

    /// The outputs for these inputs, with their names, in order. Inputs with a default, an initializer, may be left out.
    ///
    /// # Errors
    /// Fails if an input is missing, unknown, or of another dtype or shape. Also fails if a node
    /// cannot run.
    #[track_calls(onnx)]
    pub fn run<N, V>(
        &self,
        inputs: impl IntoIterator<Item = (N, V)>,
    ) -> OnnxResult<Vec<(String, Value)>>
    where
        N: AsRef<str>,
        V: Into<Value>,
    {
        let inputs = inputs.into_iter();
        let given = inputs.map(|(name, value)| (name.as_ref().to_owned(), value.into()));
        let given = self.in_order(given.collect())?;
        let results = self.graph.evaluate(None, given)?;
        let names = self.graph.outputs.iter().cloned();
        Ok(names.zip(results).collect())
    }

    /// The inputs in the graph's order.
    fn in_order(&self, mut given: Vec<(String, Value)>) -> OnnxResult<Vec<Value>> {
        let failed = |problem: String| OnnxError::Input {
            problem,
            expected: list(&self.inputs),
        };
        let mut ordered = Vec::new();
        for info in &self.all {
            let at = given.iter().position(|(name, _)| *name == info.name);
            let value = match (at, self.graph.constant(&info.name)?) {
                (Some(at), _) => given.remove(at).1,
                (None, Some(default)) => default,
                (None, None) => return Err(failed(format!("no input {:?} was given", info.name))),
            };
            info.check(&value).map_err(failed)?;
            ordered.push(value);
        }
        match given.first() {
            Some((name, _)) => Err(failed(format!(
                "there is no input {name:?}, or it is given twice"
            ))),
            None => Ok(ordered),
        }
    }
}

/// The operators of the nodes in a file, in order, including unsupported ones.
///
/// # Errors
/// Fails if the file cannot be read or is damaged.
#[track_calls(onnx)]
pub fn operators(path: impl AsRef<Path>) -> OnnxResult<Vec<String>> {
    let path = path.as_ref();
    let model = decode(Source::open(path)?).map_err(|e| e.in_file(path))?;
    let nodes = model.graph.unwrap_or_default().nodes;
    Ok(nodes.iter().map(proto::Node::full_name).collect())
}

fn decode(source: Source) -> OnnxResult<proto::Model> {
    let damaged = |problem: String| OnnxError::damaged("the model", problem);
    let model =
        proto::Model::decode(Bytes::from_owner(source)).map_err(|e| damaged(e.to_string()))?;
    match model.graph {
        Some(_) => Ok(model),
        None => Err(damaged("it has no graph".to_owned())),
    }
}

fn is_own(domain: &str) -> bool {
    matches!(domain, "" | "ai.onnx")
}

/// Inputs in a sentence.
fn list(infos: &[Info]) -> String {
    match infos {
        [] => "no inputs".to_owned(),
        infos => infos
            .iter()
            .map(Info::to_string)
            .collect::<Vec<_>>()
            .join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::{Entry, Node, Opset, TensorData, TensorType, Type, ValueInfo};
    use rustorch_tensor::Tensor;

    fn info(name: &str) -> ValueInfo {
        let tensor = TensorType {
            elements: 1,
            shape: None,
        };
        ValueInfo {
            name: name.to_owned(),
            ty: Some(Type {
                tensor: Some(tensor),
                ..Type::default()
            }),
        }
    }

    fn node(op: &str, inputs: &[&str], output: &str) -> Node {
        Node {
            inputs: inputs.iter().map(ToString::to_string).collect(),
            outputs: vec![output.to_owned()],
            op: op.to_owned(),
            ..Node::default()
        }
    }

    /// `y = second(first(x, x))`, with an initializer that nothing reads.
    fn model(first: &str, second: &str, opset: i64, unread: TensorData) -> Vec<u8> {
        let graph = proto::Graph {
            nodes: vec![node(first, &["x", "x"], "z"), node(second, &["z"], "y")],
            initializers: vec![unread],
            inputs: vec![info("x")],
            outputs: vec![info("y")],
            ..proto::Graph::default()
        };
        let opset = Opset {
            domain: String::new(),
            version: opset,
        };
        let model = proto::Model {
            graph: Some(graph),
            opsets: vec![opset],
        };
        model.encode_to_vec()
    }

    fn tensor(external: &[(&str, &str)]) -> TensorData {
        let entry = |&(key, value): &(&str, &str)| Entry {
            key: key.to_owned(),
            value: value.to_owned(),
        };
        TensorData {
            name: "w".to_owned(),
            data_type: 1,
            dims: vec![1],
            floats: if external.is_empty() {
                vec![1.0]
            } else {
                Vec::new()
            },
            location: i32::from(!external.is_empty()),
            external: external.iter().map(entry).collect(),
            ..TensorData::default()
        }
    }

    fn refused(bytes: Vec<u8>) -> String {
        Model::from_bytes(bytes).err().unwrap().to_string()
    }

    #[test]
    fn nodes_run_in_order_and_wrong_inputs_are_refused() {
        let model = Model::from_bytes(model("Add", "Neg", 13, tensor(&[]))).unwrap();
        let x = Tensor::from_slice(&[1.0f32, 2.0], [2]).unwrap();
        let results = model.run([("x", &x)]).unwrap();
        let (name, Value::Tensor(y)) = &results[0] else {
            panic!("no tensor")
        };
        assert_eq!(
            (name.as_str(), y.to_vec::<f32>().unwrap()),
            ("y", vec![-2.0, -4.0])
        );
        let none: [(&str, &Tensor); 0] = [];
        let refused = model.run(none).unwrap_err().to_string();
        assert!(refused.contains("no input \"x\" was given"), "{refused}");
        let refused = model.run([("x", &x), ("k", &x)]).unwrap_err().to_string();
        assert!(refused.contains("there is no input \"k\""), "{refused}");
    }

    #[test]
    fn all_unsupported_parts_are_in_one_error() {
        let text = refused(model("Nonesuch", "Negate", 99, tensor(&[])));
        for part in ["operator Nonesuch", "operator Negate", "operator set 99"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn damaged_files_are_refused() {
        let whole = model("Add", "Neg", 13, tensor(&[]));
        for end in 0..whole.len() {
            // Taken or refused: it does not panic.
            let _ = Model::from_bytes(whole[..end].to_vec());
        }
        assert!(refused(Vec::new()).contains("no graph"));
        let short = TensorData {
            dims: vec![3],
            ..tensor(&[])
        };
        let text = refused(model("Add", "Neg", 13, short));
        assert!(text.contains("4 bytes, and its shape needs 12"), "{text}");
    }

    #[test]
    fn data_outside_of_the_folder_or_missing_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.onnx");
        let load = |location: &str| {
            let unread = tensor(&[("location", location)]);
            std::fs::write(&path, model("Add", "Neg", 13, unread)).unwrap();
            Model::load(&path)
        };
        for location in ["../data", "/etc/hostname", ""] {
            let text = load(location).err().unwrap().to_string();
            assert!(text.contains("outside of the model's folder"), "{text}");
        }
        assert!(load("data").err().unwrap().to_string().contains("data"));
        std::fs::write(folder.path().join("data"), [0; 4]).unwrap();
        assert!(load("data").is_ok());
    }
}
