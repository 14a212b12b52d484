//! `MIL.proto`: programs in the Model Intermediate Language.

use std::collections::BTreeMap;

/// A program: functions by their names.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Program {
    /// Version of the language: 1.
    #[prost(int64, tag = "1")]
    pub version: i64,
    /// The functions; a prediction calls `main`.
    #[prost(btree_map = "string, message", tag = "2")]
    pub functions: BTreeMap<String, Function>,
}

/// A function.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Function {
    /// Its inputs in order.
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<NamedValueType>,
    /// The set of operations that its active block is written in.
    #[prost(string, tag = "2")]
    pub opset: String,
    /// Its bodies, by the set of operations that each is written in.
    #[prost(btree_map = "string, message", tag = "3")]
    pub block_specializations: BTreeMap<String, Block>,
}

/// Operations in order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Block {
    /// Its inputs; none for the body of a function.
    #[prost(message, repeated, tag = "1")]
    pub inputs: Vec<NamedValueType>,
    /// Names of the values that it gives.
    #[prost(string, repeated, tag = "2")]
    pub outputs: Vec<String>,
    /// The operations, each behind those whose values it uses.
    #[prost(message, repeated, tag = "3")]
    pub operations: Vec<Operation>,
}

/// An operation.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Operation {
    /// Name of the operation's type.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Its operands by the names of its parameters.
    #[prost(btree_map = "string, message", tag = "2")]
    pub inputs: BTreeMap<String, Argument>,
    /// Its results.
    #[prost(message, repeated, tag = "3")]
    pub outputs: Vec<NamedValueType>,
    /// Blocks of control flow.
    #[prost(message, repeated, tag = "4")]
    pub blocks: Vec<Block>,
    /// `name`; of a constant `val`, too.
    #[prost(btree_map = "string, message", tag = "5")]
    pub attributes: BTreeMap<String, Value>,
}

/// Binding of a parameter: several values if it takes a list.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Argument {
    /// The values.
    #[prost(message, repeated, tag = "1")]
    pub arguments: Vec<Binding>,
}

/// A value of an [`Argument`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Binding {
    /// The value, or its name.
    #[prost(oneof = "BindingKind", tags = "1, 2")]
    pub binding: Option<BindingKind>,
}

/// Binding of a value.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum BindingKind {
    /// By the value's name.
    #[prost(string, tag = "1")]
    Name(String),
    /// A value, as it is.
    #[prost(message, tag = "2")]
    Value(Value),
}

/// A value's name and type.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NamedValueType {
    /// Its name.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<ValueType>,
}

/// Type of a value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueType {
    /// The kind of value.
    #[prost(oneof = "ValueKind", tags = "1, 5")]
    pub kind: Option<ValueKind>,
}

/// The kinds of value in use here.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ValueKind {
    /// A tensor.
    #[prost(message, tag = "1")]
    Tensor(TensorType),
    /// A state.
    #[prost(message, boxed, tag = "5")]
    State(Box<StateType>),
}

/// Type of a tensor.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TensorType {
    /// Type of the elements.
    #[prost(enumeration = "DataType", tag = "1")]
    pub data_type: i32,
    /// Number of dimensions.
    #[prost(int64, tag = "2")]
    pub rank: i64,
    /// Their sizes.
    #[prost(message, repeated, tag = "3")]
    pub dimensions: Vec<Dimension>,
}

/// Type of a state.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StateType {
    /// Type of the contents.
    #[prost(message, optional, boxed, tag = "1")]
    pub wrapped_type: Option<Box<ValueType>>,
}

/// Size of a dimension.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Dimension {
    /// The size, where it is known.
    #[prost(oneof = "DimensionKind", tags = "1, 2")]
    pub dimension: Option<DimensionKind>,
}

/// Whether a size is known.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum DimensionKind {
    /// The size is known.
    #[prost(message, tag = "1")]
    Constant(ConstantDimension),
    /// The size is unknown.
    #[prost(message, tag = "2")]
    Unknown(UnknownDimension),
}

