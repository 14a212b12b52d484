//! The bundled model in its types, llama.cpp's goldens for it, and the devices there are.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustorch_gguf::Gguf;
use rustorch_gpu::Gpu;
use rustorch_llm::Model;
use rustorch_llm::golden::Golden;
use rustorch_llm::quantize::{FileType, QuantizeOptions, quantize};
use rustorch_metal_emulator::{Emulator, NoCompiler};
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
        &mut |_| ControlFlow::Continue(()),
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

/// All devices that are not a processor, or pretend so. It is for tests that also run without them.
pub(crate) fn gpus() -> Devices {
    let opencl = find_opencl().unwrap_or_default();
    opencl
        .into_iter()
        .chain(find_metal().unwrap_or_default())
        .collect()
}
