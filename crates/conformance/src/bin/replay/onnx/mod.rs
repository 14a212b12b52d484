//! ONNX's node tests: folders `test_…/model.onnx` with `test_data_set_…/input_….pb`, `output_….pb`.
//!
//! The tolerances are those of ONNX's own runner.

mod attention;
mod control;
mod layers;
mod lines;
mod lists;
mod narrow;
mod ops;
mod places;
mod proto;
mod quantized;
mod recurrent;
mod sequences;
mod vision;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use prost::Message;
use rustorch_ir::DType;
use rustorch_tensor::Tensor;

use crate::call::{Call, Found, Stop, missing};
use crate::compare::{Elements, Expected, How};
use crate::golden::tensor_of;
use crate::report::{OpReport, Verdict};
use crate::run::{guarded, judge};
use crate::value::{Output, Value};
use narrow::Narrow;
use proto::{Graph, Model, Node, OptionalData, SequenceData, TensorData, ValueInfo};

const RTOL: f64 = 1e-3;
const ATOL: f64 = 1e-7;

/// All tests of a folder, by their operators; graphs of several nodes by themselves.
pub(crate) fn replay(folder: &Path, wanted: &[String]) -> Result<Vec<OpReport>> {
    let mut reports: BTreeMap<String, OpReport> = BTreeMap::new();
    for test in folders(folder, "test_")? {
        let model = read(&test.join("model.onnx"), |bytes| Ok(Model::decode(bytes)?))?;
        let graph = model
            .graph
            .with_context(|| format!("{}: no graph", test.display()))?;
        let op = match &graph.nodes[..] {
            [node] => node.full_name(),
            _ => "graphs of several nodes".to_owned(),
        };
        if !wanted.is_empty() && !wanted.contains(&op) {
            continue;
        }
        let report = reports.entry(op.clone());
        let report = report.or_insert_with(|| OpReport::new(op, "onnx"));
        for data in folders(&test, "test_data_set_")? {
            let name = test.file_name().unwrap_or_default().to_string_lossy();
            report.add(name.into_owned(), guarded(|| verdict(&graph, &data)));
        }
    }
    match reports.is_empty() {
        true => bail!("{} has no such tests (test_*/model.onnx)", folder.display()),
        false => Ok(reports.into_values().collect()),
    }
}

/// The folders in `folder` whose names begin so, in order.
fn folders(folder: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(prefix) && path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn read<T>(path: &Path, decode: impl FnOnce(&[u8]) -> Result<T>) -> Result<T> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    decode(&bytes).with_context(|| path.display().to_string())
}

/// Runs a graph on a data set's inputs, and compares what comes out.
fn verdict(graph: &Graph, data: &Path) -> Result<Verdict> {
    let read_all = |what: &str, infos: &[ValueInfo]| -> Result<Found<Vec<Data>>> {
        let data = infos.iter().enumerate().map(|(i, info)| {
            let path = data.join(format!("{what}_{i}.pb"));
            read(&path, |bytes| Data::decode(info, bytes))
        });
        Ok(data.collect::<Result<Vec<_>>>()?.into_iter().collect())
    };
    let expected = read_all("output", &graph.outputs)?;
    let expected = expected.and_then(|all| all.iter().map(Data::expected).collect());
    let expected = match expected {
        Ok(expected) => Expected::List(expected),
        Err(stop) => return judge(Err(stop), |_| Ok(())),
    };
    let given = read_all("input", &graph.inputs)?;
    let outcome = given.and_then(|given| run(graph, &given));
    judge(outcome, |output| expected.compare(&output, How::Close))
}

/// What a file of a test's data holds, by the type that the graph says.
enum Data {
    Tensor(TensorData),
    Sequence(SequenceData),
    Nothing,
}

