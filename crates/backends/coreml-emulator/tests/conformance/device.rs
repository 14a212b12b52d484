//! Programs as a device that the conformance suite runs its cases on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustorch_coreml::proto::mil::DataType;
use rustorch_coreml::proto::model::ArrayDataType;
use rustorch_coreml::{EmitError, Emitted, Emitter, Feature, Start, Target, Update, check};
use rustorch_coreml_emulator::{Data, Model, Tensor};
use rustorch_ir::ops::{ReduceOp, UnaryOp};
use rustorch_ir::{DType, Graph, Layout, Node, Op, Signature, TensorType};
use rustorch_runtime::{
    Backend, DeviceBuffer, DeviceError, DeviceInfo, DeviceMemory, DeviceType, FailureClass,
    Hardware, HostMemory, Probe, Program,
};

use crate::values::{decode, encode};

/// Inputs of a program that are known when it is compiled.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Known {
    /// None.
    Nothing,
    /// All but the first: weights.
    AllButTheFirst,
    /// The first: a table.
    TheFirst,
}

/// Not Core ML, which policies give only what it is good at.
const DEVICE: DeviceType = DeviceType::Cpu;

/// A device that writes a package for each graph, and has it read and evaluated.
pub(crate) struct Device {
    info: DeviceInfo,
    memory: HostMemory,
    known: Known,
    writer: Arc<Writer>,
}

struct Writer {
    emitter: Emitter,
    folder: tempfile::TempDir,
    /// Folder in which packages stay with their features, for others to evaluate them.
    kept: Option<PathBuf>,
    count: AtomicUsize,
}

impl Device {
    /// A device whose packages are removed once they have been evaluated.
    pub(crate) fn new(target: Target, known: Known) -> Self {
        Self::made(target, known, None)
    }

    /// A device that keeps its packages in a new folder in `folder`.
    pub(crate) fn keeping(target: Target, known: Known, folder: &Path) -> Self {
        let known_name = match known {
            Known::Nothing => "",
            Known::AllButTheFirst => "-weights",
            Known::TheFirst => "-table",
        };
        let name = format!("{:?}-{:?}{known_name}", target.opset, target.precision);
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self::made(target, known, Some(folder))
    }

    fn made(target: Target, known: Known, kept: Option<PathBuf>) -> Self {
        Self {
            info: DeviceInfo {
                device: DEVICE,
                hardware: Hardware::NeuralEngine,
                shares_host_memory: true,
                name: "programs".to_owned(),
                memory_bytes: None,
                details: Vec::new(),
            },
            memory: HostMemory::new(DEVICE),
            known,
            writer: Arc::new(Writer {
                emitter: Emitter::new(target),
                folder: tempfile::tempdir().unwrap(),
                kept,
                count: AtomicUsize::new(0),
            }),
        }
    }

    fn is_known(&self, input: usize) -> bool {
        match self.known {
            Known::Nothing => false,
            Known::AllButTheFirst => input > 0,
            Known::TheFirst => input == 0,
        }
    }

    /// Result of a graph's program.
    pub(crate) fn predict(
        &self,
        graph: &Graph,
        operands: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>, DeviceError> {
        let run = Run::of(graph);
        let results = run.predict(&self.writer, |input| self.is_known(input), operands)?;
        Ok(results.outputs)
    }
}

impl Backend for Device {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        let known: Vec<bool> = (0..signature.inputs.len())
            .map(|i| self.is_known(i))
            .collect();
        self.writer.emitter.supports(signature, &known)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        &self.memory
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        let inputs = graph.inputs().len();
        Ok(Box::new(Compiled {
            run: Run::of(graph),
            known: (0..inputs).map(|input| self.is_known(input)).collect(),
            writer: self.writer.clone(),
        }))
    }
}

struct Compiled {
    run: Run,
    known: Vec<bool>,
    writer: Arc<Writer>,
}

impl Program for Compiled {
    fn run(
        &self,
        inputs: &[Arc<dyn DeviceBuffer>],
        outputs: &[Arc<dyn DeviceBuffer>],
        _probe: &dyn Probe,
    ) -> Result<(), DeviceError> {
        let read = |buffer: &Arc<dyn DeviceBuffer>| {
            let mut bytes = vec![0; buffer.bytes()];
            // SAFETY: nobody writes to the inputs of a run.
            unsafe { buffer.read(0, &mut bytes)? };
            Ok(bytes)
        };
        let operands = inputs
            .iter()
            .map(read)
            .collect::<Result<Vec<_>, DeviceError>>()?;
        let known = |input: usize| self.known[input];
        let results = self.run.predict(&self.writer, known, &operands)?;
        for (buffer, bytes) in outputs.iter().zip(results.outputs) {
            // SAFETY: an output is this run's own.
            unsafe { buffer.write(0, &bytes)? };
        }
        for (input, bytes) in results.states {
            // SAFETY: a state is written to by the run that updates it alone.
            unsafe { inputs[input].write(0, &bytes)? };
        }
        Ok(())
    }
}

