//! OpenAI's conversations.

use serde_json::{Value, json};

use crate::client::Running;

fn asked(more: Value) -> Value {
    let messages =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]);
    let mut body = json!({"messages": messages, "max_tokens": 12, "temperature": 0});
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

fn tools() -> Value {
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": false,
    });
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": parameters}});
    json!([tool("weather"), tool("time")])
}

#[test]
fn an_answer_and_its_stream() {
    let server = Running::shared();
    let whole = server.ok("/v1/chat/completions", asked(json!({})));
    let message = &whole["choices"][0]["message"];
    assert_eq!(
        (&message["role"], &whole["object"]),
        (&json!("assistant"), &json!("chat.completion"))
    );
    assert_eq!(whole["choices"][0]["finish_reason"], "length");
    let options = json!({"stream": true, "stream_options": {"include_usage": true}});
    let events = server
        .post("/v1/chat/completions", &asked(options))
        .events();
    let (usage, chunks) = events.split_last().unwrap();
    assert_eq!(usage["usage"]["completion_tokens"], 12);
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let said = chunks
        .iter()
        .filter_map(|it| it["choices"][0]["delta"]["content"].as_str());
    assert_eq!(
        said.collect::<String>(),
        message["content"].as_str().unwrap()
    );
    // The prompt is the template's.
    let prompt = server.ok(
        "/apply-template",
        json!({"messages": asked(json!({}))["messages"]}),
    );
    let prompt = prompt["prompt"].as_str().unwrap();
    assert!(
        prompt.ends_with("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"),
        "{prompt}"
    );
    let other = server.ok(
        "/apply-template",
        json!({"model": "other", "messages": asked(json!({}))["messages"]}),
    );
    assert!(
        other["prompt"]
            .as_str()
            .unwrap()
            .contains("<|start_header_id|>"),
        "{other}"
    );
}

#[test]
fn log_probabilities_of_a_chat() {
    let server = Running::shared();
    let reply = server.ok(
        "/v1/chat/completions",
        asked(json!({"logprobs": true, "top_logprobs": 2})),
    );
    let content = reply["choices"][0]["logprobs"]["content"]
        .as_array()
        .unwrap();
    assert_eq!(content.len(), 12);
    for token in content {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["token"]), (2, &token["token"]));
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
        assert!(token["bytes"].is_array());
    }
    let stream = asked(json!({"logprobs": true, "top_logprobs": 2, "stream": true}));
    let events = server.post("/v1/chat/completions", &stream).events();
    let streamed = events
        .iter()
        .filter_map(|it| it["choices"][0]["logprobs"]["content"].as_array());
    assert_eq!(streamed.flatten().count(), 12);
}

