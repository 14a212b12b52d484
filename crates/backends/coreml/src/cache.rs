//! Compiled models on disk, by the hash of their sources, shared between processes.
//!
//! An entry is a folder. It is made under another name and renamed, so that it is whole or not there.
//! Users lock a file in it, so that it is not removed while in use. Unfinished entries are in the
//! cache's own folder, too. They are found and removed there if their maker ended.
//!
//! ```text
//! HASH/content/…    what was made
//! HASH/entry        locked by users; its time is that of the last use
//! HASH.PID-N/…      being made, or being removed
//! known/OUTLINE     the hash of the entry that was made of what has this outline
//! files/XX…         another name of a large file that entries share
//! making/XX         locked by who makes an entry whose hash begins with XX
//! cleaning          locked by who removes entries
//! ```

use std::fs::{self, File, FileTimes};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustorch_runtime::cache_folder;
use sha2::{Digest, Sha256};

/// Bytes that the entries may have together, where nothing else is said.
const LIMIT: u64 = 4 << 30;

/// Bytes from which on equal files of entries are one: programs of several shapes have the same
/// weights.
const LARGE: u64 = 1 << 20;

/// Bytes that are looked at at once where files are compared.
const PIECE: usize = 1 << 16;

/// Key of an entry: a SHA-256 in hexadecimal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key(String);

impl Key {
    /// The key of these sources: the files of a package, the versions of the system and of Core ML.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let bytes = hash.finalize();
        Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// The key as text.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// The key of an entry's folder, if it is one.
    fn of_name(name: &str) -> Option<Self> {
        let is_hash = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
        is_hash.then(|| Self(name.to_owned()))
    }
}

/// The reason why there is no entry.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}; set RUSTORCH_CACHE_DIR to a writable folder", path.display())]
pub struct CacheError {
    path: PathBuf,
    source: io::Error,
}

impl CacheError {
    /// Kind of the system error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}

/// A folder of compiled models; those that were used least recently are removed.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

/// An entry in use, which is kept as long as this lives.
#[derive(Debug)]
pub struct Entry {
    content: PathBuf,
    /// Locked, shared with others.
    _lock: File,
}

impl Entry {
    /// The folder of the compiled model.
    pub fn path(&self) -> &Path {
        &self.content
    }

    /// Returns whether this was [noted](Self::note).
    pub(crate) fn has_note(&self, name: &str) -> bool {
        self.beside(name).exists()
    }

    /// Notes something of the entry, for as long as it is there. A cache that is only read keeps
    /// no notes.
    pub(crate) fn note(&self, name: &str) {
        let _ = fs::write(self.beside(name), []);
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.content.with_file_name(name)
    }
}

impl Cache {
    /// The user's, in the [`cache_folder`]. `None` where there is no such place.
    pub fn of_user() -> Option<Self> {
        Some(Self::new(cache_folder()?.join("coreml"), LIMIT))
    }

    /// A cache in `folder`, which is made when it is needed, of `limit` bytes. Entries in use stay,
    /// however large they are.
    pub fn new(folder: impl Into<PathBuf>, limit: u64) -> Self {
        Self {
            folder: folder.into(),
            limit,
        }
    }

