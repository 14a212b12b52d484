//! Operations of an ML Program, appended one by one.

use std::collections::{BTreeMap, HashMap};

use prost::Message;
use rustorch_ir::{DType, Layout, Shape, TensorType};
use smallvec::SmallVec;

use crate::blocks::{Codes, GROUPS_SINCE, Groups};
use crate::constant::Constant;
use crate::opset::Target;
use crate::proto::mil::{
    Argument, Binding, BindingKind, DataType, NamedValueType, Operation, Value, ValueType,
};
use crate::weights::{BlobError, WeightsWriter};

/// A value of the program.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Var {
    pub(crate) name: String,
    pub(crate) data_type: DataType,
    pub(crate) shape: Shape,
    /// Whether it is known when the program is compiled.
    pub(crate) is_constant: bool,
    /// Whether it is a state, which is to be read and written, and no tensor.
    pub(crate) is_state: bool,
    /// The graph input that all its elements are elements of.
    pub(crate) origin: Option<Origin>,
}

/// A graph input, or a view of it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Origin {
    pub(crate) input: usize,
    pub(crate) layout: Layout,
}

impl Origin {
    /// A whole input.
    pub(crate) fn whole(input: usize, shape: &Shape) -> Self {
        let layout = Layout::contiguous(shape);
        Self { input, layout }
    }
}

/// Results of an operation: nearly always one.
pub(crate) type Vars = SmallVec<[Var; 1]>;

/// Binding of a parameter.
pub(crate) enum Arg<'a> {
    Var(&'a Var),
    List(&'a [Var]),
    Constant(Constant),
    /// A value in the operation itself, as operations that make constants have theirs.
    Value(Value),
}

impl<'a> From<&'a Var> for Arg<'a> {
    fn from(var: &'a Var) -> Self {
        Self::Var(var)
    }
}

impl From<Constant> for Arg<'_> {
    fn from(constant: Constant) -> Self {
        Self::Constant(constant)
    }
}

/// The body of a program that is being written.
pub(crate) struct Builder {
    /// Target of the program.
    pub(crate) target: Target,
    operations: Vec<Operation>,
    weights: WeightsWriter,
    /// Constants that are there already, but weights.
    constants: HashMap<Vec<u8>, Var>,
    /// Operations that are there already, by their kind and operands.
    known: HashMap<Vec<u8>, Var>,
    /// Number of names given.
    names: usize,
}

