//! The location of a tensor's elements.

use std::fmt;

use rustorch_runtime::{DeviceType, Storage};

/// State of a tensor's elements on a device: whether they are usable now, without a copy or a wait.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceState {
    /// Nowhere yet: they are computed when they are needed.
    Pending,
    /// Only the host has the elements.
    Cpu,
    /// Only a Metal device has them.
    Metal(usize),
    /// Only a Core ML device has them.
    CoreML(usize),
    /// Only a CUDA device has them.
    Cuda(usize),
    /// Only an OpenCL device has them.
    OpenCL(usize),
    /// Only a WebGPU device has them.
    WebGpu(usize),
    /// Only a device of another backend has them.
    Other(&'static str),
    /// Several places have the same elements.
    Synchronized,
    /// Lost: the device that had them is gone.
    Lost,
}

impl DeviceState {
    /// The place of a storage's bytes.
    pub(crate) fn of(storage: &Storage) -> Self {
        let mut places = storage.valid_on().into_iter().map(Self::only_on);
        match places.next() {
            None => Self::Lost,
            Some(first) if places.all(|place| place == first) => first,
            Some(_) => Self::Synchronized,
        }
    }

    fn only_on(device: DeviceType) -> Self {
        match device {
            DeviceType::Cpu | DeviceType::Reference | DeviceType::Auto => Self::Cpu,
            DeviceType::Metal(id) => Self::Metal(id),
            DeviceType::CoreML(id) | DeviceType::CoreMLHybrid { coreml_id: id, .. } => {
                Self::CoreML(id)
            }
            DeviceType::Cuda(id) => Self::Cuda(id),
            DeviceType::OpenCL(id) => Self::OpenCL(id),
            DeviceType::WebGpu(id) => Self::WebGpu(id),
            DeviceType::Other(name) => Self::Other(name),
        }
    }
}

impl fmt::Display for DeviceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("not computed yet"),
            Self::Cpu => DeviceType::Cpu.fmt(f),
            Self::Metal(id) => DeviceType::Metal(*id).fmt(f),
            Self::CoreML(id) => DeviceType::CoreML(*id).fmt(f),
            Self::Cuda(id) => DeviceType::Cuda(*id).fmt(f),
            Self::OpenCL(id) => DeviceType::OpenCL(*id).fmt(f),
            Self::WebGpu(id) => DeviceType::WebGpu(*id).fmt(f),
            Self::Other(name) => DeviceType::Other(name).fmt(f),
            Self::Synchronized => f.write_str("synchronized"),
            Self::Lost => f.write_str("lost"),
        }
    }
}
