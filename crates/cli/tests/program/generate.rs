//! Generating text.

use std::io::Write;
use std::path::Path;

use rustorch_gguf::{Gguf, GgufWriter, TensorInfo, Value as MetadataValue};
use serde_json::Value;

use crate::support::{model, model_arg, run, run_with_input};

const KING: &str = "Once upon a time there was a king who";

fn ids(value: &Value) -> Vec<u64> {
    let ids = value.as_array().expect("a list");
    ids.iter()
        .map(|id| id.as_u64().expect("a token id"))
        .collect()
}

/// Prompt ids, and llama.cpp's first greedy tokens, from the goldens of the bundled model.
fn golden() -> (Vec<u64>, Vec<u64>) {
    let text = std::fs::read_to_string(model_arg("goldens/classics-13m-Q4_K_M.jsonl")).unwrap();
    let lines = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let line = lines
        .into_iter()
        .find(|line| line["prompt"] == KING)
        .unwrap();
    let steps = line["steps"].as_array().unwrap();
    (
        ids(&line["ids"]),
        steps
            .iter()
            .map(|step| step["id"].as_u64().unwrap())
            .collect(),
    )
}

pub(crate) fn json_tells_all_of_a_run() {
    let json = run(["-p", KING, "-n", "6", "--temp", "0", "--format", "json"]).json();
    let (prompt, steps) = golden();
    assert_eq!(ids(&json["prompt_ids"]), prompt);
    assert_eq!(ids(&json["ids"]), steps[..6]);
    assert_eq!(json["text"], " had been a king, and");
    assert_eq!(json["backend"], "auto");
    assert_eq!(json["devices"], serde_json::json!(["cpu"]));
    assert_eq!(json["fallbacks"], serde_json::json!([]));
    assert_eq!(json["stop"], "limit");
    for timing in ["load_ms", "prompt_tps", "decode_tps"] {
        assert!(json["timings"][timing].as_f64().unwrap() > 0.0, "{json}");
    }
}

pub(crate) fn prompt_and_text_go_to_standard_output_and_the_rest_elsewhere() {
    let told = run(["-p", KING, "-n", "6", "--temp", "0", "-b", "cpu", "-t", "1"]);
    assert_eq!(told.stdout, format!("{KING} had been a king, and\n"));
    assert_eq!(told.status, 0);
    for part in [
        "prompt 11 tokens",
        "decode 5 tokens",
        "ran on cpu",
        "1 CPU threads",
        "no fallbacks",
    ] {
        assert!(told.stderr.contains(part), "{}", told.stderr);
    }
    let text = run(["-p", KING, "-n", "6", "--temp", "0", "--no-display-prompt"]).ok();
    assert_eq!(text, " had been a king, and\n");
}

pub(crate) fn without_anything_it_tells_a_story() {
    let story = run(["-n", "3", "--temp", "0"]).ok();
    assert!(story.starts_with("Once upon a time"), "{story}");
    assert!(story.len() > 45, "{story}");
}

pub(crate) fn a_file_runs_as_the_bundled_model_does() {
    let args = ["-p", KING, "-n", "8", "--temp", "0"];
    let file = model_arg("classics-13m-Q4_K_M.gguf");
    let from_file = run(args.iter().copied().chain(["-m", &file])).ok();
    assert_eq!(from_file, run(args).ok());
}

pub(crate) fn prompts_come_from_files_and_pipes() {
    let expected = run(["-p", KING, "-n", "4", "--temp", "0"]).ok();
    let piped = run_with_input(&["-n", "4", "--temp", "0"], format!("{KING}\n").as_bytes());
    assert_eq!(piped.ok(), expected);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prompt.txt");
    std::fs::write(&path, format!("{KING}\n")).unwrap();
    let path = path.display().to_string();
    assert_eq!(run(["-f", &path, "-n", "4", "--temp", "0"]).ok(), expected);
    // A prompt option goes before piped input.
    let both = run_with_input(&["-p", KING, "-n", "4", "--temp", "0"], b"something else");
    assert_eq!(both.ok(), expected);
}