impl Builder {
    /// An empty body.
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target,
            operations: Vec::new(),
            weights: WeightsWriter::new(),
            constants: HashMap::new(),
            known: HashMap::new(),
            names: 0,
        }
    }

    /// The operations and the weights.
    pub(crate) fn finish(self) -> (Vec<Operation>, Option<Vec<u8>>) {
        let is_used = !self.weights.is_empty();
        (self.operations, is_used.then(|| self.weights.finish()))
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        format!("{prefix}{}", self.names - 1)
    }

    /// The type that values of `dtype` have in the program; `None` of those that it cannot have.
    /// Indices are 32 bits wide.
    pub(crate) fn data_type(&self, dtype: DType) -> Option<DataType> {
        Some(match dtype {
            DType::F32 => self.target.precision.data_type(),
            DType::F16 => DataType::Float16,
            DType::I32 | DType::I64 => DataType::Int32,
            DType::Bool => DataType::Bool,
            _ => return None,
        })
    }

    /// A constant as a value of the program.
    ///
    /// # Errors
    /// Fails if `weight.bin` cannot hold the constant.
    pub(crate) fn try_constant(&mut self, constant: &Constant) -> Result<Var, BlobError> {
        let value = constant.store(&mut self.weights)?;
        let name = self.name("c");
        let (data_type, shape) = (constant.data_type(), constant.shape());
        let var = self.append("const", name, BTreeMap::new(), data_type, shape);
        if let Some(operation) = self.operations.last_mut() {
            operation.attributes.insert("val".to_owned(), value);
        }
        Ok(Var {
            is_constant: true,
            ..var
        })
    }

    /// Weights in groups along their rows, as floats of the type that the program computes in.
    ///
    /// # Errors
    /// Fails if `weight.bin` cannot hold the weights.
    pub(crate) fn try_groups(&mut self, groups: Groups, shape: &[usize]) -> Result<Var, BlobError> {
        if self.target.opset < GROUPS_SINCE {
            let rows = self.try_rows(groups)?;
            return Ok(self.reshape(&rows, shape));
        }
        let data_type = self.target.precision.data_type();
        let mut scales_shape = shape.to_vec();
        if let Some(row) = scales_shape.last_mut() {
            *row /= groups.len;
        }
        let floats = |x: Vec<f32>| {
            let x = x.into_iter().map(f64::from);
            Constant::floats(x, &scales_shape, data_type)
        };
        let dense;
        let data = match groups.packed_codes() {
            Codes::Numbers(data_type, codes) => {
                let codes = Constant::packed(codes, shape, data_type);
                Arg::Value(codes.store(&mut self.weights)?)
            }
            Codes::Palette {
                data_type,
                indices,
                values,
            } => {
                let indices = Constant::packed(indices, shape, data_type);
                dense = self.try_palette(&indices, values)?;
                Arg::Var(&dense)
            }
        };
        let mut args = vec![("data", data)];
        let offsets = (!groups.offsets.is_empty()).then_some(("offset", groups.offsets));
        for (name, part) in [("scale", groups.scales)].into_iter().chain(offsets) {
            let part = floats(part).store(&mut self.weights)?;
            args.push((name, Arg::Value(part)));
        }
        let inputs = self.inputs(&args);
        let name = self.name("c");
        let kind = "constexpr_blockwise_shift_scale";
        let var = self.append(kind, name, inputs, data_type, shape);
        Ok(Var {
            is_constant: true,
            ..var
        })
    }

    /// Values of places in one list of numbers, as floats of the type that the program computes in.
    fn try_palette(&mut self, indices: &Constant, values: Vec<f64>) -> Result<Var, BlobError> {
        let data_type = self.target.precision.data_type();
        let shape = indices.shape();
        let lut_shape = [&vec![1; shape.len()][..], &[values.len(), 1]].concat();
        let lut = Constant::floats(values, &lut_shape, data_type);
        let args = [
            ("indices", Arg::Value(indices.store(&mut self.weights)?)),
            ("lut", Arg::Value(lut.store(&mut self.weights)?)),
        ];
        let inputs = self.inputs(&args);
        let name = self.name("c");
        Ok(self.append("constexpr_lut_to_dense", name, inputs, data_type, shape))
    }

    /// A matrix with one of the groups in each row. Operations of older sets that make constants have
    /// their parameters as attributes.
    fn try_rows(&mut self, groups: Groups) -> Result<Var, BlobError> {
        let data_type = self.target.precision.data_type();
        let count = groups.scales.len();
        let shape = [count, groups.len];
        let floats = |x: Vec<f32>, data_type| {
            let x = x.into_iter().map(f64::from);
            Constant::floats(x, &[count], data_type)
        };
        let byte_type = groups.byte_type();
        let zero_point = match groups.offsets.is_empty() {
            true => Constant::packed(vec![0], &[], byte_type),
            false => floats(groups.offsets, DataType::Float32),
        };
        let parts = [
            (
                "quantized_data",
                Constant::packed(groups.codes, &shape, byte_type),
            ),
            ("zero_point", zero_point),
            ("scale", floats(groups.scales, data_type)),
            ("axis", Constant::int(0)),
        ];
        let mut attributes = Vec::with_capacity(parts.len());
        for (name, part) in parts {
            attributes.push((name.to_owned(), part.store(&mut self.weights)?));
        }
        let name = self.name("c");
        let kind = "constexpr_affine_dequantize";
        let var = self.append(kind, name, BTreeMap::new(), data_type, &shape);
        if let Some(operation) = self.operations.last_mut() {
            operation.attributes.extend(attributes);
        }
        Ok(var)
    }

    /// A constant of a type that a program can have anywhere. Equal ones are one.
    pub(crate) fn constant(&mut self, constant: &Constant) -> Var {
        let key = constant.identity();
        if let Some(known) = self.constants.get(&key) {
            return known.clone();
        }
        let stored = self.try_constant(constant);
        let var = stored.expect("floats, integers, booleans and texts can all be stored");
        self.constants.insert(key, var.clone());
        var
    }

    /// The integers from 0 on.
    pub(crate) fn range(&mut self, count: usize) -> Var {
        let numbers: Vec<usize> = (0..count).collect();
        self.constant(&Constant::ints(&numbers))
    }

    /// A number of the type that `like` has.
    pub(crate) fn number(&mut self, x: f64, like: &Var) -> Var {
        self.constant(&Constant::number(x, like.data_type))
    }

    fn append(
        &mut self,
        kind: &str,
        name: String,
        inputs: BTreeMap<String, Argument>,
        data_type: DataType,
        shape: &[usize],
    ) -> Var {
        let result = NamedValueType {
            name: name.clone(),
            r#type: Some(ValueType::tensor(data_type, shape)),
        };
        self.push(kind, &name, inputs, vec![result]);
        Var {
            name,
            data_type,
            shape: shape.into(),
            is_constant: false,
            is_state: false,
            origin: None,
        }
    }

    fn push(
        &mut self,
        kind: &str,
        name: &str,
        inputs: BTreeMap<String, Argument>,
        outputs: Vec<NamedValueType>,
    ) {
        let label = Constant::text(name).immediate();
        self.operations.push(Operation {
            r#type: kind.to_owned(),
            inputs,
            outputs,
            blocks: Vec::new(),
            attributes: BTreeMap::from([("name".to_owned(), label)]),
        });
    }

    /// Contents of a state at this place of the program.
    pub(crate) fn read_state(&mut self, state: &Var) -> Var {
        let inputs = self.inputs(&[("input", state.into())]);
        let name = self.name("v");
        self.append("read_state", name, inputs, state.data_type, &state.shape)
    }

    /// Writes `x` into a state of the same type at this place of the program.
    pub(crate) fn write_state(&mut self, state: &Var, x: &Var) {
        let inputs = self.inputs(&[("input", state.into()), ("data", x.into())]);
        let name = self.name("v");
        self.push("write_state", &name, inputs, Vec::new());
    }

    /// An operation with a result of this type. Equal ones are one: all layers of a transformer turn
    /// their queries by the same angles, and mask the same keys.
    pub(crate) fn op(
        &mut self,
        kind: &str,
        args: &[(&str, Arg)],
        data_type: DataType,
        shape: &[usize],
    ) -> Var {
        let inputs = self.inputs(args);
        let key = Operation {
            r#type: kind.to_owned(),
            inputs: inputs.clone(),
            ..Operation::default()
        };
        let key = key.encode_to_vec();
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let name = self.name("v");
        let var = self.append(kind, name, inputs, data_type, shape);
        self.known.insert(key, var.clone());
        var
    }

    /// `var` by another name.
    pub(crate) fn named(&mut self, name: String, var: &Var) -> Var {
        let inputs = self.inputs(&[("x", var.into())]);
        self.append("identity", name, inputs, var.data_type, &var.shape)
    }

    /// Bindings of parameters. Constants among them are appended.
    fn inputs(&mut self, args: &[(&str, Arg)]) -> BTreeMap<String, Argument> {
        let by_name = |var: &Var| Binding {
            binding: Some(BindingKind::Name(var.name.clone())),
        };
        let mut inputs = BTreeMap::new();
        for (parameter, arg) in args {
            let arguments = match arg {
                Arg::Var(var) => vec![by_name(var)],
                Arg::List(vars) => vars.iter().map(by_name).collect(),
                Arg::Constant(constant) => vec![by_name(&self.constant(constant))],
                Arg::Value(value) => vec![Binding {
                    binding: Some(BindingKind::Value(value.clone())),
                }],
            };
            inputs.insert((*parameter).to_owned(), Argument { arguments });
        }
        inputs
    }

    /// A function of each element of `x`.
    pub(crate) fn unary(&mut self, kind: &str, x: &Var) -> Var {
        self.op(kind, &[("x", x.into())], x.data_type, &x.shape)
    }

    /// A function of two operands whose shapes broadcast.
    pub(crate) fn binary(&mut self, kind: &str, x: &Var, y: &Var) -> Var {
        let shape = broadcast(x, y);
        self.op(
            kind,
            &[("x", x.into()), ("y", y.into())],
            x.data_type,
            &shape,
        )
    }

    /// A comparison of two operands whose shapes broadcast.
    pub(crate) fn compare(&mut self, kind: &str, x: &Var, y: &Var) -> Var {
        let shape = broadcast(x, y);
        self.op(
            kind,
            &[("x", x.into()), ("y", y.into())],
            DataType::Bool,
            &shape,
        )
    }

    /// `a` where `condition`, else `b`; all of one shape.
    pub(crate) fn select(&mut self, condition: &Var, a: &Var, b: &Var) -> Var {
        let args = [("cond", condition.into()), ("a", a.into()), ("b", b.into())];
        self.op("select", &args, a.data_type, &condition.shape)
    }

    /// `x` in another type, if it is of another.
    pub(crate) fn cast(&mut self, x: &Var, data_type: DataType) -> Var {
        if x.data_type == data_type {
            return x.clone();
        }
        let dtype = Constant::text(cast_name(data_type));
        let args = [("x", x.into()), ("dtype", dtype.into())];
        self.op("cast", &args, data_type, &x.shape)
    }

    /// `x` in another shape, if it is of another.
    pub(crate) fn reshape(&mut self, x: &Var, shape: &[usize]) -> Var {
        if *x.shape == *shape {
            return x.clone();
        }
        let args = [("x", x.into()), ("shape", Constant::ints(shape).into())];
        self.op("reshape", &args, x.data_type, shape)
    }

    /// `x` broadcast to a shape, if it is of another.
    pub(crate) fn expand(&mut self, x: &Var, shape: &[usize]) -> Var {
        let lead = shape.len() - x.shape.len();
        let aligned: Shape = (std::iter::repeat_n(1, lead))
            .chain(x.shape.iter().copied())
            .collect();
        let x = self.reshape(x, &aligned);
        let repeats: Vec<usize> = (shape.iter().zip(&*x.shape))
            .map(|(&to, &from)| to / from)
            .collect();
        if repeats.iter().all(|&n| n == 1) {
            return x;
        }
        let args = [
            ("x", (&x).into()),
            ("reps", Constant::ints(&repeats).into()),
        ];
        self.op("tile", &args, x.data_type, shape)
    }

    /// The largest, sum or another reduction along dimensions, which stay with size 1.
    pub(crate) fn reduce(&mut self, kind: &str, x: &Var, dims: &[usize]) -> Var {
        let size = |(d, &size)| if dims.contains(&d) { 1 } else { size };
        let shape: Shape = x.shape.iter().enumerate().map(size).collect();
        let args = [
            ("x", x.into()),
            ("axes", Constant::ints(dims).into()),
            ("keep_dims", Constant::flag(true).into()),
        ];
        self.op(kind, &args, x.data_type, &shape)
    }
}

/// The shape that a tensor has in a program: at least one dimension, as inputs and outputs have.
pub(crate) fn program_shape(ty: &TensorType) -> Shape {
    match ty.shape.is_empty() {
        true => Shape::from([1]),
        false => ty.shape.clone(),
    }
}

fn broadcast(x: &Var, y: &Var) -> Shape {
    let shape = rustorch_ir::broadcast_shapes("coreml", &x.shape, &y.shape);
    shape.expect("inference has checked that the shapes broadcast")
}

/// Name in `cast` of the types that every system has.
fn cast_name(data_type: DataType) -> &'static str {
    match data_type {
        DataType::Float16 => "fp16",
        DataType::Int32 => "int32",
        DataType::Bool => "bool",
        _ => "fp32",
    }
}
