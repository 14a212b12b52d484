//! The crates below the drivers reach the system through one module. So a platform without files, threads and clock
//! has one place to change.

use std::fs;
use std::path::{Path, PathBuf};

/// Sources of the crates that are for all platforms.
const FOLDERS: [&str; 6] = [
    "crates/ir/src",
    "crates/quant/src",
    "crates/runtime/src",
    "crates/backends/reference/src",
    "crates/backends/cpu/src",
    "crates/tensor/src",
];

/// The module, which may.
const PLATFORM: [&str; 2] = ["runtime/src/platform", "runtime/src/platform.rs"];

/// Names that reach the system.
const SYSTEM: [&str; 13] = [
    "std::fs",
    "std::env::var",
    "std::net",
    "libc::",
    "num_cpus",
    "SystemTime",
    "thread::Builder",
    "thread::spawn",
    "thread::scope",
    "thread::sleep",
    "available_parallelism",
    "time::Instant",
    "time::{Duration, Instant}",
];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let files = paths.map(|path| match path.is_dir() {
        true => files(&path),
        false => vec![path],
    });
    files.flatten().collect()
}

/// The code of a file, without comments and tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next());
    lines.flatten().flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn one_module_reaches_the_system() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for path in FOLDERS.iter().flat_map(|folder| files(&root.join(folder))) {
        let name = path.strip_prefix(root).unwrap().display().to_string();
        let name = name.replace(std::path::MAIN_SEPARATOR, "/");
        let is_module = PLATFORM.iter().any(|module| name.contains(module));
        let is_test = name.contains("/tests");
        if path.extension() != Some("rs".as_ref()) || is_module || is_test {
            continue;
        }
        let code = code(&path);
        let used = SYSTEM.iter().filter(|used| code.contains(**used));
        found.extend(used.map(|used| format!("{name}: {used}")));
    }
    assert!(found.is_empty(), "{found:#?}");
    let platform = code(&root.join("crates/runtime/src/platform.rs"));
    assert!(platform.contains("std::fs"), "the module has moved");
}
