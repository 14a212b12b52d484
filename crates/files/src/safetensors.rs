//! The format safetensors: a header in JSON, then all elements.
//!
//! Source: <https://github.com/huggingface/safetensors>, "Format". The file has the size of the header (8 bytes,
//! little endian), and the header. Then come the elements of all tensors, without gaps. The header maps names to
//! dtype, shape, and where the elements begin and end, and `__metadata__` to texts.
//!
//! Tests compare with the package `safetensors`.

use std::fmt;
use std::io::Write;
use std::path::Path;

use indexmap::IndexMap;
use rustorch_gguf::quoted;
use rustorch_ir::DType;
use rustorch_macros::track_calls;
use rustorch_tensor::Tensor;
use serde::Serialize;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use crate::elements::{self, bytes_of};
use crate::error::{FileError, FileResult};
use crate::source::{Source, reading, writing};
use crate::tensors::Tensors;

/// Bytes of the size of the header.
const PREFIX: u64 = 8;

/// The longest header that the format allows.
const LONGEST_HEADER: u64 = 100_000_000;

const METADATA: &str = "__metadata__";

/// The format's names, in the order in which tensors are written: the last first, so that all are aligned.
const DTYPES: [(&str, DType); 16] = [
    ("BOOL", DType::Bool),
    ("U8", DType::U8),
    ("I8", DType::I8),
    ("F8_E5M2", DType::F8E5M2),
    ("F8_E4M3", DType::F8E4M3),
    ("I16", DType::I16),
    ("U16", DType::U16),
    ("F16", DType::F16),
    ("BF16", DType::BF16),
    ("I32", DType::I32),
    ("U32", DType::U32),
    ("F32", DType::F32),
    ("C64", DType::Complex64),
    ("F64", DType::F64),
    ("I64", DType::I64),
    ("U64", DType::U64),
];

/// Reads a file. Its tensors stay in the mapped file.
///
/// # Errors
/// Fails if the file cannot be read or has a wrong format.
#[track_calls(safetensors)]
pub fn load(path: impl AsRef<Path>) -> FileResult<Tensors> {
    reading(path.as_ref(), read)
}

/// [`load`] of bytes.
///
/// # Errors
/// The same errors as [`load`].
#[track_calls(safetensors)]
pub fn read(source: &Source) -> FileResult<Tensors> {
    let (header, data) = header_of(source)?;
    let mut tensors = Tensors::new();
    tensors.metadata = header.metadata;
    for (name, entry) in header.tensors {
        let part = entry.part(&name, &data)?;
        let tensor = elements::tensor(&name, &part.data, part.dtype, &part.shape)?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// A tensor's place in a file.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its dtype.
    pub dtype: DType,
    /// Its shape.
    pub shape: Vec<usize>,
    /// The bytes of its elements.
    pub data: Source,
}

/// The tensors of a file as bytes by name, without making tensors.
///
/// # Errors
/// The same errors as [`load`].
pub fn parts(path: impl AsRef<Path>) -> FileResult<IndexMap<String, Part>> {
    reading(path.as_ref(), |source| {
        let (header, data) = header_of(source)?;
        let parts = header.tensors.into_iter().map(|(name, entry)| {
            let part = entry.part(&name, &data)?;
            part.check(&name)?;
            Ok((name, part))
        });
        parts.collect()
    })
}

impl Part {
    /// Fails unless the bytes are those of the shape and dtype.
    fn check(&self, name: &str) -> FileResult<()> {
        let size = self.dtype.size().unwrap_or_default();
        let bytes = (self.shape.iter()).try_fold(size, |bytes, &n| bytes.checked_mul(n));
        if bytes == Some(self.data.len()) {
            return Ok(());
        }
        let (shape, bytes) = (&self.shape, self.data.len());
        let problem = format!("{bytes} bytes for the shape {shape:?} of {}", self.dtype);
        Err(FileError::damaged(place(name), problem))
    }
}

/// The header and the elements of all tensors.
fn header_of(source: &Source) -> FileResult<(Header, Source)> {
    let prefix = source.part("the size of the header", 0, PREFIX)?;
    let len = prefix.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b));
    if len > LONGEST_HEADER {
        let problem = format!("it declares {len} bytes, but at most {LONGEST_HEADER} are allowed");
        return Err(FileError::damaged("the header", problem));
    }
    let text = source.part("the header", PREFIX, len)?;
    let header: Header =
        serde_json::from_slice(&text).map_err(|error| FileError::damaged("the header", error))?;
    let begin = PREFIX + len;
    let data = source.part("the elements", begin, source.len() as u64 - begin)?;
    header.check_places(data.len() as u64)?;
    Ok((header, data))
}

/// Writes a file, as [`write()`].
///
/// # Errors
/// The same errors as [`write()`].
#[track_calls(safetensors)]
pub fn save(path: impl AsRef<Path>, tensors: &Tensors) -> FileResult<()> {
    writing(path.as_ref(), |out| write(out, tensors))
}

/// Writes tensors and their metadata: the larger elements first, those of one dtype by name, as the package
/// `safetensors` does.
///
/// # Errors
/// Fails for `complex128` and block formats, which the format lacks. Fails if a tensor is named
/// `__metadata__` or cannot be computed. Fails if the system reports an error.
#[track_calls(safetensors)]
pub fn write(out: &mut impl Write, tensors: &Tensors) -> FileResult<()> {
    let mut sorted = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors.iter() {
        if name == METADATA {
            return Err(FileError::Unwritable {
                name: name.to_owned(),
                problem: "safetensors keeps its metadata under this name".to_owned(),
                advice: "choose another name".to_owned(),
            });
        }
        sorted.push((rank(name, tensor.dtype())?, name, tensor));
    }
    sorted.sort_by(|(a, a_name, _), (b, b_name, _)| b.cmp(a).then(a_name.cmp(b_name)));
    let header = header(&tensors.metadata, &sorted)?;
    let failed = || FileError::io("write the header");
    out.write_all(&(header.len() as u64).to_le_bytes())
        .map_err(failed())?;
    out.write_all(&header).map_err(failed())?;
    for (_, name, tensor) in sorted {
        elements::write(name, tensor, out)?;
    }
    Ok(())
}

