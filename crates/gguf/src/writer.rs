//! Writing GGUF files.

use std::io::{self, BufWriter, Read, Write};
use std::num::NonZero;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::error::{GgufError, KeyProblem, TensorProblem, quoted};
use crate::header::{self, Header, VERSION};
use crate::sniff::MAGIC;
use crate::storage::{SharedBytes, Storage};
use crate::tensor::{self, TensorInfo};
use crate::value::encode_string;
use crate::{Array, GgmlType, Gguf, Metadata, Value, storage};

/// Writes a GGUF file (version 3): metadata and tensors are declared first, then the data is streamed, tensor
/// by tensor. So a model need never be in memory as a whole.
///
/// ```
/// use rustorch_gguf::{GgmlType, Gguf, GgufWriter, Metadata};
///
/// let mut metadata = Metadata::new();
/// metadata.insert("general.architecture", "llama");
/// let mut writer = GgufWriter::new(metadata);
/// writer.add_tensor("output_norm.weight", [2], GgmlType::F32)?;
///
/// let mut bytes = Vec::new();
/// writer.write_to(&mut bytes, |_tensor, out| out.write_all(&[0; 8]))?;
///
/// let model = Gguf::from_bytes(bytes)?;
/// assert_eq!(model.metadata.str("general.architecture")?, "llama");
/// assert_eq!(model.tensors()[0].shape(), [2]);
/// # Ok::<(), rustorch_gguf::GgufError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct GgufWriter {
    /// The model's metadata. `general.alignment` decides the alignment of the data, 32 if absent.
    pub metadata: Metadata,
    tensors: Vec<TensorInfo>,
}

impl GgufWriter {
    /// A file with this metadata and no tensors yet.
    pub fn new(metadata: Metadata) -> Self {
        GgufWriter {
            metadata,
            tensors: Vec::new(),
        }
    }

    /// Declares the next tensor, its dimensions in ggml's order, the fastest first. Fails if they do not suit the type.
    pub fn add_tensor(
        &mut self,
        name: impl Into<String>,
        dims: impl Into<Vec<u64>>,
        ty: GgmlType,
    ) -> Result<&mut Self, GgufError> {
        self.tensors
            .push(TensorInfo::new(name.into(), dims.into(), ty)?);
        Ok(self)
    }

    /// The tensors declared so far, in order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    /// Writes the file. `fill` is called once for each tensor, in order, and writes that tensor's data, all
    /// [`TensorInfo::bytes`] of it.
    ///
    /// The file appears under its name only when it is complete: until then it is a hidden file beside it, which a
    /// failure removes. An ordinary file that has the name already is replaced.
    pub fn write(
        &self,
        path: impl AsRef<Path>,
        fill: impl FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), GgufError> {
        let path = path.as_ref();
        self.write_file(path, fill)
            .map_err(|error| error.in_file(path))
    }

