//! ollama's interface.

use serde_json::{Value, json};

use crate::client::{MODEL, Running};

#[test]
fn chats_and_texts() {
    let server = Running::shared();
    let messages = json!([{"role": "user", "content": "Hello"}]);
    let options = json!({"num_predict": 12, "temperature": 0, "num_ctx": 256});
    let body = json!({"model": "classics:latest", "messages": messages, "options": options, "stream": false});
    let whole = server.ok("/api/chat", body.clone());
    let text = whole["message"]["content"].as_str().unwrap();
    assert_eq!(
        (&whole["done"], &whole["done_reason"]),
        (&json!(true), &json!("length"))
    );
    assert_eq!(whole["eval_count"], 12);
    let chat = server.ok(
        "/v1/chat/completions",
        json!({"messages": messages, "max_tokens": 12, "temperature": 0}),
    );
    assert_eq!(chat["choices"][0]["message"]["content"], text);
    // A stream is what comes unless it is refused.
    let mut streamed = body;
    streamed.as_object_mut().unwrap().remove("stream");
    let lines = server.post("/api/chat", &streamed).lines();
    let said: String = lines
        .iter()
        .map(|line| line["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!(said, text);
    assert!(lines.iter().rev().skip(1).all(|line| line["done"] == false));
    assert_eq!(lines.last().unwrap()["done"], true);
    let of = |raw: bool, prompt: &str| json!({"model": MODEL, "prompt": prompt, "raw": raw, "stream": false, "options": options});
    // A prompt is a message, unless it is raw.
    assert_eq!(
        server.ok("/api/generate", of(false, "Hello"))["response"],
        text
    );
    let raw = server.ok("/api/generate", of(true, "Once upon a time"));
    let native = server.ok(
        "/completion",
        json!({"prompt": "Once upon a time", "n_predict": 12, "temperature": 0}),
    );
    assert_eq!(raw["response"], native["content"]);
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let formed = server.ok("/api/chat", json!({
        "messages": messages, "format": schema, "stream": false, "options": {"num_predict": 60, "temperature": 0},
    }));
    let formed: Value =
        serde_json::from_str(formed["message"]["content"].as_str().unwrap()).unwrap();
    assert!(formed["ok"].is_boolean());
    let call = json!({"function": {"name": "weather", "arguments": {"city": "Rome"}}});
    let results = json!([
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_name": "weather", "content": "sunny"},
    ]);
    server.ok(
        "/api/chat",
        json!({"messages": results, "stream": false, "options": options}),
    );
}

#[test]
fn models_are_listed() {
    let server = Running::shared();
    let tags = server.get("/api/tags").ok();
    assert_eq!(tags["models"][0]["name"], MODEL);
    assert!(tags["models"][0]["size"].as_u64().unwrap() > 1_000_000);
    assert_eq!(
        server.get("/api/ps").ok()["models"][1]["context_length"],
        512
    );
    let show = server.ok("/api/show", json!({"model": MODEL}));
    assert_eq!(show["model_info"]["general.architecture"], "llama");
    assert!(show["model_info"].get("tokenizer.ggml.tokens").is_none());
    assert!(server.get("/api/version").ok()["version"].is_string());
}

#[test]
fn errors_have_ollamas_form() {
    let server = Running::shared();
    let messages = json!([{"role": "user", "content": "Hello"}]);
    for (body, words) in [
        (
            json!({"messages": messages, "options": {"num_ctx": 100_000}}),
            "options.num_ctx: 100000",
        ),
        (
            json!({"messages": messages, "options": {"wonder": 1}}),
            "options.wonder",
        ),
        (
            json!({"messages": messages, "options": {"top_p": 7}}),
            "options.top_p: expected",
        ),
        (
            json!({"messages": messages, "format": "xml"}),
            "format: expected json",
        ),
        (
            json!({"messages": [{"role": "user", "content": "a", "images": ["x"]}]}),
            "messages[0].images",
        ),
    ] {
        let reply = server.post("/api/chat", &body);
        let error = reply.json()["error"].as_str().unwrap().to_owned();
        assert_eq!(reply.status, 400);
        assert!(error.contains(words), "{error}");
    }
    assert_eq!(
        server.post("/api/chat", &json!({"model": "none"})).status,
        404
    );
}
