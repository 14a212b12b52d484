//! The bytes of a file, mapped or in memory.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::ops::{Deref, Range};
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use crate::error::{FileError, FileResult};

/// All bytes of a file, or a part of them: mapped from disk or in memory.
///
/// Dereferences to the bytes. Clones and parts are handles on the same bytes. So are tensors that
/// are read from it: they keep the file mapped. No program may shorten the file while it is mapped:
/// reading the lost bytes would end the process (SIGBUS on Unix). This crate's writing functions
/// replace files, and never change one in place.
#[derive(Clone)]
pub struct Source {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl Source {
    /// A file, mapped into memory: parts are read from disk on first use.
    ///
    /// # Errors
    /// Fails if there is no ordinary file, or if it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> FileResult<Self> {
        let path = path.as_ref();
        Self::map(path).map_err(|error| error.in_file(path))
    }

    fn map(path: &Path) -> FileResult<Self> {
        const OPENING: &str = "open the file";
        // Asked of the path first, because opening a pipe waits for someone to write into it.
        if !(fs::metadata(path).map_err(FileError::io(OPENING))?).is_file() {
            return Err(FileError::NotAFile);
        }
        let file = File::open(path).map_err(FileError::io(OPENING))?;
        if file.metadata().map_err(FileError::io(OPENING))?.len() == 0 {
            return Ok(Vec::new().into());
        }
        // SAFETY: the mapping is read-only and nothing here writes to the file. Its content is only ever taken as
        // plain bytes, validated on use, so that a change by another program can falsify results but break no
        // invariant.
        let mapping = unsafe { Mmap::map(&file) };
        let mapping = mapping.map_err(FileError::io("map the file into memory"))?;
        Ok(Self::of(mapping))
    }

    /// All bytes of `owner`, which stay in place.
    pub fn of(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        let range = 0..owner.as_ref().len();
        let owner = Arc::new(owner);
        Self { owner, range }
    }

    /// `len` bytes from `start` on; errors name them `place`.
    ///
    /// # Errors
    /// Fails if the file is shorter.
    pub fn part(&self, place: impl fmt::Display, start: u64, len: u64) -> FileResult<Self> {
        let size = self.len() as u64;
        match start.checked_add(len).is_some_and(|end| end <= size) {
            // Both are within the bytes, so that they fit.
            true => Ok(self.within(start as usize, len as usize)),
            false => Err(FileError::Truncated {
                place: place.to_string(),
                offset: start,
                needed: len,
                left: size.saturating_sub(start),
            }),
        }
    }

    fn within(&self, start: usize, len: usize) -> Self {
        let start = self.range.start + start;
        Self {
            owner: self.owner.clone(),
            range: start..start + len,
        }
    }

    /// The same with `bytes` more before it, if the owner has them.
    pub(crate) fn reaching_back(&self, bytes: usize) -> Option<Self> {
        let start = self.range.start.checked_sub(bytes)?;
        Some(Self {
            owner: self.owner.clone(),
            range: start..self.range.end,
        })
    }
}

impl Deref for Source {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl AsRef<[u8]> for Source {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Source {
    fn from(bytes: Vec<u8>) -> Self {
        Self::of(bytes)
    }
}

impl From<&'static [u8]> for Source {
    fn from(bytes: &'static [u8]) -> Self {
        Self::of(bytes)
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({} bytes)", self.len())
    }
}

/// Reads a file front to back by `read`, whose errors then name it.
pub(crate) fn reading<T>(
    path: &Path,
    read: impl FnOnce(&Source) -> FileResult<T>,
) -> FileResult<T> {
    read(&Source::open(path)?).map_err(|error| error.in_file(path))
}

/// A file that appears under its name only when `write` has written all of it: until then it is a hidden file beside
/// it, which a failure removes. An ordinary file of the name is replaced. Existing maps keep the old one.
pub(crate) fn writing(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<tempfile::NamedTempFile>) -> FileResult<()>,
) -> FileResult<()> {
    const BUFFER: usize = 1 << 20;
    let write_file = || {
        let failed = || FileError::io("write the file");
        match path.metadata() {
            Ok(metadata) if !metadata.is_file() => return Err(FileError::NotAFile),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed()(error)),
            Ok(_) | Err(_) => {}
        }
        let folder = (path.parent()).filter(|folder| !folder.as_os_str().is_empty());
        let temporary = temporary_file(folder.unwrap_or(Path::new("."))).map_err(failed())?;
        let mut out = BufWriter::with_capacity(BUFFER, temporary);
        write(&mut out)?;
        let temporary = (out.into_inner()).map_err(|error| failed()(error.into_error()))?;
        temporary.as_file().sync_all().map_err(failed())?;
        (temporary.persist(path)).map_err(|error| failed()(error.error))?;
        Ok(())
    };
    write_file().map_err(|error| error.in_file(path))
}

/// A file in this folder that removes itself unless it is made permanent.
fn temporary_file(folder: &Path) -> io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".tensors-").suffix(".tmp");
    // The mode of an ordinary new file, before the user's mask; the default is for secrets.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder.tempfile_in(folder)
}
