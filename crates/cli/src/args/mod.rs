//! Options that several commands share: syntax only. [`changes`](crate::changes),
//! [`devices`](crate::devices), [`model`](crate::model) and [`settings`](crate::settings) define
//! their meaning.

mod amount;
mod backend;
mod chat;
mod encoder;
mod list;
mod model;
mod route;
mod sampler;
mod sampling;
mod shared;
mod speculation;

pub(crate) use amount::ByteCount;
pub(crate) use backend::{BackendArg, Hybrid};
pub(crate) use chat::ChatArgs;
pub(crate) use encoder::{EncoderArgs, PoolingArg};
pub(crate) use list::{Row, Scaled, TensorDevice, Whole};
pub(crate) use model::{
    AdapterArgs, ChangeArgs, FileArgs, KeyArgs, ModelArgs, RopeArgs, RopeScalingArg,
};
pub(crate) use route::{RouteArg, operation};
pub(crate) use sampler::SamplerArgs;
pub(crate) use sampling::{FormArgs, SamplingArgs};
pub(crate) use shared::{
    CacheType, ContextArgs, CoreMlArgs, DeviceArgs, DocumentArgs, DocumentFormat, Format, GpuArgs,
    InjectArgs, LengthArgs, TextArgs, ThreadArgs,
};
pub(crate) use speculation::{SpecType, SpeculationArgs};
