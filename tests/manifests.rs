//! Sources are tested once. Cargo compiles a library again for its unit tests, and runs rustdoc on it for those of its
//! documentation. The manifest of a library without such tests says so, which saves that time. A library that says so
//! by mistake would keep tests that never run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn sources_are_tested_once_if_they_have_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["", "models", "tests/npu"].map(|folder| root.join(folder));
    let parts = ["crates", "crates/backends"].map(|folder| entries(&root.join(folder)));
    // The keys that are not off, of all libraries that are made of a folder's sources.
    let mut tested: BTreeMap<PathBuf, Vec<&str>> = BTreeMap::new();
    for folder in folders.into_iter().chain(parts.concat()) {
        let Ok(manifest) = fs::read_to_string(folder.join("Cargo.toml")) else {
            continue;
        };
        let library = manifest
            .split("\n[")
            .find_map(|part| part.strip_prefix("lib]"));
        let lines: Vec<&str> = library.unwrap_or_default().lines().collect();
        let path = lines.iter().find_map(|line| line.strip_prefix("path = "));
        let path = folder.join(path.unwrap_or("src/lib.rs").trim_matches('"'));
        if let Ok(path) = path.canonicalize() {
            let keys = tested.entry(path.parent().unwrap().to_owned()).or_default();
            let is_on = |key: &&str| !lines.contains(&format!("{key} = false").as_str());
            keys.extend(["test", "doctest"].into_iter().filter(is_on));
        }
    }
    assert!(tested.len() > 30, "{tested:?}");
    let mut wrong = Vec::new();
    for (folder, keys) in &tested {
        let sources = sources(folder);
        let has_test = sources.iter().any(|text| text.contains("#[test]"));
        for (key, has) in [
            ("test", has_test),
            ("doctest", sources.iter().any(|text| has_doctest(text))),
        ] {
            let count = keys.iter().filter(|&&k| k == key).count();
            if count != usize::from(has) {
                let what = if has { "has" } else { "lacks" };
                wrong.push(format!(
                    "{}: {what} a {key}, compiled {count} times",
                    folder.display()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Does the documentation have code that rustdoc runs or compiles? It does so with blocks without a language, or of Rust.
fn has_doctest(text: &str) -> bool {
    let comments = text.lines().map(str::trim_start);
    let docs = comments.filter_map(|l| l.strip_prefix("///").or_else(|| l.strip_prefix("//!")));
    let fences = docs.filter_map(|line| line.trim_start().strip_prefix("```"));
    // Every other fence ends a block.
    let mut opening = fences.step_by(2);
    let rust = ["rust", "no_run", "should_panic", "compile_fail"];
    text.contains("#[doc = include_str!")
        || opening.any(|language| {
            language.is_empty() || rust.iter().any(|name| language.starts_with(name))
        })
}

/// The texts of all sources in a folder.
fn sources(folder: &Path) -> Vec<String> {
    let (folders, files): (Vec<_>, Vec<_>) = entries(folder).into_iter().partition(|p| p.is_dir());
    let rust = |path: &PathBuf| path.extension() == Some("rs".as_ref());
    let texts = files.into_iter().filter(rust);
    let texts = texts.map(|path| fs::read_to_string(path).unwrap());
    texts
        .chain(folders.iter().flat_map(|f| self::sources(f)))
        .collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}
