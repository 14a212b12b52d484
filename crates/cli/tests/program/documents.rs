//! The documents are true: commands run as they stand, links lead somewhere. Code runs as doctests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::opencl::OpenCl;

/// Commands that are not run, with the reasons.
const NOT_RUN: [(&str, &str); 14] = [
    (
        "target/release/rustorch-cli serve -m model.gguf --port 8080",
        "ends on a signal alone; `serve.rs` runs it, and the page's requests",
    ),
    ("cargo test --release --workspace", "runs this very test"),
    (
        "target/release/rustorch-cli verify",
        "takes minutes; `verify.rs` runs its parts",
    ),
    (
        "target/release/rustorch-cli verify -b metal -o m.json",
        "needs a Mac; `verify.rs` checks another device, and writes JSON",
    ),
    (
        "target/release/rustorch-cli verify -m models/classics-13m-f16.gguf",
        "takes minutes; `verify.rs` runs its parts",
    ),
    (
        "target/release/rustorch-cli verify --full",
        "takes many minutes",
    ),
    (
        "target/release/rustorch-cli report",
        "takes minutes; `report.rs` runs it on less",
    ),
    (
        "target/release/rustorch-cli report --html report.html",
        "takes minutes; `report.rs` runs it on less",
    ),
    (
        "target/release/rustorch-cli report -b cpu --only operations,memory -o new.json --html new.html",
        "takes a minute; `report.rs` runs it on less",
    ),
    (
        "target/release/rustorch-cli calibrate --check",
        "takes a minute on an idle machine; `calibrate.rs` runs it on the processor",
    ),
    (
        "pip install torch numpy scipy expecttest safetensors",
        "fetches PyTorch",
    ),
    (
        "scripts/torch-goldens.py --seed 0 --out goldens",
        "needs PyTorch",
    ),
    (
        "cargo run --release -p rustorch-conformance --bin replay -- goldens -v --ops softmax",
        "needs what the script makes",
    ),
    (
        "cargo run --release -p rustorch-conformance --bin sums -- -b cpu --most 1000",
        "builds another program; tests of its crate run its cases",
    ),
];

/// Parts of commands, and what their output has in it. The first that a command has counts.
const OUTPUTS: [(&str, &str); 18] = [
    ("kind=lost", "injected"),
    (" explain ", "opencl:0"),
    (" chat ", "chatml"),
    (" bench --ops ", "matmul"),
    (" bench --train ", "images"),
    (" bench -m ", "tg8"),
    (" train ", "step 40 of 40"),
    (" quantize ", " tensors, "),
    (" devices", "threads: "),
    (" calibrate", "calibration.json"),
    (" completions bash", "complete -F"),
    (" man", ".TH rustorch-cli"),
    (" inspect ", "general.architecture"),
    (" top ", "\"devices\""),
    (" --help", "Usage: "),
    (" --regex ", "His age was "),
    (
        "-p \"One, two",
        "One, two, three. One, two, three. One, two",
    ),
    // A text begins with its prompt.
    (" -p \"", ""),
];

/// The prompt of a command that continues one.
fn prompt(command: &str) -> Option<&str> {
    command.split_once("-p \"")?.1.split('"').next()
}

/// Features of the crate `rustorch` alone: of what programs do not use.
const OF_THE_LIBRARY: [&str; 8] = [
    "csv", "data", "files", "image", "ndarray", "nn", "onnx", "parquet",
];

/// Features that `rustorch-cli` always has: those that choose what the processor has kernels of, and
/// the profiler.
const OF_ALL_PROGRAMS: [&str; 6] = ["simd", "llm", "dtypes", "linalg", "fft", "profile"];

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The documents, by their names in the repository. Reports, which programs write, are none.
fn documents() -> Vec<(String, String)> {
    let docs = fs::read_dir(repository().join("docs")).unwrap();
    let docs = docs.map(|file| file.unwrap().file_name().into_string().unwrap());
    let texts = docs.filter(|name| name.ends_with(".md"));
    let mut names: Vec<String> = texts.map(|name| format!("docs/{name}")).collect();
    names.sort();
    names.extend(["README.md", "CONTRIBUTING.md"].map(str::to_owned));
    let read = |name: String| {
        let text = fs::read_to_string(repository().join(&name)).unwrap();
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// The blocks of a document in this language.
pub(crate) fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            if line == fence {
                blocks.push(block.join("\n"));
            }
        }
    }
    blocks
}

