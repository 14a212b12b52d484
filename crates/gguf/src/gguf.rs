//! A model file, or the several files of a split model, opened for reading.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use memmap2::MmapMut;

use crate::Metadata;
use crate::error::{GgufError, SplitProblem};
use crate::header::Header;
use crate::split::Split;
use crate::storage::{self, Storage, TensorBytes};
use crate::tensor::{self, TensorInfo};

/// A GGUF model opened for reading. Cloning is cheap: clones share everything.
///
/// Opening reads and checks the whole header. The tensors' data is read on demand.
#[derive(Clone)]
pub struct Gguf {
    /// The model's metadata. For a split model, it is the first part's metadata without the `split.` keys. These keys
    /// describe files rather than the model.
    pub metadata: Metadata,
    contents: Arc<Contents>,
}

struct Contents {
    version: u32,
    alignment: usize,
    tensors: Vec<TensorInfo>,
    /// The tensors' positions, sorted by name.
    by_name: Vec<usize>,
    /// One for each file.
    parts: Vec<Storage>,
    file_bytes: u64,
}

impl Gguf {
    /// Opens a model file by mapping it into memory. Given the first part of a split model
    /// (`NAME-00001-of-00003.gguf`), opens all parts.
    ///
    /// No program may shorten the file while it is open: reading the lost bytes would end the
    /// process (SIGBUS on Unix).
    pub fn open(path: impl AsRef<Path>) -> Result<Self, GgufError> {
        let path = path.as_ref();
        let in_file = |error: GgufError| error.in_file(path);
        let (storage, mut header) = open_file(path).map_err(in_file)?;
        let mut parts = vec![storage];
        if let Some(split) = Split::of(&header.metadata, path).map_err(in_file)? {
            for number in 2..=split.count {
                let (storage, tensors) = open_part(&split, number)?;
                parts.push(storage);
                header.tensors.extend(tensors);
            }
            split
                .expect_tensors(header.tensors.len())
                .map_err(in_file)?;
            Split::forget(&mut header.metadata);
        }
        Self::of_files(header, parts).map_err(in_file)
    }

    /// Reads a model that is embedded in the program by `include_bytes!`.
    ///
    /// The data of tensors is aligned as in the file only if the bytes themselves are aligned.
    pub fn from_static(bytes: &'static [u8]) -> Result<Self, GgufError> {
        Self::from_memory(Storage::Held(Arc::new(bytes)))
    }

    /// Reads a model that is in memory.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self, GgufError> {
        Self::from_memory(Storage::Held(Arc::new(bytes)))
    }

    /// Reads a model from memory of the system's own.
    pub(crate) fn from_mapping(memory: MmapMut) -> Result<Self, GgufError> {
        Self::from_memory(Storage::Held(Arc::new(memory)))
    }

    fn from_memory(storage: Storage) -> Result<Self, GgufError> {
        let header = Header::parse(storage.bytes())?;
        match Split::part_count(&header.metadata)? {
            1 => Self::of_files(header, vec![storage]),
            count => Err(SplitProblem::InMemory { count }.into()),
        }
    }

    fn of_files(header: Header, parts: Vec<Storage>) -> Result<Self, GgufError> {
        let bytes = parts.iter().map(|part| part.bytes().len() as u64).sum();
        Self::new(header, parts, bytes)
    }

    /// A model of these parts, which are not looked at before they are used.
    pub(crate) fn new(
        header: Header,
        parts: Vec<Storage>,
        file_bytes: u64,
    ) -> Result<Self, GgufError> {
        let Header {
            version,
            alignment,
            metadata,
            tensors,
        } = header;
        let by_name = tensor::sort_by_name(&tensors)?;
        Ok(Gguf {
            metadata,
            contents: Arc::new(Contents {
                version,
                alignment,
                tensors,
                by_name,
                parts,
                file_bytes,
            }),
        })
    }

    /// The version of the format, 2 or 3; of the first file, if there are several.
    pub fn version(&self) -> u32 {
        self.contents.version
    }

    /// The alignment of tensor data in bytes; of the first file, if there are several.
    pub fn alignment(&self) -> usize {
        self.contents.alignment
    }

    /// All tensors in the order of the file, or files.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.contents.tensors
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        tensor::find(&self.contents.tensors, &self.contents.by_name, name)
    }

    /// The data of a tensor, [`TensorInfo::bytes`] long.
    ///
    /// # Panics
    /// May panic if the tensor is not one of this model's.
    pub fn data(&self, tensor: &TensorInfo) -> &[u8] {
        &self.contents.parts[tensor.part].bytes()[tensor.range()]
    }

    /// Asks the system to read a tensor's data from disk ahead; nothing for a model in memory.
    ///
    /// # Panics
    /// May panic if the tensor is not one of this model's.
    pub fn read_ahead(&self, tensor: &TensorInfo) {
        self.contents.parts[tensor.part].read_ahead(tensor.range());
    }

    /// Removes a tensor's data from this process's memory. Later reads get it from disk, or from
    /// the system's cache. Nothing for a model in memory.
    ///
    /// # Panics
    /// May panic if the tensor is not one of this model's.
    pub fn release(&self, tensor: &TensorInfo) {
        self.contents.parts[tensor.part].release(tensor.range());
    }

    /// The data of a tensor, kept alive independently of this model.
    ///
    /// # Panics
    /// May panic, also when the data is used, if the tensor is not one of this model's.
    pub fn data_shared(&self, tensor: &TensorInfo) -> TensorBytes {
        TensorBytes::new(self.contents.parts[tensor.part].clone(), tensor.range())
    }

    /// The size of the file, or of all files of a split model, in bytes; of the tensors of a model without a file.
    pub fn file_bytes(&self) -> u64 {
        self.contents.file_bytes
    }
}

impl fmt::Debug for Gguf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gguf")
            .field("version", &self.version())
            .field("keys", &self.metadata.len())
            .field("tensors", &self.tensors().len())
            .field("file_bytes", &self.file_bytes())
            .finish_non_exhaustive()
    }
}

/// Opens one file.
fn open_file(path: &Path) -> Result<(Storage, Header), GgufError> {
    let storage = storage::map(path)?;
    let header = Header::parse(storage.bytes())?;
    Ok((storage, header))
}

/// Opens a later part of a split model, numbered from 1.
fn open_part(split: &Split, number: u32) -> Result<(Storage, Vec<TensorInfo>), GgufError> {
    let path = split.path(number);
    let open = || {
        if !path.exists() {
            return Err(SplitProblem::MissingPart {
                part: number,
                count: split.count,
            }
            .into());
        }
        let (storage, mut header) = open_file(&path)?;
        split.expect_part(number, &header.metadata)?;
        for tensor in &mut header.tensors {
            tensor.part = number as usize - 1;
        }
        Ok((storage, header.tensors))
    };
    open().map_err(|error: GgufError| error.in_file(&path))
}
