use super::*;
use std::time::Duration;

fn key(name: &str) -> Key {
    Key::of([name.as_bytes()])
}

/// An entry of one file with `bytes` bytes.
fn put(cache: &Cache, name: &str, bytes: usize) -> Entry {
    let make = |folder: &Path| fs::write(folder.join("model"), vec![1; bytes]);
    cache.get_or_make(&key(name), make).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name();
    let mut names: Vec<String> = entries
        .map(|entry| name(entry).into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn what_was_made_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path().join("new"), 1000);
    assert!(cache.find(&key("a")).is_none());
    let entry = put(&cache, "a", 10);
    assert_eq!(fs::read(entry.path().join("model")).unwrap(), [1; 10]);
    let again = cache.get_or_make(&key("a"), |_| panic!("made again"));
    assert_eq!(again.unwrap().path(), entry.path());
    assert!(cache.find(&key("b")).is_none());
}

#[test]
fn keys_tell_parts_apart() {
    let of = |parts: &[&[u8]]| Key::of(parts.iter().copied());
    assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
    assert_ne!(of(&[b"abc"]), of(&[b"abc", b""]));
    assert_eq!(of(&[b"ab", b"c"]), of(&[b"ab", b"c"]));
}

#[test]
fn what_is_damaged_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), 1000);
    let path = put(&cache, "a", 10).path().to_owned();
    let spoils: [fn(&Path); 4] = [
        |path| fs::write(path.join("model"), [1; 9]).unwrap(),
        |path| fs::remove_file(path.join("model")).unwrap(),
        |path| fs::write(path.join("other"), []).unwrap(),
        |path| fs::write(path.with_file_name("entry"), []).unwrap(),
    ];
    for spoil in spoils {
        spoil(&path);
        assert!(cache.find(&key("a")).is_none());
        assert_eq!(listing(put(&cache, "a", 10).path()).unwrap(), "10 model\n");
    }
}

#[test]
fn a_failure_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), 1000);
    let fails = |folder: &Path| {
        fs::write(folder.join("half"), [0; 5])?;
        Err(io::ErrorKind::StorageFull.into())
    };
    let failed = cache.get_or_make(&key("a"), fails).unwrap_err();
    assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
    assert_eq!(names(folder.path()), ["making"]);
    // It can be made later.
    put(&cache, "a", 1);
}

#[test]
fn outlines_are_known_as_long_as_their_entries() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), 1000);
    let outline = key("outline of a");
    assert!(!cache.knows(&outline));
    cache.note(&outline, &key("a"));
    assert!(!cache.knows(&outline), "there is no entry yet");
    let path = put(&cache, "a", 10).path().to_owned();
    cache.note(&outline, &key("a"));
    assert!(cache.knows(&outline) && !cache.knows(&key("a")));
    fs::write(path.join("model"), [1; 9]).unwrap();
    assert!(!cache.knows(&outline), "it is damaged");
    assert!(cache.remove(&key("a")));
    put(&cache, "b", 1);
    assert!(names(&folder.path().join("known")).is_empty());
}

#[test]
fn notes_of_an_entry_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), 1000);
    let entry = put(&cache, "a", 10);
    assert!(!entry.has_note("loaded-all"));
    entry.note("loaded-all");
    let again = cache.find(&key("a")).unwrap();
    assert!(again.has_note("loaded-all") && !again.has_note("loaded-cpu"));
    drop((entry, again));
    assert!(cache.remove(&key("a")));
    assert!(!put(&cache, "a", 10).has_note("loaded-all"));
}

#[test]
fn a_folder_that_cannot_be_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let cache = Cache::new(&file, 1000);
    let failed = cache.get_or_make(&key("a"), |_| Ok(())).unwrap_err();
    let told = failed.to_string();
    assert!(told.starts_with(&file.display().to_string()), "{told}");
    assert!(told.ends_with("set RUSTORCH_CACHE_DIR to a writable folder"));
}

#[test]
fn the_least_recently_used_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), 10_000);
    for i in 0..6 {
        put(&cache, &i.to_string(), 1000);
        let entry = folder.path().join(&key(&i.to_string()).0).join("entry");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(i);
        let file = File::options().append(true).open(entry).unwrap();
        file.set_times(FileTimes::new().set_modified(time)).unwrap();
    }
    // Used now.
    assert!(cache.find(&key("0")).is_some());
    let held = cache.find(&key("2")).unwrap();
    let entry = folder.path().join(&key("2").0).join("entry");
    let file = File::options().append(true).open(entry).unwrap();
    let old = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH);
    file.set_times(old).unwrap();
    put(&cache, "large", 5000);
    let left: Vec<&str> = ["0", "1", "2", "3", "4", "5", "large"]
        .into_iter()
        .filter(|name| cache.find(&key(name)).is_some())
        .collect();
    // The oldest is in use, and 7500 bytes are allowed with what says that entries are whole.
    assert_eq!(left, ["0", "2", "large"]);
    assert!(held.path().join("model").exists());
}

/// Sizes of the large files, and the names that each has.
#[cfg(unix)]
fn large(folder: &Path) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut add = |_: &Path, file: &fs::Metadata| found.push((file.len(), links(file)));
    each_file(&folder.join("files"), &mut add).unwrap();
    found
}

#[cfg(unix)]
#[test]
fn large_files_that_are_equal_are_one() {
    let folder = tempfile::tempdir().unwrap();
    let size = LARGE as usize + 5;
    let cache = Cache::new(folder.path(), 3 << 20);
    let [a, b] = ["a", "b"].map(|name| put(&cache, name, size));
    assert_eq!(large(folder.path()), [(LARGE + 5, 3)]);
    let used = [&a, &b].map(|entry| bytes(entry.path()).unwrap());
    assert_eq!(used, [(LARGE + 5) / 2; 2]);
    // The same ends, but another file.
    let make = |folder: &Path| {
        let mut bytes = vec![1; size];
        bytes[size / 2] = 2;
        fs::write(folder.join("model"), bytes)
    };
    let c = cache.get_or_make(&key("c"), make).unwrap();
    assert_eq!(fs::read(c.path().join("model")).unwrap()[size / 2], 2);
    assert_eq!(fs::read(a.path().join("model")).unwrap(), vec![1; size]);
    // Without its entries a file goes.
    drop((a, b, c));
    for name in ["a", "b", "c"] {
        assert!(cache.remove(&key(name)));
    }
    put(&cache, "d", 1);
    assert_eq!(large(folder.path()), []);
}

#[cfg(unix)]
#[test]
fn what_is_shared_and_damaged_is_not_linked_again() {
    let folder = tempfile::tempdir().unwrap();
    let size = LARGE as usize;
    let cache = Cache::new(folder.path(), 1 << 30);
    let path = put(&cache, "a", size).path().join("model");
    let mut damaged = vec![1; size];
    damaged[size / 2] = 0;
    fs::write(&path, &damaged).unwrap();
    let other = put(&cache, "b", size);
    let read = fs::read(other.path().join("model")).unwrap();
    assert_eq!(read, vec![1; size]);
}

#[test]
fn what_nobody_finishes_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::new(folder.path(), 1000);
    let left = folder.path().join(format!("{}.1-0", key("a").0));
    fs::create_dir_all(left.join("content")).unwrap();
    // Not what the cache made.
    let other = folder.path().join("notes.txt");
    fs::write(&other, "").unwrap();
    put(&cache, "b", 1);
    assert!(!left.exists() && other.exists());
}
