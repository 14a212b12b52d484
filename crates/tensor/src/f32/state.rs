//! Where a tensor's elements are.

use std::fmt;

use rustorch_runtime::{DeviceType, Storage};

/// Where a tensor's elements can be used as they are now, without a copy and without waiting
/// for what a device wrote.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceState {
    /// Nowhere yet: they are computed when they are asked for.
    Pending,
    /// On the host alone.
    Cpu,
    /// On a Metal device alone.
    Metal(usize),
    /// On a Core ML device alone.
    CoreML(usize),
    /// On a CUDA device alone.
    Cuda(usize),
    /// On an OpenCL device alone.
    OpenCL(usize),
    /// On a device of somebody else's backend alone.
    Other(&'static str),
    /// In several places, which all have the same.
    Synchronized,
    /// Nowhere any more: the device that had them was lost.
    Lost,
}

impl DeviceState {
    /// Where the bytes of a storage are.
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
            Self::Other(name) => DeviceType::Other(name).fmt(f),
            Self::Synchronized => f.write_str("synchronized"),
            Self::Lost => f.write_str("lost"),
        }
    }
}