pub(crate) fn a_dash_is_standard_input() {
    let limits = ["-n", "4", "--temp", "0"];
    let expected = run(["-p", KING].iter().chain(&limits)).ok();
    let input = format!("{KING}\n");
    for option in ["-f", "--file"] {
        let piped = run_with_input(&[&[option, "-"], &limits[..]].concat(), input.as_bytes());
        assert_eq!(piped.ok(), expected);
    }
    let schema = ["-p", "x", "-jf", "-", "-n", "5"];
    let held = run_with_input(&schema, br#"{"const": true}"#).ok();
    assert!(held.contains("true"), "{held}");
    let talk = [
        "chat",
        "--chat-template",
        "{{ messages[0].content }}",
        "-st",
        "-f",
        "-",
    ];
    let talk = run_with_input(&[&talk, &limits[..]].concat(), input.as_bytes()).ok();
    assert_eq!(
        talk,
        run([&["-p", KING, "--no-display-prompt"], &limits[..]].concat()).ok()
    );
}

pub(crate) fn of_an_option_that_is_given_twice_the_last_counts() {
    let expected = run(["-p", KING, "-n", "3", "--temp", "0", "-c", "64"]).ok();
    let twice = [
        "-p",
        "No",
        "-p",
        KING,
        "-n",
        "9",
        "-n",
        "3",
        "--temp",
        "2",
        "--temp",
        "0",
        "-c",
        "16",
        "-c",
        "64",
        "--strict",
        "--strict",
        "-b",
        "reference",
        "-b",
        "cpu",
        "-m",
        "/no/such.gguf",
        "-m",
        &model_arg("classics-13m-Q4_K_M.gguf"),
        "--samplers",
        "xtc",
        "--samplers",
        "top_k;temperature",
    ];
    assert_eq!(run(twice).ok(), expected);
    let formats = run(["inspect", "--format", "json", "--format", "text"]).ok();
    assert!(formats.starts_with("classics"), "{formats}");
    // A vector of layers is two numbers, not four.
    let range = ["--control-vector-layer-range", "1", "2"];
    let twice = [&["-p", "x", "-n", "1"], &range[..], &range].concat();
    run(twice).ok();
}

pub(crate) fn all_of_a_prompt_is_kept_on_request() {
    let shifted = [
        "-p",
        KING,
        "-c",
        "24",
        "-n",
        "40",
        "--temp",
        "0",
        "--context-shift",
        "--format",
        "json",
    ];
    let kept = |keep: &str| run(shifted.iter().chain(&["--keep", keep])).json();
    let all = kept("-1");
    let prompt = all["prompt_ids"].as_array().unwrap().len();
    assert_eq!(all["ids"].as_array().unwrap().len(), 40);
    assert_eq!(all["ids"], kept(&prompt.to_string())["ids"]);
    assert_ne!(all["ids"], kept("0")["ids"]);
    let line = run(["-p", "x", "--keep", "-2"]).error(2);
    assert!(line.contains("--keep"), "{line}");
}

pub(crate) fn a_second_token_of_the_beginning_is_warned_of() {
    let model = Gguf::open(model("classics-13m-Q4_K_M.gguf")).unwrap();
    let tokens = model.metadata.str_array("tokenizer.ggml.tokens").unwrap();
    let bos = &tokens[model.metadata.u32("tokenizer.ggml.bos_token_id").unwrap() as usize];
    let warned = |prompt: &str| {
        run(["-p", prompt, "-n", "1"])
            .stderr
            .contains("begins with BOS")
    };
    assert!(warned(&format!("{bos}Once")));
    assert!(!warned("Once") && !warned(&format!("Once{bos}")));
}

pub(crate) fn a_wrong_token_is_told_plainly() {
    for (key, instead) in [
        ("bos_token_id", "token 11 is used instead"),
        ("unknown_token_id", "no token is used instead"),
    ] {
        let wrong = format!("tokenizer.ggml.{key}=int:4000000");
        let told = run(["-p", "x", "-n", "1", "--override-kv", &wrong]);
        assert!(told.stderr.contains(instead), "{}", told.stderr);
        assert!(!told.stderr.contains("Some("), "{}", told.stderr);
    }
}

/// The bundled model under this name.
fn write_named(path: &Path, name: MetadataValue) {
    let model = Gguf::open(model("classics-13m-Q4_K_M.gguf")).unwrap();
    let mut writer = GgufWriter::new(model.metadata.clone());
    writer.metadata.insert("general.name", name);
    for tensor in model.tensors() {
        writer
            .add_tensor(&tensor.name, &*tensor.dims, tensor.ty)
            .unwrap();
    }
    let fill = |tensor: &TensorInfo, out: &mut dyn Write| {
        out.write_all(model.data(model.tensor(&tensor.name).unwrap()))
    };
    writer.write(path, fill).unwrap();
}

pub(crate) fn a_name_need_not_be_utf8() {
    let expected = run(["-p", KING, "-n", "3", "--temp", "0"]).ok();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("named.gguf");
    for name in [
        MetadataValue::Bytes(b"Caf\xe9".to_vec()),
        MetadataValue::U32(7),
    ] {
        write_named(&path, name);
        let file = path.to_str().unwrap();
        assert_eq!(
            run(["-m", file, "-p", KING, "-n", "3", "--temp", "0"]).ok(),
            expected
        );
        let talk = [
            "chat",
            "-m",
            file,
            "--chat-template",
            "chatml",
            "-st",
            "-p",
            "x",
            "-n",
            "1",
        ];
        run(talk).ok();
    }
}

/// Names of files are bytes on Linux, of any kind.
#[cfg(target_os = "linux")]
pub(crate) fn paths_need_not_be_utf8() {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    let folder = tempfile::tempdir().unwrap();
    let path = |name: &[u8]| folder.path().join(OsStr::from_bytes(name)).into_os_string();
    let (file, text, cache, report) = (
        path(b"m\xff.gguf"),
        path(b"t\xfe"),
        path(b"c\xfd"),
        path(b"r\xfc.md"),
    );
    std::fs::copy(model("classics-13m-Q4_K_M.gguf"), &file).unwrap();
    std::fs::write(&text, KING).unwrap();
    let with = |args: &[&str], more: &[&OsString]| -> Vec<OsString> {
        let args = args.iter().map(OsString::from);
        args.chain(more.iter().map(|&arg| arg.clone())).collect()
    };
    let (m, f, p) = (
        OsString::from("-m"),
        OsString::from("-f"),
        OsString::from("--prompt-cache"),
    );
    let args = ["-n", "2", "--temp", "0"];
    let expected = run(["-p", KING, "-n", "2", "--temp", "0"]).ok();
    assert_eq!(
        run(with(&args, &[&m, &file, &f, &text, &p, &cache])).ok(),
        expected
    );
    run(with(&["inspect"], &[&file])).ok();
    run(with(
        &["chat", "-st", "-n", "1", "--chat-template"],
        &[&text, &f, &text],
    ))
    .ok();
    run(with(&["tokenize"], &[&m, &file, &f, &text])).ok();
    run(with(
        &["verify", "-b", "cpu", "--only", "copies", "-o"],
        &[&report],
    ))
    .ok();
    let mut lora = OsString::from("--lora=");
    lora.push(path(b"no\xfa.gguf"));
    let line = run(with(&["-p", "x"], &[&lora])).error(1);
    assert!(line.contains("cannot open"), "{line}");
    // An argument that is not a path has to be text.
    let line = run(with(&["-p"], &[&OsStr::from_bytes(b"\xff").to_owned()])).error(2);
    assert!(line.contains("UTF-8"), "{line}");
}

pub(crate) fn escapes_are_read_on_request() {
    let text = |args: &[&str]| run(args.iter().copied().chain(["-n", "0"])).ok();
    assert_eq!(text(&["-p", r"one\ntwo"]), "one\\ntwo\n");
    assert_eq!(text(&["-p", r"one\ntwo", "-e"]), "one\ntwo\n");
}

pub(crate) fn a_seed_repeats_a_text() {
    let with_seed = |seed: &str| run(["-p", "The sea", "-n", "24", "-s", seed]).ok();
    assert_eq!(with_seed("7"), with_seed("7"));
    assert_ne!(with_seed("7"), with_seed("8"));
    let json = run(["-p", "The sea", "-n", "1", "-s", "7", "--format", "json"]).json();
    assert_eq!(json["seed"], 7);
}

pub(crate) fn the_size_of_batches_does_not_change_the_text() {
    let args = ["-p", KING, "-n", "8", "--temp", "0"];
    let expected = run(args).ok();
    for batch in [["-b", "4"], ["-ub", "3"]] {
        assert_eq!(
            run(args.iter().copied().chain(batch)).ok(),
            expected,
            "{batch:?}"
        );
    }
}

pub(crate) fn the_type_of_the_cache_does_not_change_the_text() {
    let args = ["-p", KING, "-n", "8", "--temp", "0"];
    let expected = run(args).ok();
    // Each is another computation, with the same best tokens here.
    for dtype in ["f32", "bf16", "q8_0"] {
        let other = run(args.iter().copied().chain(["-ctk", dtype, "-ctv", dtype]));
        assert_eq!(other.ok(), expected, "{dtype}");
    }
}

pub(crate) fn the_end_of_the_context_ends_the_text() {
    let args = ["-p", "The king", "-c", "12", "--ignore-eos", "--temp", "0"];
    let full = run(args);
    assert!(
        full.stderr.contains("the context of 12 tokens is full"),
        "{}",
        full.stderr
    );
    let json = run(args.iter().copied().chain(["--format", "json"])).json();
    assert_eq!(json["stop"], "context");
    // The last token is written and not fed back.
    assert_eq!(ids(&json["prompt_ids"]).len() + ids(&json["ids"]).len(), 13);
}

pub(crate) fn special_tokens_are_read_and_shown_on_request() {
    let args = ["-p", "<|end_of_text|>", "-n", "0", "--format", "json"];
    assert_eq!(ids(&run(args).json()["prompt_ids"]), [0, 1]);
    // Even the text of a token that may not come is never split up.
    let ended = run([
        "-p",
        "The end.<|end_of_text|>",
        "-n",
        "40",
        "-s",
        "3",
        "--special",
    ])
    .ok();
    assert!(ended.starts_with("The end.<|end_of_text|>"), "{ended}");
}

pub(crate) fn a_device_that_fails_changes_nothing_but_the_report() {
    let args = [
        "-p", KING, "-n", "3", "--temp", "0", "--format", "json", "-b", "cpu",
    ];
    let expected = run(args).json();
    let faults = "device=cpu;op=linear;nth=50;kind=lost";
    let failed = run(args.iter().copied().chain(["--inject", faults])).json();
    assert_eq!(failed["ids"], expected["ids"]);
    assert_eq!(failed["devices"], serde_json::json!(["cpu", "reference"]));
    let fallback = &failed["fallbacks"][0];
    assert_eq!(fallback["from"], "cpu");
    assert_eq!(fallback["to"], "reference");
    assert_eq!(fallback["class"], "device lost");
    assert_eq!(fallback["op"], "linear");

    let mut command = crate::support::program(args);
    let by_variable = command.env("RUSTORCH_INJECT", faults).output().unwrap();
    let json: Value = serde_json::from_slice(&by_variable.stdout).unwrap();
    assert_eq!(json["fallbacks"], failed["fallbacks"]);

    let strict = run([
        "-p", KING, "-n", "3", "-b", "cpu", "--strict", "--inject", faults,
    ]);
    let line = strict.error(1);
    assert!(line.contains("cpu") && line.contains("lost"), "{line}");
}

/// A terminal shows both outputs, as this pipe does.
#[cfg(unix)]
pub(crate) fn a_warning_begins_a_line() {
    let story = ["-p", KING, "-n", "8", "--temp", "0", "-b", "cpu"];
    let faults = "device=cpu;op=linear;nth=150;kind=unsupported";
    for args in [
        [&story[..], &["--inject", faults]].concat(),
        [
            &["chat"],
            &story[..],
            &["--single-turn", "--inject", faults],
        ]
        .concat(),
    ] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut command = crate::support::program(&args);
        command.stdout(writer.try_clone().unwrap()).stderr(writer);
        let mut child = command.spawn().unwrap();
        // It holds the pipe's other end.
        drop(command);
        let shown = std::io::read_to_string(&mut reader).unwrap();
        assert!(child.wait().unwrap().success(), "{shown}");
        let (before, _) = shown.split_once("warning: cpu").expect("a warning");
        let text = before.trim_end();
        assert!(before.ends_with('\n') && !text.is_empty(), "{shown}");
    }
}

pub(crate) fn the_definition_tells_the_same_story() {
    let story =
        |backend: &str| run(["-p", "The king", "-n", "2", "--temp", "0", "-b", backend]).ok();
    assert_eq!(story("reference"), story("cpu"));
}
