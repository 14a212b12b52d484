//! `verify`: what is right passes, what is wrong is found and named.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::opencl::OpenCl;
use crate::support::{model_arg, run};

/// The report of a verification that ends with `status`, and what it prints.
#[track_caller]
fn verify(args: &[&str], status: i32) -> (Value, String) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.json");
    let output = ["verify", "-o", file.to_str().unwrap()];
    let told = run(output.iter().chain(args));
    assert_eq!(told.status, status, "{}{}", told.stdout, told.stderr);
    let report = fs::read_to_string(&file).unwrap();
    (serde_json::from_str(&report).unwrap(), told.stdout)
}

/// The rows of a part of the only device.
fn rows<'a>(report: &'a Value, part: &str) -> &'a Vec<Value> {
    let part = &report["devices"][0]["parts"][part];
    part["rows"]
        .as_array()
        .unwrap_or_else(|| panic!("{report}"))
}

fn row<'a>(report: &'a Value, part: &str, name: &str) -> &'a Value {
    let named = |row: &&Value| row["name"].as_str().unwrap().starts_with(name);
    rows(report, part)
        .iter()
        .find(named)
        .unwrap_or_else(|| panic!("{name}: {report}"))
}

/// A figure of a row, and the most that it may be.
fn figure(row: &Value, what: &str) -> (f64, f64) {
    let figures = row["figures"].as_array().unwrap();
    let figure = figures.iter().find(|f| f["what"] == what).unwrap();
    let number = |key: &str| figure[key].as_f64().unwrap_or(f64::INFINITY);
    (number("value"), number("at_most"))
}

