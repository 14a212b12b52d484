//! `inspect`: the contents of a model file, and the memory that the model needs.

mod memory;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use rustorch_gguf::{Array, Gguf, TensorInfo, Value};
use rustorch_llm::AdapterKind;
use serde_json::json;

use crate::args::Format;
use crate::model::Source;
use crate::output::{bytes, count, json_line};
use memory::Memory;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// GGUF file [default: the bundled model]
    #[arg(value_name = "FILE")]
    model: Option<PathBuf>,

    /// Also report the memory needed for a context of N tokens, and the devices on which it fits; 0 for
    /// the model's own context
    #[arg(short, long, value_name = "N")]
    ctx_size: Option<usize>,

    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: Format,
}

pub(super) fn run(options: &Options) -> Result<()> {
    let source = Source::new(options.model.clone());
    let gguf = source.open()?;
    let memory = options
        .ctx_size
        .map(|context| Memory::of(source.load()?, context))
        .transpose()?;
    let mut out = BufWriter::new(io::stdout().lock());
    match options.format {
        Format::Text => {
            writeln!(out, "{source}")?;
            if let Some(kind) = AdapterKind::of(&gguf) {
                let (kind, option) = (kind.name(), kind.option());
                writeln!(out, "{kind}, for use with {option}")?;
            }
            text(&gguf, &mut out)?;
            if let Some(memory) = memory {
                write!(out, "\n{memory}")?;
            }
        }
        Format::Json => json_line(&mut out, &as_json(&gguf, memory.as_ref()))?,
    }
    out.flush()?;
    Ok(())
}

fn weights(gguf: &Gguf) -> u64 {
    gguf.tensors().iter().map(|t| t.elements() as u64).sum()
}

fn text(gguf: &Gguf, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "GGUF version {}, alignment {}, {}, {} weights\n\n{} keys",
        gguf.version(),
        gguf.alignment(),
        bytes(gguf.file_bytes()),
        count(weights(gguf)),
        gguf.metadata.len(),
    )?;
    for (key, value) in gguf.metadata.iter() {
        writeln!(out, "  {} = {value}", key.escape_debug())?;
    }
    writeln!(out, "\n{} tensors", gguf.tensors().len())?;
    for tensor in gguf.tensors() {
        writeln!(
            out,
            "  {:<32} {:>6} {:>18} {:>10}",
            tensor.name.escape_debug().to_string(),
            tensor.ty,
            shape(tensor),
            bytes(tensor.bytes() as u64),
        )?;
    }
    writeln!(out, "\ntypes")?;
    for &ty in rustorch_gguf::GgmlType::ALL {
        let of_type = || gguf.tensors().iter().filter(|t| t.ty == ty);
        let (tensors, size) = (of_type().count(), of_type().map(|t| t.bytes() as u64).sum());
        if tensors > 0 {
            let note = if ty.is_supported() {
                ""
            } else {
                "  not supported"
            };
            writeln!(
                out,
                "  {ty:<8} {tensors:>5} tensors {:>10}{note}",
                bytes(size)
            )?;
        }
    }
    Ok(())
}

/// Sizes, slowest dimension first.
fn shape(tensor: &TensorInfo) -> String {
    let sizes: Vec<String> = tensor.shape().iter().map(usize::to_string).collect();
    format!("[{}]", sizes.join(", "))
}

fn as_json(gguf: &Gguf, memory: Option<&Memory>) -> serde_json::Value {
    let keys = gguf
        .metadata
        .iter()
        .map(|(key, value)| (key.to_owned(), value_json(value)));
    let tensor = |t: &TensorInfo| {
        json!({
            "name": t.name,
            "type": t.ty.name(),
            "shape": t.shape(),
            "bytes": t.bytes(),
        })
    };
    json!({
        "version": gguf.version(),
        "alignment": gguf.alignment(),
        "file_bytes": gguf.file_bytes(),
        "used_with": AdapterKind::of(gguf).map_or("-m", AdapterKind::option),
        "weights": weights(gguf),
        "metadata": keys.collect::<serde_json::Map<_, _>>(),
        "tensors": gguf.tensors().iter().map(tensor).collect::<Vec<_>>(),
        "memory": memory,
    })
}

/// A value as JSON. In texts that are not UTF-8, U+FFFD replaces invalid bytes.
fn value_json(value: &Value) -> serde_json::Value {
    match value {
        Value::U8(v) => json!(v),
        Value::I8(v) => json!(v),
        Value::U16(v) => json!(v),
        Value::I16(v) => json!(v),
        Value::U32(v) => json!(v),
        Value::I32(v) => json!(v),
        Value::U64(v) => json!(v),
        Value::I64(v) => json!(v),
        Value::F32(v) => json!(v),
        Value::F64(v) => json!(v),
        Value::Bool(v) => json!(v),
        Value::String(v) => json!(v),
        Value::Bytes(v) => json!(String::from_utf8_lossy(v)),
        Value::Array(v) => array_json(v),
    }
}

fn array_json(array: &Array) -> serde_json::Value {
    match array {
        Array::U8(v) => json!(v),
        Array::I8(v) => json!(v),
        Array::U16(v) => json!(v),
        Array::I16(v) => json!(v),
        Array::U32(v) => json!(v),
        Array::I32(v) => json!(v),
        Array::U64(v) => json!(v),
        Array::I64(v) => json!(v),
        Array::F32(v) => json!(v),
        Array::F64(v) => json!(v),
        Array::Bool(v) => json!(v),
        Array::String(v) => json!(v),
        Array::Bytes(v) => v.iter().map(|v| String::from_utf8_lossy(v)).collect(),
        Array::Array(v) => v.iter().map(array_json).collect(),
    }
}