/// A size.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ConstantDimension {
    /// The size.
    #[prost(uint64, tag = "1")]
    pub size: u64,
}

/// A size that is known when the program runs.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct UnknownDimension {
    /// Whether it stands for any number of dimensions.
    #[prost(bool, tag = "1")]
    pub variadic: bool,
}

/// A constant value.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Value {
    /// Its type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<ValueType>,
    /// Its elements, or where they are.
    #[prost(oneof = "ValueSource", tags = "3, 5")]
    pub value: Option<ValueSource>,
}

/// Place of a [`Value`]'s elements.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ValueSource {
    /// The elements themselves.
    #[prost(message, tag = "3")]
    Immediate(ImmediateValue),
    /// In a file of the package.
    #[prost(message, tag = "5")]
    BlobFile(BlobFileValue),
}

/// Elements in the model itself.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ImmediateValue {
    /// The elements.
    #[prost(oneof = "ImmediateKind", tags = "1")]
    pub value: Option<ImmediateKind>,
}

/// The kinds of immediate value in use here.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ImmediateKind {
    /// A tensor.
    #[prost(message, tag = "1")]
    Tensor(TensorValue),
}

/// Elements in a file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BlobFileValue {
    /// The file: `@model_path` stands for the folder of the model.
    #[prost(string, tag = "1")]
    pub file_name: String,
    /// Offset of the elements' metadata in it.
    #[prost(uint64, tag = "2")]
    pub offset: u64,
}

/// Elements of a tensor in row-major order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TensorValue {
    /// The elements.
    #[prost(oneof = "TensorElements", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub value: Option<TensorElements>,
}

/// Elements by their kind.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum TensorElements {
    /// Elements of `FLOAT32`.
    #[prost(message, tag = "1")]
    Floats(RepeatedFloats),
    /// Elements of `INT32`.
    #[prost(message, tag = "2")]
    Ints(RepeatedInts),
    /// Elements of `BOOL`.
    #[prost(message, tag = "3")]
    Bools(RepeatedBools),
    /// Elements of `STRING`.
    #[prost(message, tag = "4")]
    Strings(RepeatedStrings),
    /// Elements of `INT64`.
    #[prost(message, tag = "5")]
    LongInts(RepeatedLongInts),
    /// Elements of `FLOAT64`.
    #[prost(message, tag = "6")]
    Doubles(RepeatedDoubles),
    /// Elements of narrower types, little-endian.
    #[prost(message, tag = "7")]
    Bytes(RepeatedBytes),
}

/// Numbers in single precision.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RepeatedFloats {
    /// The numbers.
    #[prost(float, repeated, tag = "1")]
    pub values: Vec<f32>,
}

/// Numbers in double precision.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RepeatedDoubles {
    /// The numbers.
    #[prost(double, repeated, tag = "1")]
    pub values: Vec<f64>,
}

/// Integers of 32 bits.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RepeatedInts {
    /// The numbers.
    #[prost(int32, repeated, tag = "1")]
    pub values: Vec<i32>,
}

/// Integers of 64 bits.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RepeatedLongInts {
    /// The numbers.
    #[prost(int64, repeated, tag = "1")]
    pub values: Vec<i64>,
}

/// Booleans.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RepeatedBools {
    /// The booleans.
    #[prost(bool, repeated, tag = "1")]
    pub values: Vec<bool>,
}

/// Texts.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RepeatedStrings {
    /// The texts.
    #[prost(string, repeated, tag = "1")]
    pub values: Vec<String>,
}

/// Bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub struct RepeatedBytes {
    /// The bytes.
    #[prost(bytes = "vec", tag = "1")]
    pub values: Vec<u8>,
}

