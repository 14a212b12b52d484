//! From a graph to an ML Program.

use std::collections::BTreeMap;
use std::ops::Range;

use half::f16;
use rustorch_ir::{DType, Graph, Layout, Node, Op, Role, Shape, Signature, TensorType, ValueId};
use rustorch_runtime::KernelTable;

use crate::blocks;
use crate::builder::{Builder, Origin, Var, Vars, program_shape};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, are_blocks, fits};
use crate::ops;
use crate::opset::Target;
use crate::package::Package;
use crate::proto::mil::{Block, DataType, Function, NamedValueType, Program, ValueType};
use crate::proto::model::{
    ArrayDataType, ArrayFeatureType, FeatureDescription, FeatureKind, FeatureType, Model,
    ModelDescription, ModelType, StateFeatureType,
};
use crate::weights::BlobError;

/// Writes ML Programs for one target.
pub struct Emitter {
    target: Target,
    kernels: KernelTable<Kernel>,
}

/// A program, and the meaning of its features.
#[derive(Clone, PartialEq, Debug)]
pub struct Emitted {
    /// The program in its package.
    pub package: Package,
    /// Its inputs: those of the graph that are neither constants nor states that it keeps.
    pub inputs: Vec<Feature>,
    /// Its outputs in the graph's order.
    pub outputs: Vec<Feature>,
    /// The states that a run updates, in this order.
    pub updates: Vec<Update>,
}

/// Rows that are written into a state when the program has run. They are outputs of the program behind
/// the others.
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// The rows, `[…, t, …]` of the state's `[…, s, …]`.
    pub rows: Feature,
    /// The input of the graph that is the state.
    pub state: usize,
    /// Its type.
    pub ty: TensorType,
    /// The dimension of the rows.
    pub dim: usize,
    /// Start of the rows in it.
    pub start: Start,
    /// The name by which the program keeps the state itself. Before a run it has to hold the contents
    /// of the graph's input. After the run it does so if the rows were written there. `None` of one
    /// that the program only reads, as an input.
    pub kept: Option<String>,
}

/// Starts of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// A fixed index.
    At(usize),
    /// The number in an input of the graph, an `i32`.
    Input {
        /// Index of the input.
        index: usize,
        /// Index of its element.
        element: usize,
    },
}

impl Update {
    /// Ranges in the state's bytes for each contiguous part of the rows' bytes, in their order.
    /// Rows that begin at `start` fit into the state.
    pub fn places(&self, start: usize) -> impl Iterator<Item = Range<usize>> {
        let element = self.ty.dtype.size().unwrap_or(1);
        let inner: usize = self.ty.shape[self.dim + 1..].iter().product();
        let outer: usize = self.ty.shape[..self.dim].iter().product();
        let [size, count] = [&self.ty, &self.rows.ty].map(|ty| ty.shape[self.dim]);
        let row = element * inner;
        (0..outer).map(move |i| {
            let first = (i * size + start) * row;
            first..first + count * row
        })
    }
}

/// An input or output of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Feature {
    /// Its name in the program.
    pub name: String,
    /// Index among the graph's inputs, or outputs.
    pub index: usize,
    /// Type in the graph.
    pub ty: TensorType,
    /// Sizes of the `MLMultiArray`: one dimension of size 1 for a tensor of rank 0.
    pub shape: Shape,
    /// Elements of the `MLMultiArray`. `bool` and `i64` are `Int32` there, 0 and 1 or indices;
    /// `f16` is `Float32` on systems that have no arrays of halves.
    pub elements: ArrayDataType,
    /// Valid ranges of an input's indices. Core ML gives anything for others, so the runner of the
    /// program has to check them.
    pub bounds: Vec<Bound>,
}

/// Bound of indices among the elements of an input: at least 0, and below a size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bound {
    /// Layout of these elements.
    pub elements: Layout,
    /// The size.
    pub below: usize,
}

impl Feature {
    /// The first index out of range, and its bound.
    pub fn outside(&self, x: &[i64]) -> Option<(i64, usize)> {
        self.bounds.iter().find_map(|bound| bound.outside(x))
    }
}

