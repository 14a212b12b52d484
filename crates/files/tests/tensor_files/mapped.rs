//! Large files are used where they are mapped.

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use rustorch_files::npz::Compression;
use rustorch_files::{Tensors, load, npz, pt, raw};
use rustorch_ir::DType;
use rustorch_tensor::{Activity, Tensor};

use crate::{bytes, of, on_cpu};

const GIB: u64 = 1 << 30;

/// A file of zeros that takes no room on the disk, with some bytes at its begin and end.
fn sparse(path: &Path, begin: &[u8], len: u64, end: &[u8]) {
    let mut file = File::create(path).unwrap();
    file.write_all(begin).unwrap();
    file.set_len(len).unwrap();
    file.seek(SeekFrom::Start(len - end.len() as u64)).unwrap();
    file.write_all(end).unwrap();
}

#[test]
fn three_gibibytes_are_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.safetensors");
    let count = 3 * GIB / 4;
    // The second tensor begins at a multiple of 4, not of 8.
    let mut header = format!(
        r#"{{"one":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},"large":{{"dtype":"F32","shape":[{},3],"data_offsets":[4,{}]}}}}"#,
        count / 3,
        4 + 4 * count
    );
    header.extend(std::iter::repeat_n(
        ' ',
        header.len().next_multiple_of(8) - header.len(),
    ));
    let mut begin = (header.len() as u64).to_le_bytes().to_vec();
    begin.extend(header.bytes());
    begin.extend(1.5f32.to_le_bytes());
    let len = 8 + header.len() as u64 + 4 + 4 * count;
    sparse(&path, &begin, len, &2.5f32.to_le_bytes());
    on_cpu(|runtime| {
        let before = Activity::of(runtime);
        let tensors = load(&path).unwrap();
        let (one, large) = (tensors.get("one").unwrap(), tensors.get("large").unwrap());
        assert_eq!(one.to_vec::<f32>().unwrap(), [1.5]);
        assert_eq!(large.shape(), [count as usize / 3, 3]);
        let last = large.narrow(0, large.shape()[0] - 1, 1).unwrap();
        let sum = last.sum([0, 1], false).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [2.5]);
        assert_eq!(Activity::of(runtime).since(before), Activity::default());
        let memory = large.storage_in_memory().unwrap();
        assert!(memory.host_address().unwrap().is_multiple_of(8));
        assert!(memory.bytes() as u64 >= 3 * GIB);
    });
}

#[test]
fn raw_files_are_not_copied() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.bin");
    sparse(&path, &[], 3 * GIB, &of(DType::F64, &[7.0]));
    on_cpu(|runtime| {
        let before = Activity::of(runtime);
        let layout = raw::Layout {
            strides: Some(vec![0, 1 << 20]),
            offset: 8 * ((1 << 20) - 1),
            ..raw::Layout::new(DType::F64, [2, 384])
        };
        let read = raw::load(&path, &layout).unwrap();
        let last = read.narrow(1, 383, 1).unwrap();
        assert_eq!(last.to_vec::<f64>().unwrap(), [7.0, 7.0]);
        assert_eq!(Activity::of(runtime).since(before), Activity::default());
    });
}

/// Address of a tensor's first element.
fn address(tensor: &Tensor) -> usize {
    let begin = tensor.storage_in_memory().unwrap().host_address().unwrap();
    begin + tensor.storage_offset() * tensor.dtype().size().unwrap()
}

#[test]
fn archives_that_are_written_here_are_used_where_they_are() {
    on_cpu(|runtime| {
        let folder = tempfile::tempdir().unwrap();
        let tensors: Tensors = [("a", DType::F64), ("bc", DType::U8), ("def", DType::F32)]
            .map(|(name, dtype)| (name, Tensor::ones([5, 3], dtype).unwrap()))
            .into_iter()
            .collect();
        let [npz, pt] = ["a.npz", "a.pt"].map(|name| folder.path().join(name));
        npz::save(&npz, &tensors, Compression::Stored).unwrap();
        pt::save(&pt, &tensors).unwrap();
        for path in [npz, pt] {
            let before = Activity::of(runtime);
            let read = load(&path).unwrap();
            for (name, tensor) in read.iter() {
                assert!(address(tensor).is_multiple_of(64), "{name}");
                assert_eq!(bytes(tensor), bytes(tensors.get(name).unwrap()), "{name}");
            }
            assert_eq!(Activity::of(runtime).since(before), Activity::default());
        }
    });
}
