//! Lines that users of PyTorch and candle write and that cannot be Rust: what the compiler says leads to the line that
//! can be.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The lines, in a function with these variables, and a part of what the compiler says of each.
const LINES: [(&str, &[&str]); 23] = [
    // Of results.
    ("(&x + &y) * 2", &["OthersAfterAQuestionMark"]),
    ("(&x + &y) * (&x - &y)", &["OthersAfterAQuestionMark"]),
    ("x.exp().log()", &["use the `?` operator"]),
    ("x.relu().shape()", &["use the `?` operator"]),
    ("x.matmul(&x.t())", &["expected `&Tensor`, found `&Result<"]),
    ("{ let z: Tensor = &x + &y; z }", &["use the `?` operator"]),
    // Of parts.
    ("x[0]", &["its parts are `x.i(…)?`", "`x.i(0)?`"]),
    ("x[(0, 1)]", &["its parts are `x.i(…)?`"]),
    ("&x[1..3]", &["its parts are `x.i(…)?`"]),
    ("x[&y]", &["its parts are `x.i(…)?`"]),
    // Of arguments.
    ("x.sum(1)", &["argument #2 of type `bool` is missing"]),
    ("x.softmax()", &["argument #1", "missing"]),
    ("x.softmax(1.0)", &["is no dimension, index or size"]),
    ("x.reshape(1.5)", &["is no list of sizes", "`[2, -1]`"]),
    (
        "x.i(1.5)",
        &["is no index of a tensor", "`x.i((.., 1..3, &mask))`"],
    ),
    ("x.to_device(0)", &["names no device", "\"cuda:0\""]),
    (
        "x.add(\"1\")",
        &["is no operand", "`tensor!` makes a tensor"],
    ),
    (
        "Tensor::zeros((2, 3))",
        &["argument #2", "DType` is missing"],
    ),
    ("Tensor::full(2, \"a\", DType::F32)", &["is no number"]),
    ("Tensor::new(vec![\"a\"])", &["a tensor is not made of"]),
    (
        "tensor!(vec![vec![1.0], vec![2.0]])",
        &["`Tensor::new(data)?` takes vectors of vectors"],
    ),
    // Of names.
    ("x.shape", &["use parentheses to call the method"]),
    ("{ for row in x { drop(row); } }", &["consider borrowing"]),
];

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

/// All that the compiler says of a program of these lines, the first of which is the second of the program.
fn said(lines: &[&str]) -> String {
    let program = env::current_exe().expect("this program");
    let deps = program.parent().expect("its folder");
    let folder = tempfile::tempdir().expect("a folder");
    let mut text =
        "use rustorch_ir::DType; use rustorch_tensor::{RusTorchResult, Tensor, tensor};\n"
            .to_owned();
    for (at, line) in lines.iter().enumerate() {
        let function = format!("f{at}(x: Tensor, y: Tensor) -> RusTorchResult<()>");
        writeln!(text, "pub fn {function} {{ let _ = {line}; Ok(()) }}").expect("a text");
    }
    fs::write(folder.path().join("lines.rs"), &text).expect("a file");
    let mut compiler = Command::new(env::var_os("RUSTC").unwrap_or("rustc".into()));
    compiler.args([
        "--edition",
        "2024",
        "--crate-type",
        "lib",
        "--emit",
        "metadata",
        "-A",
        "warnings",
    ]);
    compiler.arg("-L").arg(deps);
    for name in ["rustorch_ir", "rustorch_tensor"] {
        let library = library(deps, name);
        compiler
            .arg("--extern")
            .arg(format!("{name}={}", library.display()));
    }
    let output = compiler.arg("lines.rs").current_dir(folder.path()).output();
    let output = output.expect("a compiler");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_cannot_be_rust_is_told_with_what_can() {
    let lines: Vec<&str> = LINES.iter().map(|(line, _)| *line).collect();
    let said = said(&lines);
    let messages: Vec<&str> = said.split("\nerror").collect();
    let mut missing = String::new();
    for (at, (line, expected)) in LINES.iter().enumerate() {
        let place = format!("--> lines.rs:{}:", at + 2);
        let told: String = (messages.iter().filter(|text| text.contains(&place)))
            .copied()
            .collect();
        for part in expected.iter().filter(|&&part| !told.contains(part)) {
            missing += &format!("{line}: {part} is not in: {told}\n");
        }
    }
    assert!(missing.is_empty(), "{missing}");
}
