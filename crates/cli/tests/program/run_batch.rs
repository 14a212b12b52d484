//! `run-batch`: requests of a file, and its answers.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Run, run};

fn request(name: &str, url: &str, body: &Value) -> String {
    json!({"custom_id": name, "method": "POST", "url": url, "body": body}).to_string() + "\n"
}

fn answers(path: &Path) -> BTreeMap<String, Value> {
    let text = fs::read_to_string(path).unwrap();
    let mut answers = BTreeMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let name = line["custom_id"].as_str().unwrap().to_owned();
        assert!(answers.insert(name, line).is_none(), "an answer twice");
    }
    answers
}

pub(crate) fn requests_of_a_file_are_answered_once() {
    let dir = tempfile::tempdir().unwrap();
    let [file, out] = ["in.jsonl", "out.jsonl"].map(|name| dir.path().join(name));
    let batch = || -> Run {
        let paths = [&file, &out].map(|path| path.display().to_string());
        let options = ["-b", "cpu", "-t", "1", "-np", "3", "-c", "128"];
        run(["run-batch", &paths[0], "-o", &paths[1]]
            .iter()
            .chain(&options))
    };
    let text =
        |i: usize| json!({"prompt": format!("Chapter {i}."), "max_tokens": 5, "temperature": 0});
    let mut lines: Vec<String> = (0..9)
        .map(|i| request(&format!("text-{i}"), "/v1/completions", &text(i)))
        .collect();
    let chat = json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4});
    lines.push(request("chat", "/v1/chat/completions", &chat));
    fs::write(&file, lines[..4].concat()).unwrap();
    let done = batch();
    assert_eq!(done.status, 0, "{}", done.stderr);
    let first = answers(&out);
    assert_eq!(first.len(), 4);
    for answer in first.values() {
        let response = &answer["response"];
        assert_eq!(response["status_code"], 200, "{answer}");
        assert_eq!(response["body"]["usage"]["completion_tokens"], 5);
        assert_eq!(answer["error"], Value::Null);
    }
    // A run that was interrupted goes on: within its last line, and with more requests.
    let mut whole = fs::read_to_string(&out).unwrap();
    whole.truncate(whole.len() - 20);
    fs::write(&out, whole).unwrap();
    fs::write(&file, lines.concat()).unwrap();
    let done = batch();
    assert_eq!(done.status, 0, "{}", done.stderr);
    assert!(
        done.stderr.contains("3 answers are there, 7 are left"),
        "{}",
        done.stderr
    );
    let second = answers(&out);
    assert_eq!(second.len(), 10);
    let text = |answer: &Value| answer["response"]["body"]["choices"][0]["text"].clone();
    for (name, answer) in &first {
        assert_eq!(text(answer), text(&second[name]), "{name}");
    }
    let kept = first
        .iter()
        .filter(|(name, answer)| second[*name]["id"] == answer["id"]);
    assert_eq!(kept.count(), 3);
    let chat = &second["chat"]["response"]["body"]["choices"][0]["message"];
    assert_eq!(chat["role"], "assistant");
    // All is there.
    assert_eq!(batch().status, 0);
    assert_eq!(answers(&out), second);
}

pub(crate) fn wrong_requests_of_a_file_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let [file, out] = ["in.jsonl", "out.jsonl"].map(|name| dir.path().join(name));
    let batch = |lines: &[String]| {
        fs::write(&file, lines.concat()).unwrap();
        let paths = [&file, &out].map(|path| path.display().to_string());
        run([
            "run-batch",
            &paths[0],
            "-o",
            &paths[1],
            "-b",
            "cpu",
            "-c",
            "32",
        ])
    };
    let good = json!({"prompt": "Hello", "max_tokens": 2});
    let done = batch(&[
        request("good", "/v1/completions", &good),
        request("long", "/v1/completions", &json!({"prompt": vec![5; 40]})),
        request(
            "none",
            "/v1/completions",
            &json!({"prompt": "Hello", "n": 0}),
        ),
        request(
            "stream",
            "/v1/completions",
            &json!({"prompt": "Hello", "stream": true}),
        ),
        request(
            "model",
            "/v1/completions",
            &json!({"prompt": "Hello", "model": "gpt"}),
        ),
        request("path", "/v1/moderations", &good),
    ]);
    assert_eq!(done.status, 1);
    assert!(
        done.stderr.contains("6 answers, 5 of them errors"),
        "{}",
        done.stderr
    );
    let answers = answers(&out);
    let response = |name: &str| answers[name]["response"].clone();
    assert_eq!(response("good")["status_code"], 200);
    for (name, status, words) in [
        ("long", 400, "40 tokens"),
        ("long", 400, "32"),
        ("none", 400, "n: "),
        ("stream", 400, "stream: "),
        ("model", 404, "gpt"),
        ("path", 404, "/v1/moderations"),
    ] {
        let response = response(name);
        assert_eq!(response["status_code"], status, "{response}");
        let message = response["body"]["error"]["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
    }
    // Files that are no batch.
    let twice = request("a", "/v1/completions", &good);
    let error = batch(&[twice.clone(), twice]).error(1);
    assert!(
        error.contains("line 2") && error.contains("twice"),
        "{error}"
    );
    let error = batch(&["{}\n".to_owned()]).error(1);
    assert!(
        error.contains("line 1") && error.contains("custom_id"),
        "{error}"
    );
}
