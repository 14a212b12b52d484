//! Times that devices report.

use std::sync::Arc;

use rustorch_ir::ops::{Activation, ActivationKind, Linear, Softmax};
use rustorch_ir::{DType, Graph, TensorType};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};

/// A timed run reports the time of each launch, and computes the same as other runs.
///
/// # Panics
/// Panics if the times or the results are wrong.
pub fn check_times(device: Arc<dyn Backend>, fuses: bool) {
    const SIZE: usize = 64;
    let mut g = Graph::new();
    let ty = TensorType::new([SIZE, SIZE], DType::F32);
    let [x, weight] = [(); 2].map(|()| g.input(ty.clone()).unwrap());
    let product = g.push(Linear, &[x, weight]).unwrap();
    let kind = ActivationKind::Silu;
    let active = g.push(Activation { kind }, &[product]).unwrap();
    let sum = g.add(active, x).unwrap();
    let squared = g.mul(sum, sum).unwrap();
    let softmax = Softmax { dim: 1, log: false };
    let y = g.push(softmax, &[squared]).unwrap();
    g.output(y);

    let numbers = (0..SIZE * SIZE).flat_map(|i| ((i % 7) as f32 - 3.0).to_ne_bytes());
    let bytes: Vec<u8> = numbers.collect();
    let storage = || Storage::from_host(HostBuffer::copy_of(&bytes).unwrap());
    let inputs = [storage(), storage()];
    let runtime = Runtime::new([device]);
    let executable = runtime.prepare(g, Routing::AUTO);
    let run = || {
        let outputs = executable.run(&inputs).unwrap();
        let mut bytes = vec![0; outputs[0].bytes()];
        runtime.read(&outputs[0], 0, &mut bytes).unwrap();
        bytes
    };
    let expected = run();
    assert!(
        executable
            .explain()
            .unwrap()
            .iter()
            .all(|row| row.measured.is_none())
    );
    runtime.set_profiling(true);
    assert_eq!(run(), expected);
    assert_eq!(run(), expected);
    runtime.set_profiling(false);
    assert_eq!(run(), expected);
    let rows = executable.explain().unwrap();
    assert!(rows.iter().all(|row| row.measured.is_some()), "{rows:?}");
    let ops: Vec<&str> = rows.iter().map(|row| &*row.op).collect();
    let is_fused = ops == ["linear", "silu, add, mul", "softmax"];
    let is_alone = ops == ["linear", "silu", "add", "mul", "softmax"];
    assert!(is_fused || !fuses && is_alone, "{ops:?}");
}