/// Results of a program.
struct Results {
    outputs: Vec<Vec<u8>>,
    /// The inputs that are states which it updates, behind that.
    states: BTreeMap<usize, Vec<u8>>,
}

/// A graph whose inputs are tensors without gaps: views of what is stored are made by the caller.
struct Run {
    graph: Graph,
    /// For each input of the graph, the view that it is of what is stored.
    views: Vec<Option<Layout>>,
}

impl Run {
    fn of(graph: &Graph) -> Self {
        let mut views: Vec<Option<Layout>> = vec![None; graph.inputs().len()];
        let mut types: Vec<TensorType> = graph.inputs().to_vec();
        for node in graph.nodes() {
            if let Op::AsStrided(op) = &node.op {
                let input = node.inputs[0].index();
                views[input] = Some(op.layout.clone());
                types[input] = node.output().clone();
            }
        }
        let mut out = Graph::new();
        let mut values: Vec<_> = types.into_iter().map(|ty| out.input(ty).unwrap()).collect();
        for node in graph.nodes() {
            let operands: Vec<_> = node.inputs.iter().map(|v| values[v.index()]).collect();
            if matches!(node.op, Op::AsStrided(_)) {
                values.push(operands[0]);
                continue;
            }
            let first = out.push(node.op.clone(), &operands).unwrap();
            values.extend(out.results(first));
        }
        for value in graph.outputs() {
            out.output(values[value.index()]);
        }
        Self { graph: out, views }
    }

    fn predict(
        &self,
        writer: &Writer,
        known: impl Fn(usize) -> bool,
        stored: &[Vec<u8>],
    ) -> Result<Results, DeviceError> {
        let operands: Vec<Vec<u8>> = (stored.iter().zip(&self.views).enumerate())
            .map(|(i, (bytes, view))| match view {
                Some(layout) => viewed(bytes, layout, self.graph.inputs()[i].dtype),
                None => bytes.clone(),
            })
            .collect();
        let constants = (operands.iter().enumerate())
            .filter(|(input, _)| known(*input))
            .map(|(input, bytes)| (input, &bytes[..]))
            .collect();
        let emitted = writer.emitter.emit(&self.graph, &constants);
        let emitted = emitted.map_err(|e| failure(&e))?;
        writer.predict(&emitted, &operands)
    }
}

/// The elements that a view shows, in order.
fn viewed(bytes: &[u8], layout: &Layout, dtype: DType) -> Vec<u8> {
    let size = dtype.size().unwrap();
    let mut out = Vec::new();
    for i in 0..layout.elements() {
        let (mut rest, mut at) = (i, layout.offset);
        for (&n, &stride) in layout.shape.iter().zip(&layout.strides).rev() {
            at += rest % n * stride;
            rest /= n;
        }
        out.extend_from_slice(&bytes[at * size..][..size]);
    }
    out
}

fn failure(e: &EmitError) -> DeviceError {
    let class = match e {
        EmitError::Constant { .. } => FailureClass::Caller,
        _ => FailureClass::Unsupported,
    };
    DeviceError::new(DEVICE, class, e.to_string())
}

fn broken(what: impl ToString) -> DeviceError {
    DeviceError::new(DEVICE, FailureClass::Unsupported, what.to_string())
}

