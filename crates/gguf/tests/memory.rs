//! Files that describe as much as their size allows, or announce more than is there: reading them takes no more than a few
//! times the file's size in memory. Damaged files are tried in `crates/fuzz`.

use rustorch_gguf::{Array, GgmlType, Gguf, GgufWriter, Metadata};
use rustorch_testing::memory::{Counting, within};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How many times a file's size reading it may take.
const MOST: usize = 8;
/// For the texts of errors.
const SLACK: usize = 4096;

/// Files that hold as many things as their size allows, so that what describes a thing in memory weighs most.
#[test]
fn files_that_are_all_description_stay_within_bounds() {
    const COUNT: usize = 50_000;
    let mut keys = Metadata::new();
    for number in 0..COUNT {
        keys.insert(format!("{number:x}"), true);
    }
    let mut strings = Metadata::new();
    strings.insert("s", vec![String::new(); COUNT]);
    let mut bytes = Metadata::new();
    let mut list = vec![Vec::new(); COUNT];
    list.push(vec![0xff]);
    bytes.insert("b", Array::Bytes(list));
    let mut arrays = Metadata::new();
    arrays.insert("a", vec![Array::U8(vec![]); COUNT]);
    let mut tensors = GgufWriter::default();
    tensors.metadata.insert("general.alignment", 8u32);
    for number in 0..COUNT {
        tensors
            .add_tensor(format!("{number:x}"), [], GgmlType::I8)
            .unwrap();
    }
    let writers = [keys, strings, bytes, arrays]
        .map(GgufWriter::new)
        .into_iter()
        .chain([tensors]);
    for writer in writers {
        let mut file = Vec::new();
        writer
            .write_to(&mut file, |_, out| out.write_all(&[0]))
            .unwrap();
        let size = file.len();
        let model = within(MOST * size + SLACK, || Gguf::from_bytes(file)).unwrap();
        assert_eq!(
            (model.metadata.len(), model.tensors().len()),
            (writer.metadata.len(), writer.tensors().len())
        );
    }
}

/// Counts that just fit into the file, though nothing of what they announce is there.
#[test]
fn announced_counts_stay_within_bounds() {
    const SIZE: usize = 1 << 20;
    let with_counts = |tensors: u64, keys: u64| {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend(tensors.to_le_bytes());
        file.extend(keys.to_le_bytes());
        file.resize(SIZE, 0xff);
        file
    };
    for count in [
        1 << 10,
        1 << 14,
        1 << 15,
        SIZE as u64 / 24 - 1,
        SIZE as u64 / 14 - 2,
    ] {
        for (tensors, keys) in [(count, 0), (0, count), (count, count)] {
            let file = with_counts(tensors, keys);
            assert!(within(MOST * SIZE + SLACK, || Gguf::from_bytes(file)).is_err());
        }
    }
}