impl Bound {
    fn outside(&self, x: &[i64]) -> Option<(i64, usize)> {
        let mut indices = places(&self.elements).filter_map(|place| x.get(place));
        let outside = |index: &&i64| usize::try_from(**index).map_or(true, |i| i >= self.below);
        indices.find(outside).map(|&index| (index, self.below))
    }
}

/// Places of the elements that a view shows, in order.
pub(crate) fn places(layout: &Layout) -> impl Iterator<Item = usize> + '_ {
    (0..layout.elements()).map(|i| {
        let (mut rest, mut at) = (i, layout.offset);
        for (&n, &stride) in layout.shape.iter().zip(&layout.strides).rev() {
            at += rest % n * stride;
            rest /= n;
        }
        at
    })
}

/// Why a graph does not become a program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EmitError {
    /// A node that [`Emitter::supports`] says no to.
    #[error("no ML Program for {op} (node {node}) of {operands}")]
    Unsupported {
        /// Index of the node.
        node: usize,
        /// The operation.
        op: &'static str,
        /// Types of its operands.
        operands: String,
    },
    /// An input or output that no feature can have.
    #[error("{what} {index} of type {ty} cannot be a feature of an ML Program")]
    Feature {
        /// `input`, `output` or `update`.
        what: &'static str,
        /// Index of the feature.
        index: usize,
        /// Its type.
        ty: String,
    },
    /// Bytes of a constant that are not those of its type, or an index that is too large.
    #[error("constant {input} of type {ty}: {what}")]
    Constant {
        /// Index of the input.
        input: usize,
        /// Its type.
        ty: String,
        /// Description of the fault.
        what: String,
    },
    /// A weight that cannot be stored.
    #[error(transparent)]
    Weights(#[from] BlobError),
}

impl EmitError {
    /// The node of `graph` that prevents a program, if one does.
    pub fn node(&self, graph: &Graph) -> Option<usize> {
        let reader = |input: usize| {
            let reads = |node: &Node| node.inputs.iter().any(|value| value.index() == input);
            graph.nodes().iter().position(reads)
        };
        match self {
            Self::Unsupported { node, .. } => Some(*node),
            Self::Feature { what, index, .. } if *what == INPUT => reader(*index),
            Self::Constant { input, .. } => reader(*input),
            Self::Feature { .. } | Self::Weights(_) => None,
        }
    }
}

/// Beginning of the names of input features.
const INPUT: &str = "input";