pub(crate) fn a_cpu_that_is_right_passes() {
    let (report, told) = verify(&["-b", "cpu", "--ops", "matmul,softmax,top_k"], 0);
    assert_eq!(report["passed"], true);
    assert!(report["machine"]["threads"].as_u64().unwrap() > 0);
    assert!(
        report["program"]
            .as_str()
            .unwrap()
            .contains(env!("CARGO_PKG_VERSION"))
    );
    assert_eq!(report["devices"].as_array().unwrap().len(), 1);
    assert_eq!(report["devices"][0]["device"], "cpu");

    let names: Vec<_> = rows(&report, "conformance")
        .iter()
        .map(|r| &r["name"])
        .collect();
    assert_eq!(names, ["top_k", "matmul", "softmax"]);
    let (error, allowed) = figure(row(&report, "conformance", "matmul"), "largest error");
    assert!(0.0 < error && error <= allowed, "{error} {allowed}");
    let left_out = &report["devices"][0]["parts"]["conformance"]["left_out"];
    assert!(
        left_out[0].as_str().unwrap().contains("--full"),
        "{left_out}"
    );

    let golden = row(&report, "goldens", "classics-13m Q4_K_M");
    assert!(figure(golden, "tokens equal").0 > 80.0, "{golden}");
    let (mean, allowed) = figure(golden, "logit error, mean");
    assert!(mean > 0.0 && mean <= allowed, "{golden}");
    let left_out = &report["devices"][0]["parts"]["goldens"]["left_out"];
    assert!(left_out[0].as_str().unwrap().contains("Q8_0"), "{left_out}");

    for (kind, class) in [
        ("lost", "device lost"),
        ("oom", "out of memory"),
        ("sync", "lost"),
    ] {
        let remark = row(&report, "faults", kind)["remarks"][0].to_string();
        assert!(
            remark.contains(class) && remark.contains("now on cpu"),
            "{remark}"
        );
    }
    let copied = figure(&rows(&report, "copies")[0], "bytes copied");
    assert_eq!(copied, (0.0, 0.0));
    assert_eq!(rows(&report, "speed").len(), 4);
    for part in ["conformance", "goldens", "faults", "copies", "speed"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(told.contains("report.json"), "{told}");
}

pub(crate) fn a_wrong_result_is_found_and_named() {
    let faults = "device=cpu;op=scan;p=1;kind=wrong";
    let args = ["-b", "cpu", "--only", "conformance", "--ops", "matmul,scan"];
    let (report, told) = verify(&[&args[..], &["--inject", faults]].concat(), 1);
    assert_eq!(report["passed"], false);
    assert_eq!(row(&report, "conformance", "matmul")["outcome"], "passed");
    let wrong = row(&report, "conformance", "scan");
    assert_eq!(wrong["outcome"], "failed");
    assert!(
        wrong["remarks"][0].as_str().unwrap().contains("should be"),
        "{wrong}"
    );
    assert!(told.contains("FAILED") && told.contains("scan: "), "{told}");

    // Once, in the middle of a text.
    let once = "device=cpu;op=attention;nth=60;kind=wrong";
    let args = ["-b", "cpu", "--only", "goldens", "--inject", once];
    let (report, told) = verify(&args, 1);
    assert_eq!(
        row(&report, "goldens", "classics")["outcome"],
        "failed",
        "{report}"
    );
    assert!(told.contains("classics-13m Q4_K_M: "), "{told}");
}

pub(crate) fn a_wrong_opencl_device_is_found_too(_: &OpenCl) {
    let args = [
        "-b",
        "opencl",
        "--only",
        "conformance,copies",
        "--ops",
        "matmul",
    ];
    let (report, _) = verify(&args, 0);
    assert_eq!(row(&report, "conformance", "matmul")["outcome"], "passed");
    let device = &report["devices"][0];
    assert!(!device["details"]["driver"].as_str().unwrap().is_empty());
    if device["shares_host_memory"] == true {
        assert_eq!(
            figure(&rows(&report, "copies")[0], "bytes copied"),
            (0.0, 0.0)
        );
    }
    let faults = "device=opencl:0;p=1;kind=wrong";
    let (report, _) = verify(&[&args[..], &["--inject", faults]].concat(), 1);
    assert_eq!(row(&report, "conformance", "matmul")["outcome"], "failed");
    assert_eq!(rows(&report, "copies")[0]["outcome"], "skipped");
}

pub(crate) fn other_types_are_checked_from_the_f16_file() {
    let (f16, other) = (
        model_arg("classics-13m-f16.gguf"),
        model_arg("../crates/llm/tests/data/architectures/llama.gguf"),
    );
    let args = ["-b", "cpu", "--only", "goldens", "-m", &f16, "-m", &other];
    let (report, _) = verify(&args, 0);
    for file_type in ["Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16"] {
        let row = row(&report, "goldens", &format!("classics-13m {file_type}"));
        assert_eq!(row["outcome"], "passed", "{row}");
    }
    assert_eq!(row(&report, "goldens", &other)["outcome"], "skipped");
}

pub(crate) fn the_report_is_readable() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.md");
    let path = file.to_str().unwrap();
    let args = ["verify", "-b", "cpu", "--only", "copies", "-o", path];
    assert!(run(args).ok().contains(path));
    // The file for runs that end early is gone.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    let text = fs::read_to_string(&file).unwrap();
    for part in [
        "# Verification of RusTorch: passed",
        "issue",
        "## cpu: copies",
        "0 ≤ 0",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    let args = ["verify", "-b", "cpu", "--only", "copies", "-o", "-"];
    assert!(run(args).ok().starts_with("# Verification"));
}

pub(crate) fn what_cannot_be_verified_is_told() {
    let refused = |args: &[&str], status: i32, parts: &[&str]| {
        let line = run(["verify"].iter().chain(args)).error(status);
        for part in parts {
            assert!(line.contains(part), "no {part:?} in: {line}");
        }
    };
    if cfg!(not(target_os = "macos")) {
        refused(&["-b", "metal"], 1, &["-b metal:0", "-b auto"]);
    }
    refused(&["-b", "opencl:9"], 1, &["-b opencl:9"]);
    refused(&["-b", "gpu"], 2, &["unknown backend"]);
    refused(&["--ops", "matmull"], 2, &["\"matmull\"; expected one of"]);
    refused(&["--only", "everything"], 2, &["everything", "goldens"]);
    refused(&["-m", "/no/such.gguf"], 1, &["/no/such.gguf"]);
    refused(
        &["-o", "/no/such/report.md"],
        1,
        &["cannot write the report /no/such/report.md"],
    );
    assert!(!Path::new("rustorch-verify.md").exists());
}
