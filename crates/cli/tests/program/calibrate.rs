//! Measuring the machine, and what is made of that.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Run, program};

/// The program on the CPU of one thread, with its cache in a folder.
fn run(folder: &Path, args: &[&str]) -> Run {
    let mut command = program(args.iter().chain(&["-t", "1"]));
    command.env("RUSTORCH_CACHE_DIR", folder);
    command.env("RUSTORCH_DISABLE_GPU", "1");
    command.output().expect("the program runs").into()
}

const STORY: [&str; 8] = [
    "-p", "The king", "-n", "2", "--temp", "0", "--format", "json",
];

pub(crate) fn a_calibration_is_kept_and_used_until_it_is_invalid() {
    let folder = tempfile::tempdir().unwrap();
    let told = run(folder.path(), &STORY);
    assert!(told.stderr.is_empty(), "{}", told.stderr);
    let told = told.json();

    let measured = run(folder.path(), &["calibrate", "--format", "json"]).json();
    let path = folder.path().join("calibration.json");
    assert_eq!(measured["file"], path.display().to_string());
    let devices = measured["calibration"]["devices"].as_array().unwrap();
    let names: Vec<&Value> = devices.iter().map(|d| &d["device"]).collect();
    assert_eq!(names, ["cpu"], "the reference is not measured");
    let kept: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(kept, measured["calibration"]);

    let same = run(folder.path(), &STORY);
    assert!(same.stderr.is_empty(), "{}", same.stderr);
    assert_eq!(same.json()["ids"], told["ids"]);
    let table = run(folder.path(), &["explain", "-p", "The king"]).ok();
    assert!(table.contains("expected"), "{table}");

    // Once: a device that has other hardware, or a file that is not whole.
    let whole = fs::read_to_string(&path).unwrap();
    let other = whole.replace("\"threads\",\"1\"", "\"threads\",\"64\"");
    assert_ne!(other, whole);
    for (text, why) in [
        (&other[..], "cpu was threads 64 and is now threads 1"),
        (&whole[..whole.len() / 2], "damaged"),
    ] {
        fs::write(&path, text).unwrap();
        let invalid = run(folder.path(), &STORY);
        let lines: Vec<&str> = invalid.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{}", invalid.stderr);
        let start = "warning: the calibration of this machine is ignored: ";
        assert!(lines[0].starts_with(start), "{}", lines[0]);
        assert!(
            lines[0].contains(why) && lines[0].contains("rustorch-cli calibrate"),
            "{}",
            lines[0]
        );
        assert_eq!(invalid.json()["ids"], told["ids"]);
    }
}

pub(crate) fn choices_are_checked_on_thirty_cases() {
    let folder = tempfile::tempdir().unwrap();
    let checked = run(folder.path(), &["calibrate", "--check", "--format", "json"]).json();
    let cases = checked["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 30);
    for case in cases {
        assert!(case["seconds"]["cpu"].as_f64().unwrap() > 0.0, "{case}");
        assert_eq!(
            (&case["chosen"], &case["best"]),
            (&"cpu".into(), &"cpu".into())
        );
    }
    assert_eq!(checked["ratio"], 1.0, "there is nothing to choose between");
}

pub(crate) fn a_folder_that_takes_no_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let refused = run(&file, &["calibrate", "-b", "cpu"]);
    let line = refused.error(1);
    assert!(line.contains("calibration.json"), "{line}");
}