impl Data {
    /// An error of bytes that are no such value; of types that are not read there is none here.
    fn decode(info: &ValueInfo, bytes: &[u8]) -> Result<Found<Self>> {
        let ty = info.ty.clone().unwrap_or_default();
        Ok(Ok(match (ty.tensor, ty.sequence, ty.optional) {
            (Some(_), ..) => Self::Tensor(TensorData::decode(bytes)?),
            (_, Some(_), _) => Self::Sequence(SequenceData::decode(bytes)?),
            (.., Some(_)) => match OptionalData::decode(bytes)? {
                OptionalData {
                    tensor: Some(tensor),
                    ..
                } => Self::Tensor(tensor),
                OptionalData {
                    sequence: Some(sequence),
                    ..
                } => Self::Sequence(sequence),
                _ => Self::Nothing,
            },
            _ => return Ok(missing(format!("{}, of another type", info.name))),
        }))
    }

    /// ONNX's number of a tensor's dtype.
    fn dtype(&self) -> Option<i32> {
        match self {
            Self::Tensor(data) => Some(data.data_type),
            Self::Sequence(_) | Self::Nothing => None,
        }
    }

    fn value(&self) -> Found<Value> {
        let tensor = |data: &TensorData| Ok(Value::Tensor(data.tensor()?));
        Ok(match self {
            Self::Tensor(data) => tensor(data)?,
            Self::Sequence(data) => {
                Value::List(data.tensors.iter().map(tensor).collect::<Found<_>>()?)
            }
            Self::Nothing => Value::None,
        })
    }

    fn expected(&self) -> Found<Expected> {
        Ok(match self {
            Self::Tensor(data) => data.expected()?,
            Self::Sequence(data) => {
                let parts = data.tensors.iter().map(TensorData::expected);
                Expected::List(parts.collect::<Found<_>>()?)
            }
            Self::Nothing => Expected::Value(Value::None),
        })
    }
}

/// Values by their names.
type Values<'a> = HashMap<&'a str, Value>;

/// What a graph gives of these inputs.
fn run(graph: &Graph, given: &[Data]) -> Found<Output> {
    let types: Vec<Option<i32>> = given.iter().map(Data::dtype).collect();
    let graph = narrow::with_types(graph, &types);
    let given = given.iter().map(Data::value).collect::<Found<_>>()?;
    let results = evaluate(&graph, &Values::new(), given)?;
    Ok(Output::List(results.into_iter().map(output).collect()))
}

fn output(value: Value) -> Output {
    match value {
        Value::Tensor(tensor) => Output::Tensor(tensor),
        Value::List(parts) => Output::List(parts.into_iter().map(output).collect()),
        other => Output::Value(other),
    }
}

/// Evaluates the nodes in their order; they see the values around the graph, too.
fn evaluate<'a>(graph: &'a Graph, around: &Values<'a>, given: Vec<Value>) -> Found<Vec<Value>> {
    let mut values = around.clone();
    for data in &graph.initializers {
        values.insert(&data.name, Value::Tensor(data.tensor()?));
    }
    for (info, value) in graph.inputs.iter().zip(given) {
        values.insert(&info.name, value);
    }
    for node in &graph.nodes {
        let results = node.run(&values)?;
        let named = node.outputs.iter().zip(results);
        values.extend(
            named
                .filter(|(name, _)| !name.is_empty())
                .map(|(name, value)| (name.as_str(), value)),
        );
    }
    let output = |info: &ValueInfo| match values.get(info.name.as_str()) {
        Some(value) => Ok(value.clone()),
        None => missing(format!("result {}", info.name)),
    };
    graph.outputs.iter().map(output).collect()
}

impl Node {
    /// The operator, behind its domain if that is not ONNX's own.
    fn full_name(&self) -> String {
        match self.domain.as_str() {
            "" | "ai.onnx" => self.op.clone(),
            domain => format!("{domain}.{}", self.op),
        }
    }

    /// The argument of this name; one that is left out has none.
    fn argument(name: &str, values: &Values) -> Found<Value> {
        match values.get(name) {
            Some(value) => Ok(value.clone()),
            None if name.is_empty() => Ok(Value::None),
            None => missing(format!("{name}, which no node gives")),
        }
    }

