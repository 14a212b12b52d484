//! GGUF, the format of llama.cpp's models: through the crate `rustorch-gguf`, which has its metadata with all types.

use std::io::Write;
use std::path::Path;

use rustorch_gguf::{GgmlType, Gguf, GgufError, GgufWriter, Metadata, Value, quoted};
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::Tensor;

use crate::elements;
use crate::error::{FileError, FileResult};
use crate::source::Source;
use crate::tensors::Tensors;

/// Dtypes that are ggml's scalars.
const SCALARS: [(GgmlType, DType); 8] = [
    (GgmlType::F64, DType::F64),
    (GgmlType::F32, DType::F32),
    (GgmlType::F16, DType::F16),
    (GgmlType::BF16, DType::BF16),
    (GgmlType::I64, DType::I64),
    (GgmlType::I32, DType::I32),
    (GgmlType::I16, DType::I16),
    (GgmlType::I8, DType::I8),
];

/// Reads a file, or the files of a split model by its first. Quantised tensors keep their block
/// format; all stay in the mapped file. Only the texts in the metadata are read.
///
/// # Errors
/// Fails if the file cannot be read, has a wrong format, or holds a tensor of an unsupported type.
#[track_calls(gguf)]
pub fn load(path: impl AsRef<Path>) -> FileResult<Tensors> {
    let path = path.as_ref();
    let model = Gguf::open(path)?;
    of(&model).map_err(|error| error.in_file(path))
}

/// [`load`] of bytes. They are copied.
///
/// # Errors
/// The same errors as [`load`].
#[track_calls(gguf)]
pub fn read(source: &Source) -> FileResult<Tensors> {
    of(&Gguf::from_bytes(source.to_vec())?)
}

/// The tensors of an open model, in place, and the texts of its metadata.
///
/// # Errors
/// Fails for a tensor of an unsupported type.
#[track_calls(gguf)]
pub fn of(model: &Gguf) -> FileResult<Tensors> {
    let mut tensors = Tensors::new();
    for (key, value) in model.metadata.iter() {
        if let Value::String(text) = value {
            tensors.metadata.insert(key.to_owned(), text.clone());
        }
    }
    for info in model.tensors() {
        info.ensure_supported()?;
        let scalar = SCALARS.iter().find(|(ty, _)| *ty == info.ty);
        let block = || info.ty.block_format().map(DType::Block);
        let dtype = scalar.map(|&(_, dtype)| dtype).or_else(block);
        let dtype = dtype.ok_or_else(|| {
            let place = format!("tensor {}", quoted(&info.name));
            FileError::unsupported(place, info.ty, "use a file of another quantisation")
        })?;
        let data = Source::of(model.data_shared(info));
        let tensor = elements::tensor(&info.name, &data, dtype, &info.shape())?;
        tensors.insert(info.name.clone(), tensor);
    }
    Ok(tensors)
}

/// [`load`] that converts tensors in a block format to `dtype` when they are first used.
///
/// # Errors
/// The same errors as [`load`]. Also fails for a dtype that blocks cannot be converted to.
#[track_calls(gguf)]
pub fn load_dequantised(path: impl AsRef<Path>, dtype: DType) -> FileResult<Tensors> {
    let mut tensors = load(path)?;
    let blocks: Vec<(String, Tensor)> = (tensors.iter())
        .filter(|(_, tensor)| tensor.dtype().is_block())
        .map(|(name, tensor)| (name.to_owned(), tensor.clone()))
        .collect();
    for (name, tensor) in blocks {
        let converted = tensor.to_dtype(dtype).map_err(FileError::tensor(&name))?;
        tensors.insert(name, converted);
    }
    Ok(tensors)
}

/// Writes a file with the tensors' metadata, as [`write()`].
///
/// # Errors
/// The same errors as [`write()`].
#[track_calls(gguf)]
pub fn save(path: impl AsRef<Path>, tensors: &Tensors) -> FileResult<()> {
    save_with(path, tensors, texts(tensors))
}

/// Writes a file with metadata of any types instead of the tensors' own texts.
///
/// # Errors
/// The same errors as [`write()`].
#[track_calls(gguf)]
pub fn save_with(path: impl AsRef<Path>, tensors: &Tensors, metadata: Metadata) -> FileResult<()> {
    let writer = writer(tensors, metadata)?;
    let mut fill = Fill::new(tensors);
    let written = writer.write(path, |_, out| fill.next(out));
    fill.result(written)
}

/// Writes tensors in their dtypes, blocks as they are, and their metadata.
///
/// # Errors
/// Fails for dtypes that the format lacks: `bool`, unsigned integers, complex numbers and 8-bit
/// floats. Fails for more than four dimensions, or one of size 0. Fails if a tensor cannot be
/// computed. Fails if the system reports an error.
#[track_calls(gguf)]
pub fn write(out: &mut impl Write, tensors: &Tensors) -> FileResult<()> {
    let writer = writer(tensors, texts(tensors))?;
    let mut fill = Fill::new(tensors);
    let written = writer.write_to(out, |_, out| fill.next(out));
    fill.result(written)
}

fn texts(tensors: &Tensors) -> Metadata {
    let mut metadata = Metadata::new();
    for (key, text) in &tensors.metadata {
        metadata.insert(key.clone(), text.as_str());
    }
    metadata
}

/// A writer that has the types of all tensors.
fn writer(tensors: &Tensors, metadata: Metadata) -> FileResult<GgufWriter> {
    let mut writer = GgufWriter::new(metadata);
    for (name, tensor) in tensors.iter() {
        let dtype = tensor.dtype();
        let scalar = SCALARS.iter().find(|&&(_, known)| known == dtype);
        let block = || match dtype {
            DType::Block(format) => {
                (GgmlType::ALL.iter().copied()).find(|ty| ty.block_format() == Some(format))
            }
            _ => None,
        };
        let ty = scalar.map(|&(ty, _)| ty).or_else(block).ok_or_else(|| {
            let advice = "convert it to f32 or i64, or write a .safetensors file";
            FileError::no_dtype(name, "GGUF", dtype, advice)
        })?;
        let dims: Vec<u64> = tensor.shape().iter().rev().map(|&n| n as u64).collect();
        writer.add_tensor(name, dims, ty)?;
    }
    Ok(writer)
}

/// The tensors' elements, one after the other, and the errors in computing them.
struct Fill<'a> {
    tensors: Box<dyn Iterator<Item = (&'a str, &'a Tensor)> + 'a>,
    error: Option<FileError>,
}

impl<'a> Fill<'a> {
    fn new(tensors: &'a Tensors) -> Self {
        Self {
            tensors: Box::new(tensors.iter()),
            error: None,
        }
    }

    fn next(&mut self, out: &mut dyn Write) -> std::io::Result<()> {
        let Some((name, tensor)) = self.tensors.next() else {
            return Ok(());
        };
        elements::write(name, tensor, out).map_err(|error| {
            let told = std::io::Error::other(error.to_string());
            self.error = Some(error);
            told
        })
    }

    /// The writer's result, or the error that it got.
    fn result(self, written: Result<(), GgufError>) -> FileResult<()> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(written?),
        }
    }
}
