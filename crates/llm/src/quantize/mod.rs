//! Quantising of models, as llama.cpp's `llama-quantize` does.
//!
//! [`tensor_type`] decides the type of each tensor in a [`FileType`]. Tensors are converted one by
//! one, so memory holds one of them and never a whole model.

mod convert;
mod file_type;
mod mix;

use std::io;
use std::num::NonZero;
use std::ops::ControlFlow;
use std::path::Path;
use std::thread;

use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata, TensorInfo, Value};

use crate::LlmError;
use crate::spec::layer_of;

use convert::ConvertError;
pub(crate) use convert::convert;
pub use file_type::FileType;
pub use mix::{Choice, ModelTraits, Seen, tensor_type};

/// Options of quantising.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuantizeOptions {
    /// Accepts tensors that are quantised already, although errors add up.
    pub allow_requantize: bool,
    /// Number of threads; by default (`None`) the machine's parallelism.
    pub threads: Option<NonZero<usize>>,
}

/// The next tensor to be written.
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Its position in the new file, from 0.
    pub index: usize,
    /// The number of tensors.
    pub count: usize,
    /// The tensor in the old file.
    pub tensor: &'a TensorInfo,
    /// Its new type, or `None` if it keeps the old one.
    pub choice: Option<Choice>,
}

/// The result of quantization.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Tensors in the file.
    pub tensors: usize,
    /// Tensors with another type than the mix requests, because their rows do not fill whole blocks
    /// of it.
    pub fallbacks: usize,
    /// Bytes of tensor data before.
    pub input_bytes: u64,
    /// Bytes of tensor data after.
    pub output_bytes: u64,
}

/// Writes the model `input` to the file `output` in another file type. `progress` is called before
/// each tensor, and may stop there.
///
/// The bytes equal those of `llama-quantize`: tensors in the order of layers and names, and
/// `general.quantization_version` and `general.file_type` last among the keys. `output` appears
/// when it is complete.
///
/// # Errors
/// Fails with [`LlmError`]. Nothing is written then.
pub fn quantize(
    input: &Gguf,
    output: &Path,
    file_type: FileType,
    options: &QuantizeOptions,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Summary, LlmError> {
    let plan = plan(input, file_type, options)?;
    let mut writer = GgufWriter::new(new_metadata(&input.metadata, file_type));
    let mut summary = Summary {
        tensors: plan.len(),
        ..Summary::default()
    };
    for (tensor, choice) in &plan {
        writer.add_tensor(&tensor.name, &*tensor.dims, new_type(tensor, *choice))?;
        summary.fallbacks += usize::from(choice.is_some_and(|choice| choice.ty != choice.wanted));
        summary.input_bytes += tensor.bytes() as u64;
    }
    summary.output_bytes = writer
        .tensors()
        .iter()
        .map(|tensor| tensor.bytes() as u64)
        .sum();

    let threads = options
        .threads
        .or(thread::available_parallelism().ok())
        .unwrap_or(NonZero::<usize>::MIN);
    let mut steps = plan.iter().enumerate();
    let mut failure = None;
    let written = writer.write(output, |_, out| {
        let Some((index, &(tensor, choice))) = steps.next() else {
            return Ok(());
        };
        let begun = progress(Progress {
            index,
            count: plan.len(),
            tensor,
            choice,
        });
        if begun.is_break() {
            failure = Some(LlmError::Stopped("quantising"));
            return Err(io::Error::other("stopped"));
        }
        let data = input.data(tensor);
        let ty = new_type(tensor, choice);
        if ty == tensor.ty {
            return out.write_all(data);
        }
        match convert(data, tensor.ty, ty, tensor.dims[0] as usize, threads) {
            Ok(data) => out.write_all(&data),
            Err(error) => {
                failure = Some(unconvertible(&tensor.name, error));
                Err(io::Error::other("a tensor cannot be converted"))
            }
        }
    });
    match failure {
        Some(failure) => Err(failure),
        None => Ok(written.map(|()| summary)?),
    }
}

/// Other tensors stay as they are, except doubles, which models do not compute with.
fn new_type(tensor: &TensorInfo, choice: Option<Choice>) -> GgmlType {
    match (choice, tensor.ty) {
        (Some(choice), _) => choice.ty,
        (None, GgmlType::F64) => GgmlType::F32,
        (None, ty) => ty,
    }
}

/// The tensors in the order of the new file with their new types, checked to be possible.
fn plan<'a>(
    input: &'a Gguf,
    file_type: FileType,
    options: &QuantizeOptions,
) -> Result<Vec<(&'a TensorInfo, Option<Choice>)>, LlmError> {
    let mut tensors: Vec<&TensorInfo> = input.tensors().iter().collect();
    tensors.sort_by_key(|tensor| (layer_of(&tensor.name), &tensor.name));
    let mut model = model_traits(&input.metadata)?;
    model.count_tensors(tensors.iter().map(|tensor| tensor.name.as_str()));

    let mut seen = Seen::default();
    let mut plan = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let name = &tensor.name;
        let choice = tensor_type(file_type, &model, name, &tensor.dims, seen);
        if let Some(choice) = choice {
            seen.count(name);
            check(tensor, choice, file_type, options)?;
        }
        plan.push((tensor, choice));
    }
    Ok(plan)
}

fn unconvertible(name: &str, error: ConvertError) -> LlmError {
    LlmError::weight(format!("`{}`", name.escape_debug()), error)
}

fn check(
    tensor: &TensorInfo,
    choice: Choice,
    file_type: FileType,
    options: &QuantizeOptions,
) -> Result<(), LlmError> {
    let (name, ty) = (tensor.name.clone(), tensor.ty);
    if file_type == FileType::Q2KS && choice.ty == GgmlType::Q2K && !mix::is_embedding(&name) {
        Err(LlmError::Input(format!(
            "{file_type} needs an importance matrix, which is not supported; use Q2_K"
        )))
    } else if ty == choice.ty {
        Ok(())
    } else if ty.block_len() > 1 && !options.allow_requantize {
        Err(LlmError::Requantize { name, ty })
    } else if !convert::is_convertible(ty) {
        Err(unconvertible(&name, ConvertError::Type { ty }))
    } else {
        Ok(())
    }
}

pub(crate) fn model_traits(metadata: &Metadata) -> Result<ModelTraits, LlmError> {
    let architecture = metadata.str("general.architecture")?;
    let key = |key: &str| format!("{architecture}.{key}");
    // One number for all layers, or one for each.
    let first = |key: &str| match metadata.get(key) {
        Some(Value::Array(_)) => Ok(metadata
            .i32_array(key)?
            .first()
            .map(|&number| number.max(0) as usize)),
        _ => metadata.opt_as(key),
    };
    let heads = first(&key("attention.head_count"))?.unwrap_or(0);
    Ok(ModelTraits {
        architecture: architecture.to_owned(),
        layers: metadata.get_as(&key("block_count"))?,
        heads,
        kv_heads: first(&key("attention.head_count_kv"))?.unwrap_or(heads),
        experts: metadata.opt_as(&key("expert_count"))?.unwrap_or(0),
        ..ModelTraits::default()
    })
}

/// The version of ggml's block formats (`GGML_QNT_VERSION` in ggml.h).
pub(crate) const FORMATS: u32 = 2;

fn new_metadata(old: &Metadata, file_type: FileType) -> Metadata {
    let mut metadata = old.clone();
    for (key, value) in [
        ("general.quantization_version", FORMATS),
        ("general.file_type", file_type.id()),
    ] {
        metadata.remove(key);
        metadata.insert(key, value);
    }
    metadata
}