    /// The arguments in their order.
    fn arguments(&self, values: &Values) -> Found<Vec<Value>> {
        let argument = |name: &String| Self::argument(name, values);
        self.inputs.iter().map(argument).collect()
    }

    fn run<'a>(&'a self, values: &Values<'a>) -> Found<Vec<Value>> {
        let name = self.full_name();
        if let Some(results) = control::run(&name, self, values)? {
            return Ok(results);
        }
        let tables = [
            attention::TABLE,
            layers::TABLE,
            lines::TABLE,
            lists::TABLE,
            ops::TABLE,
            places::TABLE,
            quantized::TABLE,
            recurrent::TABLE,
            sequences::TABLE,
            vision::TABLE,
        ];
        let mut tables = tables.into_iter().flatten();
        let entry = tables.find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| Stop::Missing(format!("no function for {name}")))?;
        let positional = self.arguments(values)?;
        let keywords = self.attributes.iter();
        let keywords = keywords.map(|a| Ok((a.name.clone(), a.value()?)));
        let mut call = Call::bind(entry.signature, positional, keywords.collect::<Found<_>>()?)?;
        call.results = self.outputs.iter().filter(|name| !name.is_empty()).count();
        let results = match (entry.call)(&call)? {
            Output::List(results) => results,
            one => vec![one],
        };
        let value = |result| match result {
            Output::Tensor(tensor) => Ok(Value::Tensor(tensor)),
            Output::Value(value) => Ok(value),
            Output::List(_) => missing(format!("{name}: a list among the results")),
        };
        results.into_iter().map(value).collect()
    }
}

impl proto::Attribute {
    fn value(&self) -> Found<Value> {
        Ok(match self.kind {
            1 => Value::Float(self.float.into()),
            2 => Value::Int(self.int),
            3 => Value::Text(String::from_utf8_lossy(&self.text).into_owned()),
            4 => match &self.tensor {
                Some(tensor) => Value::Tensor(tensor.tensor()?),
                None => return missing(format!("attribute {} without its tensor", self.name)),
            },
            6 => Value::List(
                self.floats
                    .iter()
                    .map(|&x| Value::Float(x.into()))
                    .collect(),
            ),
            7 => Value::List(self.ints.iter().map(|&x| Value::Int(x)).collect()),
            13 => Value::Other("a type".to_owned()),
            kind => return missing(format!("attribute {} of kind {kind}", self.name)),
        })
    }
}

/// ONNX's number of a dtype.
fn dtype(number: i64) -> Found<DType> {
    Ok(match number {
        1 => DType::F32,
        2 => DType::U8,
        3 => DType::I8,
        4 => DType::U16,
        5 => DType::I16,
        6 => DType::I32,
        7 => DType::I64,
        9 => DType::Bool,
        10 => DType::F16,
        11 => DType::F64,
        12 => DType::U32,
        13 => DType::U64,
        14 => DType::Complex64,
        15 => DType::Complex128,
        16 => DType::BF16,
        17 => DType::F8E4M3,
        19 => DType::F8E5M2,
        other => return missing(format!("dtype {other}")),
    })
}

impl TensorData {
    /// The elements as memory holds them, of a machine whose bytes are in ONNX's order.
    fn bytes(&self, dtype: DType) -> Vec<u8> {
        if !self.raw.is_empty() {
            return self.raw.clone();
        }
        match dtype {
            DType::F32 | DType::Complex64 => of(&self.floats, |x| x.to_ne_bytes()),
            DType::F64 | DType::Complex128 => of(&self.doubles, |x| x.to_ne_bytes()),
            DType::I64 => of(&self.longs, |x| x.to_ne_bytes()),
            DType::I32 => of(&self.ints, |x| x.to_ne_bytes()),
            DType::U32 => of(&self.unsigned, |x| (x as u32).to_ne_bytes()),
            DType::U64 => of(&self.unsigned, |x| x.to_ne_bytes()),
            // Floats of fewer bits than single precision are their bits.
            DType::I16 | DType::U16 | DType::F16 | DType::BF16 => {
                of(&self.ints, |x| (x as i16).to_ne_bytes())
            }
            _ => of(&self.ints, |x| [x as u8]),
        }
    }

