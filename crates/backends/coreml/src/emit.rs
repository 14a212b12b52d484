//! From a graph to an ML Program.

use std::collections::BTreeMap;

use half::f16;
use rustorch_ir::{DType, Graph, Node, Op, Role, Shape, Signature, TensorType, ValueId};
use rustorch_runtime::KernelTable;

use crate::blocks;
use crate::builder::{Builder, Var, Vars, program_shape};
use crate::constant::Constant;
use crate::kernel::{Call, Kernel, are_blocks, fits};
use crate::ops;
use crate::opset::Target;
use crate::package::Package;
use crate::proto::mil::{Block, DataType, Function, NamedValueType, Program, ValueType};
use crate::proto::model::{
    ArrayDataType, ArrayFeatureType, FeatureDescription, FeatureKind, FeatureType, Model,
    ModelDescription, ModelType,
};
use crate::weights::BlobError;

/// Writes ML Programs for one target.
pub struct Emitter {
    target: Target,
    kernels: KernelTable<Kernel>,
}

/// A program, and what its features stand for.
#[derive(Clone, PartialEq, Debug)]
pub struct Emitted {
    /// The program in its package.
    pub package: Package,
    /// Its inputs: those of the graph that are no constants.
    pub inputs: Vec<Feature>,
    /// Its outputs in the graph's order.
    pub outputs: Vec<Feature>,
}

/// An input or output of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Feature {
    /// Its name in the program.
    pub name: String,
    /// Which of the graph's inputs, or outputs, it is.
    pub index: usize,
    /// What it is in the graph.
    pub ty: TensorType,
    /// Sizes of the `MLMultiArray`: one dimension of size 1 for a tensor of rank 0.
    pub shape: Shape,
    /// Elements of the `MLMultiArray`. `bool` and `i64` are `Int32` there, 0 and 1 or indices;
    /// `f16` is `Float32` on systems that have no arrays of halves.
    pub elements: ArrayDataType,
    /// Of an input that has indices: they have to be at least 0 and below this. Core ML gives
    /// anything for others, so that who runs the program has to look.
    pub below: Option<usize>,
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
    #[error("{what} of type {ty} cannot be a feature of an ML Program")]
    Feature {
        /// `input` or `output` and its index.
        what: String,
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
        /// What is wrong.
        what: String,
    },
    /// A weight that cannot be stored.
    #[error(transparent)]
    Weights(#[from] BlobError),
}

impl Emitter {
    /// Of programs for `target`.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            kernels: ops::table(),
        }
    }

    /// What programs are written for.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Is there a way to put this into a program? Answered from the table that [`Self::emit`] writes
    /// from. `constant` says which operands are known when the program is compiled; those that it
    /// does not reach are.
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

    /// The program of a graph. `constants` are the inputs that are known, by their index, as memory
    /// holds them; what they lack is an input of the program.
    ///
    /// # Errors
    /// Operations, inputs or outputs that a program cannot have; bytes that are no constant of the
    /// input's type.
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
        };
        for (index, ty) in graph.inputs().iter().enumerate() {
            let var = match constants.get(&index) {
                Some(bytes) => writer.constant(index, ty, bytes)?,
                None => writer.input(index, ty)?,
            };
            writer.values.push(var);
        }
        for (index, node) in graph.nodes().iter().enumerate() {
            let results = self.node(graph, index, node, &mut writer)?;
            writer.values.extend(results);
        }
        let outputs = (graph.outputs().iter().enumerate())
            .map(|(index, &value)| writer.output(index, graph.ty(value), value))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(self.finish(writer, outputs))
    }

    fn node(
        &self,
        graph: &Graph,
        index: usize,
        node: &Node,
        writer: &mut Writer,
    ) -> Result<Vars, EmitError> {
        let operands: Vec<Var> = (node.inputs.iter())
            .map(|v| writer.values[v.index()].clone())
            .collect();
        let constant: Vec<bool> = operands.iter().map(|var| var.is_constant).collect();
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
        if let Some(dim) = indexed_dimension(&node.op) {
            let size = operands[0].shape[dim];
            writer.bound(&operands[1], size).map_err(|e| match e {
                BoundError::Computed => unsupported(),
                BoundError::Outside(input, index) => EmitError::Constant {
                    input,
                    ty: graph.inputs()[input].to_string(),
                    what: format!("index {index} is outside of 0..{size}"),
                },
            })?;
        }
        let results = (kernel.emit)(&mut writer.builder, &node.op, &operands);
        let only_moves = node.op.def().role() == Role::View;
        let origin = operands
            .first()
            .and_then(|x| x.origin.filter(|_| only_moves));
        let shaped = results.iter().zip(&node.outputs);
        Ok(shaped
            .map(|(var, ty)| Var {
                origin,
                ..writer.builder.reshape(var, &program_shape(ty))
            })
            .collect())
    }

    fn finish(&self, writer: Writer, outputs: Vec<Feature>) -> Emitted {
        let opset = self.target.opset;
        let (operations, weights) = writer.builder.finish();
        let block = Block {
            inputs: Vec::new(),
            outputs: outputs.iter().map(|output| output.name.clone()).collect(),
            operations,
        };
        let function = Function {
            inputs: writer.inputs.iter().map(Feature::parameter).collect(),
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
                output: outputs.iter().map(Feature::description).collect(),
                state: Vec::new(),
            }),
            model_type: Some(ModelType::MlProgram(program)),
        };
        Emitted {
            package: Package { model, weights },
            inputs: writer.inputs,
            outputs,
        }
    }
}

