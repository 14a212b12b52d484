//! The compiler's messages for programs that cannot be compiled.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The newest library of a crate beside this program, which was linked with it.
fn library(deps: &Path, name: &str) -> PathBuf {
    let begin = format!("lib{name}-");
    let files = fs::read_dir(deps)
        .expect("a folder")
        .map(|file| file.expect("a file").path());
    let libraries = files.filter(|path| {
        let file = path.file_name().and_then(|file| file.to_str());
        file.is_some_and(|file| file.starts_with(&begin) && file.ends_with(".rlib"))
    });
    let newest = libraries.max_by_key(|path| path.metadata().and_then(|m| m.modified()).ok());
    newest.expect("a library")
}

/// All messages of the compiler for a program, `lines.rs`. Each crate has its name in the program,
/// and the name of its library.
pub fn said(text: &str, crates: &[(&str, &str)]) -> String {
    let program = env::current_exe().expect("this program");
    let deps = program.parent().expect("its folder");
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("lines.rs"), text).expect("a file");
    let mut compiler = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into()));
    compiler.args("--edition 2024 --crate-type lib --emit metadata -A warnings".split(' '));
    compiler.arg("-L").arg(deps);
    for (name, crate_name) in crates {
        let library = library(deps, crate_name);
        compiler
            .arg("--extern")
            .arg(format!("{name}={}", library.display()));
    }
    let output = compiler.arg("lines.rs").current_dir(folder.path()).output();
    let output = output.expect("a compiler");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Fails unless each line of a program is refused with these parts of messages. The first of them is line `first`.
pub fn assert_said(
    text: &str,
    crates: &[(&str, &str)],
    first: usize,
    expected: &[(&str, &[&str])],
) {
    let said = said(text, crates);
    let messages: Vec<&str> = said.split("\nerror").collect();
    let mut missing = String::new();
    for (at, (line, expected)) in expected.iter().enumerate() {
        let place = format!("--> lines.rs:{}:", at + first);
        let of_line = messages.iter().filter(|text| text.contains(&place));
        let told: String = of_line.copied().collect();
        for part in expected.iter().filter(|&&part| !told.contains(part)) {
            missing += &format!("{line}: {part} is not in: {told}\n");
        }
    }
    assert!(missing.is_empty(), "{missing}");
}