    fn shape(&self) -> Vec<usize> {
        self.dims.iter().map(|&size| size as usize).collect()
    }

    /// The dtype that holds the elements, and their bytes in it.
    fn elements(&self) -> Found<(DType, Vec<u8>)> {
        if let Some(narrow) = Narrow::of(self.data_type.into()) {
            let count = self.shape().iter().product();
            return Ok((narrow.held, narrow.widen(&self.bytes(DType::U8), count)));
        }
        let dtype = dtype(self.data_type.into())?;
        Ok((dtype, self.bytes(dtype)))
    }

    fn tensor(&self) -> Found<Tensor> {
        let (dtype, bytes) = self.elements()?;
        let tensor = tensor_of(&bytes, &self.shape(), dtype);
        tensor.map_err(|e| Stop::Mistake(format!("{}: {e:#}", self.name)))
    }

    fn expected(&self) -> Found<Expected> {
        let (dtype, bytes) = self.elements()?;
        let Some(elements) = Elements::decode(dtype, &bytes) else {
            return missing(format!("elements of {dtype}"));
        };
        let is_exact = !dtype.is_float() && !dtype.is_complex();
        Ok(Expected::Tensor {
            dtype,
            shape: self.shape(),
            elements,
            truth: None,
            rtol: if is_exact { 0.0 } else { RTOL },
            atol: if is_exact { 0.0 } else { ATOL },
        })
    }
}

fn of<T: Copy, const N: usize>(numbers: &[T], bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    numbers.iter().flat_map(|&x| bytes(x)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(values: &[f32]) -> TensorData {
        TensorData {
            dims: vec![values.len() as i64],
            data_type: 1,
            floats: values.to_vec(),
            ..TensorData::default()
        }
    }

    fn info(name: &str) -> ValueInfo {
        ValueInfo {
            name: name.to_owned(),
            ty: Some(proto::Type {
                tensor: Some(proto::Unread {}),
                ..proto::Type::default()
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

    /// What comes of `y = op(a + b)`, for 1 + 2 and -3.
    fn replayed(op: &str, expected: f32) -> serde_json::Value {
        let folder = tempfile::tempdir().unwrap();
        let test = folder.path().join("test_sum");
        let data = test.join("test_data_set_0");
        fs::create_dir_all(&data).unwrap();
        let graph = Graph {
            nodes: vec![node("Add", &["a", "b"], "sum"), node(op, &["sum"], "y")],
            inputs: vec![info("a"), info("b")],
            outputs: vec![info("y")],
            ..Graph::default()
        };
        let model = Model { graph: Some(graph) };
        fs::write(test.join("model.onnx"), model.encode_to_vec()).unwrap();
        for (name, values) in [("input_0", 1.0), ("input_1", 2.0), ("output_0", expected)] {
            let bytes = floats(&[values]).encode_to_vec();
            fs::write(data.join(format!("{name}.pb")), bytes).unwrap();
        }
        let reports = replay(folder.path(), &[]).unwrap();
        serde_json::to_value(&reports[0]).unwrap()
    }

    #[test]
    fn graphs_are_evaluated_and_compared() {
        assert_eq!(replayed("Neg", -3.0)["passed"], 1);
        let wrong = replayed("Neg", 3.0);
        assert_eq!(
            wrong["failures"][0]["reason"],
            "result 0: element 0 is -3, should be 3"
        );
        let missing = replayed("Negate", -3.0);
        assert_eq!(missing["missing"]["reason"], "no function for Negate");
        assert!(replay(tempfile::tempdir().unwrap().path(), &[]).is_err());
    }
}
