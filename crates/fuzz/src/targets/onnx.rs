//! ONNX files.

use rustorch_files::Source;
use rustorch_onnx::{Dim, Info, Kind, Model, Value};
use rustorch_tensor::Tensor;
use rustorch_testing::memory::within;

use super::all_in;
use super::tensors::on_cpu;

/// Bytes that nodes and names take beside their bytes in the file.
const FACTOR: usize = 256;
const SLACK: usize = 256 << 10;
/// Elements of an input, and of an output that is computed.
const LARGE: usize = 4096;

pub(super) fn models() -> Vec<Vec<u8>> {
    all_in("crates/onnx/tests/goldens", ".onnx")
}

/// A model that was taken runs, or an error names a node.
pub(super) fn model(bytes: &[u8]) -> Result<(), String> {
    let source = Source::from(bytes.to_vec());
    on_cpu(|| {
        let read = || Model::from_bytes(source.clone());
        let model = within(FACTOR * bytes.len() + SLACK, read).map_err(|e| e.to_string())?;
        let inputs = model.inputs().iter().map(input).collect::<Option<Vec<_>>>();
        let results = model.run(inputs.ok_or("no small inputs")?);
        for (_, value) in results.map_err(|e| e.to_string())? {
            if let Value::Tensor(tensor) = value
                && tensor.numel() <= LARGE
            {
                tensor.eval().map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    })
}

/// A small tensor for an input.
fn input(info: &Info) -> Option<(String, Tensor)> {
    let Kind::Tensor {
        dtype: Some(dtype),
        shape: Some(dims),
    } = &info.kind
    else {
        return None;
    };
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => *size,
        Dim::Named(_) => 2,
    };
    let sizes: Vec<usize> = dims.iter().map(size).collect();
    let count = sizes
        .iter()
        .try_fold(1usize, |n, &size| n.checked_mul(size));
    count.filter(|&count| count <= LARGE)?;
    Some((info.name.clone(), Tensor::ones(sizes, *dtype).ok()?))
}
