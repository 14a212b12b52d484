//! Promises of the writer: the file is complete or not there, and its contents are as declared.

use std::fs;
use std::io::{self, Write};
use std::sync::Arc;

use rustorch_gguf::{
    Array, GgmlType, Gguf, GgufError, GgufWriter, Metadata, SharedBytes, TensorInfo, Value,
};

/// Data that tells every byte of every tensor apart.
fn fill(tensor: &TensorInfo, out: &mut dyn Write) -> io::Result<()> {
    let data: Vec<u8> = (0..tensor.bytes())
        .map(|i| (i * 3 + tensor.ty.id() as usize) as u8)
        .collect();
    // In two pieces, as a quantiser that works row by row would.
    let (first, second) = data.split_at(data.len() / 3);
    out.write_all(first)?;
    out.write_all(second)
}

fn writer_of_one() -> GgufWriter {
    let mut writer = GgufWriter::default();
    writer.add_tensor("t", [3, 2], GgmlType::F32).unwrap();
    writer
}

#[test]
fn every_tensor_type_comes_back() -> Result<(), GgufError> {
    for alignment in [8u32, 32, 4096] {
        let mut metadata = Metadata::new();
        metadata.insert("general.alignment", alignment);
        let mut writer = GgufWriter::new(metadata);
        writer.add_tensor("scalar", [], GgmlType::F32)?;
        for &ty in GgmlType::ALL {
            writer.add_tensor(ty.name(), [ty.block_len() as u64, 3, 1, 2], ty)?;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        writer.write(&path, fill)?;

        let model = Gguf::open(&path)?;
        assert_eq!(model.metadata, writer.metadata);
        assert_eq!(model.alignment(), alignment as usize);
        assert_eq!(model.file_bytes() % u64::from(alignment), 0);
        assert_eq!(model.tensors().len(), GgmlType::ALL.len() + 1);
        for (read, declared) in model.tensors().iter().zip(writer.tensors()) {
            assert_eq!(
                (&read.name, &read.dims, read.ty),
                (&declared.name, &declared.dims, declared.ty)
            );
            let mut expected = Vec::new();
            fill(declared, &mut expected).unwrap();
            assert_eq!(model.data(read), expected, "{}", read.name);
            assert_eq!(model.data(read).as_ptr() as usize % 8, 0, "{}", read.name);
        }
    }
    Ok(())
}

/// Data that another part of the program has, and that nothing may ask for.
struct Untouched;

impl AsRef<[u8]> for Untouched {
    fn as_ref(&self) -> &[u8] {
        panic!("nothing used it")
    }
}

#[test]
fn a_model_may_lie_over_data_of_others() -> Result<(), GgufError> {
    let mut writer = GgufWriter::default();
    writer.metadata.insert("general.architecture", "llama");
    writer.add_tensor("a", [2], GgmlType::F32)?;
    writer.add_tensor("b", [3], GgmlType::F16)?;
    let bytes: Vec<u8> = (0..8).collect();
    let model = writer.over(vec![Arc::new(bytes.clone()), Arc::new(Untouched)])?;
    assert_eq!(model.metadata, writer.metadata);
    assert_eq!(model.file_bytes(), 8 + 6);
    assert_eq!(model.data(model.tensor("a").unwrap()), bytes);
    assert_eq!(model.tensor("b").unwrap().shape(), [3]);
    writer.add_tensor("a", [1], GgmlType::F32)?;
    let data: Vec<SharedBytes> = vec![
        Arc::new(bytes.clone()),
        Arc::new(Untouched),
        Arc::new(bytes),
    ];
    assert!(writer.over(data).unwrap_err().to_string().contains("`a`"));
    Ok(())
}

#[test]
fn shared_data_outlives_its_model() -> Result<(), GgufError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    writer_of_one().write(&path, fill)?;
    let model = Gguf::open(&path)?;
    let shared = model.data_shared(&model.tensors()[0]);
    let copy = model.data(&model.tensors()[0]).to_vec();
    drop(model);
    // The thread proves that the data can be sent and shared.
    std::thread::spawn(move || assert_eq!(*shared.clone(), *copy))
        .join()
        .unwrap();
    Ok(())
}