impl Emitter {
    /// An emitter of programs for `target`.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            kernels: ops::table(),
        }
    }

    /// Target of the programs.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Returns whether this can be part of a program. Answered from the table that [`Self::emit`] writes from.
    /// `constant` says which operands are known when the program is compiled; those that it does
    /// not reach are.
    pub fn supports(&self, signature: &Signature, constant: &[bool]) -> bool {
        let call = Call {
            signature: *signature,
            constant,
            target: self.target,
        };
        self.find(&call).is_some()
    }

    fn find(&self, call: &Call) -> Option<&Kernel> {
        let accepts = |kernel: &Kernel| call.fits() && (kernel.accepts)(call);
        let entry = self.kernels.find_that(&call.signature, accepts);
        entry.map(|entry| &entry.launch)
    }

    /// The program of a graph. `constants` are the known inputs, by their index, as memory holds
    /// them; other inputs are inputs of the program.
    ///
    /// # Errors
    /// Fails for operations, inputs or outputs that a program cannot have. Also fails for bytes
    /// that are not a constant of the input's type.
    pub fn emit(
        &self,
        graph: &Graph,
        constants: &BTreeMap<usize, &[u8]>,
    ) -> Result<Emitted, EmitError> {
        let mut writer = Writer {
            builder: Builder::new(self.target),
            values: Vec::with_capacity(graph.len()),
            inputs: Vec::new(),
            indices: BTreeMap::new(),
            states: Vec::new(),
            updates: Vec::new(),
        };
        for (index, ty) in graph.inputs().iter().enumerate() {
            let var = match constants.get(&index) {
                Some(bytes) => writer.constant(index, ty, bytes)?,
                None if self.keeps(graph, index) => writer.state(index, ty)?,
                None => writer.input(index, ty)?,
            };
            writer.values.push(var);
        }
        for (index, node) in graph.nodes().iter().enumerate() {
            let results = self.node(graph, constants, index, node, &mut writer)?;
            writer.values.extend(results);
        }
        let outputs = (graph.outputs().iter().enumerate())
            .map(|(index, &value)| writer.output(index, graph.ty(value), value))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(self.finish(writer, outputs))
    }

    /// Does the program keep this input of the graph itself? It pays for a cache that gets one row in a
    /// run, as that of a token: the next run then finds its operand there. Core ML has states of halves
    /// alone.
    fn keeps(&self, graph: &Graph, input: usize) -> bool {
        let ty = &graph.inputs()[input];
        let Target { opset, states, .. } = self.target;
        if !states || !opset.has_states() || ty.dtype != DType::F16 || !fits(ty) {
            return false;
        }
        let state = ValueId(input as u32);
        let mut readers = graph.nodes().iter().filter(|n| n.inputs.contains(&state));
        let (Some(update), None) = (readers.next(), readers.next()) else {
            return false;
        };
        let Op::UpdateSlice(op) = &update.op else {
            return false;
        };
        let is_row = graph.ty(update.inputs[1]).shape[op.dim] == 1 && ty.shape[op.dim] > 1;
        let behind = update.result(0);
        let is_updated_again = graph.nodes().iter().any(|node| {
            let mut overwritten = node.overwrites();
            overwritten.any(|(_, operand)| node.inputs[operand] == behind)
        });
        let is_given = graph.outputs().contains(&state);
        is_row && update.inputs[0] == state && !is_updated_again && !is_given
    }

    fn node(
        &self,
        graph: &Graph,
        constants: &BTreeMap<usize, &[u8]>,
        index: usize,
        node: &Node,
        writer: &mut Writer,
    ) -> Result<Vars, EmitError> {
        let mut operands: Vec<Var> = (node.inputs.iter())
            .map(|v| writer.values[v.index()].clone())
            .collect();
        // Weights in blocks are constants, or they would be no values of a program.
        let is_constant =
            |(var, &value): (&Var, &ValueId)| var.is_constant || graph.ty(value).dtype.is_block();
        let constant: Vec<bool> = operands.iter().zip(&node.inputs).map(is_constant).collect();
        let kernel = graph.with_signature(node, |&signature| {
            let call = Call {
                signature,
                constant: &constant,
                target: self.target,
            };
            self.find(&call)
        });
        let unsupported = || {
            let types = node.inputs.iter().map(|&v| graph.ty(v).to_string());
            EmitError::Unsupported {
                node: index,
                op: node.op.name(),
                operands: types.collect::<Vec<_>>().join(", "),
            }
        };
        let kernel = kernel.ok_or_else(unsupported)?;
        if let Some((index, size)) = indexed(&node.op, &operands) {
            writer.bound(&operands[index], size).map_err(|e| match e {
                BoundError::Computed => unsupported(),
                BoundError::Outside(input, index) => EmitError::Constant {
                    input,
                    ty: graph.inputs()[input].to_string(),
                    what: format!("index {index} is outside of 0..{size}"),
                },
            })?;
        }
        if let Some(operand) = single(&node.op).and_then(|at| operands.get_mut(at)) {
            let exact = writer.single(operand, constants);
            *operand = exact.ok_or_else(unsupported)?;
        }
        if let Op::UpdateSlice(op) = &node.op {
            let state = graph.state_root(node.inputs[0]);
            let update = state.and_then(|state| writer.update(state, op.dim, node, &operands));
            writer.updates.push(update.ok_or_else(unsupported)??);
        }
        let results = (kernel.emit)(&mut writer.builder, &node.op, &operands);
        let only_moves = node.op.def().role() == Role::View;
        let origin = operands.first().filter(|_| only_moves).and_then(|x| {
            let Origin { input, layout } = x.origin.as_ref()?;
            let layout = node.op.def().view(layout)?;
            let input = *input;
            Some(Origin { input, layout })
        });
        let shaped = results.iter().zip(&node.outputs);
        Ok(shaped
            .map(|(var, ty)| Var {
                origin: origin.clone(),
                ..writer.builder.reshape(var, &program_shape(ty))
            })
            .collect())
    }

    fn finish(&self, writer: Writer, outputs: Vec<Feature>) -> Emitted {
        let opset = self.target.opset;
        let (operations, weights) = writer.builder.finish();
        let rows = writer.updates.iter().map(|update| &update.rows);
        let results: Vec<&Feature> = outputs.iter().chain(rows).collect();
        let block = Block {
            inputs: Vec::new(),
            outputs: results.iter().map(|output| output.name.clone()).collect(),
            operations,
        };
        let inputs = writer.inputs.iter().map(Feature::parameter);
        let states = writer.states.iter().map(Feature::state_parameter);
        let function = Function {
            inputs: inputs.chain(states).collect(),
            opset: opset.name().to_owned(),
            block_specializations: BTreeMap::from([(opset.name().to_owned(), block)]),
        };
        let program = Program {
            version: 1,
            functions: BTreeMap::from([("main".to_owned(), function)]),
        };
        let model = Model {
            specification_version: opset.specification_version(),
            description: Some(ModelDescription {
                input: writer.inputs.iter().map(Feature::description).collect(),
                output: results.into_iter().map(Feature::description).collect(),
                state: (writer.states.iter())
                    .map(Feature::state_description)
                    .collect(),
            }),
            model_type: Some(ModelType::MlProgram(program)),
        };
        Emitted {
            package: Package { model, weights },
            inputs: writer.inputs,
            outputs,
            updates: writer.updates,
        }
    }
}

