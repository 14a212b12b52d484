//! Names of devices.

use std::fmt;
use std::str::FromStr;

/// A graphics processor, by driver and index.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GpuDevice {
    /// NVIDIA, through CUDA.
    Cuda(usize),
    /// Apple, through Metal.
    Metal(usize),
    /// Any device, through OpenCL.
    OpenCL(usize),
    /// Any device, through WebGPU.
    WebGpu(usize),
}

/// A device on which tensors are computed. It prints as text such as `cuda:0` and parses from it;
/// an index of 0 may be omitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DeviceType {
    /// The processor.
    Cpu,
    /// NVIDIA, through CUDA.
    Cuda(usize),
    /// Apple's GPU, through Metal.
    Metal(usize),
    /// Any accelerator, through OpenCL.
    OpenCL(usize),
    /// Any GPU, through WebGPU.
    WebGpu(usize),
    /// Apple's Core ML.
    CoreML(usize),
    /// Core ML, and a GPU for operations that it does not support.
    CoreMLHybrid {
        /// Index of the Core ML device.
        coreml_id: usize,
        /// The GPU; the next one of the platform's chain where there is none.
        fallback_gpu: Option<GpuDevice>,
    },
    /// The slow definition of every operation, in double precision.
    Reference,
    /// A device of a user-defined backend, by its whole name, such as `npu:0`.
    Other(&'static str),
    /// The best device for each operation.
    Auto,
}

impl From<GpuDevice> for DeviceType {
    fn from(gpu: GpuDevice) -> Self {
        match gpu {
            GpuDevice::Cuda(i) => Self::Cuda(i),
            GpuDevice::Metal(i) => Self::Metal(i),
            GpuDevice::OpenCL(i) => Self::OpenCL(i),
            GpuDevice::WebGpu(i) => Self::WebGpu(i),
        }
    }
}

impl fmt::Display for GpuDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        DeviceType::from(*self).fmt(f)
    }
}

impl fmt::Display for DeviceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(i) => write!(f, "cuda:{i}"),
            Self::Metal(i) => write!(f, "metal:{i}"),
            Self::OpenCL(i) => write!(f, "opencl:{i}"),
            Self::WebGpu(i) => write!(f, "webgpu:{i}"),
            Self::CoreML(i) => write!(f, "coreml:{i}"),
            Self::CoreMLHybrid {
                coreml_id,
                fallback_gpu,
            } => {
                write!(f, "coreml-hybrid:{coreml_id}")?;
                fallback_gpu.map_or(Ok(()), |gpu| write!(f, "+{gpu}"))
            }
            Self::Reference => f.write_str("reference"),
            Self::Other(name) => f.write_str(name),
            Self::Auto => f.write_str("auto"),
        }
    }
}

/// A text that names no device.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "unknown device {0:?}: expected auto, cpu, reference, cuda[:N], metal[:N], opencl[:N], \
     webgpu[:N], coreml[:N] or coreml-hybrid[:N][+GPU]"
)]
pub struct UnknownDevice(String);

impl FromStr for DeviceType {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        let unknown = || UnknownDevice(text.to_owned());
        let (head, gpu) = match text.split_once('+') {
            Some((head, gpu)) => (head, Some(gpu.parse::<GpuDevice>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let (name, index) = match head.split_once(':') {
            Some((name, index)) => (name, Some(index.parse().map_err(|_| unknown())?)),
            None => (head, None),
        };
        let i = index.unwrap_or(0);
        match (name.to_ascii_lowercase().as_str(), index, gpu) {
            ("auto", None, None) => Ok(Self::Auto),
            ("cpu", None, None) => Ok(Self::Cpu),
            ("reference", None, None) => Ok(Self::Reference),
            ("cuda", _, None) => Ok(Self::Cuda(i)),
            ("metal", _, None) => Ok(Self::Metal(i)),
            ("opencl", _, None) => Ok(Self::OpenCL(i)),
            ("webgpu", _, None) => Ok(Self::WebGpu(i)),
            ("coreml", _, None) => Ok(Self::CoreML(i)),
            ("coreml-hybrid", _, fallback_gpu) => Ok(Self::CoreMLHybrid {
                coreml_id: i,
                fallback_gpu,
            }),
            _ => Err(unknown()),
        }
    }
}

impl FromStr for GpuDevice {
    type Err = UnknownDevice;

    fn from_str(text: &str) -> Result<Self, UnknownDevice> {
        match text.parse()? {
            DeviceType::Cuda(i) => Ok(Self::Cuda(i)),
            DeviceType::Metal(i) => Ok(Self::Metal(i)),
            DeviceType::OpenCL(i) => Ok(Self::OpenCL(i)),
            DeviceType::WebGpu(i) => Ok(Self::WebGpu(i)),
            _ => Err(UnknownDevice(text.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let hybrid = DeviceType::CoreMLHybrid {
            coreml_id: 1,
            fallback_gpu: Some(GpuDevice::Metal(0)),
        };
        for d in [
            DeviceType::Cpu,
            DeviceType::Cuda(3),
            DeviceType::OpenCL(0),
            DeviceType::WebGpu(1),
            hybrid,
            DeviceType::Reference,
            DeviceType::Auto,
        ] {
            assert_eq!(d.to_string().parse(), Ok(d));
        }
        assert_eq!("cuda".parse(), Ok(DeviceType::Cuda(0)));
        for bad in [
            "",
            "cpu:1",
            "cuda:x",
            "gpu",
            "cuda:0+metal:0",
            "coreml-hybrid+cpu",
        ] {
            assert!(bad.parse::<DeviceType>().is_err(), "{bad}");
        }
    }
}
