//! Assignments for devices of several sizes.

use rustorch_runtime::Hardware;

use super::*;

const GPU: DeviceType = DeviceType::Cuda(0);
const SECOND: DeviceType = DeviceType::Cuda(1);
const CPU: DeviceType = DeviceType::Cpu;
const GIB: u64 = 1 << 30;

fn own(device: DeviceType, free: u64) -> BackendDevice {
    BackendDevice {
        device,
        free: Some(free),
        shares_host_memory: false,
    }
}

fn shared(device: DeviceType) -> BackendDevice {
    BackendDevice {
        device,
        free: None,
        shares_host_memory: true,
    }
}

/// Ten layers of a gibibyte.
fn config(devices: &[BackendDevice], host_free: u64) -> BackendConfig {
    BackendConfig {
        layers: vec![GIB; 10],
        shared: 0,
        experts: Vec::new(),
        working: GIB / 2,
        devices: devices.to_vec(),
        reason: "measured: 1.0 ms here, 2.0 ms on cpu".to_owned(),
        host_free: Some(host_free),
        gpu_layers: GpuLayers::Auto,
    }
}

/// Number of layers of each device, in the order of the layers.
fn runs(chosen: &[LayerBackend]) -> Vec<(DeviceType, usize)> {
    let runs = chosen.chunk_by(|a, b| a.device == b.device);
    runs.map(|run| (run[0].device, run.len())).collect()
}

#[test]
fn a_card_that_two_drivers_show_is_one() {
    let card = |device, name: &str| DeviceInfo {
        device,
        hardware: Hardware::Gpu,
        shares_host_memory: false,
        name: name.to_owned(),
        memory_bytes: None,
        details: Vec::new(),
    };
    let cuda = card(GPU, "NVIDIA H200");
    assert!(is_same_card(
        &cuda,
        &card(DeviceType::OpenCL(0), "NVIDIA H200")
    ));
    // Two of a kind are two.
    assert!(!is_same_card(&cuda, &card(SECOND, "NVIDIA H200")));
    assert!(!is_same_card(
        &cuda,
        &card(DeviceType::OpenCL(0), "Intel Arc")
    ));
}

#[test]
fn what_fits_goes_to_the_best_device() {
    let config = config(&[own(GPU, 20 * GIB), shared(CPU)], 64 * GIB);
    let chosen = select_backend(&config);
    assert_eq!(runs(&chosen), [(GPU, 10)]);
    assert!(config.is_met_by(&chosen));
    assert_eq!(
        chosen[0].reason,
        "measured: 1.0 ms here, 2.0 ms on cpu; 10.0 GiB of 20.0 GiB free"
    );
}

#[test]
fn the_rest_goes_to_the_next() {
    // 0.9 × 8 − 0.5 are room for 6, 0.9 × 3 − 0.5 for 2.
    let devices = [own(GPU, 8 * GIB), own(SECOND, 3 * GIB), shared(CPU)];
    let config = config(&devices, 64 * GIB);
    let chosen = select_backend(&config);
    assert_eq!(runs(&chosen), [(CPU, 2), (SECOND, 2), (GPU, 6)]);
    assert!(!config.is_met_by(&chosen));
    assert_eq!(
        chosen[3].reason,
        "cuda:0 has room for 6 of 10 layers; 2.0 GiB of 3.0 GiB free"
    );
    assert_eq!(
        chosen[0].reason,
        "cuda:1 has room for 2 of 4 layers; 2.0 GiB of 64.0 GiB free"
    );
}

#[test]
fn so_many_layers_as_were_asked_for() {
    let devices = [shared(CPU), own(GPU, 8 * GIB), own(SECOND, 8 * GIB)];
    let config = config(&devices, 64 * GIB);
    let with = |count| {
        let config = config.clone().with_gpu_layers(GpuLayers::AtMost(count));
        select_backend(&config)
    };
    assert_eq!(runs(&with(0)), [(CPU, 10)]);
    assert_eq!(runs(&with(4)), [(CPU, 6), (GPU, 4)]);
    assert_eq!(runs(&with(8)), [(CPU, 2), (SECOND, 2), (GPU, 6)]);
    assert_eq!(runs(&with(99)), [(SECOND, 4), (GPU, 6)]);
    assert_eq!(
        with(4)[9].reason,
        "4 layers were requested; 4.0 GiB of 8.0 GiB free"
    );
    // The processor would be better: that it is not has to be said.
    assert!(!config.is_met_by(&with(99)));
    // Even with no room left for the processor's, no other device gets more.
    let full = BackendConfig {
        host_free: Some(0),
        ..config.clone()
    };
    let full = full.with_gpu_layers(GpuLayers::AtMost(1));
    assert_eq!(runs(&select_backend(&full)), [(CPU, 9), (GPU, 1)]);
}

