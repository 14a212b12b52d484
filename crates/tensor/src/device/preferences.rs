//! Device preferences set by Cargo features: which device goes first.

use rustorch_runtime::{DeviceSelector, DeviceType, Routing, Runtime};

/// The preferences that a program was built with.
#[derive(Clone, Copy, Debug)]
struct Preferences {
    gpu_priority: bool,
    mac_hybrid: bool,
    coreml_hybrid: bool,
}

const BUILT_WITH: Preferences = Preferences {
    gpu_priority: cfg!(feature = "gpu-priority"),
    mac_hybrid: cfg!(feature = "mac-hybrid"),
    coreml_hybrid: cfg!(feature = "coreml-hybrid"),
};

/// Applies the preferences of this crate's features to `runtime`. Returns the routing for runs that
/// name no device. Without such features or their devices, the result is [`Routing::AUTO`], and the
/// runtime does not change.
///
/// | feature | what it asks for |
/// | --- | --- |
/// | `gpu-priority` | GPUs go before Core ML, whatever the size; goes before the other two |
/// | `mac-hybrid` | [`Routing::MAC_HYBRID`], where Core ML or Metal is here |
/// | `coreml-hybrid` | Core ML, then the first GPU, where Core ML is here |
pub fn prefer(runtime: &Runtime) -> Routing {
    apply(BUILT_WITH, runtime)
}

fn apply(preferences: Preferences, runtime: &Runtime) -> Routing {
    if preferences.gpu_priority {
        runtime.set_selector(DeviceSelector::gpus_first());
        return Routing::AUTO;
    }
    let has = |is: fn(DeviceType) -> bool| runtime.devices().any(|info| is(info.device));
    let has_coreml = has(|device| matches!(device, DeviceType::CoreML(_)));
    let has_metal = has(|device| matches!(device, DeviceType::Metal(_)));
    if preferences.mac_hybrid && (has_coreml || has_metal) {
        return Routing::MAC_HYBRID;
    }
    if preferences.coreml_hybrid && has_coreml {
        return Routing {
            device: DeviceType::CoreMLHybrid {
                coreml_id: 0,
                fallback_gpu: None,
            },
            ..Routing::AUTO
        };
    }
    Routing::AUTO
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustorch_ir::{DType, Graph, Signature, TensorType};
    use rustorch_reference::Reference;
    use rustorch_runtime::{
        Backend, DeviceError, DeviceInfo, DeviceMemory, Hardware, OpType, Program, TensorInfo,
    };

    use super::*;

    const NONE: Preferences = Preferences {
        gpu_priority: false,
        mac_hybrid: false,
        coreml_hybrid: false,
    };
    const COREML: DeviceType = DeviceType::CoreML(0);
    const METAL: DeviceType = DeviceType::Metal(0);

    /// The reference under another name.
    struct Called(Reference, DeviceInfo);

    impl Backend for Called {
        fn info(&self) -> &DeviceInfo {
            &self.1
        }

        fn supports(&self, signature: &Signature) -> bool {
            self.0.supports(signature)
        }

        fn memory(&self) -> &dyn DeviceMemory {
            self.0.memory()
        }

        fn compile(&self, graph: &Graph) -> Result<Box<dyn Program>, DeviceError> {
            self.0.compile(graph)
        }
    }

    fn runtime(devices: &[DeviceType]) -> Runtime {
        let called = |&device: &DeviceType| {
            let reference = Reference::new();
            let info = DeviceInfo {
                device,
                hardware: match device {
                    COREML => Hardware::NeuralEngine,
                    _ => Hardware::Gpu,
                },
                ..reference.info().clone()
            };
            Arc::new(Called(reference, info)) as Arc<dyn Backend>
        };
        Runtime::new(devices.iter().map(called))
    }

    fn routed(preferences: Preferences, devices: &[DeviceType]) -> Routing {
        apply(preferences, &runtime(devices))
    }

    #[test]
    fn without_preferences_or_their_devices_it_is_the_chain() {
        let all = Preferences {
            gpu_priority: false,
            mac_hybrid: true,
            coreml_hybrid: true,
        };
        assert_eq!(routed(NONE, &[COREML, METAL]), Routing::AUTO);
        assert_eq!(routed(all, &[DeviceType::OpenCL(0)]), Routing::AUTO);
    }

    #[test]
    fn hybrids_are_of_core_ml_and_a_gpu() {
        let mac = Preferences {
            mac_hybrid: true,
            coreml_hybrid: true,
            ..NONE
        };
        for devices in [&[COREML, METAL] as &[DeviceType], &[METAL], &[COREML]] {
            assert_eq!(routed(mac, devices), Routing::MAC_HYBRID);
        }
        let coreml = Preferences {
            coreml_hybrid: true,
            ..NONE
        };
        let hybrid = DeviceType::CoreMLHybrid {
            coreml_id: 0,
            fallback_gpu: None,
        };
        assert_eq!(routed(coreml, &[COREML, METAL]).device, hybrid);
        assert_eq!(routed(coreml, &[METAL]), Routing::AUTO);
    }

    #[test]
    fn gpus_go_before_core_ml_if_they_shall() {
        let first = |preferences: Preferences| {
            let runtime = runtime(&[COREML, METAL]);
            let routing = apply(preferences, &runtime);
            let tensor = TensorInfo::new(TensorType::new([1024, 1024], DType::F32));
            runtime.candidates(OpType::LinearAlgebra, &tensor, routing)[0]
        };
        assert_eq!(first(NONE), COREML);
        let gpus = Preferences {
            gpu_priority: true,
            mac_hybrid: true,
            coreml_hybrid: true,
        };
        assert_eq!(first(gpus), METAL);
    }
}
