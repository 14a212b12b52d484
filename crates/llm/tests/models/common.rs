//! Headers, devices, and logits of sessions.

use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_gguf::Gguf;
use rustorch_gpu::Gpu;
use rustorch_ir::DType;
use rustorch_llm::{LlmError, Model, Session, SessionOptions};
use rustorch_metal_emulator::{Emulator, NoCompiler};
use rustorch_runtime::{Backend, Runtime};
use rustorch_testing::models::{Header, TOKENS, headers_folder};

pub(crate) type Devices = Vec<Arc<dyn Backend>>;

/// The OpenCL devices, or why there is none.
pub(crate) fn find_opencl() -> Result<Devices, rustorch_runtime::Absent> {
    let backend = |device| -> Arc<dyn Backend> { Arc::new(Gpu::new(device)) };
    rustorch_opencl::devices().map(|devices| devices.into_iter().map(backend).collect())
}

/// The Metal device that is emulated on the processor, or why there is none.
pub(crate) fn find_metal() -> Result<Devices, NoCompiler> {
    Emulator::new().map(|emulator| rustorch_metal::backends(vec![emulator]).unwrap())
}

pub(crate) fn headers() -> Vec<Header> {
    Header::all(&headers_folder())
}

pub(crate) fn load(header: &Header) -> Result<Model, LlmError> {
    Model::load(header.model()?)
}

pub(crate) fn cpu() -> Runtime {
    Runtime::new([Arc::new(Cpu::new(1)) as Arc<dyn Backend>])
}

pub(crate) fn options() -> SessionOptions {
    SessionOptions {
        context: 64,
        cache_dtype: DType::F32,
        ..SessionOptions::default()
    }
}

/// Feeds tokens; their rows are added to `rows`.
pub(crate) fn feed(
    session: &mut Session,
    tokens: &[u32],
    rows: &mut Vec<f32>,
) -> Result<(), LlmError> {
    session.feed_all(tokens, |_, logits| {
        rows.extend_from_slice(logits);
        Ok(())
    })
}

/// Logits of all tokens.
pub(crate) fn logits(
    model: &Model,
    runtime: &Runtime,
    options: SessionOptions,
) -> Result<Vec<f32>, LlmError> {
    let mut session = Session::new(model, runtime, options)?;
    let mut rows = Vec::new();
    feed(&mut session, &TOKENS, &mut rows)?;
    Ok(rows)
}

/// The same of a file, on the CPU.
pub(crate) fn logits_of(gguf: Gguf) -> Result<Vec<f32>, LlmError> {
    logits(&Model::load(gguf)?, &cpu(), options())
}

/// Logits that are hidden are the same; of the others the mean squared error, divided by the mean square.
pub(crate) fn nmse(found: &[f32], expected: &[f32]) -> f64 {
    let hidden = |x: f32| x <= -1e30;
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let (mut error, mut power) = (0.0, 0.0);
    for (&a, &b) in found.iter().zip(expected) {
        match (hidden(a), hidden(b)) {
            (true, true) => {}
            (false, false) => {
                error += (f64::from(a) - f64::from(b)).powi(2);
                power += f64::from(b).powi(2);
            }
            _ => return f64::INFINITY,
        }
    }
    match error.is_nan() {
        true => f64::INFINITY,
        false => error / power,
    }
}

/// The largest difference, by the largest logit.
pub(crate) fn difference(found: &[f32], expected: &[f32]) -> f32 {
    if found.len() != expected.len() {
        return f32::INFINITY;
    }
    let pairs = found.iter().zip(expected).filter(|(a, b)| a != b);
    let largest = expected.iter().filter(|x| x.abs() < 1e30);
    let largest = largest.fold(0.0_f32, |most, x| most.max(x.abs()));
    pairs.fold(0.0, |most, (a, b)| {
        let difference = (a - b).abs() / largest;
        // NaN is farthest away.
        if difference <= most { most } else { difference }
    })
}

/// Fails with all problems, if there are some.
pub(crate) fn none_of(problems: &[String]) {
    assert!(
        problems.is_empty(),
        "{}:\n{}",
        problems.len(),
        problems.join("\n")
    );
}