impl Writer {
    fn predict(&self, emitted: &Emitted, operands: &[Vec<u8>]) -> Result<Results, DeviceError> {
        let flaws = check(&emitted.package.model, emitted.package.weights.as_deref());
        if !flaws.is_empty() {
            return Err(broken(format!("{flaws:?}")));
        }
        let mut inputs = BTreeMap::new();
        for feature in &emitted.inputs {
            let tensor = tensor(feature, &operands[feature.index])?;
            inputs.insert(feature.name.clone(), tensor);
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let folder = self.kept.as_deref().unwrap_or(self.folder.path());
        let folder = folder.join(number.to_string());
        std::fs::create_dir(&folder).map_err(broken)?;
        let package = folder.join("model.mlpackage");
        emitted.package.write(&package).map_err(broken)?;
        for (name, tensor) in &inputs {
            self.keep(&folder, name, tensor)?;
        }
        let model = Model::read(&package).map_err(broken)?;
        let mut kept = model.new_states().map_err(broken)?;
        for update in &emitted.updates {
            if let Some(name) = &update.kept {
                let x = decode(update.ty.dtype, &operands[update.state]);
                let x = Tensor::floats(DataType::Float16, &update.ty.shape, x);
                self.keep(&folder, name, &x)?;
                kept.insert(name.clone(), x);
            }
        }
        let outputs = model.predict_with(&inputs, &mut kept).map_err(broken)?;
        let rows = emitted.updates.iter().map(|update| &update.rows);
        for (feature, output) in emitted.outputs.iter().chain(rows).zip(&outputs) {
            self.keep(&folder, &feature.name, output)?;
        }
        if self.kept.is_none() {
            std::fs::remove_dir_all(&folder).map_err(broken)?;
        }
        let (outputs, rows) = outputs.split_at(emitted.outputs.len());
        let encoded = emitted.outputs.iter().zip(outputs);
        let mut states = BTreeMap::new();
        for (update, rows) in emitted.updates.iter().zip(rows) {
            let state = states.entry(update.state);
            let state = state.or_insert_with(|| operands[update.state].clone());
            write_rows(update, &numbers(rows), operands, state);
            // The state that the program keeps has the same bytes.
            if let Some(kept) = update.kept.as_ref().and_then(|name| kept.get(name)) {
                let kept = encode(update.ty.dtype, &numbers(kept));
                if kept != *state {
                    return Err(broken("a state that is kept differs from its updates"));
                }
            }
        }
        Ok(Results {
            outputs: encoded
                .map(|(f, x)| encode(f.ty.dtype, &numbers(x)))
                .collect(),
            states,
        })
    }

    /// Keeps what a feature was as little-endian doubles, if packages are kept.
    fn keep(&self, folder: &Path, name: &str, tensor: &Tensor) -> Result<(), DeviceError> {
        if self.kept.is_none() {
            return Ok(());
        }
        let bytes: Vec<u8> = numbers(tensor)
            .iter()
            .flat_map(|x| x.to_le_bytes())
            .collect();
        std::fs::write(folder.join(format!("{name}.f64")), bytes).map_err(broken)
    }
}

/// Puts rows into a state.
fn write_rows(update: &Update, rows: &[f64], operands: &[Vec<u8>], state: &mut [u8]) {
    let start = match update.start {
        Start::At(start) => start,
        Start::Input { index, element } => decode(DType::I32, &operands[index])[element] as usize,
    };
    let rows = encode(update.rows.ty.dtype, rows);
    let mut rest = &rows[..];
    for place in update.places(start) {
        let (rows, next) = rest.split_at(place.len());
        state[place].copy_from_slice(rows);
        rest = next;
    }
}

/// The array that a feature is given.
fn tensor(feature: &Feature, bytes: &[u8]) -> Result<Tensor, DeviceError> {
    let x = decode(feature.ty.dtype, bytes);
    Ok(match feature.elements {
        ArrayDataType::Int32 => {
            let x: Vec<i64> = x.into_iter().map(|x| x as i64).collect();
            let wide = x.iter().find(|&&x| i32::try_from(x).is_err());
            let outside = feature.outside(&x).map(|(index, _)| index);
            let unfit = outside.map(|index| (index, FailureClass::Caller));
            let unfit = unfit.or(wide.map(|&x| (x, FailureClass::Unsupported)));
            if let Some((index, class)) = unfit {
                let what = format!("{index} in {}", feature.name);
                return Err(DeviceError::new(DEVICE, class, what));
            }
            Tensor::ints(DataType::Int32, &feature.shape, x)
        }
        ArrayDataType::Float16 => Tensor::floats(DataType::Float16, &feature.shape, x),
        _ => Tensor::floats(DataType::Float32, &feature.shape, x),
    })
}

fn numbers(x: &Tensor) -> Vec<f64> {
    match &x.data {
        Data::Float(x) => x.clone(),
        Data::Int(x) => x.iter().map(|&x| x as f64).collect(),
        Data::Text(text) => unreachable!("a feature that is the text {text}"),
    }
}

/// Is its result another one where an operand is a little different, or out of the range of halves?
pub(crate) fn jumps(node: &Node) -> bool {
    match &node.op {
        Op::Unary(op) => matches!(
            op.op,
            UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc | UnaryOp::Sign
        ),
        Op::Reduce(op) => op.op == ReduceOp::Prod,
        _ => false,
    }
}
