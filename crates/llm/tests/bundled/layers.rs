//! Layers on devices of their own.

use rustorch_llm::{
    BackendConfig, Placement, PlacementOptions, Session, SessionOptions, select_backend,
};
use rustorch_runtime::{DeviceType, Routing, Runtime};
use rustorch_tensor::host;

use crate::common::{Devices, goldens, load};

const CPU: DeviceType = DeviceType::Cpu;

fn options(layers: Vec<DeviceType>) -> SessionOptions {
    SessionOptions {
        context: 64,
        placement: Placement::of_layers(layers),
        ..SessionOptions::default()
    }
}

pub(crate) fn layers_are_computed_where_they_were_sent(opencl: &Devices) {
    let model = load("Q8_0");
    let count = model.spec().layers.len();
    let golden = goldens("Q8_0").remove(0);
    let device = opencl[0].info().device;
    let fed = |layers: Vec<DeviceType>| {
        let runtime = Runtime::new(host(2).into_iter().chain(opencl.iter().cloned()));
        let mut session = Session::new(&model, &runtime, options(layers)).unwrap();
        let mut logits = Vec::new();
        session.feed(&golden.ids, &mut logits).unwrap();
        session.feed(&[golden.steps[0].id], &mut logits).unwrap();
        let used: Vec<DeviceType> = runtime.used_devices().iter().map(|u| u.0).collect();
        (used, logits)
    };
    // A device's results do not depend on who chose the device.
    let on_cpu = fed(vec![CPU; count]);
    assert_eq!(on_cpu.0, [CPU]);
    assert!(on_cpu == fed(Vec::new()), "the same bits");
    let on_opencl = fed(vec![device; count]);
    assert_eq!(on_opencl.0, [device]);
    let mut layers = vec![CPU; count];
    layers[count / 2..].fill(device);
    let mixed = fed(layers);
    assert_eq!(mixed.0, [CPU, device]);
    let largest = |logits: &[f32]| {
        let all = logits.iter().enumerate();
        all.max_by(|a, b| a.1.total_cmp(b.1)).unwrap().0
    };
    assert_eq!(largest(&mixed.1), largest(&on_cpu.1));
    assert_eq!(largest(&mixed.1), largest(&on_opencl.1));
}

pub(crate) fn the_machine_is_asked_what_there_is_to_choose() {
    let model = load("Q4_K_M");
    let runtime = Runtime::new(host(1));
    let config = BackendConfig::new(&model, &runtime, &options(Vec::new())).unwrap();
    assert_eq!(config.layers.len(), model.spec().layers.len());
    let bytes: u64 = config.layers.iter().sum();
    // All weights, perhaps the table twice, and keys and values of 64 tokens.
    let weights: u64 = model
        .gguf()
        .tensors()
        .iter()
        .map(|t| t.bytes() as u64)
        .sum();
    assert!(
        bytes > weights && bytes < 2 * weights,
        "{bytes} of {weights}"
    );
    let devices: Vec<DeviceType> = config.devices.iter().map(|d| d.device).collect();
    assert_eq!(devices, [CPU], "nobody wants the reference");
    let chosen = select_backend(&config);
    assert!(config.is_met_by(&chosen));
    assert!(chosen.iter().all(|layer| layer.device == CPU));
}

pub(crate) fn what_was_asked_for_is_not_chosen_again() {
    let model = load("Q4_K_M");
    let fake =
        rustorch_faulty::Faulty::new(host(1).remove(0), Vec::<rustorch_faulty::Fault>::new());
    let runtime = Runtime::new(host(1).into_iter().chain([std::sync::Arc::new(fake) as _]));
    let asked = SessionOptions {
        routing: Routing {
            device: CPU,
            ..Routing::AUTO
        },
        ..options(Vec::new())
    };
    let (kept, chosen) = asked
        .placed(&model, &runtime, &PlacementOptions::default())
        .unwrap();
    assert!(kept.placement.is_empty() && chosen.is_empty());
    let (kept, chosen) = options(vec![DeviceType::Reference])
        .placed(&model, &runtime, &PlacementOptions::default())
        .unwrap();
    assert_eq!(chosen.len(), model.spec().layers.len());
    assert!(kept.placement.is_empty(), "it all fits");
}
