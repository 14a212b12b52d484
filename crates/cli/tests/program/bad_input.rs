//! Impossible requests end with one line that names the reason, and with the right status.

use std::fs;
use std::path::Path;

use crate::support::{Run, model, model_arg, program, run, run_with_input};

/// Asserts one line with these parts.
#[track_caller]
fn refused(args: &[&str], status: i32, parts: &[&str]) {
    let line = run(args).error(status);
    for part in parts {
        assert!(line.contains(part), "no {part:?} in: {line}");
    }
}

pub(crate) fn a_variable_that_makes_no_sense() {
    let mut command = program(["devices"]);
    command.env("RUSTORCH_DEVICE_TIMEOUT", "5min");
    let told: Run = command.output().unwrap().into();
    let line = told.error(2);
    let parts = ["RUSTORCH_DEVICE_TIMEOUT", "seconds", "300", "none", "5min"];
    assert!(parts.iter().all(|part| line.contains(part)), "{line}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

pub(crate) fn no_such_model() {
    for command in [
        &["-m"][..],
        &["inspect"],
        &["tokenize", "-p", "x", "-m"],
        &["bench", "-m"],
    ] {
        let args: Vec<&str> = command.iter().copied().chain(["/no/such.gguf"]).collect();
        refused(
            &args,
            1,
            &["/no/such.gguf", "cannot open", "check the path"],
        );
    }
}

pub(crate) fn a_folder_is_no_model() {
    let folder = tempfile::tempdir().unwrap();
    refused(
        &["-m", text(folder.path())],
        1,
        &[text(folder.path()), "directory"],
    );
    refused(&["-f", text(folder.path())], 1, &[text(folder.path())]);
}

/// A file that may not be read, in its folder.
#[cfg(unix)]
pub(crate) struct Secret(tempfile::TempDir, std::path::PathBuf);

/// Such a file, which some users (root) cannot have.
#[cfg(unix)]
pub(crate) fn find_secret() -> Result<Secret, &'static str> {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.gguf");
    fs::copy(model("classics-13m-Q4_K_M.gguf"), &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    match fs::File::open(&path) {
        Ok(_) => Err("a user who may not read everything, as root may"),
        Err(_) => Ok(Secret(folder, path)),
    }
}

#[cfg(unix)]
pub(crate) fn no_permission(Secret(_folder, path): &Secret) {
    refused(&["-m", text(path)], 1, &[text(path), "permission"]);
    refused(&["-f", text(path)], 1, &[text(path)]);
}

pub(crate) fn files_that_are_no_models() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(model("classics-13m-Q4_K_M.gguf")).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    for (name, length) in [
        ("magic", 2),
        ("header", 20),
        ("keys", 9000),
        ("tensors", 1 << 20),
    ] {
        let path = write(name, &whole[..length]);
        refused(&["-m", text(&path), "-p", "x"], 1, &[text(&path)]);
        refused(&["inspect", text(&path)], 1, &[text(&path)]);
    }
    refused(&["-m", text(&write("empty", b""))], 1, &["empty"]);
    let zip = write("zip", b"PK\x03\x04 and so on, long enough for a header");
    refused(&["-m", text(&zip)], 1, &["not a GGUF file"]);
    let mut future = whole.clone();
    future[4] = 99;
    refused(&["-m", text(&write("future", &future))], 1, &["version 99"]);

    // The file says that it is of an architecture of which there is none.
    let mut foreign = whole;
    let at = foreign
        .windows(5)
        .position(|bytes| bytes == b"llama")
        .unwrap();
    foreign[at..at + 5].copy_from_slice(b"lemma");
    let path = write("foreign", &foreign);
    refused(
        &["-m", text(&path), "-p", "x"],
        1,
        &[text(&path), "lemma", "llama"],
    );
}

pub(crate) fn a_prompt_that_does_not_fit() {
    let long = "word ".repeat(40);
    let full = run(["-p", &long, "-c", "16"]);
    assert_eq!(full.stdout, "");
    let line = full.error(1);
    assert!(line.contains("16") && line.contains("-c"), "{line}");
    refused(
        &["logits", "--ids", "1,2,3,4", "-c", "3"],
        1,
        &["context", "-c"],
    );
}

pub(crate) fn an_empty_prompt_for_a_model_that_needs_one() {
    // The model begins a text by itself: an empty prompt is one.
    run(["-p", "", "-n", "1"]).ok();
    refused(&["tokenize"], 2, &["no text", "-p"]);
}

pub(crate) fn texts_that_are_not_utf8() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin1.txt");
    fs::write(&path, b"caf\xe9").unwrap();
    for command in [&["-f"][..], &["tokenize", "-f"], &["perplexity", "-f"]] {
        let args: Vec<&str> = command.iter().copied().chain([text(&path)]).collect();
        refused(&args, 1, &[text(&path), "byte 3", "UTF-8"]);
    }
    let line = run_with_input(&["-n", "1"], b"caf\xe9").error(1);
    assert!(
        line.contains("standard input") && line.contains("byte 3"),
        "{line}"
    );
}

