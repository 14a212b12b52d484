//! Files of tensors.

use std::io::Cursor;
use std::sync::LazyLock;

use ::safetensors::SafeTensors;
use rustorch_files::npz::Compression;
use rustorch_files::{Format, Source, Tensors, raw};
use rustorch_ir::DType;
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{Tensor, host, with_runtime};
use rustorch_testing::memory::within;

use super::all_in;

/// Bytes that objects of a pickle, or names of tensors, take beside their bytes in the file.
const FACTOR: usize = 64;
const SLACK: usize = 256 << 10;
/// Elements of a tensor that is looked at: one may show a small storage often.
const LARGE: usize = 1 << 20;

const GOLDENS: &str = "crates/files/tests/goldens";

pub(super) fn on_cpu<T>(f: impl FnOnce() -> T) -> T {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new(host(1)));
    with_runtime(&RUNTIME, Routing::AUTO, f)
}

/// A few tensors, written by this project.
fn saved(name: &str, only: bool) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join(name);
    on_cpu(|| {
        let ones = |dtype| Tensor::ones([2, 3], dtype).expect("a tensor");
        let all = [DType::F32, DType::I64, DType::Bool].map(|d| (d.to_string(), ones(d)));
        let tensors: Tensors = match only {
            true => ones(DType::F32).into(),
            false if name.ends_with(".gguf") => [all[0].clone()].into_iter().collect(),
            false => all.into_iter().collect(),
        };
        rustorch_files::save(&path, &tensors).expect("the file can be written");
    });
    std::fs::read(path).expect("the file can be read")
}

pub(super) fn safetensors() -> Vec<Vec<u8>> {
    let mut all = all_in(GOLDENS, ".safetensors");
    all.push(saved("a.safetensors", false));
    all
}

pub(super) fn npy() -> Vec<Vec<u8>> {
    let mut all = all_in(GOLDENS, ".npy");
    all.push(saved("a.npy", true));
    all
}

pub(super) fn npz() -> Vec<Vec<u8>> {
    let mut all = all_in(GOLDENS, ".npz");
    all.push(saved("a.npz", false));
    let mut deflated = Cursor::new(Vec::new());
    on_cpu(|| {
        let ones: Tensors = Tensor::ones([2, 3], DType::F32).expect("a tensor").into();
        rustorch_files::npz::write(&mut deflated, &ones, Compression::Deflated)
            .expect("there is memory");
    });
    all.push(deflated.into_inner());
    all
}

pub(super) fn pytorch() -> Vec<Vec<u8>> {
    let mut all = all_in(GOLDENS, ".pt");
    all.push(saved("a.pt", false));
    all
}

pub(super) fn gguf() -> Vec<Vec<u8>> {
    vec![saved("a.gguf", false)]
}

/// Bytes behind a line that says what they are: dtype, sizes, strides or nothing, and bytes to leave out, with bars between.
pub(super) fn raws() -> Vec<Vec<u8>> {
    let lines = [
        "F32|2,3||4",
        "BF16|2,2|1,3|0",
        "U8|||5",
        "Q8_0|2,32||0",
        "I64|0,7|1,1|3",
    ];
    let file = |line: &&str| [line.as_bytes(), b"\n", &[0x3f; 80]].concat();
    lines.iter().map(file).collect()
}

/// All elements are looked at, if they are not too many.
pub(super) fn raw(bytes: &[u8]) -> Result<(), String> {
    let end = bytes
        .iter()
        .position(|&byte| byte == b'\n')
        .ok_or("no line")?;
    let line = String::from_utf8_lossy(&bytes[..end]);
    let [dtype, shape, strides, offset] = line.split('|').collect::<Vec<_>>()[..] else {
        return Err("not four parts".to_owned());
    };
    let numbers = |list: &str| -> Result<Vec<usize>, String> {
        let numbers = list.split(',').filter(|number| !number.is_empty());
        numbers
            .map(|n| n.parse().map_err(|_| format!("{n:?}")))
            .collect()
    };
    let layout = raw::Layout {
        dtype: dtype.parse().map_err(|_| format!("dtype {dtype:?}"))?,
        shape: numbers(shape)?,
        strides: Some(numbers(strides)?).filter(|strides| !strides.is_empty()),
        offset: offset.parse().map_err(|_| format!("{offset:?}"))?,
    };
    let source = Source::from(bytes[end + 1..].to_vec());
    on_cpu(|| {
        let read = || raw::read(&source, &layout);
        let tensor = within(FACTOR * bytes.len() + SLACK, read).map_err(|e| e.to_string())?;
        if tensor.numel() <= LARGE {
            raw::write(&mut Vec::new(), &tensor).map_err(|e| e.to_string())?;
        }
        Ok(())
    })
}

/// All elements are looked at, and written as safetensors, where these have the dtypes, and read again.
pub(super) fn read(bytes: &[u8], format: Format) -> Result<(), String> {
    let source = Source::from(bytes.to_vec());
    on_cpu(|| {
        let read = || rustorch_files::read(&source, format);
        let tensors = within(FACTOR * bytes.len() + SLACK, read).map_err(|e| e.to_string())?;
        let is_theirs = || SafeTensors::deserialize(bytes).is_ok();
        assert!(format != Format::Safetensors || is_theirs());
        if tensors.iter().any(|(_, tensor)| tensor.numel() > LARGE) {
            return Ok(());
        }
        for (name, tensor) in tensors.iter() {
            let mut elements = Vec::new();
            raw::write(&mut elements, tensor).expect("what was read can be looked at");
            let expected = tensor.dtype().bytes_of(tensor.shape());
            assert_eq!(Some(elements.len()), expected, "{name}");
        }
        let mut written = Vec::new();
        if rustorch_files::safetensors::write(&mut written, &tensors).is_ok() {
            let again = rustorch_files::safetensors::read(&written.into());
            let again = again.expect("what was written can be read");
            assert_eq!(again.len(), tensors.len());
        }
        Ok(())
    })
}
