//! Thirty graphs on the CPU and a measured OpenCL device. No plan should take more than 5 % longer
//! than the better device alone. Split graphs compute the same. CI has PoCL, and sets
//! `RUSTORCH_TEST_OPENCL=1` so that it must be found.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use rustorch_cpu::Cpu;
use rustorch_gpu::Gpu;
use rustorch_ir::{DType, OpKind, TensorType};
use rustorch_runtime::{Backend, DeviceType, HostBuffer, Routing, Runtime, Storage};
use rustorch_testing::{Suite, tests};

#[path = "../../../runtime/tests/executor/graphs.rs"]
mod graphs;

const CPU: DeviceType = DeviceType::Cpu;
const GPU: DeviceType = DeviceType::OpenCL(0);

/// Time for each size that is measured.
const EFFORT: Duration = Duration::from_millis(2);

/// The CPU and the first OpenCL device, measured.
fn measured(device: &Arc<dyn Backend>) -> Runtime {
    let runtime = Runtime::new([Arc::new(Cpu::new(2)) as _, device.clone()]);
    for (device, costs) in runtime.measure(&[CPU, GPU], EFFORT, |_, _| ()).unwrap() {
        runtime.set_costs(device, Some(costs));
    }
    runtime
}

fn planned_as_well_as_on_the_best_device_alone(device: &Arc<dyn Backend>) {
    let runtime = measured(device);
    for graphs::Case { name, graph, fresh } in graphs::all() {
        let executable = runtime.prepare(graph, Routing::AUTO);
        let estimate = executable.with_fresh_inputs(fresh).estimate().unwrap();
        let estimate = estimate.unwrap();
        let best = estimate.alone.iter().map(|(_, time)| *time).min().unwrap();
        let most = best.mul_f64(1.05) + Duration::from_nanos(1);
        assert!(estimate.planned <= most, "{name}: {estimate:?}");
    }
}

/// The CPU poses as good at products alone, so that there are boundaries.
fn in_parts_the_same_is_computed(device: &Arc<dyn Backend>) {
    let runtime = measured(device);
    let mut costs = (*runtime.costs(CPU).unwrap()).clone();
    let products = [OpKind::Matmul, OpKind::Linear, OpKind::Conv2d];
    costs.operations.retain(|cost| products.contains(&cost.op));
    let mut gpu = (*runtime.costs(GPU).unwrap()).clone();
    gpu.sync = Duration::ZERO;
    gpu.launch = Duration::ZERO;
    costs.launch = Duration::from_millis(1);
    for cost in &mut gpu.operations {
        if products.contains(&cost.op) {
            let points = cost.curve.points().iter();
            let slower = points.map(|&(work, seconds)| (work, seconds + 0.1));
            cost.curve = rustorch_runtime::Curve::try_from(slower.collect::<Vec<_>>()).unwrap();
        }
    }
    runtime.set_costs(CPU, Some(costs));
    runtime.set_costs(GPU, Some(gpu));
    let mut split = 0;
    for graphs::Case { name, graph, fresh } in graphs::all() {
        let inputs: Vec<Storage> = graph.inputs().iter().map(filled).collect();
        let run = |routing| {
            let executable = runtime.prepare(graph.clone(), routing);
            let executable = executable.with_fresh_inputs(fresh);
            let segments = executable.estimate().unwrap().map_or(1, |e| e.segments);
            let output = executable.run(&inputs).unwrap().remove(0);
            let mut bytes = vec![0; output.bytes()];
            runtime.read(&output, 0, &mut bytes).unwrap();
            let floats = bytes.chunks_exact(4);
            let floats = floats.map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]));
            (segments, floats.collect::<Vec<f32>>())
        };
        let (segments, found) = run(Routing::AUTO);
        let cpu = Routing {
            device: CPU,
            ..Routing::AUTO
        };
        let (_, expected) = run(cpu);
        let largest = expected.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        for (found, expected) in found.iter().zip(&expected) {
            let error = (found - expected).abs();
            assert!(error <= 1e-4 * largest, "{name}: {found}, not {expected}");
        }
        split += usize::from(segments > 1);
    }
    assert!(split > 5, "{split}");
}

/// Numbers from -0.5 to 0.5, or indices of rows.
fn filled(ty: &TensorType) -> Storage {
    let elements = 0..ty.shape.elements();
    let bytes: Vec<u8> = match ty.dtype {
        DType::I32 => elements
            .flat_map(|i| (i as i32 * 17).to_ne_bytes())
            .collect(),
        _ => elements
            .flat_map(|i| (((i * 7919) % 2003) as f32 / 2002.0 - 0.5).to_ne_bytes())
            .collect(),
    };
    Storage::from_host(HostBuffer::copy_of(&bytes).unwrap())
}

fn main() -> ExitCode {
    let first = rustorch_opencl::devices().map(|mut all| {
        let device: Arc<dyn Backend> = Arc::new(Gpu::new(all.remove(0)));
        device
    });
    let tests = tests![
        planned_as_well_as_on_the_best_device_alone,
        in_parts_the_same_is_computed,
    ];
    Suite::new().on(first, "RUSTORCH_TEST_OPENCL", tests).run()
}