/// The operand whose elements are indices, and their bound.
fn indexed(op: &Op, x: &[Var]) -> Option<(usize, usize)> {
    let size = |dim: usize| x[0].shape[dim];
    match op {
        Op::Gather(op) => Some((1, size(op.dim))),
        Op::IndexSelect(op) => Some((1, size(op.dim))),
        Op::Embedding(_) => Some((1, size(0))),
        Op::UpdateSlice(op) => Some((2, size(op.dim) - x[1].shape[op.dim] + 1)),
        _ => None,
    }
}

/// The operand that is read in single precision, whatever the program computes in.
fn single(op: &Op) -> Option<usize> {
    match op {
        // The factors of frequencies: in half precision, a large angle keeps no digits.
        Op::Rope(_) => Some(2),
        _ => None,
    }
}

/// A program that is being written.
struct Writer {
    builder: Builder,
    /// The graph's values in the program.
    values: Vec<Var>,
    inputs: Vec<Feature>,
    /// The elements of constant inputs of integers.
    indices: BTreeMap<usize, Vec<i64>>,
    /// The inputs of the graph that the program keeps.
    states: Vec<Feature>,
    updates: Vec<Update>,
}

/// Why indices may not be used.
enum BoundError {
    /// Nobody can check these indices before the program runs.
    Computed,
    /// This constant holds this index, which is out of range.
    Outside(usize, i64),
}

impl Writer {
    fn feature(
        &self,
        what: &'static str,
        name: &str,
        index: usize,
        ty: &TensorType,
    ) -> Result<Feature, EmitError> {
        let halves = self.builder.target.opset.has_half_features();
        let elements = match ty.dtype {
            _ if !fits(ty) => None,
            DType::F16 if halves => Some(ArrayDataType::Float16),
            DType::F16 | DType::F32 => Some(ArrayDataType::Float32),
            DType::I32 | DType::I64 | DType::Bool => Some(ArrayDataType::Int32),
            _ => None,
        };
        let elements = elements.ok_or_else(|| EmitError::Feature {
            what,
            index,
            ty: ty.to_string(),
        })?;
        Ok(Feature {
            name: format!("{name}{index}"),
            index,
            ty: ty.clone(),
            shape: program_shape(ty),
            elements,
            bounds: Vec::new(),
        })
    }

