//! `top`: devices, and programs that run.

use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::chat::{Terminal, Tmux};
use crate::support::{Run, model_arg, program, run};

/// A program that computes until it is killed.
struct Running(Child);

impl Running {
    fn new(cache: &Path) -> Self {
        let endless = ["-b", "cpu", "-p", "Once", "--ignore-eos"];
        let mut command = program(endless.into_iter().chain(["--context-shift"]));
        command.env("RUSTORCH_CACHE_DIR", cache);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        Self(quiet.spawn().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn top(cache: &Path) -> Value {
    let mut command = program(["top", "--format", "json"]);
    Run::from(command.env("RUSTORCH_CACHE_DIR", cache).output().unwrap()).json()
}

pub(crate) fn devices_and_programs_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path();
    let told = top(cache);
    let cpu = &told["devices"][0];
    assert_eq!(cpu["device"], "cpu");
    assert_eq!(cpu["source"], "system");
    assert!(cpu["gpu_memory_total_bytes"].as_u64().unwrap() > 0);
    let load = cpu["gpu_utilization_percent"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&load), "{load}");
    // A figure without a source is null.
    assert_eq!(cpu["gpu_power_watts"], Value::Null);
    assert_eq!(told["running"], Value::Array(Vec::new()));
    let running = Running::new(cache);
    let seen = std::iter::repeat_with(|| top(cache)["running"].clone());
    // A process that ends on its own would never be seen.
    let mut seen = seen
        .take(1000)
        .filter(|seen| seen[0]["tokens"].as_u64().is_some_and(|n| n > 0));
    let seen = seen.next().expect("the program that runs");
    assert_eq!(seen[0]["pid"], running.0.id());
    assert_eq!(seen[0]["command"], "generate");
    assert_eq!(seen[0]["devices"][0]["device"], "cpu");
    // The weights, which the processor uses where they are, count.
    let memory = seen[0]["devices"][0]["memory_bytes"].as_u64().unwrap();
    let model = std::fs::metadata(model_arg("classics-13m-Q4_K_M.gguf"))
        .unwrap()
        .len();
    assert!(memory > model, "{memory} of a model of {model} bytes");
    assert_eq!(seen[0]["fallback_count"], 0);
    drop(running);
    // The killed program left its file, which does not count as a running one.
    assert_eq!(top(cache)["running"], Value::Array(Vec::new()));
    let text = program(["top"])
        .env("RUSTORCH_CACHE_DIR", cache)
        .output()
        .unwrap();
    let text = Run::from(text).ok();
    assert!(
        text.contains("| device ") && text.contains("| cpu "),
        "{text}"
    );
}

pub(crate) fn what_makes_no_sense_is_refused() {
    for interval in ["0", "-1", "nan", "much"] {
        let error = run(["top", &format!("--interval={interval}")]).error(2);
        assert!(error.contains("--interval"), "{error}");
    }
}

pub(crate) fn a_terminal_shows_it_until_q(_: &Tmux) {
    let terminal = Terminal::new(&["top", "--interval", "0.2"]);
    terminal.wait("devices", |shown| {
        ["devices", "running", "fallbacks", "cpu", "q ends"]
            .iter()
            .all(|word| shown.contains(word))
    });
    // Without the program there is no terminal any more.
    terminal.end("q");
}
