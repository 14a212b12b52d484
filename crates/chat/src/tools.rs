//! Tools for templates that have no place for them: as text, and calls as Hermes and Qwen write them.

use serde_json::{Value, json};

use crate::message::Message;

/// The name of the syntax that models are asked for.
pub(crate) const SYNTAX: &str = "hermes";

/// Tells of `tools` in the system prompt, and puts calls and their results into contents.
pub(crate) fn write(messages: Vec<Message>, tools: &[Value]) -> Vec<Message> {
    let mut written: Vec<Message> = Vec::new();
    for message in messages {
        let is_result = message.role() == "tool";
        let message = match is_result {
            true => Message::user(&result(&message.text())),
            false => with_calls(message),
        };
        // Some templates want users and models to take turns.
        match written.last_mut() {
            Some(last) if is_result && last.text().starts_with(RESULT) => {
                let results = last.text() + "\n" + &message.text();
                last.set("content", results);
            }
            _ => written.push(message),
        }
    }
    let told = instructions(tools);
    match written.first_mut() {
        Some(first) if first.role() == "system" => {
            let whole = first.text() + "\n\n" + &told;
            first.set("content", whole);
        }
        _ => written.insert(0, Message::system(&told)),
    }
    written
}

/// What a result begins with.
const RESULT: &str = "<tool_response>";

fn result(text: &str) -> String {
    format!("{RESULT}\n{text}\n</tool_response>")
}

/// The message with its calls as part of its content.
fn with_calls(mut message: Message) -> Message {
    let calls = message.remove("tool_calls");
    let Some(Value::Array(calls)) = calls else {
        return message;
    };
    let mut parts = vec![message.text()];
    parts.extend(calls.iter().map(|call| {
        let function = call.get("function").unwrap_or(call);
        let arguments = match &function["arguments"] {
            Value::String(text) => serde_json::from_str(text).unwrap_or(text.as_str().into()),
            arguments => arguments.clone(),
        };
        let call = json!({"name": function["name"], "arguments": arguments});
        format!("<tool_call>\n{call}\n</tool_call>")
    }));
    parts.retain(|part| !part.is_empty());
    message.set("content", parts.join("\n"));
    message
}

fn instructions(tools: &[Value]) -> String {
    let tools: Vec<String> = tools.iter().map(Value::to_string).collect();
    format!(
        "# Tools\n\nYou may call these functions:\n<tools>\n{}\n</tools>\n\nTo call one, write its name and its \
         arguments as JSON between tags; to call several, write several:\n<tool_call>\n{}\n</tool_call>\n\
         What comes of a call follows between {RESULT} and </tool_response>.",
        tools.join("\n"),
        r#"{"name": "the name", "arguments": {"a parameter": "its value"}}"#
    )
}