/// The dimension that the second operand's elements are indices of.
fn indexed_dimension(op: &Op) -> Option<usize> {
    match op {
        Op::Gather(op) => Some(op.dim),
        Op::IndexSelect(op) => Some(op.dim),
        Op::Embedding(_) => Some(0),
        _ => None,
    }
}

/// A program that is being written.
struct Writer {
    builder: Builder,
    /// The graph's values in the program.
    values: Vec<Var>,
    inputs: Vec<Feature>,
    /// Of constant inputs of integers, the smallest and the largest one.
    indices: BTreeMap<usize, (i32, i32)>,
}

/// Why indices may not be used.
enum BoundError {
    /// Nobody can look at them before the program runs.
    Computed,
    /// This constant has this one, which is outside.
    Outside(usize, i32),
}

impl Writer {
    fn feature(
        &self,
        what: &str,
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
            what: format!("{what} {index}"),
            ty: ty.to_string(),
        })?;
        Ok(Feature {
            name: format!("{name}{index}"),
            index,
            ty: ty.clone(),
            shape: program_shape(ty),
            elements,
            below: None,
        })
    }

    fn input(&mut self, index: usize, ty: &TensorType) -> Result<Var, EmitError> {
        let feature = self.feature("input", "x", index, ty)?;
        let var = Var {
            name: feature.name.clone(),
            data_type: feature.data_type(),
            shape: feature.shape.clone(),
            is_constant: false,
            origin: Some(index),
        };
        self.inputs.push(feature);
        let inside = self.builder.data_type(ty.dtype);
        Ok(inside.map_or(var.clone(), |inside| self.builder.cast(&var, inside)))
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
            let groups = groups.ok_or_else(|| wrong("no type of an ML Program"))?;
            return Ok(self.builder.try_groups(&groups, &shape)?);
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
        if let Some(range) = constant.range() {
            self.indices.insert(input, range);
        }
        let var = self.builder.try_constant(&constant)?;
        let origin = Some(input);
        Ok(Var { origin, ..var })
    }

    /// Sees to it that the elements of `index` are below `size`.
    fn bound(&mut self, index: &Var, size: usize) -> Result<(), BoundError> {
        let origin = index.origin.ok_or(BoundError::Computed)?;
        if let Some(&(least, most)) = self.indices.get(&origin) {
            let inside = |&index: &i32| usize::try_from(index).is_ok_and(|i| i < size);
            let outside = [least, most].into_iter().find(|index| !inside(index));
            return outside.map_or(Ok(()), |index| Err(BoundError::Outside(origin, index)));
        }
        let feature = self.inputs.iter_mut().find(|f| f.index == origin);
        let feature = feature.ok_or(BoundError::Computed)?;
        feature.below = Some(feature.below.map_or(size, |below| below.min(size)));
        Ok(())
    }

    /// Makes `value` an output under a name of its own.
    fn output(
        &mut self,
        index: usize,
        ty: &TensorType,
        value: ValueId,
    ) -> Result<Feature, EmitError> {
        let feature = self.feature("output", "y", index, ty)?;
        let value = self.values[value.index()].clone();
        let data_type = feature.data_type();
        let value = self.builder.cast(&value, data_type);
        let name = feature.name.clone();
        let args = [("x", (&value).into())];
        self.builder
            .named_op("identity", name, &args, data_type, &feature.shape);
        Ok(feature)
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

    fn description(&self) -> FeatureDescription {
        let array = ArrayFeatureType {
            shape: self.shape.iter().map(|&size| size as i64).collect(),
            data_type: self.elements.into(),
        };
        FeatureDescription {
            name: self.name.clone(),
            r#type: Some(FeatureType {
                kind: Some(FeatureKind::MultiArray(array)),
                is_optional: false,
            }),
        }
    }
}
