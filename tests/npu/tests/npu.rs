//! A backend of somebody else's in a runtime: what it can, it computes; the rest, and what it fails
//! at, goes on to the processor.

use std::sync::Arc;

use rustorch::prelude::*;
use rustorch::{GpuExecutionStrategy, Runtime};
use rustorch_npu::{NPU, Npu};

/// The device, and a runtime of it and the processor, which takes it whatever the size.
fn machine() -> (Arc<Npu>, Runtime, Routing) {
    let npu = Arc::new(Npu::new());
    let mut devices = rustorch::backends(1);
    devices.retain(|backend| backend.info().device == DeviceType::Cpu);
    devices.insert(0, npu.clone());
    let routing = Routing {
        device: NPU,
        strategy: GpuExecutionStrategy::HYBRID,
        ..Routing::AUTO
    };
    (npu, Runtime::new(devices), routing)
}

#[test]
fn it_computes_what_it_can_and_hands_on_what_it_cannot() -> RusTorchResult<()> {
    let (npu, runtime, routing) = machine();
    with_runtime(&runtime, routing, || {
        let (x, y) = (tensor![1.0, 2.0], tensor![3.0, 4.0]);
        let sum = x.add(&y)?.mul(&y)?;
        assert_eq!(sum.to_vec::<f32>()?, [12.0, 24.0]);
        assert_eq!((sum.device(), npu.launches()), (Some(NPU), 2));
        // It has no square roots.
        let root = sum.sqrt()?.add(&y)?;
        assert_eq!(root.to_vec::<f32>()?[0], 12f32.sqrt() + 3.0);
        assert_eq!((root.device(), npu.launches()), (Some(NPU), 3));
        assert_eq!(NPU.to_string(), "npu:0");
        Ok(())
    })
}

#[test]
fn when_it_fails_the_processor_goes_on() -> RusTorchResult<()> {
    let (npu, runtime, routing) = machine();
    with_runtime(&runtime, routing, || {
        let (x, y) = (tensor![1.0, 2.0], tensor![3.0, 4.0]);
        npu.fail();
        let sum = x.add(&y)?;
        assert_eq!(sum.to_vec::<f32>()?, [4.0, 6.0]);
        assert_eq!(sum.device(), Some(DeviceType::Cpu));
        let told: Vec<String> = runtime
            .fallbacks()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(
            told[0].contains("npu:0") && told[0].contains("told to fail"),
            "{told:?}"
        );
        Ok(())
    })
}
