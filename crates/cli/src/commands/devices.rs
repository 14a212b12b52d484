//! `devices`: the devices of this machine.

use std::io::{self, Write};

use anyhow::Result;
use clap::Args;
use rustorch_ir::{DType, OpKind};
use rustorch_runtime::{Absent, DeviceCapability, DeviceInfo, Runtime, Support};
use rustorch_tensor::{DeviceOptions, Discovered};
use serde_json::json;

use crate::args::Format;
use crate::output::{bytes, json_line};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let Discovered { backends, absent } = rustorch_tensor::discover(DeviceOptions::default());
    let runtime = Runtime::new(backends.iter().cloned());
    let devices = runtime.devices().zip(runtime.capabilities());
    let devices: Vec<_> = devices
        .map(|(info, capability)| {
            let mut all = backends.iter();
            let backend = all.find(|b| b.info().device == info.device);
            Device {
                info,
                capability,
                libraries: backend.map(|b| b.libraries()).unwrap_or_default(),
            }
        })
        .collect();
    let out = &mut io::stdout().lock();
    match options.format {
        Format::Text => text(&devices, &absent, out)?,
        Format::Json => json_line(out, &as_json(&devices, &absent))?,
    }
    Ok(())
}

/// A device's description and capabilities.
struct Device<'a> {
    info: &'a DeviceInfo,
    capability: &'a DeviceCapability,
    libraries: Vec<(String, String)>,
}

impl Device<'_> {
    /// Its details and libraries.
    fn details(&self) -> impl Iterator<Item = &(String, String)> {
        self.info.details.iter().chain(&self.libraries)
    }
}

/// The names of the operations with this much support.
fn operations(capability: &DeviceCapability, support: Support) -> Vec<&'static str> {
    capability.with_support(support).map(OpKind::name).collect()
}

fn names(dtypes: &[DType]) -> Vec<String> {
    dtypes.iter().map(DType::to_string).collect()
}

fn text(devices: &[Device], absent: &[Absent], out: &mut impl Write) -> io::Result<()> {
    for device in devices {
        let Device {
            info, capability, ..
        } = device;
        writeln!(out, "{:<11}{}", info.device.to_string(), info.name)?;
        let place = match info.shares_host_memory {
            true => ", shared with the host",
            false => "",
        };
        if let Some(memory) = info.memory_bytes {
            writeln!(out, "  memory: {}{place}", bytes(memory))?;
        }
        for (key, value) in device.details() {
            writeln!(out, "  {key}: {value}")?;
        }
        writeln!(out, "  types: {}", names(&capability.dtypes).join(" "))?;
        for (what, support) in [
            ("kernels", Support::Full),
            ("kernels for some dtypes", Support::Partial),
            (
                "composed of other operations, or run on other devices",
                Support::None,
            ),
        ] {
            let list = operations(capability, support);
            if !list.is_empty() {
                writeln!(out, "  {what}: {}", list.join(" "))?;
            }
        }
        writeln!(out)?;
    }
    for Absent {
        device,
        reason,
        cure,
    } in absent
    {
        writeln!(out, "{device:<11}missing: {reason}; {cure}")?;
    }
    Ok(())
}

fn as_json(devices: &[Device], absent: &[Absent]) -> serde_json::Value {
    let device = |device: &Device| {
        let Device {
            info, capability, ..
        } = device;
        let details = device
            .details()
            .map(|(key, value)| (key.clone(), json!(value)));
        json!({
            "device": info.device.to_string(),
            "name": info.name,
            "memory_bytes": info.memory_bytes,
            "shares_host_memory": info.shares_host_memory,
            "details": details.collect::<serde_json::Map<_, _>>(),
            "supports": {
                "f16": capability.supports_f16,
                "f32": capability.supports_f32,
                "f64": capability.supports_f64,
                "complex": capability.supports_complex,
                "distributed": capability.supports_distributed,
            },
            "dtypes": names(&capability.dtypes),
            "operations": {
                "full": operations(capability, Support::Full),
                "partial": operations(capability, Support::Partial),
                "none": operations(capability, Support::None),
            },
        })
    };
    let missing = absent.iter().map(|absent| {
        json!({
            "device": absent.device,
            "reason": absent.reason,
            "cure": absent.cure,
        })
    });
    json!({
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
        "missing": missing.collect::<Vec<_>>(),
    })
}