    fn write_file(
        &self,
        path: &Path,
        fill: impl FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), GgufError> {
        const BUFFER: usize = 1 << 20;
        let failed = |error| GgufError::io("write the file", error);
        match path.metadata() {
            Ok(metadata) => storage::expect_file(&metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        let temporary = temporary_file(folder.unwrap_or(Path::new("."))).map_err(failed)?;
        let mut out = BufWriter::with_capacity(BUFFER, temporary);
        self.write_to(&mut out, fill)?;
        let temporary = out
            .into_inner()
            .map_err(|error| failed(error.into_error()))?;
        temporary.as_file().sync_all().map_err(failed)?;
        temporary
            .persist(path)
            .map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// Writes the file's bytes to `out`, as [`write`](Self::write) does.
    pub fn write_to(
        &self,
        out: &mut impl Write,
        mut fill: impl FnMut(&TensorInfo, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), GgufError> {
        let alignment = header::alignment(&self.metadata)?;
        let header = self.header(alignment)?;
        let writing_header = |error| GgufError::io("write the header", error);
        out.write_all(&header).map_err(writing_header)?;
        if !self.tensors.is_empty() {
            pad(out, header.len(), alignment).map_err(writing_header)?;
        }
        for tensor in &self.tensors {
            let mut data = Exactly {
                out,
                expected: tensor.bytes() as u64,
                given: 0,
            };
            let filled = fill(tensor, &mut data);
            let (found, expected) = (data.given, data.expected);
            // Looked at first, for then the closure's error only repeats it.
            if found > expected || (filled.is_ok() && found < expected) {
                return Err(GgufError::tensor(
                    &tensor.name,
                    TensorProblem::WrongSize { found, expected },
                ));
            }
            filled
                .and_then(|()| pad(out, tensor.bytes(), alignment))
                .map_err(|error| {
                    GgufError::io(format!("write tensor {}", quoted(&tensor.name)), error)
                })?;
        }
        Ok(())
    }

    /// The model in memory, as [`write`](Self::write) would write it. `fill` is called once for each tensor, with its
    /// position and its zeroed data, on as many threads as the machine has processors.
    pub fn to_memory(
        &self,
        fill: impl Fn(usize, &TensorInfo, &mut [u8]) + Sync,
    ) -> Result<Gguf, GgufError> {
        let alignment = header::alignment(&self.metadata)?;
        let header = self.header(alignment)?;
        let padded = |tensor: &TensorInfo| tensor.bytes().next_multiple_of(alignment);
        let start = header.len().next_multiple_of(alignment);
        let size = start + self.tensors.iter().map(padded).sum::<usize>();
        let mut memory = storage::allocate(size)?;
        memory[..header.len()].copy_from_slice(&header);
        let mut rest = &mut memory[start..];
        let mut data = Vec::with_capacity(self.tensors.len());
        for tensor in &self.tensors {
            let (own, others) = rest.split_at_mut(padded(tensor));
            data.push((tensor, &mut own[..tensor.bytes()]));
            rest = others;
        }
        let data = Mutex::new(data.into_iter().enumerate());
        let next = || data.lock().unwrap_or_else(PoisonError::into_inner).next();
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    while let Some((i, (tensor, data))) = next() {
                        fill(i, tensor, data);
                    }
                });
            }
        });
        Gguf::from_mapping(memory)
    }

    /// The model with the tensors' data `data`, in order. Nothing is copied, and data is read only
    /// on demand.
    ///
    /// # Panics
    /// May panic when data is used that is shorter than [`TensorInfo::bytes`].
    pub fn over(&self, data: Vec<SharedBytes>) -> Result<Gguf, GgufError> {
        for (key, value) in self.metadata.iter() {
            expect_readable(key, value)?;
        }
        let mut tensors = self.tensors.clone();
        for (part, tensor) in tensors.iter_mut().enumerate() {
            tensor.part = part;
        }
        let bytes = tensors.iter().map(|tensor| tensor.bytes() as u64).sum();
        let header = Header {
            version: VERSION,
            alignment: header::alignment(&self.metadata)?,
            metadata: self.metadata.clone(),
            tensors,
        };
        Gguf::new(header, data.into_iter().map(Storage::Held).collect(), bytes)
    }

    /// All that stands before the tensor data, without padding.
    fn header(&self, alignment: usize) -> Result<Vec<u8>, GgufError> {
        tensor::sort_by_name(&self.tensors)?;
        let mut out = Vec::new();
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in self.metadata.iter() {
            expect_readable(key, value)?;
            encode_string(key.as_bytes(), &mut out);
            out.extend((value.value_type() as u32).to_le_bytes());
            value.encode(&mut out);
        }
        let mut offset = 0u64;
        for tensor in &self.tensors {
            encode_string(tensor.name.as_bytes(), &mut out);
            out.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor
                .dims
                .iter()
                .for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(tensor.ty.id().to_le_bytes());
            out.extend(offset.to_le_bytes());
            let padded = (tensor.bytes() as u64).next_multiple_of(alignment as u64);
            offset = offset.saturating_add(padded);
        }
        Ok(out)
    }
}

/// Writes the zeros that must follow something of this length.
fn pad(out: &mut impl Write, len: usize, alignment: usize) -> io::Result<()> {
    let zeros = len.next_multiple_of(alignment) - len;
    io::copy(&mut io::repeat(0).take(zeros as u64), out)?;
    Ok(())
}

/// Fails on what [`Gguf`] would refuse to read.
fn expect_readable(key: &str, value: &Value) -> Result<(), GgufError> {
    match value {
        _ if key.is_empty() => Err(GgufError::key(key, KeyProblem::Empty)),
        Value::Array(array) if array.depth() > Array::MAX_DEPTH => Err(GgufError::key(
            key,
            KeyProblem::TooDeep {
                limit: Array::MAX_DEPTH,
            },
        )),
        _ => Ok(()),
    }
}

/// A file in this folder that removes itself unless it is made permanent.
fn temporary_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".gguf-").suffix(".tmp");
    // The mode of an ordinary new file, before the user's mask; the default is for secrets.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}

/// Passes on what is written, up to a size, and counts.
struct Exactly<'a, W> {
    out: &'a mut W,
    expected: u64,
    given: u64,
}

impl<W: Write> Write for Exactly<'_, W> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let given = self.given.saturating_add(data.len() as u64);
        if given > self.expected {
            self.given = given;
            return Err(io::Error::other("more data than the tensor holds"));
        }
        let written = self.out.write(data)?;
        self.given += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
