//! Export of trained models as GGUF files.

use std::io::Write;
use std::path::Path;

use half::f16;
use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata, TensorInfo};
use rustorch_llm::quantize::FileType;
use rustorch_llm::spec::Role;
use rustorch_tensor::Tensor;

use crate::{Decoder, TrainError};

/// A model file: header, and numbers in the order of its tensors.
struct ModelFile {
    writer: GgufWriter,
    numbers: Vec<Vec<f32>>,
}

impl ModelFile {
    /// Matrices in `F16`, routers and all else in `F32`, as llama.cpp converts models.
    fn new(decoder: &Decoder, metadata: &Metadata) -> Result<Self, TrainError> {
        let mut file = Self {
            writer: GgufWriter::new(metadata.clone()),
            numbers: Vec::new(),
        };
        let file_type = FileType::F16.id();
        file.writer.metadata.insert("general.file_type", file_type);
        for (spec, tensor) in decoder.merged()? {
            let ty = match spec.role() {
                Some(role) if role != Role::Router && tensor.rank() > 1 => GgmlType::F16,
                _ => GgmlType::F32,
            };
            file.add(spec.name, &tensor, ty)?;
        }
        Ok(file)
    }

    fn add(&mut self, name: String, tensor: &Tensor, ty: GgmlType) -> Result<(), TrainError> {
        let dims: Vec<u64> = tensor.shape().iter().rev().map(|&dim| dim as u64).collect();
        self.writer.add_tensor(name, dims, ty)?;
        self.numbers.push(tensor.flatten(0, -1)?.to_vec()?);
        Ok(())
    }

    fn write(&self, path: &Path) -> Result<(), TrainError> {
        let mut index = 0..;
        let fill = |tensor: &TensorInfo, out: &mut dyn Write| {
            let bytes = index.next().map(|index| self.bytes(index, tensor));
            out.write_all(&bytes.unwrap_or_default())
        };
        Ok(self.writer.write(path, fill)?)
    }

    /// The bytes of a tensor's numbers.
    fn bytes(&self, index: usize, tensor: &TensorInfo) -> Vec<u8> {
        let numbers = self.numbers[index].iter();
        match tensor.ty == GgmlType::F16 {
            true => numbers
                .flat_map(|&x| f16::from_f32(x).to_le_bytes())
                .collect(),
            false => numbers.flat_map(|x| x.to_le_bytes()).collect(),
        }
    }
}

/// The model in memory, as [`save`] writes it.
///
/// # Errors
/// Fails if memory is too small for the model.
pub fn gguf(decoder: &Decoder, metadata: &Metadata) -> Result<Gguf, TrainError> {
    let file = ModelFile::new(decoder, metadata)?;
    let fill = |index, tensor: &TensorInfo, data: &mut [u8]| {
        data.copy_from_slice(&file.bytes(index, tensor))
    };
    Ok(file.writer.to_memory(fill)?)
}

/// Writes the adapters of a model, for `--lora`: with llama.cpp's keys and names, all in `F32`.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn save_adapter(path: &Path, decoder: &Decoder, alpha: f64) -> Result<(), TrainError> {
    let mut metadata = Metadata::new();
    metadata.insert("general.type", "adapter");
    metadata.insert("general.architecture", &*decoder.spec().architecture);
    metadata.insert("adapter.type", "lora");
    metadata.insert("adapter.lora.alpha", alpha as f32);
    let mut file = ModelFile {
        writer: GgufWriter::new(metadata),
        numbers: Vec::new(),
    };
    for (name, tensor) in decoder.adapters() {
        file.add(name, &tensor, GgmlType::F32)?;
    }
    file.write(path)
}

/// Writes the model: `metadata` and the weights, matrices as `F16`. The file appears when it is
/// complete.
///
/// # Errors
/// Fails if the file cannot be written.
pub fn save(path: &Path, decoder: &Decoder, metadata: &Metadata) -> Result<(), TrainError> {
    ModelFile::new(decoder, metadata)?.write(path)
}
