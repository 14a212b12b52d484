//! Finding devices, and the reasons for missing ones.

use rustorch_gpu::Limits;
use rustorch_runtime::{Absent, DeviceInfo, DeviceType, Hardware, LARGEST_BUFFER};

use crate::driver::Wgpu;
use crate::faults::at_once;

/// Storage buffers of a kernel that WebGPU guarantees.
const BINDINGS: u32 = 8;

/// Work-items of a group that WebGPU guarantees, and that kernels have.
const GROUP: u32 = 256;

/// Opens every device of Vulkan, DirectX 12 and Metal: GPUs first, then processors.
///
/// A device's index is its place in this list. A device that cannot be used is left out, with a line in the log.
///
/// # Errors
/// Fails if there is no device. The error gives the reason.
pub fn devices() -> Result<Vec<Wgpu>, Absent> {
    let backends = wgpu::Backends::VULKAN | wgpu::Backends::DX12 | wgpu::Backends::METAL;
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends,
        flags: wgpu::InstanceFlags::empty(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let mut adapters = at_once(instance.enumerate_adapters(backends)).unwrap_or_default();
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu => 1,
        wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => 2,
        wgpu::DeviceType::Cpu => 3,
    });
    let (mut devices, mut left_out) = (Vec::new(), Vec::new());
    for adapter in adapters {
        match open(&adapter, DeviceType::WebGpu(devices.len())) {
            Ok(device) => devices.push(device),
            Err(why) => {
                let line = format!("{}: {why}", adapter.get_info().name);
                tracing::warn!("ignoring a WebGPU device: {line}");
                left_out.push(line);
            }
        }
    }
    match devices.is_empty() {
        true => Err(absent(&left_out)),
        false => Ok(devices),
    }
}

fn absent(left_out: &[String]) -> Absent {
    let reason = match left_out {
        [] => "the system has no adapter for Vulkan, DirectX 12 or Metal".to_owned(),
        _ => format!("no adapter can be used: {}", left_out.join("; ")),
    };
    let cure =
        "install the GPU vendor's Vulkan driver (Debian: libvulkan1 and mesa-vulkan-drivers)";
    Absent::new("webgpu", reason, cure)
}

fn open(adapter: &wgpu::Adapter, name: DeviceType) -> Result<Wgpu, String> {
    let most = adapter.limits();
    if most.max_storage_buffers_per_shader_stage < BINDINGS {
        let bindings = most.max_storage_buffers_per_shader_stage;
        return Err(format!(
            "{BINDINGS} storage buffers of a kernel are needed, and it has {bindings}"
        ));
    }
    if most.max_compute_invocations_per_workgroup < GROUP {
        let group = most.max_compute_invocations_per_workgroup;
        return Err(format!("groups of {GROUP} are needed, and it has {group}"));
    }
    let descriptor = wgpu::DeviceDescriptor {
        label: Some("rustorch"),
        required_limits: most.clone(),
        ..wgpu::DeviceDescriptor::default()
    };
    let opened = at_once(adapter.request_device(&descriptor));
    let (device, queue) = opened
        .ok_or("it does not answer")?
        .map_err(|error| error.to_string())?;
    let (limits, info) = describe(&adapter.get_info(), &most, name);
    Ok(Wgpu::new(device, queue, info, limits))
}

/// Properties that kernels depend on, and the description.
fn describe(
    adapter: &wgpu::AdapterInfo,
    most: &wgpu::Limits,
    name: DeviceType,
) -> (Limits, DeviceInfo) {
    let is_processor = adapter.device_type == wgpu::DeviceType::Cpu;
    let max_buffer = most
        .max_buffer_size
        .min(most.max_storage_buffer_binding_size)
        / 4
        * 4;
    let limits = Limits {
        max_group: most.max_compute_invocations_per_workgroup as usize,
        local_bytes: most.max_compute_workgroup_storage_size as usize,
        max_buffer,
        // The interface does not report it. It bounds the memory that is kept for later requests.
        memory: max_buffer.saturating_mul(4),
        has_f64: false,
        compute_units: 16,
        is_processor,
        cuda_capability: 0,
    };
    let limits = limits.sensible(name);
    let details = [
        ("interface", format!("{:?}", adapter.backend).to_lowercase()),
        (
            "driver",
            format!("{} {}", adapter.driver, adapter.driver_info),
        ),
        ("largest work-group", limits.max_group.to_string()),
        ("local memory", format!("{} KiB", limits.local_bytes / 1024)),
        (LARGEST_BUFFER, format!("{} MiB", limits.max_buffer >> 20)),
    ];
    let info = DeviceInfo {
        device: name,
        hardware: match is_processor {
            true => Hardware::Processor,
            false => Hardware::Gpu,
        },
        shares_host_memory: false,
        name: adapter.name.clone(),
        memory_bytes: None,
        details: details.map(|(key, value)| (key.to_owned(), value)).into(),
    };
    (limits, info)
}
