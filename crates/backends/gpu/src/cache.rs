//! Compiled kernels on disk, by the hash of their source, device and driver.

use std::fs::{self, File, FileTimes};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use rustorch_runtime::cache_folder;
use sha2::{Digest, Sha256};

/// SHA-256 of a kernel's source, device and driver.
pub(crate) type Key = [u8; 32];

/// Bytes that the files may have together.
const LIMIT: u64 = 256 << 20;

/// First bytes of a file; then come the SHA-256 of the rest, and the rest.
const MAGIC: &[u8; 8] = b"RTKERNEL";

/// A folder of compiled kernels. A fault costs time, not results: a damaged file is made anew, and
/// a file that cannot be written is skipped.
pub(crate) struct Cache {
    folder: PathBuf,
    limit: u64,
    /// Bytes of the files, once they have been counted.
    used: Mutex<Option<u64>>,
    /// Whether it has been said that the folder takes no files.
    warned: AtomicBool,
}

impl Cache {
    /// The user's, in the [`cache_folder`]. `None` where there is no such place.
    pub(crate) fn of_user() -> Option<Self> {
        Some(Self::new(cache_folder()?.join("kernels"), LIMIT))
    }

    fn new(folder: PathBuf, limit: u64) -> Self {
        Self {
            folder,
            limit,
            used: Mutex::new(None),
            warned: AtomicBool::new(false),
        }
    }

    fn path(&self, key: &Key) -> PathBuf {
        let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name)
    }

    /// The kernel of this key, if it is there and whole.
    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let path = self.path(key);
        let bytes = fs::read(&path).ok()?;
        let rest = bytes.strip_prefix(MAGIC);
        let whole = rest
            .and_then(|rest| rest.split_first_chunk::<32>())
            .filter(|(digest, kernel)| Sha256::digest(kernel)[..] == digest[..]);
        let Some((_, kernel)) = whole else {
            tracing::warn!("{}: damaged; compiling the kernel again", path.display());
            return None;
        };
        // The oldest are removed first. A folder that is only read has no need of that.
        if let Ok(file) = File::options().append(true).open(&path) {
            let now = FileTimes::new().set_modified(SystemTime::now());
            let _ = file.set_times(now);
        }
        Some(kernel.to_vec())
    }

    /// Keeps a kernel, if the folder takes it.
    pub(crate) fn put(&self, key: &Key, kernel: &[u8]) {
        let path = self.path(key);
        match self.write(&path, kernel) {
            Ok(bytes) => self.count(bytes),
            Err(e) if !self.warned.swap(true, Ordering::Relaxed) => {
                let folder = self.folder.display();
                tracing::warn!("{folder}: {e}; compiled kernels are not cached for the next start");
            }
            Err(_) => {}
        }
    }

    /// Writes under another name first, of this call alone, so that no reader sees half a file.
    fn write(&self, path: &Path, kernel: &[u8]) -> io::Result<u64> {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        fs::create_dir_all(&self.folder)?;
        let call = CALLS.fetch_add(1, Ordering::Relaxed);
        let unfinished = path.with_extension(format!("{}-{call}", std::process::id()));
        let result = File::create(&unfinished).and_then(|mut file| {
            file.write_all(MAGIC)?;
            file.write_all(&Sha256::digest(kernel))?;
            file.write_all(kernel)?;
            drop(file);
            fs::rename(&unfinished, path)
        });
        if result.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        result.map(|()| (MAGIC.len() + 32 + kernel.len()) as u64)
    }

    /// Adds to the bytes used; above the limit the oldest files are removed.
    fn count(&self, bytes: u64) {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let total = match *used {
            Some(used) => used + bytes,
            None => self.files().iter().map(|(_, bytes, _)| bytes).sum(),
        };
        *used = Some(match total > self.limit {
            true => self.shrink(),
            false => total,
        });
    }

    /// Modification time, bytes and path of each file.
    fn files(&self) -> Vec<(SystemTime, u64, PathBuf)> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let file = |entry: fs::DirEntry| {
            let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        };
        entries.filter_map(file).collect()
    }

    /// Removes the oldest files until a quarter of the limit is free; the bytes that are left.
    fn shrink(&self) -> u64 {
        let mut files = self.files();
        files.sort();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in files {
            if total <= self.limit / 4 * 3 {
                break;
            }
            if fs::remove_file(path).is_ok() {
                total -= bytes;
            }
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = [7; 32];

    #[test]
    fn what_is_put_is_got_and_what_is_damaged_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().join("new"), 1000);
        assert_eq!(cache.get(&KEY), None);
        cache.put(&KEY, b"kernel");
        assert_eq!(cache.get(&KEY).as_deref(), Some(&b"kernel"[..]));
        let path = cache.path(&KEY);
        let whole = fs::read(&path).unwrap();
        for damaged in [
            &whole[..whole.len() - 1],
            &whole[..20],
            &[],
            b"something else",
        ] {
            fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get(&KEY), None);
        }
        cache.put(&KEY, b"kernel");
        assert_eq!(cache.get(&KEY).as_deref(), Some(&b"kernel"[..]));
    }

    #[test]
    fn a_folder_that_cannot_be_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let cache = Cache::new(file, 1000);
        cache.put(&KEY, b"kernel");
        assert_eq!(cache.get(&KEY), None);
    }

    #[test]
    fn the_oldest_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::new(folder.path().to_owned(), 1000);
        for i in 0..10 {
            cache.put(&[i; 32], &[i; 160]);
            let file = File::options()
                .append(true)
                .open(cache.path(&[i; 32]))
                .unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(i.into());
            file.set_times(FileTimes::new().set_modified(time)).unwrap();
        }
        let total: u64 = cache.files().iter().map(|(_, bytes, _)| bytes).sum();
        assert!(total <= 1000, "{total}");
        assert!(cache.get(&[0; 32]).is_none() && cache.get(&[9; 32]).is_some());
    }
}