#[test]
fn a_failed_write_leaves_nothing_and_keeps_the_old_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, "old").unwrap();
    let error = writer_of_one().write(&path, |_, out| {
        out.write_all(&[0; 5])?;
        Err(io::Error::other("the source is gone"))
    });
    let message = error.unwrap_err().to_string();
    assert_eq!(
        message,
        format!(
            "{}: cannot write tensor `t`: the source is gone",
            path.display()
        )
    );
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

    writer_of_one().write(&path, fill).unwrap();
    assert_eq!(Gguf::open(&path).unwrap().tensors().len(), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn data_of_the_wrong_size_is_refused() {
    for given in [0, 23, 25] {
        let result =
            writer_of_one().write_to(&mut Vec::new(), |_, out| out.write_all(&vec![0; given]));
        let message = result.unwrap_err().to_string();
        let expected = format!(
            "tensor `t`: it has {given} bytes of data, but its type and dimensions need 24"
        );
        assert!(message.starts_with(&expected), "{message}");
    }
    // Even if the closure does not mind.
    let result = writer_of_one().write_to(&mut Vec::new(), |_, out| {
        assert!(out.write_all(&[0; 30]).is_err());
        assert!(out.write_all(&[0; 30]).is_err());
        Ok(())
    });
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("it has 60 bytes of data")
    );
}

#[test]
fn what_could_not_be_read_is_not_written() {
    let mut nested = Array::U8(vec![1]);
    for _ in 0..Array::MAX_DEPTH {
        nested = Array::Array(vec![nested]);
    }
    let with = |key: &str, value: Value| {
        let mut metadata = Metadata::new();
        metadata.insert(key, value);
        GgufWriter::new(metadata)
    };
    let mut twice = writer_of_one();
    twice.add_tensor("t", [1], GgmlType::F16).unwrap();
    let cases = [
        (with("", Value::from(1u8)), "a key must have a name"),
        (
            with("deep", Value::from(nested)),
            "key `deep`: arrays are nested more than 8 deep",
        ),
        (
            with("general.alignment", Value::from(24u32)),
            "general.alignment is 24",
        ),
        (twice, "tensor `t`: appears more than once"),
    ];
    for (writer, expected) in cases {
        let mut out = Vec::new();
        let message = writer.write_to(&mut out, fill).unwrap_err().to_string();
        assert!(message.contains(expected), "{message}");
        assert!(out.is_empty());
    }
    let result = GgufWriter::default()
        .add_tensor("t", [100], GgmlType::Q4K)
        .map(|_| ());
    assert!(
        result
            .unwrap_err()
            .to_string()
            .contains("whole Q4_K blocks of 256")
    );
}

#[test]
fn places_that_cannot_be_written_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let absent = folder.path().join("absent/m.gguf");
    let cases = [
        (folder.path().to_owned(), "this is a directory"),
        (absent, "No such file or directory"),
    ];
    for (path, expected) in cases {
        let message = writer_of_one().write(&path, fill).unwrap_err().to_string();
        assert!(
            message.starts_with(&format!("{}: ", path.display())),
            "{message}"
        );
        assert!(message.contains(expected), "{message}");
    }
}

#[test]
fn without_tensors_nothing_is_padded() {
    let mut metadata = Metadata::new();
    metadata.insert("general.alignment", 1u32 << 31);
    let mut file = Vec::new();
    GgufWriter::new(metadata).write_to(&mut file, fill).unwrap();
    assert!(file.len() < 100, "{} bytes", file.len());
    assert_eq!(Gguf::from_bytes(file).unwrap().alignment(), 1 << 31);
}
