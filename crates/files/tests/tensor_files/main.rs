//! Files of tensors: those of NumPy, PyTorch and safetensors, those that are written here, and wrong ones.

mod arrays;
mod dlpack;
mod goldens;
mod hostile;
mod mapped;
#[cfg(feature = "image")]
mod pictures;
mod written;

use std::path::{Path, PathBuf};

use rustorch_files::{FileResult, Tensors};
use rustorch_ir::{BlockFormat, DType, Scalar};
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{Tensor, host, with_runtime};
use rustorch_testing::memory::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs a test on the processor alone.
fn on_cpu<T>(test: impl FnOnce(&Runtime) -> T) -> T {
    let runtime = Runtime::new(host(1));
    with_runtime(&runtime, Routing::AUTO, || test(&runtime))
}

fn golden(name: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    tests.join("goldens").join(name)
}

/// The elements' bytes in row-major order.
fn bytes(tensor: &Tensor) -> Vec<u8> {
    let mut bytes = Vec::new();
    rustorch_files::raw::write(&mut bytes, tensor).unwrap();
    bytes
}

/// The bytes of these numbers.
fn of(dtype: DType, numbers: &[f64]) -> Vec<u8> {
    let number = |&n: &f64| match dtype.is_complex() {
        true => Scalar::Complex(n.into(), (n + 2.5).into()),
        false => n.into(),
    };
    let bytes = numbers.iter().map(|n| number(n).to_bytes(dtype));
    bytes.flatten().collect()
}

/// The six numbers that the script `file-goldens.py` makes of each dtype.
fn values(dtype: DType) -> [f64; 6] {
    let numbers = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
    match dtype {
        DType::Bool => numbers.map(|n| n % 2.0),
        dtype if dtype.is_unsigned() => numbers,
        dtype if dtype.is_int() => numbers.map(|n| n - 2.0),
        _ => numbers.map(|n| n - 2.5),
    }
}

/// The tensors that the script makes of a dtype, by its names, with their bytes.
fn expected(dtype: DType) -> [(String, Vec<usize>, Vec<u8>); 3] {
    let values = values(dtype);
    [
        (dtype.to_string(), vec![2, 3], of(dtype, &values)),
        (format!("{dtype}.empty"), vec![0, 3], vec![]),
        (format!("{dtype}.scalar"), vec![], of(dtype, &values[5..])),
    ]
}

/// The same as tensors.
fn tensors(dtypes: impl IntoIterator<Item = DType>) -> Tensors {
    let all = dtypes.into_iter().flat_map(|dtype| {
        expected(dtype).map(|(name, shape, bytes)| {
            let layout = rustorch_files::raw::Layout::new(dtype, shape);
            let tensor = rustorch_files::raw::read(&bytes.into(), &layout);
            (name, tensor.unwrap())
        })
    });
    all.collect()
}

/// Fails unless these are the script's tensors of these dtypes.
fn check(found: &Tensors, dtypes: impl IntoIterator<Item = DType>) {
    let mut count = 0;
    for dtype in dtypes {
        for (name, shape, expected) in expected(dtype) {
            let tensor = found.get(&name).unwrap();
            assert_eq!(
                (tensor.dtype(), tensor.shape()),
                (dtype, &shape[..]),
                "{name}"
            );
            assert_eq!(bytes(tensor), expected, "{name}");
            count += 1;
        }
    }
    assert_eq!(found.len(), count, "{found:?}");
}

/// Two rows of 32 numbers in blocks of `Q8_0`, and the numbers.
fn blocks() -> (Tensor, Vec<f32>) {
    let numbers: Vec<f32> = (0..64).map(|n| n as f32 / 8.0).collect();
    let format: BlockFormat = "Q8_0".parse().unwrap();
    let mut bytes = vec![0; format.row_bytes(numbers.len()).unwrap()];
    format.quantize(&numbers, &mut bytes).unwrap();
    let layout = rustorch_files::raw::Layout::new(DType::Block(format), [2, 32]);
    let blocks = rustorch_files::raw::read(&bytes.into(), &layout);
    (blocks.unwrap(), numbers)
}

/// The error's text, which has to be one line.
#[track_caller]
fn error<T>(result: FileResult<T>) -> String {
    let Err(error) = result else {
        panic!("no error");
    };
    let text = error.to_string();
    assert!(!text.contains('\n'), "{text}");
    text
}
