//! The bundled model in its types, llama.cpp's goldens for it, and the devices there are.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustorch_gguf::Gguf;
use rustorch_gpu::Gpu;
use rustorch_llm::Model;
use rustorch_llm::golden::Golden;
use rustorch_llm::quantize::{FileType, QuantizeOptions, quantize};
use rustorch_metal_emulator::Emulator;
use rustorch_runtime::{Backend, Routing};

/// The folder of the models.
pub(crate) fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

/// The goldens of a type.
pub(crate) fn goldens(name: &str) -> Vec<Golden> {
    let path = models().join(format!("goldens/classics-13m-{name}.jsonl"));
    Golden::parse(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// The model in a type: as it lies in the repository, or quantised from the f16 file.
pub(crate) fn load(name: &str) -> Model {
    let shipped = models().join(format!("classics-13m-{name}.gguf"));
    if shipped.exists() {
        return Model::load(Gguf::open(shipped).unwrap()).unwrap();
    }
    let source = Gguf::open(models().join("classics-13m-f16.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("model.gguf");
    let file_type: FileType = name.parse().unwrap();
    quantize(
        &source,
        &path,
        file_type,
        &QuantizeOptions::default(),
        &mut |_| (),
    )
    .unwrap();
    Model::load(Gguf::from_bytes(std::fs::read(path).unwrap()).unwrap()).unwrap()
}

/// A device first, and the platform's chain behind it.
pub(crate) fn first(device: &Arc<dyn Backend>) -> Routing {
    Routing {
        device: device.info().device,
        ..Routing::AUTO
    }
}

/// The OpenCL devices. None is a failure where `RUSTORCH_TEST_OPENCL` promises one.
pub(crate) fn opencl() -> Vec<Arc<dyn Backend>> {
    match rustorch_opencl::devices() {
        Ok(devices) => {
            let backend = |device| -> Arc<dyn Backend> { Arc::new(Gpu::new(device)) };
            devices.into_iter().map(backend).collect()
        }
        Err(absent) => {
            let promised = std::env::var_os("RUSTORCH_TEST_OPENCL").is_some();
            assert!(!promised, "an OpenCL device was promised: {absent}");
            println!("without OpenCL: {absent}");
            Vec::new()
        }
    }
}

/// The Metal device that is emulated on the processor. None is a failure where
/// `RUSTORCH_TEST_METAL` promises one.
pub(crate) fn metal() -> Vec<Arc<dyn Backend>> {
    Emulator::for_tests().map_or(Vec::new(), |emulator| {
        rustorch_metal::backends(vec![emulator]).unwrap()
    })
}

/// All devices that are no processor, or pretend so.
pub(crate) fn gpus() -> Vec<Arc<dyn Backend>> {
    opencl().into_iter().chain(metal()).collect()
}
