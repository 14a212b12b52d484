//! A device as its driver lists it, and its properties.

use std::ffi::{CStr, c_void};

use opencl_sys::*;
use rustorch_gpu::Limits;
use rustorch_runtime::{DeviceInfo, DeviceType, Hardware, LARGEST_BUFFER};

use crate::api::Api;
use crate::status::{Failure, query, text};

/// A platform's device.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    api: &'static Api,
    platform: cl_platform_id,
    id: cl_device_id,
}

// SAFETY: the ids of platforms and of their devices name what lives as long as the library;
// any thread may use them.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// # Safety
    /// `id` is a device of `platform`, which is one of `api`'s.
    pub(crate) unsafe fn new(
        api: &'static Api,
        platform: cl_platform_id,
        id: cl_device_id,
    ) -> Self {
        Self { api, platform, id }
    }

    pub(crate) fn api(&self) -> &'static Api {
        self.api
    }

    pub(crate) fn platform(&self) -> cl_platform_id {
        self.platform
    }

    pub(crate) fn id(&self) -> cl_device_id {
        self.id
    }

    fn property(&self, property: cl_device_info) -> Result<Vec<u8>, Failure> {
        query("clGetDeviceInfo", |size, to, needed| {
            // SAFETY: the device is valid, and `query` gives room for `size` bytes.
            unsafe { (self.api.get_device_info)(self.id, property, size, to, needed) }
        })
    }

    fn text(&self, property: cl_device_info) -> Result<String, Failure> {
        Ok(text(&self.property(property)?))
    }

    /// A `cl_uint` or `cl_ulong`.
    fn number(&self, property: cl_device_info) -> Result<u64, Failure> {
        let value = self.property(property)?;
        Ok(match value.first_chunk() {
            Some(long) => u64::from_ne_bytes(*long),
            None => value
                .first_chunk()
                .map_or(0, |int| u32::from_ne_bytes(*int).into()),
        })
    }

    /// A `size_t`; of several, the first.
    fn size(&self, property: cl_device_info) -> Result<usize, Failure> {
        let value = self.property(property)?;
        Ok(value.first_chunk().map_or(0, |n| usize::from_ne_bytes(*n)))
    }

    /// Whether it is the machine's processor.
    pub(crate) fn is_processor(&self) -> Result<bool, Failure> {
        Ok(self.number(CL_DEVICE_TYPE)? & CL_DEVICE_TYPE_CPU != 0)
    }

    /// Does its driver keep compiled kernels, by the source?
    pub(crate) fn keeps_kernels(&self) -> Result<bool, Failure> {
        Ok(self.platform_name()? == "Portable Computing Language")
    }

    /// Name of the device by itself.
    pub(crate) fn name(&self) -> String {
        self.text(CL_DEVICE_NAME)
            .unwrap_or_else(|failure| format!("a device without a name ({failure})"))
    }

    /// Why it is of no use, if so.
    pub(crate) fn unfit(&self) -> Result<Option<String>, Failure> {
        if self.number(CL_DEVICE_AVAILABLE)? == 0 {
            return Ok(Some("its driver calls it not available".to_owned()));
        }
        if self.number(CL_DEVICE_COMPILER_AVAILABLE)? == 0 {
            return Ok(Some("its driver has no compiler".to_owned()));
        }
        let version = self.text(CL_DEVICE_VERSION)?;
        let old = ["OpenCL 1.0", "OpenCL 1.1"];
        if old.iter().any(|old| version.starts_with(old)) {
            return Ok(Some(format!("1.2 is needed, and it has {version}")));
        }
        Ok(None)
    }

    /// Does it compute in the host's memory?
    fn shares_host_memory(&self) -> bool {
        self.number(CL_DEVICE_HOST_UNIFIED_MEMORY)
            .is_ok_and(|answer| answer != 0)
    }

    /// Options of its compiler: the language, and division as exact as the device can. Nothing that
    /// makes arithmetic less exact than the standard's default. Drivers print the number of
    /// warnings, so there shall be none: generated code has comparisons that always hold.
    pub(crate) fn build_options(&self) -> Result<&'static CStr, Failure> {
        let float = self.number(CL_DEVICE_SINGLE_FP_CONFIG)?;
        Ok(if float & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT != 0 {
            c"-w -cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt"
        } else {
            c"-w -cl-std=CL1.2"
        })
    }

    /// Properties of the device that kernels depend on. It is called `name`.
    pub(crate) fn limits(&self, name: DeviceType) -> Result<Limits, Failure> {
        let lanes = self.size(CL_DEVICE_MAX_WORK_ITEM_SIZES)?;
        let local = self.number(CL_DEVICE_LOCAL_MEM_SIZE)?;
        let units = self.number(CL_DEVICE_MAX_COMPUTE_UNITS)?;
        let told = Limits {
            max_group: self.size(CL_DEVICE_MAX_WORK_GROUP_SIZE)?.min(lanes),
            local_bytes: usize::try_from(local).unwrap_or(usize::MAX),
            max_buffer: self.number(CL_DEVICE_MAX_MEM_ALLOC_SIZE)?,
            memory: self.number(CL_DEVICE_GLOBAL_MEM_SIZE)?,
            has_f64: self.has_f64(),
            compute_units: usize::try_from(units).unwrap_or(usize::MAX),
            is_processor: self.is_processor()?,
            cuda_capability: 0,
        };
        Ok(told.sensible(name))
    }

    /// Free bytes of its memory, other programs included, if the driver has AMD's extension
    /// `cl_amd_device_attribute_query`. No other extension reports them.
    pub(crate) fn free_memory(&self) -> Option<u64> {
        let extensions = self.text(CL_DEVICE_EXTENSIONS).ok()?;
        if !has_extension(&extensions, "cl_amd_device_attribute_query") {
            return None;
        }
        // In KiB: all of it, and the largest piece.
        let free = self.size(CL_DEVICE_GLOBAL_FREE_MEMORY_AMD).ok()? as u64;
        Some(free.saturating_mul(1024))
    }

    /// Drivers of 1.2 do not have to answer the question; that is a no.
    fn has_f64(&self) -> bool {
        self.number(CL_DEVICE_DOUBLE_FP_CONFIG)
            .is_ok_and(|c| c != 0)
    }

    /// Description of the device, as `device` with these limits.
    pub(crate) fn info(&self, device: DeviceType, limits: &Limits) -> Result<DeviceInfo, Failure> {
        let extensions = self.text(CL_DEVICE_EXTENSIONS)?;
        let has = |name| has_extension(&extensions, name);
        let yes_no = |yes| if yes { "yes" } else { "no" }.to_owned();
        // Asked of 2.1 and later; before, Khronos' and Intel's extensions had sub-groups.
        let sub_groups = match self.number(CL_DEVICE_MAX_NUM_SUB_GROUPS) {
            Ok(count @ 1..) => format!("up to {count} in a work-group"),
            _ => yes_no(has("cl_khr_subgroups") || has("cl_intel_subgroups")),
        };
        let details = [
            ("platform", self.platform_name()?),
            ("version", self.text(CL_DEVICE_VERSION)?),
            ("language", self.text(CL_DEVICE_OPENCL_C_VERSION)?),
            ("driver", self.text(CL_DRIVER_VERSION)?),
            ("compute units", limits.compute_units.to_string()),
            ("fp16", yes_no(has("cl_khr_fp16"))),
            ("fp64", yes_no(self.has_f64())),
            ("largest work-group", limits.max_group.to_string()),
            ("local memory", format!("{} KiB", limits.local_bytes / 1024)),
            (LARGEST_BUFFER, format!("{} MiB", limits.max_buffer >> 20)),
            ("sub-groups", sub_groups),
        ];
        Ok(DeviceInfo {
            device,
            hardware: if self.is_processor()? {
                Hardware::Processor
            } else {
                Hardware::Gpu
            },
            shares_host_memory: self.shares_host_memory(),
            name: self.name(),
            memory_bytes: Some(limits.memory),
            details: details.map(|(key, value)| (key.to_owned(), value)).into(),
        })
    }

    fn platform_name(&self) -> Result<String, Failure> {
        let name = query("clGetPlatformInfo", |size, to: *mut c_void, needed| {
            let ask = self.api.get_platform_info;
            // SAFETY: the platform is valid, and `query` gives room for `size` bytes.
            unsafe { ask(self.platform, CL_PLATFORM_NAME, size, to, needed) }
        })?;
        Ok(text(&name))
    }
}

/// Is an extension in the list of them?
fn has_extension(list: &str, name: &str) -> bool {
    list.split(' ').any(|extension| extension == name)
}
