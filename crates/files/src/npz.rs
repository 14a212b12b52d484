//! NumPy's format of several arrays, `.npz`: a zip archive of `.npy` files.

use std::io::{Seek, Write};
use std::path::Path;

use rustorch_gguf::quoted;
use rustorch_macros::track_calls;

use crate::elements::bytes_of;
use crate::error::{FileError, FileResult};
use crate::npy;
use crate::source::{Source, reading, writing};
use crate::tensors::Tensors;
use crate::zip::{Archive, Writer};

pub use crate::zip::Compression;

const EXTENSION: &str = ".npy";

/// Reads a file. Uncompressed arrays with aligned numbers stay in the mapped file. Others are
/// copied or decompressed when the file is read.
///
/// # Errors
/// Fails if the file cannot be read or has a wrong format. An array fails as in [`npy::load`].
#[track_calls(npz)]
pub fn load(path: impl AsRef<Path>) -> FileResult<Tensors> {
    reading(path.as_ref(), read)
}

/// [`load`] of bytes.
///
/// # Errors
/// The same errors as [`load`].
#[track_calls(npz)]
pub fn read(source: &Source) -> FileResult<Tensors> {
    read_within(source, u64::MAX)
}

/// [`read`] with a limit: no array may decompress to more than `limit` bytes. The default limit is
/// 1032 times the entry's bytes in the file, which is deflate's maximum.
///
/// # Errors
/// The same errors as [`load`]. Also fails for an array above the limit.
#[track_calls(npz)]
pub fn read_within(source: &Source, limit: u64) -> FileResult<Tensors> {
    let archive = Archive::read(source, limit)?;
    let mut tensors = Tensors::new();
    for entry in archive.names() {
        let Some(name) = entry.strip_suffix(EXTENSION) else {
            let place = format!("entry {}", quoted(entry));
            let advice = "an .npz file has .npy files only";
            return Err(FileError::unsupported(
                place,
                "a file of another kind",
                advice,
            ));
        };
        // Before anything large is decompressed.
        if let Some(begin) = archive.begin(entry) {
            let (size, begin) = begin?;
            npy::check_size(name, &begin, size)?;
        }
        if let Some(data) = archive.data(entry) {
            tensors.insert(name, npy::read_named(name, &data?)?);
        }
    }
    Ok(tensors)
}

/// Writes a file, as [`write()`].
///
/// # Errors
/// The same errors as [`write()`].
#[track_calls(npz)]
pub fn save(path: impl AsRef<Path>, tensors: &Tensors, compression: Compression) -> FileResult<()> {
    writing(path.as_ref(), |out| write(out, tensors, compression))
}

/// Writes tensors, without their metadata: `np.savez`, or `np.savez_compressed`. Uncompressed entries are
/// aligned to 64 bytes.
///
/// # Errors
/// A tensor fails as in [`npy::write`]. Also fails for a name of more than 65531 bytes.
#[track_calls(npz)]
pub fn write(
    out: &mut (impl Write + Seek),
    tensors: &Tensors,
    compression: Compression,
) -> FileResult<()> {
    let mut writer = Writer::new(out);
    for (name, tensor) in tensors.iter() {
        let entry = format!("{name}{EXTENSION}");
        let bytes = npy::header(name, tensor)?.len() as u64 + bytes_of(tensor);
        writer.add(&entry, compression, bytes, npy::ALIGNMENT as u64, |out| {
            npy::write_named(name, out, tensor)
        })?;
    }
    writer.finish()
}