/// The commands of all documents, without comments.
fn commands() -> Vec<String> {
    let mut commands = Vec::new();
    for (_, text) in documents() {
        for block in blocks(&text, "sh") {
            let block = block.replace("\\\n", " ");
            let bare = block.lines().map(|line| match line.find(" #") {
                Some(at) => &line[..at],
                None => line,
            });
            let words = bare.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
            commands.extend(words.filter(|line| !line.is_empty()));
        }
    }
    commands
}

fn needs_opencl(command: &str) -> bool {
    command.contains("-b opencl")
}

/// Runs commands with what they name: the program where a build puts it, the models of the
/// repository, and as `model.gguf` one of them.
#[cfg(unix)]
fn run(commands: impl IntoIterator<Item = String>) {
    use std::os::unix::fs::symlink;
    use std::process::Command;

    let folder = tempfile::tempdir().unwrap();
    let program = env!("CARGO_BIN_EXE_rustorch-cli");
    let models = fs::canonicalize(repository().join("models")).unwrap();
    fs::create_dir_all(folder.path().join("target/release")).unwrap();
    symlink(program, folder.path().join("target/release/rustorch-cli")).unwrap();
    symlink(
        models.join("classics-13m-Q4_K_M.gguf"),
        folder.path().join("model.gguf"),
    )
    .unwrap();
    symlink(models, folder.path().join("models")).unwrap();
    for command in commands {
        // It is built already.
        let built = command.replace("cargo run --release --", program);
        let output = Command::new("sh")
            .args(["-euc", &built])
            .current_dir(folder.path())
            // Kept, for the kernels in it; not the one of other tests, which know no calibration.
            .env(
                "RUSTORCH_CACHE_DIR",
                concat!(env!("CARGO_TARGET_TMPDIR"), "/documents"),
            )
            .env_remove("RUSTORCH_INJECT")
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command}: {errors}");
        let found = OUTPUTS.iter().find(|(part, _)| command.contains(part));
        let (_, expected) = found.unwrap_or_else(|| panic!("{command}: list a part of its output"));
        let expected = match expected.is_empty() {
            true => prompt(&command).expect("a prompt"),
            false => expected,
        };
        let text = String::from_utf8_lossy(&output.stdout) + errors;
        assert!(
            text.contains(expected),
            "{command} prints no {expected:?}: {text}"
        );
    }
}

#[cfg(unix)]
pub(crate) fn commands_run_as_they_stand() {
    let is_run = |command: &String| {
        !needs_opencl(command) && !NOT_RUN.iter().any(|(known, _)| known == command)
    };
    let commands: Vec<String> = commands().into_iter().filter(is_run).collect();
    assert!(commands.len() >= 5, "{commands:?}");
    run(commands);
}

#[cfg(unix)]
pub(crate) fn commands_for_opencl_run_as_they_stand(_: &OpenCl) {
    let commands: Vec<String> = commands().into_iter().filter(|c| needs_opencl(c)).collect();
    assert!(commands.len() >= 2, "{commands:?}");
    run(commands);
}

pub(crate) fn commands_that_are_not_run_are_there() {
    let commands = commands();
    for (command, reason) in NOT_RUN {
        assert!(commands.iter().any(|c| c == command), "{command}: {reason}");
    }
}

pub(crate) fn examples_in_rust_are_doctests() {
    let crate_root = fs::read_to_string(repository().join("src/lib.rs")).unwrap();
    for (name, text) in documents() {
        let count = blocks(&text, "rust").len();
        let is_included = crate_root.contains(&format!("include_str!(\"../{name}\")"));
        assert!(count == 0 || is_included, "{name} has {count} examples");
    }
}

/// Folders of documents, from the repository's root.
const FOLDERS: [&str; 5] = ["", "docs", "docs/book/src", "docs/reports", "fuzz"];

/// All documents in these folders.
fn all_documents() -> Vec<PathBuf> {
    let folders = FOLDERS.iter().map(|folder| repository().join(folder));
    let files = folders.flat_map(|folder| fs::read_dir(folder).unwrap());
    let paths = files.map(|file| file.unwrap().path());
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|ending| ending == "md"))
        .collect();
    paths.sort();
    paths
}

/// The text of a document without blocks of code, and with the guide that a chapter of the book includes.
fn prose(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let included = text.strip_prefix("{{#include ");
    if let Some(guide) = included.and_then(|rest| rest.trim().strip_suffix("}}")) {
        return prose(&path.parent().unwrap().join(guide));
    }
    let mut in_code = false;
    let lines = text.lines().filter(|line| {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    });
    lines.map(|line| format!("{line}\n")).collect()
}

