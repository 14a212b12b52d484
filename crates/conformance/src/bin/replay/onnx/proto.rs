//! What of ONNX's files is read, by the field numbers of
//! [onnx.proto](https://github.com/onnx/onnx/blob/main/onnx/onnx.proto).

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<Graph>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<Node>,
    #[prost(message, repeated, tag = "5")]
    pub(super) initializers: Vec<TensorData>,
    #[prost(message, repeated, tag = "11")]
    pub(super) inputs: Vec<ValueInfo>,
    #[prost(message, repeated, tag = "12")]
    pub(super) outputs: Vec<ValueInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(super) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) outputs: Vec<String>,
    #[prost(string, tag = "4")]
    pub(super) op: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attributes: Vec<Attribute>,
    #[prost(string, tag = "7")]
    pub(super) domain: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(float, tag = "2")]
    pub(super) float: f32,
    #[prost(int64, tag = "3")]
    pub(super) int: i64,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) text: Vec<u8>,
    #[prost(message, optional, tag = "5")]
    pub(super) tensor: Option<TensorData>,
    #[prost(message, optional, tag = "6")]
    pub(super) graph: Option<Graph>,
    #[prost(float, repeated, tag = "7")]
    pub(super) floats: Vec<f32>,
    #[prost(int64, repeated, tag = "8")]
    pub(super) ints: Vec<i64>,
    /// Which of them it is.
    #[prost(int32, tag = "20")]
    pub(super) kind: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorData {
    #[prost(int64, repeated, tag = "1")]
    pub(super) dims: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(float, repeated, tag = "4")]
    pub(super) floats: Vec<f32>,
    #[prost(int32, repeated, tag = "5")]
    pub(super) ints: Vec<i32>,
    #[prost(int64, repeated, tag = "7")]
    pub(super) longs: Vec<i64>,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    #[prost(bytes = "vec", tag = "9")]
    pub(super) raw: Vec<u8>,
    #[prost(double, repeated, tag = "10")]
    pub(super) doubles: Vec<f64>,
    #[prost(uint64, repeated, tag = "11")]
    pub(super) unsigned: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueInfo {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) ty: Option<Type>,
}

/// It is one of these, or of what is not read.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Type {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<Unread>,
    #[prost(message, optional, tag = "4")]
    pub(super) sequence: Option<Unread>,
    #[prost(message, optional, tag = "9")]
    pub(super) optional: Option<Unread>,
}

/// What types say of elements and shapes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Unread {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SequenceData {
    #[prost(message, repeated, tag = "3")]
    pub(super) tensors: Vec<TensorData>,
}

/// One of these, or nothing.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OptionalData {
    #[prost(message, optional, tag = "3")]
    pub(super) tensor: Option<TensorData>,
    #[prost(message, optional, tag = "5")]
    pub(super) sequence: Option<SequenceData>,
}