#[test]
fn what_one_layer_would_need() {
    let with = |free| config(&[own(GPU, free), shared(CPU)], 64 * GIB);
    let needed = with(GIB).lacking().unwrap();
    assert_eq!(needed, (1.5 * GIB as f64 / 0.9).ceil() as u64);
    assert_eq!(with(needed).lacking(), None);
    assert!(with(needed - 2).lacking().is_some());
    assert_eq!(runs(&select_backend(&with(needed))), [(CPU, 9), (GPU, 1)]);
    let none = with(GIB).with_gpu_layers(GpuLayers::AtMost(0));
    assert_eq!(none.lacking(), None);
}

#[test]
fn a_device_without_room_is_passed_over() {
    let chosen = select_backend(&config(&[own(GPU, GIB), shared(CPU)], 64 * GIB));
    assert_eq!(runs(&chosen), [(CPU, 10)]);
    assert!(
        chosen[0]
            .reason
            .starts_with("cuda:0 has room for 0 of 10 layers")
    );
}

#[test]
fn devices_that_share_memory_share_its_limit() {
    let opencl = DeviceType::OpenCL(0);
    // Room for 6 in all, and not for each.
    let chosen = select_backend(&config(&[shared(CPU), shared(opencl)], 8 * GIB));
    assert_eq!(runs(&chosen), [(CPU, 10)]);
    assert!(
        chosen[0].reason.contains("layers that fit nowhere"),
        "{}",
        chosen[0].reason
    );
    // Memory of a device's own takes the pressure off.
    let chosen = select_backend(&config(&[shared(CPU), own(GPU, 20 * GIB)], 8 * GIB));
    assert_eq!(runs(&chosen), [(GPU, 4), (CPU, 6)]);
}

#[test]
fn unequal_layers_and_unknown_memory() {
    let unknown = BackendDevice {
        free: None,
        ..own(GPU, 0)
    };
    let chosen = select_backend(&config(&[unknown], 0));
    assert_eq!(runs(&chosen), [(GPU, 10)]);
    let mut config = config(&[own(GPU, 8 * GIB), shared(CPU)], 64 * GIB);
    // The head alone is too large.
    config.layers[9] = 7 * GIB;
    assert_eq!(runs(&select_backend(&config)), [(CPU, 10)]);
    config.layers.clear();
    assert!(select_backend(&config).is_empty());
    config.layers.push(1);
    config.devices.clear();
    assert!(select_backend(&config).is_empty());
}

/// Ten layers of a gibibyte, of which experts have three quarters.
fn with_experts(devices: &[BackendDevice]) -> BackendConfig {
    let experts = |layer| LayerExperts {
        tensors: vec![format!("blk.{layer}.ffn_up_exps.weight")],
        bytes: 3 * GIB / 4,
    };
    BackendConfig {
        experts: (0..10).map(experts).collect(),
        ..config(devices, 64 * GIB)
    }
}

/// The devices of experts, and numbers of layers.
fn expert_runs(chosen: &[LayerBackend]) -> Vec<(DeviceType, usize)> {
    let of = |layer: &LayerBackend| match &layer.elsewhere[..] {
        [] => layer.device,
        [elsewhere, ..] => elsewhere.device,
    };
    let runs = chosen.chunk_by(|a, b| of(a) == of(b));
    runs.map(|run| (of(&run[0]), run.len())).collect()
}

