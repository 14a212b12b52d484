//! Commands that run as several ranks.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Run, interrupt, model, program, run};
use crate::train::{Folder, loss};

fn losses(output: &str) -> Vec<f64> {
    output.lines().map(|line| loss(line, "loss")).collect()
}

fn difference(losses: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(losses.len(), expected.len());
    let pairs = losses.iter().zip(expected);
    pairs.map(|(a, b)| (a - b).abs() / b).fold(0.0, f64::max)
}

pub(crate) fn losses_are_those_of_one_rank() {
    let expected = losses(&Folder::new().train("-o json --steps 100").ok());
    for ranks in [2, 3] {
        let told = Folder::new().train(&format!("-o json --steps 100 --ranks {ranks}"));
        let off = difference(&losses(&told.ok()), &expected);
        println!("{ranks} ranks: off by {off:e}");
        assert!(off <= 1e-6, "{ranks} ranks: {off:e}");
    }
}

fn start(folder: &Folder, more: &str) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = program(folder.args(more));
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let reader = BufReader::new(child.stdout.take().unwrap());
    (child, reader)
}

fn lines(reader: &mut impl BufRead, count: usize) -> String {
    let mut told = String::new();
    for _ in 0..count {
        reader.read_line(&mut told).unwrap();
    }
    told
}

pub(crate) fn a_stopped_run_goes_on_with_other_ranks() {
    let expected = losses(&Folder::new().train("-o json --steps 100").ok());
    let folder = Folder::new();
    let mut told = Vec::new();
    for ranks in [3, 2] {
        let options = format!("-o json --steps 100 --resume --ranks {ranks}");
        let (child, mut reader) = start(&folder, &options);
        let mut text = lines(&mut reader, 4);
        interrupt(&child);
        std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
        let ended: Run = child.wait_with_output().unwrap().into();
        assert_eq!(ended.status, 130, "{}", ended.stderr);
        assert!(
            ended.stderr.contains("add --resume to continue"),
            "{}",
            ended.stderr
        );
        told.extend(losses(&text));
    }
    told.extend(losses(&folder.train("-o json --steps 100 --resume").ok()));
    assert!(difference(&told, &expected) <= 1e-6);
}

/// The process of a rank of a program that started ranks.
fn process(child: &Child, rank: usize) -> String {
    let id = child.id().to_string();
    let found = Command::new("pgrep").args(["-P", &id]).output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    let wanted = format!("RANK={rank}");
    let is_it = |id: &&str| {
        let variables = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        variables
            .split(|byte| *byte == 0)
            .any(|v| v == wanted.as_bytes())
    };
    found.lines().find(is_it).expect("a rank").to_owned()
}

fn signal(id: &str, signal: &str) {
    assert!(
        Command::new("kill")
            .args([signal, id])
            .status()
            .unwrap()
            .success()
    );
}

/// Ranks of a long run, one of which gets a signal. Returns what they said, and how long it took them to end.
fn signalled(kind: &str) -> (Run, Duration) {
    let folder = Folder::new();
    let (child, mut reader) = start(&folder, "-o json --steps 100000 --every 100000 --ranks 3");
    lines(&mut reader, 3);
    let victim = process(&child, 1);
    let begin = Instant::now();
    signal(&victim, kind);
    // Nobody reads the rest: it goes on until it ends.
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    let ended = child.wait_with_output().unwrap();
    (ended.into(), begin.elapsed())
}

pub(crate) fn a_killed_rank_ends_all_with_the_cause() {
    let (ended, time) = signalled("-KILL");
    assert_eq!(ended.status, 137, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("error: rank 1 ended with signal 9"),
        "{}",
        ended.stderr
    );
    assert!(time < Duration::from_secs(60), "{time:?}");
}

/// A stopped process is found by its silence of 10 s.
pub(crate) fn a_stopped_process_ends_all_with_the_cause() {
    let (ended, time) = signalled("-STOP");
    let cause = "rank 1 is missing: no sign of life for 10s";
    assert!(ended.stderr.contains(cause), "{}", ended.stderr);
    assert_ne!(ended.status, 0);
    assert!(time < Duration::from_secs(120), "{time:?}");
}

pub(crate) fn ranks_write_the_text_of_one() {
    let path = model("classics-13m-f16.gguf").display().to_string();
    let prompt = [
        "-m", &path, "-p", "It was a", "-n", "32", "--temp", "0", "-t", "1",
    ];
    let alone = run(prompt.iter().chain(&["-b", "cpu"])).ok();
    let rows = ["--split-mode", "row", "--ranks", "2"];
    let divided = run(prompt.iter().chain(&rows)).ok();
    assert_eq!(divided, alone);
    // Ranks take the numbers of one of them.
    let drawn = prompt.iter().map(|arg| if *arg == "0" { "1" } else { arg });
    let drawn = run(drawn.chain(rows)).ok();
    assert!(drawn.starts_with("It was a") && drawn.len() > 20, "{drawn}");
}

pub(crate) fn what_ranks_cannot_do_is_told() {
    let path = model("classics-13m-f16.gguf").display().to_string();
    let refused = |more: &[&str], status: i32, said: &str| {
        let ended = run(["-m", &path, "-p", "It", "-n", "1"].iter().chain(more));
        assert_eq!(ended.status, status, "{}", ended.stderr);
        assert!(ended.stderr.contains(said), "{}", ended.stderr);
    };
    refused(
        &["--ranks", "2"],
        2,
        "several ranks divide a model with --split-mode row",
    );
    refused(&["--split-mode", "row"], 2, "needs --ranks or --gpus");
    let heads = "3 ranks cannot divide layer 0: it has 8 heads";
    refused(&["--split-mode", "row", "--ranks", "3"], 1, heads);
    let other = ["--split-mode", "row", "--ranks", "2", "-b", "opencl"];
    refused(&other, 2, "choose the device of each rank; omit -b");
}
