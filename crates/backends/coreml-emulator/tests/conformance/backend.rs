//! The conformance suite on Core ML as the runtime has it, with an emulated Core ML.

use rustorch_coreml::cache::Cache;
use rustorch_coreml::{CoreMl, Settings};
use rustorch_coreml_emulator::Emulated;
use rustorch_ir::{Graph, Signature};
use rustorch_runtime::{
    Backend, DeviceError, DeviceInfo, DeviceMemory, DeviceType, HostBuffer, Program,
};

use crate::{claimed_without_weights, conforms};

/// The device by another name: policies give Core ML only what it is good at.
struct Anywhere {
    info: DeviceInfo,
    coreml: CoreMl<Emulated>,
}

impl Backend for Anywhere {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn supports(&self, signature: &Signature) -> bool {
        self.coreml.supports(signature)
    }

    fn memory(&self) -> &dyn DeviceMemory {
        self.coreml.memory()
    }

    fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
        self.coreml.compile(graph)
    }

    fn compile_with(
        &self,
        graph: &Graph,
        constants: &[Option<HostBuffer>],
    ) -> Result<Box<dyn Program>, DeviceError> {
        self.coreml.compile_with(graph, constants)
    }

    fn takes_constants(&self) -> bool {
        true
    }
}

fn runs(api: Emulated) {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings::new(Cache::new(folder.path(), 1 << 20));
    let coreml = CoreMl::new(api, 0, settings).unwrap();
    let info = DeviceInfo {
        device: DeviceType::Cpu,
        ..coreml.info().clone()
    };
    conforms(Anywhere { info, coreml }, &claimed_without_weights());
}

pub(crate) fn results_are_the_references_in_memory_that_is_offered() {
    runs(Emulated::new(13));
}

pub(crate) fn results_are_the_references_in_arrays_with_gaps() {
    runs(Emulated::new(12).with_gaps(3));
}
