//! Processes that share a cache, and one that is killed while it makes an entry.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustorch_coreml::cache::{Cache, Key};

const KEYS: u8 = 8;

fn main() {
    let args: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match &args[..] {
        [mode, folder] if mode == Path::new("share") => share(folder),
        [mode, folder] if mode == Path::new("hang") => hang(folder),
        _ => {
            processes_make_each_entry_once();
            what_a_killed_process_left_is_removed();
        }
    }
}

fn key(i: u8) -> Key {
    Key::of([&[i][..]])
}

/// Makes an entry, and notes beside the cache that it did.
fn make(folder: &Path, i: u8) -> impl FnOnce(&Path) -> io::Result<()> {
    let notes = folder.join("made");
    move |content| {
        fs::write(content.join("model"), [i; 1000])?;
        let mut notes = fs::File::options().append(true).create(true).open(notes)?;
        notes.write_all(&[i])
    }
}

/// Asks for all entries, in an order of its own, and looks at them.
fn share(folder: &Path) {
    let cache = Cache::new(folder.join("cache"), 1 << 20);
    let start = std::process::id() as u8;
    for i in (0..KEYS).map(|i| start.wrapping_add(i) % KEYS) {
        let entry = cache.get_or_make(&key(i), make(folder, i)).unwrap();
        assert_eq!(fs::read(entry.path().join("model")).unwrap(), [i; 1000]);
    }
}

/// Begins to make an entry, says so, and never ends.
fn hang(folder: &Path) {
    let cache = Cache::new(folder.join("cache"), 1 << 20);
    let hangs = |content: &Path| {
        fs::write(content.join("half"), [0; 10])?;
        fs::write(folder.join("begun"), [])?;
        loop {
            std::thread::park();
        }
    };
    drop(cache.get_or_make(&key(0), hangs));
}

fn spawn(mode: &str, folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(mode).arg(folder).stdin(Stdio::null());
    command.spawn().unwrap()
}

fn processes_make_each_entry_once() {
    let folder = tempfile::tempdir().unwrap();
    let children: Vec<Child> = (0..6).map(|_| spawn("share", folder.path())).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let mut made = fs::read(folder.path().join("made")).unwrap();
    made.sort_unstable();
    assert_eq!(made, (0..KEYS).collect::<Vec<u8>>());
}

fn what_a_killed_process_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut child = spawn("hang", folder.path());
    while !folder.path().join("begun").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let cache = folder.path().join("cache");
    let unfinished = || {
        let names = fs::read_dir(&cache).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name());
        names.any(|name| name.to_string_lossy().contains('.'))
    };
    assert!(unfinished());
    // Its lock is gone with it: another process makes the entry.
    let entry = Cache::new(&cache, 1 << 20).get_or_make(&key(0), make(folder.path(), 0));
    assert_eq!(
        fs::read(entry.unwrap().path().join("model")).unwrap(),
        [0; 1000]
    );
    assert!(!unfinished());
}
