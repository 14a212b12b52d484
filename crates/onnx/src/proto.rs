//! The parts of ONNX's files that are read, by the field numbers of
//! [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).

use bytes::Bytes;
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Model {
    #[prost(message, optional, tag = "7")]
    pub(crate) graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) opsets: Vec<Opset>,
}

/// The version of a domain's operators.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Opset {
    #[prost(string, tag = "1")]
    pub(crate) domain: String,
    #[prost(int64, tag = "2")]
    pub(crate) version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(crate) nodes: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) initializers: Vec<TensorData>,
    #[prost(message, repeated, tag = "11")]
    pub(crate) inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(crate) outputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "15")]
    pub(crate) sparse: Vec<Unread>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(crate) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(crate) outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) name: String,
    #[prost(string, tag = "4")]
    pub(crate) op: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) attributes: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub(crate) domain: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Attribute {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(float, tag = "2")]
    pub(crate) float: f32,
    #[prost(int64, tag = "3")]
    pub(crate) int: i64,
    #[prost(bytes = "bytes", tag = "4")]
    pub(crate) text: Bytes,
    #[prost(message, optional, tag = "5")]
    pub(crate) tensor: Option<TensorData>,
    #[prost(message, optional, tag = "6")]
    pub(crate) graph: Option<Graph>,
    #[prost(float, repeated, tag = "7")]
    pub(crate) floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    pub(crate) ints: Vec<i64>,
    #[prost(bytes = "bytes", repeated, tag = "9")]
    pub(crate) texts: Vec<Bytes>,
    /// The number of the field that counts.
    #[prost(int32, tag = "20")]
    pub(crate) kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorData {
    #[prost(int64, repeated, tag = "1")]
    pub(crate) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(crate) data_type: i32,
    #[prost(float, repeated, tag = "4")]
    pub(crate) floats: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(crate) ints: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub(crate) longs: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(crate) name: String,
    #[prost(bytes = "bytes", tag = "9")]
    pub(crate) raw: Bytes,
    #[prost(double, repeated, tag = "10")]
    pub(crate) doubles: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(crate) unsigned: Vec<u64>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) external: Vec<Entry>,
    /// 1 if the elements are in another file.
    #[prost(int32, tag = "14")]
    pub(crate) location: i32,
}

/// A line of a tensor's description of another file.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Entry {
    #[prost(string, tag = "1")]
    pub(crate) key: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) ty: Option<Type>,
}

/// One of these, or another that is not read.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Type {
    #[prost(message, optional, tag = "1")]
    pub(crate) tensor: Option<TensorType>,
    #[prost(message, optional, tag = "4")]
    pub(crate) sequence: Option<Unread>,
    #[prost(message, optional, tag = "9")]
    pub(crate) optional: Option<Unread>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(crate) elements: i32,
    #[prost(message, optional, tag = "2")]
    pub(crate) shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Shape {
    #[prost(message, repeated, tag = "1")]
    pub(crate) dims: Vec<Dim>,
}

/// A size, or a name for one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Dim {
    #[prost(int64, optional, tag = "1")]
    pub(crate) size: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub(crate) name: Option<String>,
}

/// A message whose fields do not matter here.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Unread {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SequenceData {
    #[prost(message, repeated, tag = "3")]
    pub(crate) tensors: Vec<TensorData>,
}

/// One of these, or none.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct OptionalData {
    #[prost(message, optional, tag = "3")]
    pub(crate) tensor: Option<TensorData>,
    #[prost(message, optional, tag = "5")]
    pub(crate) sequence: Option<SequenceData>,
}
