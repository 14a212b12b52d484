//! Ctrl-C, and readers that have enough.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use crate::support::{interrupt, model_arg, program};

/// Starts a story that would not end for a while, and waits for its first line.
fn storyteller(args: &[&str]) -> (Child, String) {
    let endless = [
        "-p",
        "Once upon a time\nthere was",
        "-c",
        "20000",
        "--ignore-eos",
        "-s",
        "1",
    ];
    let mut command = program(endless.iter().chain(args));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    // Read byte by byte, to leave the rest in the pipe.
    let stdout = child.stdout.as_mut().unwrap();
    while !first.ends_with('\n') {
        let mut byte = [0];
        stdout.read_exact(&mut byte).unwrap();
        first.push(byte[0].into());
    }
    (child, first)
}

pub(crate) fn ctrl_c_ends_the_text_cleanly() {
    let (child, first) = storyteller(&[]);
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let text = first + &String::from_utf8(output.stdout).expect("whole characters");
    assert!(text.starts_with("Once upon a time\nthere was"), "{text}");
    assert!(text.ends_with('\n'), "{text}");
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("ran on cpu"), "{told}");
}

pub(crate) fn ctrl_c_leaves_no_part_of_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let files = || folder.path().read_dir().unwrap().count();
    let output = folder.path().join("out.gguf").display().to_string();
    let child = program([
        "quantize",
        &model_arg("classics-13m-f16.gguf"),
        &output,
        "Q2_K",
    ])
    .stderr(Stdio::piped())
    .spawn()
    .unwrap();
    while files() == 0 {
        thread::sleep(Duration::from_millis(1));
    }
    interrupt(&child);
    let ended = child.wait_with_output().unwrap();
    match ended.status.code() {
        Some(130) => assert_eq!(files(), 0),
        // It was done before.
        code => assert_eq!((code, files()), (Some(0), 1)),
    }
}

pub(crate) fn ctrl_c_leaves_a_whole_json_object() {
    // Nothing is written before the end: what is heard first is the warning about the context.
    let args = [
        "-p",
        "The king",
        "-c",
        "20000",
        "--ignore-eos",
        "--format",
        "json",
        "-v",
    ];
    let mut child = program(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    while !line.contains("generating") {
        line.clear();
        assert!(stderr.read_line(&mut line).unwrap() > 0, "ended too early");
    }
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["stop"], "interrupt");
}

pub(crate) fn a_reader_that_has_enough_is_no_error() {
    let (mut child, _) = storyteller(&[]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!String::from_utf8(output.stderr).unwrap().contains("error"));
}