    /// An input of the graph as one of the program, or as a state that it keeps.
    fn parameter(
        &self,
        index: usize,
        ty: &TensorType,
        is_state: bool,
    ) -> Result<(Feature, Var), EmitError> {
        let feature = self.feature(INPUT, "x", index, ty)?;
        let var = Var {
            name: feature.name.clone(),
            data_type: feature.data_type(),
            shape: feature.shape.clone(),
            is_constant: false,
            is_state,
            origin: (!is_state).then(|| Origin::whole(index, &ty.shape)),
        };
        Ok((feature, var))
    }

    fn input(&mut self, index: usize, ty: &TensorType) -> Result<Var, EmitError> {
        let (feature, var) = self.parameter(index, ty, false)?;
        self.inputs.push(feature);
        let inside = self.builder.data_type(ty.dtype);
        let inside = inside.unwrap_or(var.data_type);
        Ok(Var {
            origin: var.origin.clone(),
            ..self.builder.cast(&var, inside)
        })
    }

    fn state(&mut self, index: usize, ty: &TensorType) -> Result<Var, EmitError> {
        let (feature, var) = self.parameter(index, ty, true)?;
        self.states.push(feature);
        Ok(var)
    }

    /// A constant from the bytes that memory holds of it.
    fn constant(&mut self, input: usize, ty: &TensorType, bytes: &[u8]) -> Result<Var, EmitError> {
        let wrong = |what: &str| EmitError::Constant {
            input,
            ty: ty.to_string(),
            what: what.to_owned(),
        };
        if bytes.len() != ty.bytes() {
            return Err(wrong("another number of bytes"));
        }
        let shape = program_shape(ty);
        if let DType::Block(format) = ty.dtype
            && are_blocks(ty.dtype, self.builder.target)
        {
            let groups = blocks::groups(format, bytes);
            let groups = groups.map_err(|error| wrong(&error.to_string()))?;
            return Ok(self.builder.try_groups(groups, &shape)?);
        }
        let (true, Some(data_type)) = (fits(ty), self.builder.data_type(ty.dtype)) else {
            return Err(wrong("no type of an ML Program"));
        };
        let constant = match ty.dtype {
            DType::F32 => {
                let x = bytes.as_chunks().0.iter().copied();
                let x = x.map(|x| f32::from_ne_bytes(x).into());
                Constant::floats(x, &shape, data_type)
            }
            DType::F16 => {
                let x = bytes.as_chunks().0.iter().copied();
                let x = x.map(|x| f16::from_ne_bytes(x).into());
                Constant::floats(x, &shape, data_type)
            }
            DType::I32 => {
                let x = bytes.as_chunks().0.iter().copied();
                Constant::tensor_of_ints(x.map(i32::from_ne_bytes).collect(), &shape)
            }
            DType::I64 => {
                let x = bytes.as_chunks().0.iter().copied();
                let x = x.map(|x| i32::try_from(i64::from_ne_bytes(x)));
                let x = x.collect::<Result<_, _>>();
                let x = x.map_err(|_| wrong("an integer of more than 32 bits"))?;
                Constant::tensor_of_ints(x, &shape)
            }
            _ => Constant::bools(bytes.iter().map(|&x| x != 0).collect(), &shape),
        };
        if let Some(ints) = constant.as_ints() {
            let ints = ints.iter().map(|&x| x.into());
            self.indices.insert(input, ints.collect());
        }
        let var = self.builder.try_constant(&constant)?;
        let origin = Some(Origin::whole(input, &ty.shape));
        Ok(Var { origin, ..var })
    }

    /// A whole input of `f32` in single precision. `None` for values that the program computes.
    fn single(&mut self, x: &Var, constants: &BTreeMap<usize, &[u8]>) -> Option<Var> {
        if x.data_type == DataType::Float32 {
            return Some(x.clone());
        }
        let Origin { input, layout } = x.origin.as_ref()?;
        if *layout != Layout::contiguous(&x.shape) {
            return None;
        }
        if let Some(bytes) = constants.get(input) {
            let elements = bytes.as_chunks().0.iter().copied();
            let elements = elements.map(|x| f32::from_ne_bytes(x).into());
            let constant = Constant::floats(elements, &x.shape, DataType::Float32);
            return Some(self.builder.constant(&constant));
        }
        let feature = self.inputs.iter().find(|f| f.index == *input)?;
        (feature.shape == x.shape).then(|| Var {
            name: feature.name.clone(),
            data_type: feature.data_type(),
            ..x.clone()
        })
    }

