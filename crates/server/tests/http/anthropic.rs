//! Anthropic's messages.

use serde_json::{Value, json};

use crate::client::{MODEL, Running};

fn asked(more: Value) -> Value {
    let mut body = json!({
        "model": MODEL,
        "system": "Be brief.",
        "messages": [{"role": "user", "content": "Hello"}],
        "max_tokens": 12,
        "temperature": 0,
    });
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

fn tool() -> Value {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": false,
    });
    json!({"name": "weather", "description": "It rains?", "input_schema": schema})
}

/// The names of a stream's events, without repetition.
fn names(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("event: "))
        .collect();
    names.dedup();
    names
}

#[test]
fn a_message_and_its_stream() {
    let server = Running::shared();
    let whole = server.ok("/v1/messages", asked(json!({})));
    assert_eq!(
        (&whole["type"], &whole["role"]),
        (&json!("message"), &json!("assistant"))
    );
    assert_eq!(whole["stop_reason"], "max_tokens");
    assert_eq!(whole["usage"]["output_tokens"], 12);
    let text = whole["content"][0]["text"].as_str().unwrap();
    // It is what OpenAI's interface says.
    let messages =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]);
    let chat = server.ok(
        "/v1/chat/completions",
        json!({"messages": messages, "max_tokens": 12, "temperature": 0}),
    );
    assert_eq!(chat["choices"][0]["message"]["content"], text);
    let reply = server.post("/v1/messages", &asked(json!({"stream": true})));
    let expected = [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ];
    assert_eq!(names(&reply.text), expected);
    let events = reply.events();
    let said: String = events
        .iter()
        .filter_map(|it| it["delta"]["text"].as_str())
        .collect();
    assert_eq!(said, text);
    let prompt = server.ok(
        "/v1/messages/count_tokens",
        json!({"system": "Be brief.", "messages": [{"role": "user", "content": "Hello"}]}),
    );
    assert_eq!(
        events[0]["message"]["usage"]["input_tokens"],
        prompt["input_tokens"]
    );
    let usage = &whole["usage"];
    let read = usage["input_tokens"].as_u64().unwrap()
        + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(prompt["input_tokens"], read);
}

#[test]
fn stop_texts_and_tools() {
    let server = Running::shared();
    let whole = server.ok("/v1/messages", asked(json!({})));
    let text = whole["content"][0]["text"].as_str().unwrap();
    let word = text.split_whitespace().nth(2).unwrap();
    let stopped = server.ok("/v1/messages", asked(json!({"stop_sequences": [word]})));
    assert_eq!(
        (&stopped["stop_reason"], &stopped["stop_sequence"]),
        (&json!("stop_sequence"), &json!(word))
    );
    let forced = json!({"tools": [tool()], "tool_choice": {"type": "any", "disable_parallel_tool_use": true}, "max_tokens": 150});
    let called = server.ok("/v1/messages", asked(forced.clone()));
    assert_eq!(called["stop_reason"], "tool_use", "{called}");
    let call = &called["content"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("tool_use"), &json!("weather"))
    );
    assert!(["Paris", "Rome"].contains(&call["input"]["city"].as_str().unwrap()));
    let mut streamed = forced;
    streamed["stream"] = true.into();
    let events = server.post("/v1/messages", &asked(streamed)).events();
    let arguments: String = events
        .iter()
        .filter_map(|it| it["delta"]["partial_json"].as_str())
        .collect();
    assert_eq!(
        serde_json::from_str::<Value>(&arguments).unwrap(),
        call["input"]
    );
    // Its result goes back in.
    let messages = json!([
        {"role": "user", "content": "Rain?"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": "sunny"}]},
            {"type": "text", "text": "So?", "cache_control": {"type": "ephemeral"}},
        ]},
    ]);
    server.ok(
        "/v1/messages",
        asked(json!({"messages": messages, "tools": [tool()]})),
    );
    let line = "x-anthropic-billing-header: cch=1234";
    let system = json!([{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}]);
    let reply = server.post("/v1/messages", &asked(json!({"system": system})));
    assert_eq!(
        reply.header("x-rustorch-ignored"),
        Some("x-anthropic-billing-header in system")
    );
    assert_eq!(reply.ok()["content"], whole["content"]);
}

#[test]
fn errors_have_anthropics_form() {
    let server = Running::shared();
    for (more, words) in [
        (
            json!({"max_tokens": null}),
            "max_tokens: this field is missing",
        ),
        (
            json!({"messages": [{"role": "cook", "content": "a"}]}),
            "messages[0].role",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
            "messages[0].content[0]",
        ),
        (json!({"tools": [{"name": "a"}]}), "tools[0].input_schema"),
        (json!({"wonder": 1}), "unknown field"),
        (json!({"tool_choice": {"type": "tool"}}), "tool_choice.name"),
    ] {
        let reply = server.post("/v1/messages", &asked(more.clone()));
        let body = reply.json();
        assert_eq!(
            (reply.status, &body["type"]),
            (400, &json!("error")),
            "{more}"
        );
        assert_eq!(body["error"]["type"], "invalid_request_error");
        assert!(
            body["error"]["message"].as_str().unwrap().contains(words),
            "{more}: {body}"
        );
    }
    let reply = server.post("/v1/messages", &asked(json!({"model": "none"})));
    assert_eq!(
        (reply.status, &reply.json()["error"]["type"]),
        (404, &json!("not_found_error"))
    );
}
