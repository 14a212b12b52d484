//! The place of a file's bytes: mapped from disk, in the program itself, or in memory.

use std::fmt;
use std::fs::{self, File};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::{Mmap, MmapMut};

use crate::error::GgufError;

/// All bytes of one file, shared by everything that looks into it.
#[derive(Clone)]
pub(crate) enum Storage {
    /// On disk; the system loads pages on demand.
    Mapped(Arc<Mmap>),
    /// In memory.
    Held(SharedBytes),
}

/// Bytes that another value owns.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

impl Storage {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(mapping) => mapping,
            Self::Held(bytes) => (**bytes).as_ref(),
        }
    }

    /// Asks the system to begin reading a part, if it is on disk.
    pub(crate) fn read_ahead(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Self::Mapped(mapping) = self {
            // A system that does not take advice reads later.
            let _ = mapping.advise_range(memmap2::Advice::WillNeed, range.start, range.len());
        }
        #[cfg(not(unix))]
        let _ = range;
    }

    /// Drops a part from memory, if it is on disk, where it can be read again.
    pub(crate) fn release(&self, range: Range<usize>) {
        #[cfg(unix)]
        if let Self::Mapped(mapping) = self {
            let advice = memmap2::UncheckedAdvice::DontNeed;
            // SAFETY: the mapping is of a file and read-only: dropped pages come again with the same bytes.
            let _ = unsafe { mapping.unchecked_advise_range(advice, range.start, range.len()) };
        }
        #[cfg(not(unix))]
        let _ = range;
    }
}

/// Maps a file into memory.
pub(crate) fn map(path: &Path) -> Result<Storage, GgufError> {
    let opening = |error| GgufError::io("open the file", error);
    // Asked of the path first, because opening a pipe waits for someone to write into it.
    expect_file(&fs::metadata(path).map_err(opening)?)?;
    let file = File::open(path).map_err(opening)?;
    if file.metadata().map_err(opening)?.len() == 0 {
        return Err(GgufError::Empty);
    }
    // SAFETY: the mapping is read-only and nothing here writes to the file. Its content is only ever taken as plain
    // bytes, validated on use, so that a change by another program can falsify results but break no invariant.
    let mapping = unsafe { Mmap::map(&file) };
    let mapping = mapping.map_err(|error| GgufError::io("map the file into memory", error))?;
    Ok(Storage::Mapped(Arc::new(mapping)))
}

/// Memory of this size, which is zero.
pub(crate) fn allocate(bytes: usize) -> Result<MmapMut, GgufError> {
    let memory = MmapMut::map_anon(bytes);
    let memory =
        memory.map_err(|error| GgufError::io(format!("reserve {bytes} bytes of memory"), error))?;
    // Pages of 2 MiB come sooner than as many small ones; without them it works as well.
    #[cfg(target_os = "linux")]
    let _ = memory.advise(memmap2::Advice::HugePage);
    Ok(memory)
}

/// Fails, saying what it is, unless this is an ordinary file.
pub(crate) fn expect_file(metadata: &fs::Metadata) -> Result<(), GgufError> {
    if metadata.is_file() {
        Ok(())
    } else {
        Err(GgufError::NotAFile {
            found: kind(metadata),
        })
    }
}

#[cfg(unix)]
fn kind(metadata: &fs::Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;

    let ty = metadata.file_type();
    match () {
        () if ty.is_dir() => "a directory",
        () if ty.is_fifo() => "a pipe",
        () if ty.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn kind(metadata: &fs::Metadata) -> &'static str {
    if metadata.is_dir() {
        "a directory"
    } else {
        "a device"
    }
}

/// The data of one tensor. Dereferences to its bytes. It keeps the file mapped, or the memory
/// allocated, as long as it or a clone of it lives.
#[derive(Clone)]
pub struct TensorBytes {
    storage: Storage,
    range: Range<usize>,
}

impl TensorBytes {
    /// These bytes of a file, within which the range must lie.
    pub(crate) fn new(storage: Storage, range: Range<usize>) -> Self {
        TensorBytes { storage, range }
    }
}

impl Deref for TensorBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.storage.bytes()[self.range.clone()]
    }
}

impl AsRef<[u8]> for TensorBytes {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for TensorBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorBytes({} bytes)", self.len())
    }
}