#[test]
fn experts_leave_a_full_device_before_layers() {
    // 0.9 × 8 − 0.5 = 6.7: the ten rests of 0.25, and five experts of 0.75.
    let chosen = select_backend(&with_experts(&[own(GPU, 8 * GIB), shared(CPU)]));
    assert_eq!(runs(&chosen), [(GPU, 10)]);
    assert_eq!(expert_runs(&chosen), [(CPU, 5), (GPU, 5)]);
    assert_eq!(
        chosen[4].elsewhere[0].names().collect::<Vec<_>>(),
        ["ffn_up_exps.weight"]
    );
    assert!(chosen[0].is_like(&chosen[4]) && !chosen[0].is_like(&chosen[5]));
    // All that fits stays whole, also on two devices.
    let chosen = select_backend(&with_experts(&[own(GPU, 20 * GIB), shared(CPU)]));
    assert_eq!(expert_runs(&chosen), [(GPU, 10)]);
    let two = [own(GPU, 8 * GIB), own(SECOND, 8 * GIB), shared(CPU)];
    let chosen = select_backend(&with_experts(&two));
    assert_eq!(runs(&chosen), [(SECOND, 4), (GPU, 6)]);
    assert_eq!(expert_runs(&chosen), [(SECOND, 4), (GPU, 6)]);
}

#[test]
fn experts_go_to_the_next_device_with_room() {
    // 3.1 and 1.3: the rests and no experts, and one layer's experts.
    let two = [own(GPU, 4 * GIB), own(SECOND, 2 * GIB), shared(CPU)];
    let chosen = select_backend(&with_experts(&two));
    assert_eq!(runs(&chosen), [(GPU, 10)]);
    assert_eq!(expert_runs(&chosen), [(CPU, 9), (SECOND, 1)]);
}

#[test]
fn even_rests_may_be_too_large() {
    // 1.3: the rests of five layers.
    let chosen = select_backend(&with_experts(&[own(GPU, 2 * GIB), shared(CPU)]));
    assert_eq!(runs(&chosen), [(CPU, 5), (GPU, 5)]);
    assert_eq!(expert_runs(&chosen), [(CPU, 10)]);
    let asked = with_experts(&[own(GPU, 2 * GIB), shared(CPU)]);
    let asked = asked.with_gpu_layers(GpuLayers::AtMost(2));
    let chosen = select_backend(&asked);
    assert_eq!(runs(&chosen), [(CPU, 8), (GPU, 2)]);
    assert_eq!(expert_runs(&chosen), [(CPU, 9), (GPU, 1)]);
}

#[test]
fn tensors_elsewhere_make_room() {
    let names = |layer| format!("blk.{layer}.ffn_up_exps.weight");
    let config = with_experts(&[own(GPU, 4 * GIB), shared(CPU)]);
    let config = (0..10).fold(config, |config, layer| {
        config.with_elsewhere(&[layer], &names(layer), 3 * GIB / 4, CPU)
    });
    assert_eq!(config.layers, [GIB / 4; 10]);
    assert_eq!(config.host_free, Some(64 * GIB - 30 * GIB / 4));
    assert_eq!(runs(&select_backend(&config)), [(GPU, 10)]);
    let config = with_experts(&[own(GPU, 4 * GIB), shared(CPU)]);
    let config = config.with_elsewhere(&[0], &names(0), GIB, GPU);
    assert_eq!(config.devices[0].free, Some(3 * GIB));
}

/// Ten layers, of which the first and the last have a table of two gibibytes.
fn with_table(free: u64) -> BackendConfig {
    let mut config = config(&[own(GPU, free), shared(CPU)], 64 * GIB);
    config.layers[0] += 2 * GIB;
    config.layers[9] += 2 * GIB;
    config.shared = 2 * GIB;
    config
}

#[test]
fn a_device_with_all_layers_has_a_shared_table_once() {
    // 0.9 × 14 − 0.5 = 12.1: ten layers and one table.
    let chosen = select_backend(&with_table(14 * GIB));
    assert_eq!(runs(&chosen), [(GPU, 10)]);
    assert!(
        chosen[0].reason.contains("12.0 GiB of 14.0"),
        "{}",
        chosen[0].reason
    );
    // Two devices have one each: 11.2 are nine layers and a table.
    let chosen = select_backend(&with_table(13 * GIB));
    assert_eq!(runs(&chosen), [(CPU, 1), (GPU, 9)]);
    // On the processor it leaves room on the card for both of its uses.
    let config = with_table(13 * GIB).with_elsewhere(&[0, 9], "token_embd.weight", 2 * GIB, CPU);
    assert_eq!((config.layers.clone(), config.shared), (vec![GIB; 10], 0));
    assert_eq!(config.host_free, Some(62 * GIB));
    assert_eq!(runs(&select_backend(&config)), [(GPU, 10)]);
}
