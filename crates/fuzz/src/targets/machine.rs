//! Files about a machine, and files that are part of the program.

use std::sync::LazyLock;
use std::time::Duration;

use rustorch_ir::ops::UnaryOp;
use rustorch_ir::{DType, DeviceType, Graph, OpKind, TensorType};
use rustorch_runtime::{
    Bound, Calibration, Costs, Curve, Executable, OpCost, Routing, RunError, Runtime,
};
use rustorch_tensor::host;
use rustorch_testing::memory::within;

/// Costs of both devices, as `calibrate` writes them.
pub(super) fn calibrations() -> Vec<Vec<u8>> {
    let curve = |seconds| Curve::try_from(vec![(1e3, seconds), (1e6, 500.0 * seconds)]);
    let curve = |seconds| curve(seconds).expect("a curve");
    let cost = |op, bound| OpCost {
        op,
        example: String::new(),
        dtype: DType::F32,
        bound,
        curve: curve(1e-6),
    };
    let costs = Costs {
        sync: Duration::from_micros(5),
        launch: Duration::from_micros(1),
        upload: curve(1e-7),
        download: curve(2e-7),
        operations: vec![
            cost(OpKind::Unary, Bound::Bytes),
            cost(OpKind::Matmul, Bound::Macs),
        ],
    };
    let devices = [DeviceType::Cpu, DeviceType::Reference];
    let calibration = Calibration::new(&Runtime::new(host(1)), devices.map(|d| (d, costs.clone())));
    vec![serde_json::to_vec(&calibration).expect("a file")]
}

/// Plans a graph by the calibration that was read.
pub(super) fn calibration(bytes: &[u8]) -> Result<(), String> {
    static PLANNED: LazyLock<(Runtime, Executable)> = LazyLock::new(|| {
        let mut graph = Graph::new();
        let x = graph
            .input(TensorType::new([64, 64], DType::F32))
            .expect("an input");
        let y = graph.matmul(x, x).expect("a product");
        let y = graph.unary(UnaryOp::Exp, y).expect("an operation");
        graph.output(y);
        let runtime = Runtime::new(host(1));
        let executable = runtime.prepare(graph, Routing::AUTO);
        (runtime, executable)
    });
    let path = tempfile::NamedTempFile::new()
        .expect("a file")
        .into_temp_path();
    std::fs::write(&path, bytes).expect("the file can be written");
    let told = |e: RunError| e.to_string().replace(&path.display().to_string(), "FILE");
    let read = || Calibration::load(&path);
    let calibration = within(64 * bytes.len() + 4096, read).map_err(told)?;
    let calibration = calibration.expect("there is a file");
    let (runtime, executable) = &*PLANNED;
    for (device, costs) in calibration.devices() {
        runtime.set_costs(device, Some(costs.clone()));
    }
    executable.placement().expect("a plan");
    executable.estimate().expect("a plan");
    calibration.check(runtime.devices()).map_err(told)
}

/// Compiled kernels in two packs, whose checksums are left out: [`pack`] makes them, or none but those would be damaged.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn packs() -> Vec<Vec<u8>> {
    use rustorch_cuda::pack::{Pack, Target};

    let text = b".version 7.0\n.target sm_70\n.visible .entry main() { ret; }\n".repeat(8);
    let kernels = [
        ("a", Target::Compute70, &text[..]),
        ("b", Target::Compute90a, &text[..40]),
    ];
    let compress = |frame: &[u8]| zstd::bulk::compress(frame, 3);
    let file = Pack::write(&kernels, compress).expect("a pack");
    let empty = Pack::write(&[], compress).expect("a pack");
    vec![unsealed(&file), unsealed(&empty)]
}

#[cfg(not(target_vendor = "apple"))]
const WORD: usize = 4;
/// Bytes of the index for a frame: its length and its checksum.
#[cfg(not(target_vendor = "apple"))]
const FRAME: usize = 2 * WORD;
/// Bytes of the index for a kernel: half a SHA-256 and three words.
#[cfg(not(target_vendor = "apple"))]
const KERNEL: usize = 16 + 3 * WORD;

/// The word at a place; 0 behind the end.
#[cfg(not(target_vendor = "apple"))]
fn word(file: &[u8], at: usize) -> usize {
    let bytes = file.get(at..).and_then(|rest| rest.first_chunk());
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
}

/// End of the index, at most the end of the file.
#[cfg(not(target_vendor = "apple"))]
fn index(file: &[u8]) -> usize {
    let [frames, kernels] = [0, WORD].map(|at| word(file, at));
    (2 * WORD + frames * FRAME + kernels * KERNEL).min(file.len())
}

#[cfg(not(target_vendor = "apple"))]
fn unsealed(file: &[u8]) -> Vec<u8> {
    let end = index(file);
    [&file[..end], &file[end + WORD..]].concat()
}

/// The file with checksums that are right, of frames and of the index.
#[cfg(not(target_vendor = "apple"))]
fn sealed(file: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};

    let check = |bytes: &[u8]| Sha256::digest(bytes)[..WORD].to_vec();
    let (front, frames) = file.split_at(index(file));
    let mut front = front.to_vec();
    let mut at = 0;
    for frame in 0..word(file, 0) {
        let entry = 2 * WORD + frame * FRAME;
        let len = word(&front, entry);
        let (Some(sum), Some(bytes)) = (
            front.get_mut(entry + WORD..entry + FRAME),
            frames.get(at..at + len),
        ) else {
            break;
        };
        sum.copy_from_slice(&check(bytes));
        at += len;
    }
    [&front, &check(&front)[..], frames].concat()
}

/// Every kernel of what is a pack is asked for.
#[cfg(not(target_vendor = "apple"))]
pub(super) fn pack(bytes: &[u8]) -> Result<(), String> {
    use rustorch_cuda::pack::Pack;

    let pack = Pack::open(sealed(bytes))?;
    let found = ["a", "b"].map(|source| pack.best(source, 90).is_some());
    match found {
        [true, true] => Ok(()),
        found => Err(format!("of {} kernels found {found:?}", pack.len())),
    }
}
