//! Files written by the Python package `gguf` (see data/make_fixtures.py) are read in full and rewritten byte for byte.

use std::path::{Path, PathBuf};

use rustorch_gguf::{Array, GgmlType, Gguf, GgufError, GgufWriter, Metadata, Value};

fn data_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data")
        .join(name)
}

/// The bytes that the script gives the tensor of this number.
fn pattern(len: usize, number: usize) -> Vec<u8> {
    (0..len).map(|i| (7 * i + number) as u8).collect()
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

/// The script's metadata in `every-type.gguf`.
fn every_type_metadata() -> Metadata {
    let mut expected = Metadata::new();
    expected.insert("general.architecture", "llama");
    expected.insert("general.alignment", 64u32);
    expected.insert("u8", u8::MAX);
    expected.insert("i8", i8::MIN);
    expected.insert("u16", u16::MAX);
    expected.insert("i16", i16::MIN);
    expected.insert("u32", u32::MAX);
    expected.insert("i32", i32::MIN);
    expected.insert("u64", u64::MAX);
    expected.insert("i64", i64::MIN);
    expected.insert("f32", 0.1f32);
    expected.insert("f64", 0.1f64);
    expected.insert("bool", true);
    expected.insert("string", "Ünïcødé 🦀");
    expected.insert("u8s", vec![1u8, 2, 3]);
    expected.insert("i8s", vec![1i8, 2, 3]);
    expected.insert("u16s", vec![1u16, 2, 3]);
    expected.insert("i16s", vec![1i16, 2, 3]);
    expected.insert("u32s", vec![1u32, 2, 3]);
    expected.insert("i32s", vec![1i32, 2, 3]);
    expected.insert("u64s", vec![1u64, 2, 3]);
    expected.insert("i64s", vec![1i64, 2, 3]);
    expected.insert("f32s", vec![1f32, 2.0, 3.0]);
    expected.insert("f64s", vec![1f64, 2.0, 3.0]);
    expected.insert("bools", vec![true, false]);
    expected.insert("strings", texts(&["", "a", "ß"]));
    expected.insert(
        "byte strings",
        Array::Bytes(vec![b"text".to_vec(), b"\xff\xfe".to_vec()]),
    );
    expected.insert("byte string", Value::Bytes(b"\xc3(".to_vec()));
    expected.insert(
        "arrays",
        vec![Array::I32(vec![1, 2]), Array::String(texts(&["x"]))],
    );
    expected
}

#[test]
fn every_metadata_type_is_read() {
    let model = Gguf::open(data_file("every-type.gguf")).unwrap();
    assert_eq!((model.version(), model.alignment()), (3, 64));
    let expected = every_type_metadata();
    for ((key, value), (expected_key, expected_value)) in model.metadata.iter().zip(expected.iter())
    {
        assert_eq!((key, value), (expected_key, expected_value));
    }
    assert_eq!(model.metadata, expected);
}

#[test]
fn every_tensor_type_is_read() {
    let model = Gguf::open(data_file("every-type.gguf")).unwrap();
    // The package knows no Q2_0 and has a size for Q8_1 that ggml has not.
    let unknown = [GgmlType::Q8_1, GgmlType::Q2_0];
    assert_eq!(model.tensors().len(), GgmlType::ALL.len() - unknown.len());
    for (number, tensor) in model.tensors().iter().enumerate() {
        assert_eq!(tensor.name, tensor.ty.name());
        assert!(!unknown.contains(&tensor.ty));
        let row = if tensor.ty.block_len() == 1 {
            3
        } else {
            tensor.ty.block_len()
        };
        assert_eq!(tensor.dims, [row as u64, 2], "{}", tensor.name);
        assert_eq!(
            model.data(tensor),
            pattern(tensor.bytes(), number),
            "{}",
            tensor.name
        );
        assert_eq!(model.tensor(&tensor.name), Some(tensor));
    }
    assert_eq!(model.tensor("absent"), None);
}

#[test]
fn a_file_written_anew_is_the_same_byte_for_byte() -> Result<(), GgufError> {
    let original = std::fs::read(data_file("every-type.gguf")).unwrap();
    let model = Gguf::from_bytes(original.clone())?;
    let mut writer = GgufWriter::new(model.metadata.clone());
    for tensor in model.tensors() {
        writer.add_tensor(&tensor.name, tensor.dims.clone(), tensor.ty)?;
    }
    let mut written = Vec::new();
    writer.write_to(&mut written, |tensor, out| {
        out.write_all(model.data(model.tensor(&tensor.name).unwrap()))
    })?;
    assert!(written == original);
    Ok(())
}

#[test]
fn version_2_is_read_like_version_3() {
    let mut bytes = std::fs::read(data_file("every-type.gguf")).unwrap();
    bytes[4] = 2;
    let model = Gguf::from_bytes(bytes).unwrap();
    assert_eq!(model.version(), 2);
    assert_eq!(model.metadata, every_type_metadata());
}

#[test]
fn all_parts_of_a_split_model_are_read() {
    let model = Gguf::open(data_file("split-00001-of-00003.gguf")).unwrap();
    assert_eq!(model.metadata.str("general.name").unwrap(), "Split");
    assert_eq!(
        model
            .metadata
            .iter()
            .filter(|(key, _)| key.starts_with("split."))
            .count(),
        0
    );
    let names: Vec<_> = model
        .tensors()
        .iter()
        .map(|tensor| tensor.name.as_str())
        .collect();
    assert_eq!(names, ["t0", "t1", "t2", "t3", "t4"]);
    for (number, tensor) in model.tensors().iter().enumerate() {
        assert_eq!(tensor.shape(), [number + 1]);
        assert_eq!(model.data(tensor), pattern(4 * (number + 1), number));
    }
    let sizes = (1..=3).map(|part| {
        data_file(&format!("split-0000{part}-of-00003.gguf"))
            .metadata()
            .unwrap()
            .len()
    });
    assert_eq!(model.file_bytes(), sizes.sum::<u64>());
}

#[test]
fn the_bundled_model_is_read() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/classics-13m-Q4_K_M.gguf");
    let model = Gguf::open(&path).unwrap();
    assert_eq!(model.metadata.str("general.architecture").unwrap(), "llama");
    assert_eq!(
        model
            .metadata
            .str_array("tokenizer.ggml.tokens")
            .unwrap()
            .len(),
        4096
    );
    assert_eq!(
        model
            .metadata
            .i32_array("tokenizer.ggml.token_type")
            .unwrap()
            .len(),
        4096
    );
    let embedding = model.tensor("token_embd.weight").unwrap();
    assert_eq!(
        (embedding.shape(), embedding.ty),
        (vec![4096, 512], GgmlType::Q6K)
    );
    assert_eq!(model.file_bytes(), path.metadata().unwrap().len());
}