/// The targets of a document's links, without those outside the repository.
fn links(prose: &str) -> Vec<String> {
    // Spans of code are not links.
    let bare: String = prose.split('`').step_by(2).collect();
    let targets = bare.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    let inside = targets.filter(|(target, _)| !target.contains(':'));
    inside.map(|(target, _)| target.to_owned()).collect()
}

/// The anchors of a document's headings, as code hosts and mdBook name them.
fn anchors(prose: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for heading in prose.lines().filter(|line| line.starts_with('#')) {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let numbered = (1..).map(|number| format!("{name}-{number}"));
        let mut names = std::iter::once(name.clone()).chain(numbered);
        let free = names.find(|name| !anchors.contains(name));
        anchors.extend(free);
    }
    anchors
}

pub(crate) fn links_lead_somewhere() {
    let mut broken = Vec::new();
    let mut count = 0;
    for document in all_documents() {
        let prose = prose(&document);
        // A guide's links are checked in its own folder.
        let is_included = fs::read_to_string(&document).unwrap().starts_with("{{#");
        for link in links(&prose).iter().filter(|_| !is_included) {
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => document.clone(),
                path => document.parent().unwrap().join(path),
            };
            let is_text = target.extension().is_some_and(|ending| ending == "md");
            let has_anchor = || anchors(&self::prose(&target)).contains(anchor);
            if !target.exists() || (is_text && !anchor.is_empty() && !has_anchor()) {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(count > 100, "{count} links");
}

/// The book's summary lists each chapter once. Each guide is a chapter of the same name, so guides' links to each
/// other hold in the book.
pub(crate) fn the_book_has_every_guide() {
    let source = repository().join("docs/book/src");
    let summary = fs::read_to_string(source.join("SUMMARY.md")).unwrap();
    let mut listed = links(&summary);
    listed.sort();
    let names = |folder: &Path| -> Vec<String> {
        let files = all_documents().into_iter();
        let here = files.filter(|path| path.parent() == Some(folder));
        let names = here.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned());
        names.filter(|name| name != "SUMMARY.md").collect()
    };
    assert_eq!(listed, names(&source));
    for guide in names(&repository().join("docs")) {
        let chapter = fs::read_to_string(source.join(&guide)).unwrap();
        assert_eq!(chapter.trim(), format!("{{{{#include ../../{guide}}}}}"));
    }
}

/// The features that a manifest declares, with what they bring.
fn features(manifest: &str) -> Vec<(String, String)> {
    let text = fs::read_to_string(repository().join(manifest)).unwrap();
    let (_, features) = text.split_once("[features]\n").unwrap();
    let lines = features.lines().take_while(|line| !line.starts_with('['));
    let declared = lines.filter_map(|line| line.split_once(" = "));
    let owned = declared.map(|(name, brings)| (name.to_owned(), brings.to_owned()));
    owned.filter(|(name, _)| name != "default").collect()
}

pub(crate) fn features_are_those_of_the_table() {
    let document = fs::read_to_string(repository().join("docs/features.md")).unwrap();
    let (_, table) = document.split_once("| feature | what it does |\n").unwrap();
    let rows = table
        .lines()
        .take_while(|line| line.starts_with('|'))
        .skip(1);
    let first = rows.map(|row| row.split('|').nth(1).unwrap());
    let named = first.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let told: BTreeSet<String> = named.map(str::to_owned).collect();
    for manifest in [
        "Cargo.toml",
        "crates/cli/Cargo.toml",
        "crates/tensor/Cargo.toml",
    ] {
        let features = features(manifest);
        let declared: BTreeSet<String> = features.iter().map(|(name, _)| name.clone()).collect();
        let mut expected = told.clone();
        if manifest != "Cargo.toml" {
            expected.retain(|name| !OF_THE_LIBRARY.contains(&name.as_str()));
        }
        if manifest == "crates/cli/Cargo.toml" {
            expected.retain(|name| !OF_ALL_PROGRAMS.contains(&name.as_str()));
        }
        assert_eq!(declared, expected, "{manifest}");
        let brings = |name: &str, device: &str| {
            let (_, list) = features.iter().find(|(known, _)| known == name).unwrap();
            assert!(
                list.contains(&format!("\"{device}\"")),
                "{manifest}: {name} and {device}"
            );
        };
        for gpu in ["metal", "cuda", "opencl"] {
            brings("coreml-hybrid", gpu);
            brings("gpu-priority", gpu);
        }
        for device in ["metal", "coreml", "hybrid-f32"] {
            brings("mac-hybrid", device);
        }
    }
}
