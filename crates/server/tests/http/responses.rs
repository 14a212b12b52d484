//! OpenAI's responses.

use serde_json::{Value, json};

use crate::client::{MODEL, Running};

fn asked(more: Value) -> Value {
    let mut body = json!({
        "model": MODEL,
        "instructions": "Be brief.",
        "input": "Hello",
        "max_output_tokens": 12,
        "temperature": 0,
    });
    let more = more.as_object().unwrap().clone();
    body.as_object_mut().unwrap().extend(more);
    body
}

#[test]
fn a_response_and_its_stream() {
    let server = Running::shared();
    let whole = server.ok("/v1/responses", asked(json!({})));
    assert_eq!(
        (&whole["object"], &whole["status"]),
        (&json!("response"), &json!("incomplete"))
    );
    assert_eq!(whole["incomplete_details"]["reason"], "max_output_tokens");
    assert_eq!(whole["usage"]["output_tokens"], 12);
    let text = whole["output"][0]["content"][0]["text"].as_str().unwrap();
    let messages =
        json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]);
    let chat = server.ok(
        "/v1/chat/completions",
        json!({"messages": messages, "max_tokens": 12, "temperature": 0}),
    );
    assert_eq!(chat["choices"][0]["message"]["content"], text);
    let events = server
        .post("/v1/responses", &asked(json!({"stream": true})))
        .events();
    assert!(
        events
            .iter()
            .enumerate()
            .all(|(number, event)| event["sequence_number"] == number)
    );
    let mut kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    kinds.dedup();
    let expected = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.incomplete",
    ];
    assert_eq!(kinds, expected);
    let said: String = events
        .iter()
        .filter_map(|event| event["delta"].as_str())
        .collect();
    assert_eq!(said, text);
    let last = &events.last().unwrap()["response"];
    assert_eq!(last["output"][0]["content"], whole["output"][0]["content"]);
}

#[test]
fn calls_and_their_results() {
    let server = Running::shared();
    let parameters = json!({
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}},
        "required": ["city"],
        "additionalProperties": false,
    });
    let tools = json!([
        {"type": "function", "name": "weather", "parameters": parameters, "strict": true},
        {"type": "web_search"},
    ]);
    let forced = asked(
        json!({"tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "max_output_tokens": 150}),
    );
    let reply = server.post("/v1/responses", &forced);
    assert_eq!(
        reply.header("x-rustorch-ignored"),
        Some("tools[1] of type web_search")
    );
    let whole = reply.ok();
    let call = &whole["output"][0];
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("weather")),
        "{whole}"
    );
    let mut streamed = forced;
    streamed["stream"] = true.into();
    let events = server.post("/v1/responses", &streamed).events();
    let kind = "response.function_call_arguments.delta";
    let arguments = events.iter().filter(|event| event["type"] == kind);
    let arguments: String = arguments
        .map(|event| event["delta"].as_str().unwrap())
        .collect();
    assert_eq!(arguments, call["arguments"].as_str().unwrap());
    let input = json!([
        {"role": "user", "content": [{"type": "input_text", "text": "Rain?"}]},
        call,
        {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"},
    ]);
    server.ok(
        "/v1/responses",
        asked(json!({"input": input, "tools": tools})),
    );
}

#[test]
fn what_is_not_kept_is_refused() {
    let server = Running::shared();
    for (more, param) in [
        (
            json!({"previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"background": true}), "background"),
        (
            json!({"input": [{"type": "item_reference", "id": "x"}]}),
            "input[0]",
        ),
        (
            json!({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}),
            "input[0].content[0]",
        ),
        (json!({"wonder": 1}), "wonder"),
    ] {
        let reply = server.post("/v1/responses", &asked(more.clone()));
        assert_eq!(
            (reply.status, &reply.json()["error"]["param"]),
            (400, &json!(param)),
            "{more}"
        );
    }
}