/// Element types of MIL.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum DataType {
    /// None.
    Unused = 0,
    /// A boolean.
    Bool = 1,
    /// A text.
    String = 2,
    /// Half precision.
    Float16 = 10,
    /// Single precision.
    Float32 = 11,
    /// Double precision.
    Float64 = 12,
    /// bfloat16: the upper half of single precision.
    Bfloat16 = 13,
    /// 8-bit signed integer.
    Int8 = 21,
    /// 16-bit signed integer.
    Int16 = 22,
    /// 32-bit signed integer.
    Int32 = 23,
    /// 64-bit signed integer.
    Int64 = 24,
    /// 4-bit signed integer.
    Int4 = 25,
    /// 8-bit unsigned integer.
    Uint8 = 31,
    /// 16-bit unsigned integer.
    Uint16 = 32,
    /// 32-bit unsigned integer.
    Uint32 = 33,
    /// 64-bit unsigned integer.
    Uint64 = 34,
    /// 4-bit unsigned integer.
    Uint4 = 35,
    /// 2-bit unsigned integer.
    Uint2 = 36,
    /// 1-bit unsigned integer.
    Uint1 = 37,
    /// 6-bit unsigned integer.
    Uint6 = 38,
    /// 3-bit unsigned integer.
    Uint3 = 39,
}

impl DataType {
    /// Bits of an element in memory or in a file; `None` for types without a fixed size.
    pub fn bits(self) -> Option<usize> {
        Some(match self {
            Self::Unused | Self::String => return None,
            Self::Uint1 => 1,
            Self::Uint2 => 2,
            Self::Uint3 => 3,
            Self::Int4 | Self::Uint4 => 4,
            Self::Uint6 => 6,
            Self::Bool | Self::Int8 | Self::Uint8 => 8,
            Self::Float16 | Self::Bfloat16 | Self::Int16 | Self::Uint16 => 16,
            Self::Float32 | Self::Int32 | Self::Uint32 => 32,
            Self::Float64 | Self::Int64 | Self::Uint64 => 64,
        })
    }

    /// Floating point of the kinds that programs compute in?
    pub fn is_float(self) -> bool {
        matches!(self, Self::Float16 | Self::Float32)
    }
}

impl ValueType {
    /// The type of a tensor.
    pub fn tensor(data_type: DataType, shape: &[usize]) -> Self {
        let dimension = |&size: &usize| {
            let size = ConstantDimension { size: size as u64 };
            Dimension {
                dimension: Some(DimensionKind::Constant(size)),
            }
        };
        let tensor = TensorType {
            data_type: data_type.into(),
            rank: shape.len() as i64,
            dimensions: shape.iter().map(dimension).collect(),
        };
        Self {
            kind: Some(ValueKind::Tensor(tensor)),
        }
    }

    /// The type of a state that holds a tensor.
    pub fn state(data_type: DataType, shape: &[usize]) -> Self {
        let wrapped_type = Some(Box::new(Self::tensor(data_type, shape)));
        Self {
            kind: Some(ValueKind::State(Box::new(StateType { wrapped_type }))),
        }
    }

    /// The type of the tensor that a state holds.
    pub fn as_state(&self) -> Option<&Self> {
        match &self.kind {
            Some(ValueKind::State(state)) => state.wrapped_type.as_deref(),
            _ => None,
        }
    }

    /// Element type and sizes of a tensor with known sizes, as many as its rank.
    pub fn as_tensor(&self) -> Option<(DataType, Vec<usize>)> {
        let Some(ValueKind::Tensor(tensor)) = &self.kind else {
            return None;
        };
        let size = |d: &Dimension| match d.dimension? {
            DimensionKind::Constant(size) => usize::try_from(size.size).ok(),
            DimensionKind::Unknown(_) => None,
        };
        let sizes: Vec<usize> = tensor.dimensions.iter().map(size).collect::<Option<_>>()?;
        let agrees = usize::try_from(tensor.rank) == Ok(sizes.len());
        agrees.then_some((DataType::try_from(tensor.data_type).ok()?, sizes))
    }
}