#[test]
fn tools_are_called_when_they_have_to_be() {
    let server = Running::shared();
    let forced = json!({"tools": tools(), "tool_choice": {"type": "function", "function": {"name": "time"}},
        "parallel_tool_calls": false, "max_tokens": 150});
    let reply = server.ok("/v1/chat/completions", asked(forced.clone()));
    let choice = &reply["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{choice}");
    let calls = choice["message"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "{choice}");
    assert_eq!(
        (&calls[0]["type"], &calls[0]["function"]["name"]),
        (&json!("function"), &json!("time"))
    );
    let arguments = calls[0]["function"]["arguments"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert!(["Paris", "Rome"].contains(&arguments["city"].as_str().unwrap()));
    assert_eq!(calls[0]["id"].as_str().unwrap().len(), 9);
    // The stream has the name first, then the arguments.
    let mut streamed = asked(forced);
    streamed["stream"] = true.into();
    let events = server.post("/v1/chat/completions", &streamed).events();
    let deltas = events
        .iter()
        .filter_map(|it| it["choices"][0]["delta"]["tool_calls"].as_array());
    let parts: Vec<&Value> = deltas.flatten().collect();
    assert_eq!(parts[0]["function"]["name"], "time");
    let text: String = parts
        .iter()
        .map(|it| it["function"]["arguments"].as_str().unwrap())
        .collect();
    assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), arguments);
    let any = json!({"tools": tools(), "tool_choice": "required", "max_tokens": 300, "seed": 3, "temperature": 1.0});
    let reply = server.ok("/v1/chat/completions", asked(any));
    let calls = reply["choices"][0]["message"]["tool_calls"]
        .as_array()
        .unwrap();
    assert!(
        calls
            .iter()
            .all(|call| ["weather", "time"].contains(&call["function"]["name"].as_str().unwrap()))
    );
    // Results go back in.
    let id = &calls[0]["id"];
    let messages = json!([
        {"role": "user", "content": "Time?"},
        {"role": "assistant", "content": null, "tool_calls": [calls[0]]},
        {"role": "tool", "tool_call_id": id, "content": "noon"},
    ]);
    let prompt = server.ok(
        "/apply-template",
        json!({"messages": messages, "tools": tools()}),
    );
    assert!(prompt["prompt"].as_str().unwrap().contains("noon"));
    // A tool of another type is left out, and listed.
    let odd = server.post(
        "/v1/chat/completions",
        &asked(json!({"tools": [{"type": "web_search"}]})),
    );
    assert_eq!(
        (odd.status, odd.header("x-rustorch-ignored")),
        (200, Some("tools[0] of type web_search"))
    );
}

#[test]
fn answers_are_json_if_asked() {
    let server = Running::shared();
    let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "json_schema": {"name": "ok", "strict": true, "schema": schema}});
    let reply = server.ok(
        "/v1/chat/completions",
        asked(json!({"response_format": format, "max_tokens": 40})),
    );
    let content = reply["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(
        serde_json::from_str::<Value>(content).unwrap()["ok"].is_boolean(),
        "{content}"
    );
}

#[test]
fn wrong_messages_are_named() {
    let server = Running::shared();
    let image =
        json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]);
    for (more, param, words) in [
        (json!({"messages": null}), "messages", "missing"),
        (json!({"messages": []}), "messages", "no message"),
        (json!({"messages": [3]}), "messages[0]", "invalid type"),
        (
            json!({"messages": [{"content": "a"}]}),
            "messages[0].role",
            "string",
        ),
        (
            json!({"messages": [{"role": "cook", "content": "a"}]}),
            "messages[0].role",
            "assistant",
        ),
        (
            json!({"messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b"},
                {"role": "assistant", "content": "c"},
            ]}),
            "messages",
            "the last two messages",
        ),
        (
            json!({"messages": [{"role": "user"}]}),
            "messages[0].content",
            "expected a text",
        ),
        (
            json!({"messages": image}),
            "messages[0].content[0]",
            "image_url",
        ),
        (
            json!({"tools": [{"type": "function"}]}),
            "tools[0].function.name",
            "name",
        ),
        (json!({"tools": [{}]}), "tools[0].type", "string"),
        (
            json!({"tool_choice": "required"}),
            "tool_choice",
            "no tools",
        ),
        (
            json!({"tool_choice": "maybe"}),
            "tool_choice",
            "expected auto",
        ),
        (json!({"top_logprobs": 3}), "top_logprobs", "logprobs"),
        (json!({"max_tokens": 0}), "max_tokens", "at least 1"),
        (
            json!({"reasoning_format": "x"}),
            "reasoning_format",
            "deepseek",
        ),
        (
            json!({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "strange"}}}}),
            "response_format",
            "one or more of null, boolean",
        ),
    ] {
        let reply = server.post("/v1/chat/completions", &asked(more.clone()));
        let error = &reply.json()["error"];
        assert_eq!(
            (reply.status, &error["param"]),
            (400, &json!(param)),
            "{more}: {error}"
        );
        assert!(
            error["message"].as_str().unwrap().contains(words),
            "{more}: {error}"
        );
    }
}
