//! Pages of a mapped file in this process's memory. The test has a process of its own, since it
//! looks at all of its memory.
#![cfg(target_os = "linux")]

use std::io::Write;

use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata};

/// Elements of each of two tensors: 32 MiB.
const ELEMENTS: usize = 8 << 20;

/// Bytes of files in this process's memory.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|l| l.strip_prefix("RssFile:"))
        .unwrap();
    let kibibytes = line.trim().strip_suffix("kB").unwrap().trim();
    kibibytes.parse::<u64>().unwrap() << 10
}

#[test]
fn released_data_leaves_memory_and_comes_again() {
    let mut writer = GgufWriter::new(Metadata::new());
    for name in ["a", "b"] {
        writer
            .add_tensor(name, [ELEMENTS as u64], GgmlType::F32)
            .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let fill = |_: &_, out: &mut dyn Write| out.write_all(&[1; 4 * ELEMENTS]);
    writer.write(&path, fill).unwrap();

    let model = Gguf::open(&path).unwrap();
    let [a, b] = ["a", "b"].map(|name| model.tensor(name).unwrap());
    let sum = |tensor| -> u64 { model.data(tensor).iter().map(|&byte| u64::from(byte)).sum() };
    let before = resident();
    model.read_ahead(a);
    model.read_ahead(b);
    for tensor in [a, b] {
        assert_eq!(sum(tensor), 4 * ELEMENTS as u64);
    }
    let whole = resident();
    assert!(whole - before > 60 << 20, "{before} {whole}");
    model.release(a);
    let half = resident();
    assert!(
        whole - half > 30 << 20 && half - before > 30 << 20,
        "{whole} {half}"
    );
    assert_eq!(sum(a), 4 * ELEMENTS as u64);
}

#[test]
fn data_in_memory_stays() {
    let mut writer = GgufWriter::new(Metadata::new());
    writer.add_tensor("a", [4], GgmlType::F32).unwrap();
    let model = writer.to_memory(|at, tensor, data| {
        assert_eq!((at, tensor.name.as_str()), (0, "a"));
        data.fill(7);
    });
    let model = model.unwrap();
    let tensor = model.tensor("a").unwrap();
    model.read_ahead(tensor);
    model.release(tensor);
    assert_eq!(model.data(tensor), [7; 16]);
}
