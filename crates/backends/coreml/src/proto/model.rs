//! `Model.proto` and `FeatureTypes.proto`: a model and its description of inputs and outputs.

use super::mil::Program;

/// A model file.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Model {
    /// Version of the format, which a system has to know to load it.
    #[prost(int32, tag = "1")]
    pub specification_version: i32,
    /// Inputs and outputs.
    #[prost(message, optional, tag = "2")]
    pub description: Option<ModelDescription>,
    /// Program of the model.
    #[prost(oneof = "ModelType", tags = "502")]
    pub model_type: Option<ModelType>,
}

/// The kinds of model; only one matters here.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum ModelType {
    /// An ML Program.
    #[prost(message, tag = "502")]
    MlProgram(Program),
}

/// Description of a model's features.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ModelDescription {
    /// Inputs in order.
    #[prost(message, repeated, tag = "1")]
    pub input: Vec<FeatureDescription>,
    /// Outputs in order.
    #[prost(message, repeated, tag = "10")]
    pub output: Vec<FeatureDescription>,
    /// States: buffers that stay from one prediction to the next.
    #[prost(message, repeated, tag = "13")]
    pub state: Vec<FeatureDescription>,
}

/// A named feature.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FeatureDescription {
    /// Its name, the same as in the program.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Its type.
    #[prost(message, optional, tag = "3")]
    pub r#type: Option<FeatureType>,
}

/// Type of a feature.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FeatureType {
    /// The kind of feature.
    #[prost(oneof = "FeatureKind", tags = "5, 8")]
    pub kind: Option<FeatureKind>,
    /// Whether it may be left out.
    #[prost(bool, tag = "1000")]
    pub is_optional: bool,
}

/// The kinds of feature that tensors have.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum FeatureKind {
    /// An `MLMultiArray`.
    #[prost(message, tag = "5")]
    MultiArray(ArrayFeatureType),
    /// An `MLState`.
    #[prost(message, tag = "8")]
    State(StateFeatureType),
}

/// Type of an `MLMultiArray`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ArrayFeatureType {
    /// Sizes of its dimensions, at least one.
    #[prost(int64, repeated, tag = "1")]
    pub shape: Vec<i64>,
    /// Type of its elements.
    #[prost(enumeration = "ArrayDataType", tag = "2")]
    pub data_type: i32,
}

/// Type of an `MLState`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct StateFeatureType {
    /// Type of the elements.
    #[prost(message, optional, tag = "1")]
    pub array_type: Option<ArrayFeatureType>,
}

/// Elements of an `MLMultiArray`: a kind in the upper half and bits in the lower.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ArrayDataType {
    /// None.
    Invalid = 0,
    /// Half precision.
    Float16 = 0x10010,
    /// Single precision.
    Float32 = 0x10020,
    /// Double precision.
    Double = 0x10040,
    /// 8-bit signed integer.
    Int8 = 0x20008,
    /// 32-bit signed integer.
    Int32 = 0x20020,
}