    /// The entry of this key. If there is none, or it is damaged, `make` fills an empty folder. It
    /// runs once for all simultaneous requests, also of other processes: those wait.
    ///
    /// # Errors
    /// Fails if `make` does, or if a folder cannot be written.
    pub fn get_or_make(
        &self,
        key: &Key,
        make: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<Entry, CacheError> {
        let found = self.find(key);
        let made = match found {
            Some(entry) => return Ok(entry),
            None => self.make(key, make),
        };
        let entry = made.map_err(|source| CacheError {
            path: self.folder.clone(),
            source,
        })?;
        self.clean();
        Ok(entry)
    }

    /// Its bytes on disk.
    pub fn bytes(&self) -> u64 {
        bytes(&self.folder).unwrap_or_default()
    }

    /// The entry of this key, if it is complete.
    pub fn find(&self, key: &Key) -> Option<Entry> {
        let folder = self.folder.join(&key.0);
        let mut lock = File::open(folder.join("entry")).ok()?;
        lock.lock_shared().ok()?;
        // Before it was locked the entry may have been removed, and made again.
        let mut seal = String::new();
        lock.read_to_string(&mut seal).ok()?;
        let is_current = fs::read_to_string(folder.join("entry")).ok()? == seal;
        let content = folder.join("content");
        let (_, listed) = seal.split_once('\n')?;
        if !is_current || listed != listing(&content).ok()? {
            return None;
        }
        // A cache that is only read has no need of times.
        if let Ok(file) = File::options().append(true).open(folder.join("entry")) {
            let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
        }
        Some(Entry {
            content,
            _lock: lock,
        })
    }

    /// Returns whether there is a complete entry that was [noted](Self::note) under this outline.
    pub fn knows(&self, outline: &Key) -> bool {
        let noted = fs::read_to_string(self.known(outline));
        let key = noted.ok().and_then(|name| Key::of_name(&name));
        key.is_some_and(|key| self.find(&key).is_some())
    }

    /// Notes that an outline belongs to the entry `key`: an outline is a key that is quicker to
    /// find.
    pub fn note(&self, outline: &Key, key: &Key) {
        let file = self.known(outline);
        if fs::read_to_string(&file).is_ok_and(|noted| noted == key.0) {
            return;
        }
        let folder = self.folder.join("known");
        let _ = fs::create_dir_all(folder).and_then(|()| fs::write(file, &key.0));
    }

    fn known(&self, outline: &Key) -> PathBuf {
        self.folder.join("known").join(&outline.0)
    }

    fn make(&self, key: &Key, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<Entry> {
        let making = self.lock_making(key)?;
        making.lock()?;
        if let Some(entry) = self.find(key) {
            return Ok(entry);
        }
        // An entry that was not found is damaged, if it is there at all.
        self.remove(key);
        let unfinished = self.unfinished(key);
        let content = unfinished.join("content");
        let finished = self.folder.join(&key.0);
        let made = fs::create_dir_all(&content)
            .and_then(|()| make(&content))
            .and_then(|()| self.share(&content))
            .and_then(|()| seal(&unfinished))
            .and_then(|()| fs::rename(&unfinished, &finished));
        if let Err(e) = made {
            // The first error is the one to tell.
            let _ = fs::remove_dir_all(&unfinished);
            return Err(e);
        }
        let lost = || io::Error::other("what was made is gone, or changed meanwhile");
        self.find(key).ok_or_else(lost)
    }

    /// Puts links in the place of large files that other entries have, too. Without links, each entry
    /// has its own file.
    fn share(&self, content: &Path) -> io::Result<()> {
        if !cfg!(unix) {
            return Ok(());
        }
        let folder = self.folder.join("files");
        let mut large = Vec::new();
        each_file(content, &mut |path, metadata| {
            large.extend((metadata.len() >= LARGE).then(|| path.to_owned()));
        })?;
        for path in large {
            fs::create_dir_all(&folder)?;
            let shared = folder.join(ends(&path)?.0);
            if fs::hard_link(&path, &shared).is_ok() {
                continue;
            }
            // Files with the same ends are likely equal; a comparison of all bytes makes it certain. A damaged
            // shared file is replaced.
            if are_equal(&path, &shared).unwrap_or_default() {
                let link = path.with_extension(unique());
                let _ = fs::hard_link(&shared, &link).and_then(|()| fs::rename(&link, &path));
            } else {
                let _ = fs::remove_file(&shared).and_then(|()| fs::hard_link(&path, &shared));
            }
        }
        Ok(())
    }

    /// Removes the names of files that no entry has any more.
    fn remove_unshared(&self) {
        let shared = fs::read_dir(self.folder.join("files"));
        for file in shared.into_iter().flatten().flatten() {
            if file.metadata().is_ok_and(|metadata| links(&metadata) == 1) {
                // A later clean-up finds it again if this fails.
                let _ = fs::remove_file(file.path());
            }
        }
    }

    /// The file that the maker of the entry locks.
    fn lock_making(&self, key: &Key) -> io::Result<File> {
        let folder = self.folder.join("making");
        fs::create_dir_all(&folder)?;
        lock_file(&folder.join(&key.0[..2]))
    }

    /// A name for an unfinished entry, of this call alone.
    fn unfinished(&self, key: &Key) -> PathBuf {
        let name = format!("{}.{}", key.0, unique());
        self.folder.join(name)
    }

    /// Removes an entry unless it is in use.
    pub(crate) fn remove(&self, key: &Key) -> bool {
        let folder = self.folder.join(&key.0);
        // Locked until it is renamed: from then on nobody finds it.
        let lock = File::open(folder.join("entry")).ok();
        if lock.as_ref().is_some_and(|lock| lock.try_lock().is_err()) {
            return false;
        }
        let removed = self.unfinished(key);
        fs::rename(&folder, &removed).is_ok() && fs::remove_dir_all(&removed).is_ok()
    }

    /// Removes abandoned entries, and those that were used least recently, until a quarter of the
    /// limit is free. One cleaner at a time does it for all.
    fn clean(&self) {
        let Ok(cleaning) = lock_file(&self.folder.join("cleaning")) else {
            return;
        };
        if cleaning.try_lock().is_err() {
            return;
        }
        let mut entries = Vec::new();
        let names = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for name in names.filter_map(|entry| entry.file_name().into_string().ok()) {
            match (Key::of_name(&name), name.split_once('.')) {
                (Some(key), _) => entries.push((self.used(&key), key)),
                (None, Some((hash, _))) => self.remove_unfinished(&name, Key::of_name(hash)),
                (None, None) => {}
            }
        }
        self.forget(|key| entries.iter().any(|(_, entry)| entry == key));
        entries.sort();
        let bytes = |key: &Key| bytes(&self.folder.join(&key.0)).unwrap_or_default();
        let total = || -> u64 { entries.iter().map(|(_, key)| bytes(key)).sum() };
        if total() > self.limit {
            for (_, key) in &entries {
                // Counted anew: what an entry shares is not free without it.
                if total() <= self.limit / 4 * 3 {
                    break;
                }
                self.remove(key);
            }
        }
        self.remove_unshared();
    }

    /// Removes the outlines of missing entries.
    fn forget(&self, is_there: impl Fn(&Key) -> bool) {
        let outlines = fs::read_dir(self.folder.join("known"))
            .into_iter()
            .flatten();
        for outline in outlines.flatten().map(|outline| outline.path()) {
            let noted = fs::read_to_string(&outline).ok();
            if !noted
                .and_then(|name| Key::of_name(&name))
                .is_some_and(|key| is_there(&key))
            {
                // A later clean-up finds it again if this fails.
                let _ = fs::remove_file(outline);
            }
        }
    }

    /// Time of an entry's last use.
    fn used(&self, key: &Key) -> Option<SystemTime> {
        let entry = self.folder.join(&key.0).join("entry");
        fs::metadata(entry).ok()?.modified().ok()
    }

    /// Removes remains of a process that ended while it made or removed an entry.
    fn remove_unfinished(&self, name: &str, key: Option<Key>) {
        let Some(making) = key.and_then(|key| self.lock_making(&key).ok()) else {
            return;
        };
        if making.try_lock().is_ok() {
            // A later clean-up finds it again if this fails.
            let _ = fs::remove_dir_all(self.folder.join(name));
        }
    }
}

/// A file that is there to be locked.
fn lock_file(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.create(true).truncate(false).write(true).open(path)
}

/// A text that no other call gives, in any process.
fn unique() -> String {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let call = CALLS.fetch_add(1, Ordering::Relaxed);
    format!("{}-{call}", std::process::id())
}

/// Writes the file that marks an entry as whole: its maker, time and contents.
fn seal(unfinished: &Path) -> io::Result<()> {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let since = since.map_err(io::Error::other)?;
    let mut file = File::create_new(unfinished.join("entry"))?;
    writeln!(file, "{} {}", unique(), since.as_nanos())?;
    file.write_all(listing(&unfinished.join("content"))?.as_bytes())
}

/// The files in a folder with their sizes, by their names.
fn listing(folder: &Path) -> io::Result<String> {
    let mut lines: Vec<String> = Vec::new();
    each_file(folder, &mut |path, metadata| {
        let path = path.strip_prefix(folder).unwrap_or(path);
        lines.push(format!("{} {}\n", metadata.len(), path.display()));
    })?;
    lines.sort();
    Ok(lines.concat())
}

/// Bytes of the files in a folder, its part of those that it shares with others.
fn bytes(folder: &Path) -> io::Result<u64> {
    let mut total = 0;
    each_file(folder, &mut |_, metadata| {
        // One name is none of an entry's.
        total += metadata.len() / links(metadata).saturating_sub(1).max(1);
    })?;
    Ok(total)
}

/// The names that a file has.
#[cfg(unix)]
fn links(metadata: &fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(metadata)
}

/// The names that a file has, which are not looked at here.
#[cfg(not(unix))]
fn links(_metadata: &fs::Metadata) -> u64 {
    1
}

/// A key of a file's size, beginning and end.
fn ends(path: &Path) -> io::Result<Key> {
    let mut file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut pieces = [vec![0; PIECE], vec![0; PIECE]];
    file.read_exact(&mut pieces[0])?;
    file.seek(SeekFrom::End(-(PIECE as i64)))?;
    file.read_exact(&mut pieces[1])?;
    let [first, last] = &pieces;
    Ok(Key::of([&bytes.to_le_bytes()[..], first, last]))
}

/// Have two files the same bytes?
fn are_equal(a: &Path, b: &Path) -> io::Result<bool> {
    let [mut a, mut b] = [File::open(a)?, File::open(b)?];
    let mut rest = a.metadata()?.len();
    if b.metadata()?.len() != rest {
        return Ok(false);
    }
    let mut pieces = [vec![0; PIECE], vec![0; PIECE]];
    while rest > 0 {
        let count = rest.min(PIECE as u64) as usize;
        let [of_a, of_b] = &mut pieces;
        a.read_exact(&mut of_a[..count])?;
        b.read_exact(&mut of_b[..count])?;
        if of_a[..count] != of_b[..count] {
            return Ok(false);
        }
        rest -= count as u64;
    }
    Ok(true)
}

fn each_file(folder: &Path, body: &mut dyn FnMut(&Path, &fs::Metadata)) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let (entry, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        if entry?.is_dir() {
            each_file(&path, body)?;
        } else {
            body(&path, &fs::symlink_metadata(&path)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
