//! Within a crate, modules form layers: none uses another that uses it, directly or by way of
//! others, but for those that are one concept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules that use each other because they are one concept.
const KNOTS: [&str; 3] = [
    // A graph is made of operations, which say by graphs what they are made of.
    "ir: autodiff case check graph op ops passes",
    // A graph has branches and loops, whose bodies are graphs.
    "onnx: control graph",
    // A tensor is a handle on what it is computed from.
    "tensor: autograd lazy tensor",
];

/// Modules, each with others: those that it uses, or reaches.
type Modules = BTreeMap<String, BTreeSet<String>>;

#[test]
fn modules_form_layers() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("crates");
    let folders = [entries(&crates), entries(&crates.join("backends"))].concat();
    let mut found = Vec::new();
    for folder in folders.iter().filter(|f| f.join("src").is_dir()) {
        let name = stem(folder);
        let uses = uses(&folder.join("src"));
        for knot in knots(&uses) {
            found.push(format!("{name}: {}", knot.join(" ")));
        }
    }
    assert_eq!(found, KNOTS, "modules that use each other");
}

fn stem(path: &Path) -> String {
    path.file_stem().unwrap().to_string_lossy().into_owned()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// The modules of a crate, each with those that it uses.
fn uses(source: &Path) -> Modules {
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for path in entries(source) {
        texts.entry(stem(&path)).or_default().push_str(&text(&path));
    }
    let root = ["lib", "main"].map(|root| texts.remove(root).unwrap_or_default());
    // Names that the root takes out of modules.
    let mut homes: BTreeMap<&str, &str> = BTreeMap::new();
    let root = root.concat();
    for statement in root.split("use ").skip(1) {
        let mut names = words(statement.split(';').next().unwrap_or_default());
        if let Some(module) = names.next().filter(|m| texts.contains_key(*m)) {
            homes.extend(names.map(|name| (name, module)));
        }
    }
    let home = |name: &str| match texts.contains_key(name) {
        true => Some(name.to_owned()),
        false => homes.get(name).map(|&module| module.to_owned()),
    };
    let modules = texts.iter().map(|(module, text)| {
        let mut used: BTreeSet<String> = names(text).into_iter().filter_map(home).collect();
        used.remove(module);
        (module.clone(), used)
    });
    modules.collect()
}

/// The code of a file, or of all in a folder, without comments and tests.
fn text(path: &Path) -> String {
    if path.is_dir() {
        return entries(path).iter().map(|path| text(path)).collect();
    }
    if path.extension() != Some("rs".as_ref()) || path.ends_with("tests.rs") {
        return String::new();
    }
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines = code.lines().map(|line| line.split("//").next());
    lines.flatten().collect()
}

/// The names behind `crate::`, alone or in braces.
fn names(text: &str) -> Vec<&str> {
    let paths = text.split("crate::").skip(1);
    let names = paths.map(|path| match path.strip_prefix('{') {
        Some(list) => words(list.split(';').next().unwrap_or_default()).collect(),
        None => words(path).take(1).collect::<Vec<_>>(),
    });
    names.flatten().collect()
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

/// Sets of modules that reach each other.
fn knots(uses: &Modules) -> BTreeSet<Vec<&str>> {
    let mut reached = uses.clone();
    loop {
        let further = |used: &BTreeSet<String>| {
            let next = used.iter().flat_map(|module| &reached[module]);
            next.chain(used).cloned().collect()
        };
        let next: Modules = (reached.iter().map(|(m, used)| (m.clone(), further(used)))).collect();
        if next == reached {
            break;
        }
        reached = next;
    }
    let knot = |from: &String| {
        let mutual = |to: &&String| reached[from].contains(*to) && reached[*to].contains(from);
        uses.keys().filter(mutual).map(String::as_str).collect()
    };
    let knots = uses.keys().map(knot);
    knots.filter(|knot: &Vec<_>| !knot.is_empty()).collect()
}
