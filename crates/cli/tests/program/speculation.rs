//! Tokens that are guessed and checked several at a time.

use std::path::Path;

use serde_json::Value;

use crate::support::{model_arg, run, run_with_input};

const KING: &str = "Once upon a time there was a king who";
const CIRCLES: &str =
    "One, two, three, four. One, two, three, four. One, two, three, four. One, two,";

/// The ids of a text, and what became of guesses.
fn told(args: &[&str]) -> (Value, Value) {
    let common = ["-b", "cpu", "--format", "json"];
    let mut json = run(common.iter().chain(args)).json();
    (json["ids"].take(), json["speculation"].take())
}

/// A file of the repository's that no other model can use as a draft.
fn small() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../llm/tests/data/architectures");
    folder.join("llama.gguf").display().to_string()
}

pub(crate) fn a_draft_model_changes_no_text() {
    let (model, draft) = (
        model_arg("classics-13m-f16.gguf"),
        model_arg("classics-13m-Q4_K_M.gguf"),
    );
    for sampling in [
        &["--temp", "0"][..],
        &["-s", "7"],
        &[
            "-s",
            "7",
            "--repeat-penalty",
            "1.2",
            "--dry-multiplier",
            "0.5",
        ],
        &["-s", "7", "--regex", "( [a-z]+){12}\\."],
        &["--temp", "0", "-c", "24", "--context-shift"],
    ] {
        let args = [&["-m", &model, "-p", KING, "-n", "40"], sampling].concat();
        let (expected, nothing) = told(&args);
        assert_eq!(nothing, Value::Null);
        let (ids, speculation) = told(&[&args[..], &["-md", &draft]].concat());
        assert_eq!(ids, expected, "{sampling:?}");
        assert_eq!(speculation["type"], "draft-simple");
        assert!(speculation["drafted"].as_u64() > Some(0), "{speculation}");
        assert!(speculation["passes"].as_u64() > Some(0), "{speculation}");
    }
}

pub(crate) fn a_text_that_repeats_itself_is_guessed() {
    let args = ["-p", CIRCLES, "-n", "24", "--temp", "0"];
    let (expected, _) = told(&args);
    let ngrams = [
        "--spec-type",
        "ngram-simple",
        "--spec-ngram-simple-size-n",
        "3",
    ];
    let (ids, speculation) = told(&[&args[..], &ngrams].concat());
    assert_eq!(ids, expected);
    assert_eq!(speculation["type"], "ngram-simple");
    assert!(speculation["accepted"].as_u64() > Some(0), "{speculation}");
    assert!(
        speculation["acceptance"].as_f64() > Some(0.0),
        "{speculation}"
    );
    let summary = run(args.iter().chain(&ngrams));
    let line = "ngram-simple: ";
    assert!(summary.stderr.contains(line), "{}", summary.stderr);
    let summary = run(args.iter().chain(&["--spec-type", "none"]));
    assert!(!summary.stderr.contains("drafted"), "{}", summary.stderr);
}

pub(crate) fn a_device_that_fails_while_guessing_changes_no_text() {
    let draft = model_arg("classics-13m-Q4_K_M.gguf");
    let args = ["-p", KING, "-n", "14", "--temp", "0"];
    let (expected, _) = told(&args);
    for nth in ["250", "400"] {
        let faults = format!("device=cpu;op=linear;nth={nth};kind=lost");
        let failing = ["-md", &draft, "--inject", &faults, "--format", "json"];
        let json = run(args.iter().chain(&["-b", "cpu"]).chain(&failing)).json();
        assert_eq!(json["ids"], expected);
        assert_eq!(json["fallbacks"][0]["class"], "device lost", "{json}");
        assert!(json["speculation"]["drafted"].as_u64() > Some(0), "{json}");
    }
}

pub(crate) fn answers_are_guessed_too() {
    let args = [
        "chat",
        "--chat-template",
        "chatml",
        "-b",
        "cpu",
        "--temp",
        "0",
    ];
    let draft = model_arg("classics-13m-Q4_K_M.gguf");
    let input = "One, two, three\nAnd then\n/stats\n";
    let talk = |more: &[&str]| {
        let args = [&args[..], &["-n", "30"], more].concat();
        let run = run_with_input(&args, input.as_bytes());
        assert_eq!(run.status, 0, "{}", run.stderr);
        (run.stdout, run.stderr)
    };
    let (expected, _) = talk(&[]);
    let (answers, stats) = talk(&["-md", &draft]);
    assert_eq!(answers, expected);
    assert!(stats.contains("draft-simple: "), "{stats}");
    assert_eq!(talk(&["--spec-type", "ngram-simple"]).0, expected);
    let other = format!("/model {}\n", small());
    let refused = run_with_input(&[&args[..], &["-md", &draft]].concat(), other.as_bytes());
    let line = refused.error(1);
    assert!(line.contains("its vocabulary has 4096 tokens"), "{line}");
}

pub(crate) fn drafts_that_cannot_be_used_are_refused() {
    let (missing, draft, small) = (
        "/nowhere/draft.gguf",
        model_arg("classics-13m-Q4_K_M.gguf"),
        small(),
    );
    for (args, status, why) in [
        (&["-md", missing][..], 1, "-md: /nowhere/draft.gguf: "),
        (
            &["-md", &small],
            1,
            "the model's 4096; take a smaller model",
        ),
        (&["-md", &draft, "-c", "2000"], 1, "-c 1024 matches it"),
        (
            &["-md", &draft, "-devd", "cuda:7"],
            1,
            "cuda:7: no such device in this run",
        ),
        (&["--spec-type", "draft-simple"], 2, "with -md FILE"),
        (
            &["--spec-type", "ngram-simple", "-md", &draft],
            2,
            "omit -md",
        ),
        (&["--spec-draft-p-min", "2"], 2, "expected a probability"),
        (&["--spec-type", "magic"], 2, "magic"),
        (&["--spec-ngram-simple-size-n", "0"], 2, "0"),
    ] {
        let common = ["-p", "x", "-n", "1", "-b", "cpu"];
        let run = run(common.iter().chain(args));
        assert_eq!(run.status, status, "{}", run.stderr);
        let line = run.stderr.lines().last().unwrap_or_default();
        assert!(line.starts_with("error: ") && line.contains(why), "{line}");
    }
}