    /// Sees to it that the elements of `index` are below `size`.
    fn bound(&mut self, index: &Var, size: usize) -> Result<(), BoundError> {
        let origin = index.origin.as_ref().ok_or(BoundError::Computed)?;
        let bound = Bound {
            elements: origin.layout.clone(),
            below: size,
        };
        if let Some(indices) = self.indices.get(&origin.input) {
            return match bound.outside(indices) {
                Some((index, _)) => Err(BoundError::Outside(origin.input, index)),
                None => Ok(()),
            };
        }
        let feature = self.inputs.iter_mut().find(|f| f.index == origin.input);
        let feature = feature.ok_or(BoundError::Computed)?;
        if !feature.bounds.contains(&bound) {
            feature.bounds.push(bound);
        }
        Ok(())
    }

    /// Makes `value` an output under its own name.
    fn output(
        &mut self,
        index: usize,
        ty: &TensorType,
        value: ValueId,
    ) -> Result<Feature, EmitError> {
        let feature = self.feature("output", "y", index, ty)?;
        let value = self.values[value.index()].clone();
        self.give(&feature, &value);
        Ok(feature)
    }

    /// Makes `value` the output that a feature describes.
    fn give(&mut self, feature: &Feature, value: &Var) {
        let value = self.builder.cast(value, feature.data_type());
        self.builder.named(feature.name.clone(), &value);
    }

    /// The update of a state that a node is, with its rows as an output. `None` if their start is
    /// not known before the program runs.
    fn update(
        &mut self,
        state: ValueId,
        dim: usize,
        node: &Node,
        operands: &[Var],
    ) -> Option<Result<Update, EmitError>> {
        let origin = operands[2].origin.as_ref()?;
        let (index, element) = (origin.input, origin.layout.offset);
        let start = match self.indices.get(&index) {
            Some(indices) => Start::At(usize::try_from(*indices.get(element)?).ok()?),
            None => Start::Input { index, element },
        };
        let ty = node.output().clone();
        let rows = TensorType::new(operands[1].shape.clone(), ty.dtype);
        let feature = self.feature("update", "s", self.updates.len(), &rows);
        let kept = operands[0].is_state.then(|| operands[0].name.clone());
        Some(feature.map(|rows| {
            self.give(&rows, &operands[1]);
            Update {
                rows,
                state: state.index(),
                ty,
                dim,
                start,
                kept,
            }
        }))
    }
}

impl Feature {
    /// Type of its elements in the program.
    fn data_type(&self) -> DataType {
        match self.elements {
            ArrayDataType::Float16 => DataType::Float16,
            ArrayDataType::Int32 => DataType::Int32,
            _ => DataType::Float32,
        }
    }

    fn parameter(&self) -> NamedValueType {
        NamedValueType {
            name: self.name.clone(),
            r#type: Some(ValueType::tensor(self.data_type(), &self.shape)),
        }
    }

    fn state_parameter(&self) -> NamedValueType {
        NamedValueType {
            name: self.name.clone(),
            r#type: Some(ValueType::state(self.data_type(), &self.shape)),
        }
    }

    fn array(&self) -> ArrayFeatureType {
        ArrayFeatureType {
            shape: self.shape.iter().map(|&size| size as i64).collect(),
            data_type: self.elements.into(),
        }
    }

    fn description(&self) -> FeatureDescription {
        self.described(FeatureKind::MultiArray(self.array()))
    }

    fn state_description(&self) -> FeatureDescription {
        let array_type = Some(self.array());
        self.described(FeatureKind::State(StateFeatureType { array_type }))
    }

    fn described(&self, kind: FeatureKind) -> FeatureDescription {
        FeatureDescription {
            name: self.name.clone(),
            r#type: Some(FeatureType {
                kind: Some(kind),
                is_optional: false,
            }),
        }
    }
}