pub(crate) fn impossible_options() {
    for args in [
        &["--no-such-option"][..],
        &["no-such-command"],
        &["-p"],
        &["-p", "x", "-f", "y"],
        &["-n", "many"],
        &["-n", "-5"],
        &["-c", "-1"],
        &["-t", "1000000"],
        &["-ub", "0", "-p", "x"],
        &["--temp", "warm"],
        &["--top-p", "nan", "-p", "x"],
        &["--top-p", "7", "-p", "x"],
        &["--repeat-penalty", "0", "-p", "x"],
        &["-s", "-2", "-p", "x"],
        &["-ctk", "q4_0"],
        &["-ctk", "f32", "-p", "x"],
        &["--format", "xml"],
        &["logits"],
        &["logits", "--ids", "one"],
        &["logits", "--ids", "-1"],
        &["perplexity"],
        &["perplexity", "-f", "x", "--chunks", "0"],
        &["bench", "--preset", "gpt-5"],
        &["bench", "--quant", "q4_k_m"],
        &["bench", "-m", "x", "--preset", "classics-13m"],
        &["bench", "-p", "0", "-n", "0"],
        &["bench", "-r", "0"],
        &["batched-bench", "-npl", "0"],
        &["quantize", "in", "out"],
        &["inspect", "a", "b"],
    ] {
        refused(args, 2, &["--help"]);
    }
}

pub(crate) fn unknown_backends_types_and_faults() {
    refused(&["-b", "gpu"], 2, &["gpu", "auto, cpu, reference"]);
    refused(&["-b", "cpu:1"], 2, &["cpu:1"]);
    refused(&["-b", "0"], 2, &["batch size"]);
    for bad in ["many", "-1", "2.5"] {
        refused(&["-ngl", bad], 2, &[bad, "a number of layers, auto or all"]);
    }
    refused(&["--gpu-memory", "much"], 2, &["much", "500M or 6G"]);
    refused(&["--gpu-memory", "6X"], 2, &["K, M, G or T"]);
    refused(&["quantize", "in", "out", "Q9"], 2, &["Q9", "Q4_K_M"]);
    refused(&["quantize", "in", "out", "IQ2_XS"], 2, &["IQ2_XS"]);
    refused(
        &["bench", "--preset", "classics-13m", "--quant", "x"],
        2,
        &["Q4_K_M"],
    );
    refused(&["--inject", "nth=1;kind=lost"], 2, &["device is missing"]);
    refused(
        &["--inject", "device=cpu;op=magic;nth=1;kind=lost"],
        2,
        &["magic"],
    );
    let none = run(["-p", "x", "-n", "1", "--inject", ""]);
    none.ok();
}

pub(crate) fn tokens_outside_the_vocabulary() {
    refused(&["logits", "--ids", "5,4096"], 1, &["4096", "vocabulary"]);
}

pub(crate) fn a_text_too_short_for_its_perplexity() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.txt");
    fs::write(&path, "A few words.").unwrap();
    refused(
        &["perplexity", "-f", text(&path)],
        1,
        &["tokens", "longer text"],
    );
}

pub(crate) fn files_that_cannot_be_read() {
    for command in [&["-f"][..], &["tokenize", "-f"], &["perplexity", "-f"]] {
        let line = run(command.iter().chain(&["/no/such/text"])).error(1);
        assert!(
            line.starts_with("error: /no/such/text: cannot read the file"),
            "{line}"
        );
    }
}

pub(crate) fn numbers_below_zero() {
    let lines = [
        (&["-p", "x", "--min-p", "-0.5"][..], "min_p"),
        (&["-p", "x", "-t", "-2"], "expected 1 to 1024 threads"),
        (&["logits", "--ids", "-1"], "'-1' for '--ids"),
        (&["bench", "-p", "-1"], "'-1' for '--n-prompt"),
        (
            &["train", "--text", "x", "--out", "y", "--steps", "-1"],
            "'-1' for '--steps",
        ),
    ];
    for (args, part) in lines {
        refused(args, 2, &[part]);
    }
    // llama.cpp also takes a negative number of threads.
    run(["-p", "x", "-n", "1", "-t", "-1"]).ok();
}

pub(crate) fn contexts_without_a_second_half() {
    refused(
        &[
            "perplexity",
            "-f",
            &model_arg("classics-eval.txt"),
            "-c",
            "2",
        ],
        1,
        &["a context of 2", "3 or more"],
    );
}

pub(crate) fn files_that_would_be_lost() {
    let folder = tempfile::tempdir().unwrap();
    let (path, same) = (
        folder.path().join("m.gguf"),
        folder.path().join(".").join("m.gguf"),
    );
    fs::copy(model_arg("classics-13m-f16.gguf"), &path).unwrap();
    refused(
        &["quantize", text(&path), text(&same), "Q8_0"],
        2,
        &["the same file"],
    );
    // A report that comes to nothing leaves the one before.
    let report = folder.path().join("r.md");
    fs::write(&report, "before").unwrap();
    run(["verify", "-b", "cuda", "-o", text(&report)]);
    assert!(!fs::read_to_string(&report).unwrap().is_empty());
}

pub(crate) fn files_that_cannot_be_written() {
    let f16 = model_arg("classics-13m-f16.gguf");
    refused(
        &["quantize", &f16, "/no/such/folder/out.gguf", "Q8_0"],
        1,
        &["/no/such/folder"],
    );
    let save = [
        "bench",
        "--preset",
        "classics-13m",
        "--save",
        "/no/such/folder/out.gguf",
    ];
    refused(&save, 1, &["/no/such/folder"]);
}
