//! A GPU as the driver lists it, and its properties.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::*;
use rustorch_gpu::Limits;
use rustorch_runtime::{DeviceInfo, DeviceType, Hardware};

use crate::status::{Failure, check};

/// The least compute capability, Volta's: ten times the major number plus the minor one.
pub(crate) const LEAST_CAPABILITY: u32 = 70;

/// A device of the driver.
#[derive(Clone, Copy)]
pub(crate) struct Device(CUdevice);

impl Device {
    /// The device of an index.
    pub(crate) fn new(index: i32) -> Result<Self, Failure> {
        let mut device = 0;
        // SAFETY: there is room for the handle.
        check("cuDeviceGet", unsafe {
            cuDeviceGet(&raw mut device, index)
        })?;
        Ok(Self(device))
    }

    pub(crate) fn raw(self) -> CUdevice {
        self.0
    }

    fn attribute(self, attribute: CUdevice_attribute) -> Result<u32, Failure> {
        let mut value = 0;
        // SAFETY: the device is valid, and there is room for the number.
        let status = unsafe { cuDeviceGetAttribute(&raw mut value, attribute, self.0) };
        check("cuDeviceGetAttribute", status)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    pub(crate) fn name(self) -> Result<String, Failure> {
        let mut name: [c_char; 256] = [0; 256];
        // SAFETY: the device is valid, and there is room for 256 bytes.
        let status = unsafe { cuDeviceGetName(name.as_mut_ptr(), 256, self.0) };
        check("cuDeviceGetName", status)?;
        // SAFETY: the driver has ended it with a zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        Ok(name.to_string_lossy().into_owned())
    }

    /// Ten times the major number of the compute capability, and the minor one.
    pub(crate) fn capability(self) -> Result<u32, Failure> {
        use CUdevice_attribute::*;
        let major = self.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = self.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        Ok(10 * major + minor)
    }

    fn memory(self) -> Result<u64, Failure> {
        let mut bytes = 0;
        // SAFETY: the device is valid, and there is room for the number.
        let status = unsafe { cuDeviceTotalMem_v2(&raw mut bytes, self.0) };
        check("cuDeviceTotalMem", status)?;
        Ok(bytes as u64)
    }

    /// Properties of the device that kernels depend on. It is called `name`.
    pub(crate) fn limits(self, name: DeviceType) -> Result<Limits, Failure> {
        use CUdevice_attribute::*;
        let local = self.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let units = self.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let memory = self.memory()?;
        let told = Limits {
            max_group: self.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)? as usize,
            local_bytes: local as usize,
            max_buffer: memory,
            memory,
            has_f64: true,
            compute_units: units as usize,
            is_processor: false,
            cuda_capability: self.capability()?,
        };
        Ok(told.sensible(name))
    }

    /// Address on the PCI bus: domain, bus and device.
    fn pci(self) -> Result<String, Failure> {
        use CUdevice_attribute::*;
        let domain = self.attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
        let bus = self.attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
        let device = self.attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
        Ok(format!("{domain:04x}:{bus:02x}:{device:02x}"))
    }

    /// Description of the device, as `device` with these limits.
    pub(crate) fn info(self, device: DeviceType, limits: &Limits) -> Result<DeviceInfo, Failure> {
        let version = driver_version()?;
        let capability = limits.cuda_capability;
        let details = [
            (
                "compute capability",
                format!("{}.{}", capability / 10, capability % 10),
            ),
            (
                "driver",
                format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
            ),
            ("PCI", self.pci()?),
            ("multiprocessors", limits.compute_units.to_string()),
            (
                "shared memory",
                format!("{} KiB a block", limits.local_bytes >> 10),
            ),
        ];
        Ok(DeviceInfo {
            device,
            hardware: Hardware::Gpu,
            shares_host_memory: false,
            name: self.name()?,
            memory_bytes: Some(limits.memory),
            details: details.map(|(key, value)| (key.to_owned(), value)).into(),
        })
    }
}

/// The CUDA version that the driver is for: 1000 times the major number, and ten times the
/// minor one.
pub(crate) fn driver_version() -> Result<i32, Failure> {
    let mut version = 0;
    // SAFETY: there is room for the number.
    check("cuDriverGetVersion", unsafe {
        cuDriverGetVersion(&raw mut version)
    })?;
    Ok(version)
}
