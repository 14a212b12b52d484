//! `devices`: what this machine can compute with.

use std::io::{self, Write};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use rustorch_ir::{DType, OpKind, Role, Signature, TensorType};
use rustorch_runtime::Backend;
use serde_json::json;

use crate::args::Format;
use crate::devices::MISSING;
use crate::output::{bytes, json_line};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// How it is written
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

/// What a device answers when it is asked for kernels.
#[derive(Default)]
struct Capability {
    /// Operations with a kernel for every dtype that they have.
    full: Vec<&'static str>,
    /// Operations with a kernel for some.
    partial: Vec<&'static str>,
    /// Operations without one: made of others where they can be, else left to other devices.
    none: Vec<&'static str>,
    /// Types of the operands that some kernel takes.
    dtypes: Vec<DType>,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let devices: Vec<_> = (rustorch_tensor::backends(0).into_iter())
        .map(|backend| (capability(&backend), backend))
        .collect();
    let out = &mut io::stdout().lock();
    match options.format {
        Format::Text => text(&devices, out)?,
        Format::Json => json_line(out, &as_json(&devices))?,
    }
    Ok(())
}

/// Asks a device for each operation's examples.
fn capability(backend: &Arc<dyn Backend>) -> Capability {
    let mut found = Capability::default();
    for &kind in OpKind::ALL {
        let (mut asked, mut answered) = (0, 0);
        for case in kind.cases() {
            let inputs: Vec<&TensorType> = case.inputs.iter().map(|operand| &operand.ty).collect();
            let def = case.op.def();
            // Views are never launched.
            let Some(output) = def.infer(&inputs).ok().filter(|_| def.role() != Role::View) else {
                continue;
            };
            asked += 1;
            let signature = Signature {
                op: &case.op,
                inputs: &inputs,
                output: &output,
            };
            if backend.supports(&signature) {
                answered += 1;
                for dtype in inputs.iter().map(|ty| ty.dtype) {
                    if !found.dtypes.contains(&dtype) {
                        found.dtypes.push(dtype);
                    }
                }
            }
        }
        let list = match answered {
            _ if asked == 0 => continue,
            0 => &mut found.none,
            n if n < asked => &mut found.partial,
            _ => &mut found.full,
        };
        list.push(kind.name());
    }
    found
        .dtypes
        .sort_by_key(|dtype| (matches!(dtype, DType::Block(_)), dtype.to_string()));
    found
}

fn names(dtypes: &[DType]) -> Vec<String> {
    dtypes.iter().map(DType::to_string).collect()
}

fn text(devices: &[(Capability, Arc<dyn Backend>)], out: &mut impl Write) -> io::Result<()> {
    for (capability, backend) in devices {
        let info = backend.info();
        writeln!(out, "{:<11}{}", info.device.to_string(), info.name)?;
        if let Some(memory) = info.memory_bytes {
            writeln!(out, "  memory: {}", bytes(memory))?;
        }
        for (key, value) in &info.details {
            writeln!(out, "  {key}: {value}")?;
        }
        writeln!(out, "  types: {}", names(&capability.dtypes).join(" "))?;
        for (what, list) in [
            ("kernels for", &capability.full),
            ("for some types only", &capability.partial),
            ("made of others, or left to other devices", &capability.none),
        ] {
            if !list.is_empty() {
                writeln!(out, "  {what}: {}", list.join(" "))?;
            }
        }
        writeln!(out)?;
    }
    for missing in &MISSING {
        writeln!(
            out,
            "{:<11}missing: {}; {}",
            missing.name, missing.reason, missing.cure
        )?;
    }
    Ok(())
}

fn as_json(devices: &[(Capability, Arc<dyn Backend>)]) -> serde_json::Value {
    let device = |(capability, backend): &(Capability, Arc<dyn Backend>)| {
        let info = backend.info();
        let details = info
            .details
            .iter()
            .map(|(key, value)| (key.clone(), json!(value)));
        json!({
            "device": info.device.to_string(),
            "name": info.name,
            "memory_bytes": info.memory_bytes,
            "details": details.collect::<serde_json::Map<_, _>>(),
            "dtypes": names(&capability.dtypes),
            "operations": {
                "full": capability.full,
                "partial": capability.partial,
                "none": capability.none,
            },
        })
    };
    let missing = MISSING.iter().map(|missing| {
        json!({
            "device": missing.name,
            "reason": missing.reason,
            "cure": missing.cure,
        })
    });
    json!({
        "devices": devices.iter().map(device).collect::<Vec<_>>(),
        "missing": missing.collect::<Vec<_>>(),
    })
}
