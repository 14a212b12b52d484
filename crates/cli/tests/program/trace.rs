//! `--trace` and `RUSTORCH_TRACE`.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::{Run, program, run};

/// A short text, always the same.
const STORY: [&str; 9] = [
    "-b",
    "cpu",
    "-p",
    "Alice was",
    "-n",
    "6",
    "--temp",
    "0",
    "--trace",
];

/// The events of a trace in JSON.
fn events(path: &Path) -> Vec<Value> {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn count(events: &[Value], name: &str) -> usize {
    let is_it = |event: &&Value| event["ph"] == "B" && event["name"] == name;
    events.iter().filter(is_it).count()
}

pub(crate) fn a_run_is_traced_and_says_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let told = run(&STORY[..8]).ok();
    let traced = run(STORY
        .iter()
        .copied()
        .map(str::to_owned)
        .chain([path.display().to_string()]));
    assert_eq!(traced.ok(), told);
    let seen = events(&path);
    // Six tokens, of which the last is fed to nobody, and the prompt's own.
    assert_eq!(count(&seen, "prompt"), 1);
    assert_eq!(count(&seen, "decode"), 5);
    assert!(count(&seen, "attention") > 0);
    let device = seen
        .iter()
        .find(|e| e["name"] == "process_name" && e["args"]["name"] == "cpu");
    let pid = &device.unwrap()["pid"];
    let of_device = |phase: &str| {
        let its = seen.iter().filter(|e| e["pid"] == *pid && e["ph"] == phase);
        its.count()
    };
    assert!(of_device("B") > 100 && of_device("B") == of_device("E"));
    // The variable does the same, in the other format.
    let path = folder.path().join("run.pftrace");
    let mut command = program(&STORY[..8]);
    let traced = Run::from(command.env("RUSTORCH_TRACE", &path).output().unwrap());
    assert_eq!(traced.ok(), told);
    let bytes = fs::read(&path).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|w| w == text.as_bytes());
    assert!(has("attention") && has("decode"));
    assert!(bytes.len() < 7 * 5000, "{}", bytes.len());
    let mut command = program(&STORY[..8]);
    let quiet = Run::from(command.env("RUSTORCH_TRACE", "").output().unwrap());
    assert_eq!(quiet.ok(), told);
}

pub(crate) fn failures_are_in_it_with_their_reasons() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.json");
    let fault = ["--inject", "device=cpu;op=attention;nth=2;kind=unsupported"];
    let args = STORY.iter().copied().map(str::to_owned);
    let args = args.chain([path.display().to_string()]);
    run(args.chain(fault.map(str::to_owned))).ok();
    let seen = events(&path);
    let told: Vec<&Value> = seen.iter().filter(|e| e["ph"] == "i").collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["cat"], "fallback");
    assert_eq!(told[0]["args"]["reason"], "injected: no kernel");
    assert_eq!(told[0]["args"]["class"], "unsupported");
}

/// The line of a run that went on without its trace.
#[track_caller]
fn warning(ran: &Run) -> &str {
    let warnings = ran
        .stderr
        .lines()
        .filter(|line| line.starts_with("warning: "));
    let warnings: Vec<&str> = warnings.collect();
    assert_eq!(warnings.len(), 1, "{}", ran.stderr);
    assert!(warnings[0].contains("the trace"), "{warnings:?}");
    warnings[0]
}

pub(crate) fn a_file_that_cannot_be_written_costs_one_warning() {
    let told = run(&STORY[..8]).ok();
    let mut paths = vec!["/no/such/folder/run.pftrace"];
    if cfg!(target_os = "linux") {
        // A disk that is full.
        paths.push("/dev/full");
    }
    for path in paths {
        let ran = run(STORY.iter().chain([&path]));
        assert!(warning(&ran).contains(path));
        assert_eq!(ran.ok(), told);
    }
}

/// A disk on which there is no more room from some place of the trace on: a limit of the process, which gets an error
/// for what is behind it where it ignores the signal.
pub(crate) fn a_disk_that_becomes_full_costs_one_warning() {
    if !cfg!(unix) {
        return;
    }
    let told = run(&STORY[..8]).ok();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.pftrace");
    // Blocks have 512 bytes, or 1,024.
    let limited = r#"trap '' XFSZ; ulimit -f 4; exec "$0" "$@""#;
    let mut traced = program(STORY);
    traced.arg(&path);
    let mut shell = Command::new("sh");
    shell.args(["-c", limited]).arg(traced.get_program());
    shell.args(traced.get_args());
    shell.envs(
        traced
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let ran = Run::from(shell.output().unwrap());
    assert!(warning(&ran).contains(&path.display().to_string()));
    assert_eq!(ran.ok(), told);
    let written = fs::metadata(&path).unwrap().len();
    assert!((1..=4096).contains(&written), "{written}");
}
