//! Files of any format.

use std::path::Path;

use rustorch_macros::track_calls;

use crate::error::{FileError, FileResult};
use crate::npz::Compression;
use crate::source::{Source, reading, writing};
use crate::tensors::Tensors;
use crate::zip::Archive;
use crate::{gguf, npy, npz, pt, safetensors};

/// A format of files of tensors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Format {
    /// [`safetensors`].
    Safetensors,
    /// [`npy`].
    Npy,
    /// [`npz`].
    Npz,
    /// [`pt`].
    PyTorch,
    /// [`gguf`].
    Gguf,
}

/// Formats by the ends of names.
const EXTENSIONS: [(&str, Format); 6] = [
    ("safetensors", Format::Safetensors),
    ("npy", Format::Npy),
    ("npz", Format::Npz),
    ("pt", Format::PyTorch),
    ("pth", Format::PyTorch),
    ("gguf", Format::Gguf),
];

impl Format {
    /// The format of a file name's extension.
    pub fn of_name(path: impl AsRef<Path>) -> Option<Self> {
        let extension = path.as_ref().extension()?.to_str()?.to_ascii_lowercase();
        let known = EXTENSIONS.iter().find(|(known, _)| *known == extension);
        known.map(|&(_, format)| format)
    }

    /// The format of these bytes, from their beginning; for a zip archive from its entries. `None`
    /// if it is unknown.
    pub fn of_bytes(source: &Source) -> Option<Self> {
        if source.starts_with(npy::MAGIC) {
            return Some(Self::Npy);
        }
        if source.starts_with(b"GGUF") {
            return Some(Self::Gguf);
        }
        if source.starts_with(pt::LEGACY_MAGIC) {
            return Some(Self::PyTorch);
        }
        if source.starts_with(b"PK\x03\x04") || source.starts_with(b"PK\x05\x06") {
            let archive = Archive::read(source, u64::MAX).ok()?;
            let has_pickle = archive.names().any(|name| name.ends_with("/data.pkl"));
            return Some(if has_pickle { Self::PyTorch } else { Self::Npz });
        }
        // A size below 2^32, then JSON.
        let is_json = source.get(4..9) == Some(&[0, 0, 0, 0, b'{']);
        is_json.then_some(Self::Safetensors)
    }
}

/// Reads a file of tensors. The format comes from its beginning, or else from its name.
///
/// # Errors
/// Fails if the file cannot be read, has an unknown format, or is damaged.
#[track_calls(files)]
pub fn load(path: impl AsRef<Path>) -> FileResult<Tensors> {
    let path = path.as_ref();
    reading(path, |source| {
        let format = Format::of_bytes(source).or_else(|| Format::of_name(path));
        match format {
            // Models may be split over several files.
            Some(Format::Gguf) => gguf::load(path),
            Some(format) => read(source, format),
            None => Err(unknown(source)),
        }
    })
}

/// Reads bytes of a format.
///
/// # Errors
/// Fails if the bytes are not valid in the format.
#[track_calls(files)]
pub fn read(source: &Source, format: Format) -> FileResult<Tensors> {
    match format {
        Format::Safetensors => safetensors::read(source),
        Format::Npy => npy::read(source).map(Tensors::from),
        Format::Npz => npz::read(source),
        Format::PyTorch => pt::read(source),
        Format::Gguf => gguf::read(source),
    }
}

/// Writes tensors to a file. Its name decides the format: `.safetensors`, `.npz`, `.pt` or `.pth`, `.gguf`, or, for one
/// tensor alone, `.npy`.
///
/// # Errors
/// Fails for a name that ends in no known format, or if the format cannot hold a tensor. Also fails
/// if a tensor cannot be computed, or if the system reports an error.
#[track_calls(files)]
pub fn save(path: impl AsRef<Path>, tensors: &Tensors) -> FileResult<()> {
    let path = path.as_ref();
    let Some(format) = Format::of_name(path) else {
        let found = "the name does not end in one".to_owned();
        return Err(FileError::UnknownFormat { found }.in_file(path));
    };
    writing(path, |out| match format {
        Format::Safetensors => safetensors::write(out, tensors),
        Format::Npy => npy::write(out, tensors.only()?),
        Format::Npz => npz::write(out, tensors, Compression::Stored),
        Format::PyTorch => pt::write(out, tensors),
        Format::Gguf => gguf::write(out, tensors),
    })
}

/// The error of an unknown format.
fn unknown(bytes: &[u8]) -> FileError {
    let found = match bytes {
        [] => "the file is empty".to_owned(),
        bytes => format!("the file begins with {:02x?}", &bytes[..bytes.len().min(8)]),
    };
    FileError::UnknownFormat { found }
}
