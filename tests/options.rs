//! The index of options has all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Folders whose structures of options users see.
const FOLDERS: [&str; 3] = ["crates/tensor/src", "crates/nn/src", "crates/data/src"];

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                files(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}

/// Names that end in `Options` of what a text makes: structures, and entries of the macro of optimisers' options.
fn made(text: &str) -> Vec<String> {
    let named = |line: &str| {
        let line = line.trim();
        let name = line.strip_prefix("pub struct ").unwrap_or(line);
        let name: String = name.chars().take_while(|c| c.is_alphanumeric()).collect();
        let is_made = line.starts_with("pub struct ") || line == format!("{name} {{");
        let is_it = name.len() > "Options".len() && name.ends_with("Options");
        (is_made && is_it).then_some(name)
    };
    text.lines().filter_map(named).collect()
}

#[test]
fn all_options_are_in_the_index() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = FOLDERS.iter().flat_map(|folder| files(&root.join(folder)));
    let all: BTreeSet<String> = files
        .flat_map(|path| made(&fs::read_to_string(path).unwrap()))
        .collect();
    assert!(all.len() > 30, "{all:?}");
    let index = fs::read_to_string(root.join("src/options.rs")).unwrap();
    let words: BTreeSet<&str> = index
        .split("pub use")
        .skip(1)
        .flat_map(|part| part.split(|c: char| !c.is_alphanumeric()))
        .collect();
    let missing: Vec<&String> = all
        .iter()
        .filter(|name| !words.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "not in src/options.rs: {missing:?}");
}
