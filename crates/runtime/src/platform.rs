//! Services of the system: clock, threads, environment, files, pages of memory.
//!
//! The crates below the drivers use no other way to the system, but for the processor's own instructions. So a platform without these services
//! needs no other change. WebAssembly in a browser is one: its standard library finds no file, no variable
//! and no thread. Callers then compute on the thread that they are on.

mod system_memory;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

#[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
pub use std::time::Instant;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
pub use stopped::Instant;

pub use system_memory::SystemMemory;

/// The value of an environment variable; `None` if it is not set or empty.
pub fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns whether an environment variable switches something on: it is set, and neither `0` nor `false`.
pub fn is_on(name: &str) -> bool {
    variable(name).is_some_and(|value| is_yes(&value))
}

fn is_yes(value: &OsString) -> bool {
    value != "0" && value != "false"
}

/// Starts a named thread.
///
/// # Errors
/// Fails if the system starts none.
pub fn spawn<T: Send + 'static>(
    name: impl Into<String>,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    thread::Builder::new().name(name.into()).spawn(work)
}

/// The results of `work` on each item, in order. Each has a thread of its own, if the system starts one.
///
/// # Panics
/// Panics if `work` panics.
pub fn at_once<I: Copy + Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> T + Sync,
) -> Vec<T> {
    let work = &work;
    thread::scope(|scope| {
        let start = |item| {
            let thread = thread::Builder::new().spawn_scoped(scope, move || work(item));
            thread.map_err(|_| work(item))
        };
        let started: Vec<_> = items.into_iter().map(start).collect();
        let results = started.into_iter().map(|started| match started {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            Err(result) => result,
        });
        results.collect()
    })
}

/// Lets other threads run for a moment.
pub fn give_way() {
    thread::yield_now();
}

/// Threads that can run at once; 1 if the system does not report it.
pub fn parallelism() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// The processor's cores, of which each may run several threads.
pub fn cores() -> usize {
    num_cpus::get_physical()
}

/// Asks the system for large pages where memory has none yet. Such pages are made, and filled with zeros, at the first
/// write. Small ones are made one by one. Without large pages all works as well.
pub(crate) fn prefer_huge_pages(start: NonNull<u8>, bytes: usize) {
    #[cfg(target_os = "linux")]
    // SAFETY: whole pages of an allocation, which begins with a page; advice changes no contents.
    unsafe {
        libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (start, bytes);
}

/// The processor's name, if the system reports it.
pub fn processor() -> Option<String> {
    let info = fs::read_to_string("/proc/cpuinfo").ok()?;
    let model = info
        .lines()
        .find_map(|line| line.strip_prefix("model name"))?;
    let (_, name) = model.split_once(':')?;
    Some(name.trim().to_owned())
}

/// The user's cache folder: `RUSTORCH_CACHE_DIR`, or `rustorch` in the system's cache folder.
pub fn cache_folder() -> Option<PathBuf> {
    match variable("RUSTORCH_CACHE_DIR") {
        Some(folder) => Some(PathBuf::from(folder)),
        None => Some(dirs::cache_dir()?.join("rustorch")),
    }
}

/// The first `limit` bytes of a file.
///
/// # Errors
/// Fails if the file cannot be read.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(limit).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Writes a file and its folder, first under another name, so that no reader sees half of it.
///
/// # Errors
/// Fails if the folder cannot be written. No file is left then.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Several threads of a program may write the same file.
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let unfinished = path.with_extension(format!("{}-{number}", std::process::id()));
    let write = || {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut file = File::create(&unfinished)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, path)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&unfinished);
    })
}

/// A clock for a platform whose standard library has none.
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
mod stopped {
    use std::ops::{Add, Sub};
    use std::time::Duration;

    /// A moment of a clock that stands still: all times are 0.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
    pub struct Instant(Duration);

    impl Instant {
        /// The moment at which it stands.
        pub fn now() -> Self {
            Self(Duration::ZERO)
        }

        /// Time since this moment.
        pub fn elapsed(&self) -> Duration {
            Self::now().duration_since(*self)
        }

        /// Time from `earlier` to this moment.
        pub fn duration_since(&self, earlier: Self) -> Duration {
            self.0.saturating_sub(earlier.0)
        }

        /// Like [`Self::duration_since`].
        pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
            self.duration_since(earlier)
        }

        /// The moment that is `duration` earlier.
        pub fn checked_sub(&self, duration: Duration) -> Option<Self> {
            self.0.checked_sub(duration).map(Self)
        }
    }

    impl Add<Duration> for Instant {
        type Output = Self;

        fn add(self, duration: Duration) -> Self {
            Self(self.0 + duration)
        }
    }

    impl Sub for Instant {
        type Output = Duration;

        fn sub(self, earlier: Self) -> Duration {
            self.duration_since(earlier)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_on_unless_they_say_no() {
        for (value, on) in [("0", false), ("false", false), ("1", true), ("yes", true)] {
            assert_eq!(is_yes(&value.into()), on, "{value}");
        }
        assert!(!is_on("RUSTORCH_A_VARIABLE_THAT_NOBODY_SETS"));
    }

    #[test]
    fn results_come_in_the_order_of_the_items() {
        assert_eq!(at_once([3, 1, 2], |n| n * 10), [30, 10, 20]);
    }

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/file.json");
        for text in [&b"first"[..], b"second"] {
            replace(&path, text).unwrap();
            assert_eq!(read(&path, 100).unwrap(), text);
        }
        assert_eq!(read(&path, 3).unwrap(), b"sec");
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        // A file is no folder.
        let error = replace(&path.join("below"), b"").unwrap_err();
        assert_ne!(error.kind(), io::ErrorKind::NotFound, "{error}");
    }
}
