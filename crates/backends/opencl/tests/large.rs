//! Work for which the reference is too slow is compared with the CPU. One part is products with
//! weights in blocks. Their activations are rounded alike, so only the order of sums differs. The
//! other part is long Fourier transforms.

use std::process::ExitCode;
use std::sync::Arc;

use rustorch_cpu::Cpu;
use rustorch_gpu::Gpu;
use rustorch_ir::ops::{Fft, FftKind, Linear, philox};
use rustorch_ir::{BlockFormat, DType, Graph, TensorType};
use rustorch_runtime::{Backend, HostBuffer, Routing, Runtime, Storage};
use rustorch_testing::{Suite, tests};

type Devices = Vec<Arc<dyn Backend>>;

/// Rows of weights: no multiple of any tile.
const N: usize = 83;

/// Numbers around zero, in single precision.
fn numbers(count: usize, stream: u64) -> Vec<f32> {
    (0..count)
        .map(|i| philox(i as u64 / 4, stream)[i % 4] as f32 / 2f32.powi(31) - 1.0)
        .collect()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let (cells, _) = bytes.as_chunks();
    cells.iter().map(|cell| f32::from_le_bytes(*cell)).collect()
}

/// The only output of `graph`, of floats.
fn run(backend: Arc<dyn Backend>, graph: &Graph, inputs: &[Vec<u8>]) -> Vec<f32> {
    let runtime = Runtime::new([backend]);
    let inputs: Vec<Storage> = (inputs.iter())
        .map(|bytes| Storage::from_host(HostBuffer::copy_of(bytes).unwrap()))
        .collect();
    let routing = Routing {
        strict: true,
        ..Routing::default()
    };
    let output = runtime.prepare(graph.clone(), routing).run(&inputs);
    let output = output.unwrap().remove(0);
    let mut bytes = vec![0; output.bytes()];
    runtime.read(&output, 0, &mut bytes).unwrap();
    floats(&bytes)
}

/// The squared difference over the squared values.
fn error(result: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(result.len(), expected.len());
    let square = |x: f64| x * x;
    let pairs = result.iter().zip(expected);
    let error: f64 = pairs.map(|(a, b)| square(f64::from(a - b))).sum();
    error / expected.iter().map(|x| square(f64::from(*x))).sum::<f64>()
}

/// `x · wᵀ + bias` with weights in blocks of `format`, `m` rows of `x` and `k` columns.
fn compare(device: &Arc<dyn Backend>, format: BlockFormat, m: usize, k: usize) -> f64 {
    let mut graph = Graph::new();
    let types = [
        TensorType::new([m, k], DType::F32),
        TensorType::new([N, k], DType::Block(format)),
        TensorType::new([N], DType::F32),
    ];
    let mut blocks = vec![0; types[1].bytes()];
    format.quantize(&numbers(N * k, 1), &mut blocks).unwrap();
    let inputs = [bytes(&numbers(m * k, 2)), blocks, bytes(&numbers(N, 3))];
    let values = types.map(|ty| graph.input(ty).unwrap());
    let y = graph.push(Linear, &values).unwrap();
    graph.output(y);
    let expected = run(Arc::new(Cpu::new(1)), &graph, &inputs);
    error(&run(device.clone(), &graph, &inputs), &expected)
}

fn products_with_blocks_are_those_of_the_cpu(devices: &Devices) {
    for device in devices {
        for &format in BlockFormat::ALL {
            for m in [1, 5, 33] {
                // Rows of blocks of 32 need not be a multiple of 256.
                for k in [768, 768 + format.block_len()] {
                    let error = compare(device, format, m, k);
                    assert!(error < 1e-9, "{format}, {m} rows of {k}: {error:.1e}");
                }
            }
        }
    }
}

/// Lines take one, two and three passes through memory.
fn long_fourier_transforms_are_those_of_the_cpu(devices: &Devices) {
    for device in devices {
        for n in [2048, 3000, 65_536, 100_000] {
            for (kind, dtype, given) in [
                (FftKind::Forward, DType::Complex64, n),
                (FftKind::RealToComplex, DType::F32, n),
                (FftKind::ComplexToReal { n }, DType::Complex64, n / 2 + 1),
            ] {
                let mut g = Graph::new();
                let x = g.input(TensorType::new([2, 1, given], dtype)).unwrap();
                let y = g.push(Fft { dim: 2, kind }, &[x]).unwrap();
                g.output(y);
                let parts = dtype.size().unwrap() / size_of::<f32>();
                let x = bytes(&numbers(2 * given * parts, 1));
                let expected = run(Arc::new(Cpu::new(0)), &g, std::slice::from_ref(&x));
                let result = run(device.clone(), &g, &[x]);
                let error = error(&result, &expected);
                assert!(error < 1e-12, "{kind:?} of {n}: {error:.1e}");
            }
        }
    }
}

fn main() -> ExitCode {
    let backend = |device| Arc::new(Gpu::new(device)) as Arc<dyn Backend>;
    let devices = rustorch_opencl::devices();
    let devices = devices.map(|all| all.into_iter().map(backend).collect::<Devices>());
    let tests = tests![
        products_with_blocks_are_those_of_the_cpu,
        long_fourier_transforms_are_those_of_the_cpu
    ];
    Suite::new()
        .on(devices, "RUSTORCH_TEST_OPENCL", tests)
        .run()
}