/// The place of a dtype among the format's.
fn rank(name: &str, dtype: DType) -> FileResult<usize> {
    let advice = match dtype {
        DType::Complex128 => "convert it to complex64, or write an .npz file",
        _ => "convert it to f32, or write a .gguf file",
    };
    let place = DTYPES.iter().position(|&(_, known)| known == dtype);
    place.ok_or_else(|| FileError::no_dtype(name, "safetensors", dtype, advice))
}

/// The header's text, of whole 8 bytes.
fn header(
    metadata: &IndexMap<String, String>,
    sorted: &[(usize, &str, &Tensor)],
) -> FileResult<Vec<u8>> {
    let failed = |error: serde_json::Error| FileError::damaged("the header", error);
    let mut text = b"{".to_vec();
    let mut entry = |key: &str, value: Result<String, serde_json::Error>| {
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend(serde_json::to_string(key).map_err(failed)?.bytes());
        text.push(b':');
        text.extend(value.map_err(failed)?.bytes());
        Ok::<(), FileError>(())
    };
    if !metadata.is_empty() {
        entry(METADATA, texts(metadata))?;
    }
    let mut begin = 0;
    for &(rank, name, tensor) in sorted {
        let end = begin + bytes_of(tensor);
        let described = Entry {
            dtype: DTYPES[rank].0.to_owned(),
            shape: tensor.shape().to_vec(),
            data_offsets: [begin, end],
        };
        entry(name, serde_json::to_string(&described))?;
        begin = end;
    }
    text.push(b'}');
    text.resize(text.len().next_multiple_of(PREFIX as usize), b' ');
    Ok(text)
}

/// An object of texts.
fn texts(texts: &IndexMap<String, String>) -> Result<String, serde_json::Error> {
    let entries = texts.iter().map(|(key, text)| {
        let [key, text] = [key, text].map(serde_json::to_string);
        Ok(format!("{}:{}", key?, text?))
    });
    let entries: Result<Vec<String>, serde_json::Error> = entries.collect();
    Ok(format!("{{{}}}", entries?.join(",")))
}

/// The tensors that a file lists, in the header's order.
struct Header {
    metadata: IndexMap<String, String>,
    tensors: IndexMap<String, Entry>,
}

/// A tensor's entry in the header.
#[derive(serde::Deserialize, Serialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [u64; 2],
}

impl Header {
    /// Fails unless the tensors take all of `bytes`, one after the other.
    fn check_places(&self, bytes: u64) -> FileResult<()> {
        let mut places: Vec<([u64; 2], &str)> = (self.tensors.iter())
            .map(|(name, entry)| (entry.data_offsets, name.as_str()))
            .collect();
        places.sort_unstable();
        let mut end = 0;
        for ([from, to], name) in places {
            if from != end || to < from || to > bytes {
                let problem = format!(
                    "its elements are declared from byte {from} to {to} of {bytes}, but should \
                     begin at {end}"
                );
                return Err(FileError::damaged(place(name), problem));
            }
            end = to;
        }
        match end == bytes {
            true => Ok(()),
            false => {
                let problem = format!("only {end} of {bytes} bytes belong to tensors");
                Err(FileError::damaged("the elements", problem))
            }
        }
    }
}

impl Entry {
    /// The part of `data` whose place was checked.
    fn part(self, name: &str, data: &Source) -> FileResult<Part> {
        let dtype = DTYPES.iter().find(|(known, _)| *known == self.dtype);
        let &(_, dtype) = dtype.ok_or_else(|| {
            let advice = "convert the tensor to a dtype such as F32 or BF16";
            FileError::unsupported(
                place(name),
                format!("dtype {}", quoted(&self.dtype)),
                advice,
            )
        })?;
        let [begin, end] = self.data_offsets;
        Ok(Part {
            dtype,
            shape: self.shape,
            data: data.part(place(name), begin, end - begin)?,
        })
    }
}

fn place(name: &str) -> String {
    format!("tensor {}", quoted(name))
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeaderVisitor)
    }
}

struct HeaderVisitor;

impl<'de> Visitor<'de> for HeaderVisitor {
    type Value = Header;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names of tensors, each with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut metadata: Option<IndexMap<String, String>> = None;
        let mut tensors = IndexMap::new();
        while let Some(name) = map.next_key::<String>()? {
            let again = match name == METADATA {
                true => metadata.replace(map.next_value::<Texts>()?.0).is_some(),
                false => tensors.contains_key(&name),
            };
            if again {
                let twice = format_args!("{} is there twice", quoted(&name));
                return Err(A::Error::custom(twice));
            }
            if name != METADATA {
                tensors.insert(name, map.next_value()?);
            }
        }
        let metadata = metadata.unwrap_or_default();
        Ok(Header { metadata, tensors })
    }
}

/// The metadata: none, or texts.
struct Texts(IndexMap<String, String>);

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor).map(Self)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = IndexMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("texts by names")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(IndexMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut texts = IndexMap::new();
        while let Some((name, text)) = map.next_entry::<String, String>()? {
            if let Some(name) = texts.insert(name.clone(), text).map(|_| name) {
                let twice = format_args!("{} is there twice", quoted(&name));
                return Err(A::Error::custom(twice));
            }
        }
        Ok(texts)
    }
}
