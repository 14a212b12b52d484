//! llama.cpp's logits.

use rustorch_conformance::Extent;
use rustorch_llm::{LlmError, SessionOptions, architectures};
use rustorch_runtime::{Routing, Runtime};
use rustorch_testing::models::Header;

use crate::common::{Devices, cpu, headers, load, logits, nmse, none_of, options};
use crate::diffusion::diffusion;
use crate::encoders::encoders;

/// The error of a model's last logits on a runtime.
fn error(header: &Header, runtime: &Runtime, options: SessionOptions) -> Result<f64, LlmError> {
    let found = logits(&load(header)?, runtime, options)?;
    let expected = header.logits.concat();
    Ok(nmse(&found[found.len() - expected.len()..], &expected))
}

fn problem(
    header: &Header,
    runtime: &Runtime,
    options: SessionOptions,
    bound: f64,
) -> Option<String> {
    match error(header, runtime, options) {
        Ok(error) => (error > bound).then(|| format!("{}: NMSE {error:.1e}", header.name)),
        Err(error) => Some(format!("{}: {error}", header.name)),
    }
}

pub(crate) fn on_the_cpu() {
    let headers = headers().into_iter();
    let problems = headers.filter_map(|header| problem(&header, &cpu(), options(), 1e-6));
    none_of(&problems.collect::<Vec<_>>());
}

pub(crate) fn on_a_device(devices: &Devices) {
    for device in devices {
        let runtime = Runtime::new([device.clone()]);
        let chosen = Extent::of_tests().choose(headers(), 8);
        let problems = chosen.iter().filter_map(|header| {
            let options = SessionOptions {
                routing: Routing {
                    device: device.info().device,
                    ..Routing::AUTO
                },
                ..options()
            };
            problem(header, &runtime, options, 1e-5)
        });
        none_of(&problems.collect::<Vec<_>>());
    }
}

pub(crate) fn every_architecture_has_a_model() {
    let headers: Vec<_> = (headers().into_iter())
        .chain(encoders())
        .chain(diffusion())
        .collect();
    let has = |name: &str| {
        let mut found = headers.iter().filter_map(|header| {
            let (architecture, _) = header.name.rsplit_once('-')?;
            Some(architecture)
        });
        found.any(|architecture| architecture == name)
    };
    let without: Vec<_> = architectures()
        .into_iter()
        .filter(|name| !has(name))
        .collect();
    assert!(without.is_empty(), "{without:?}");
}
