//! Tools for templates that do not support them: as text, with calls in the form of Hermes and
//! Qwen.

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

/// The beginning of a result.
const RESULT: &str = "<tool_response>";

fn result(text: &str) -> String {
    format!("{RESULT}\n{text}\n</tool_response>")
}

/// The message with its calls as part of its content.
fn with_calls(message: Message) -> Message {
    with_content(message, |calls| {
        let calls = calls.iter();
        let calls = calls.map(|call| format!("<tool_call>\n{call}\n</tool_call>"));
        calls.collect::<Vec<_>>().join("\n")
    })
}

/// The message with its calls as part of its content: a list between marks.
pub(crate) fn with_list(message: Message, (open, close): (&str, &str)) -> Message {
    with_content(message, |calls| format!("{open}{}{close}", json!(calls)))
}

/// The message whose calls, each a name with arguments, became a line of its content.
fn with_content(mut message: Message, write: impl Fn(&[Value]) -> String) -> Message {
    let Some(Value::Array(calls)) = message.remove("tool_calls") else {
        return message;
    };
    let call = |call: &Value| {
        let function = call.get("function").unwrap_or(call);
        let arguments = match &function["arguments"] {
            Value::String(text) => serde_json::from_str(text).unwrap_or(text.as_str().into()),
            arguments => arguments.clone(),
        };
        json!({"name": function["name"], "arguments": arguments})
    };
    let calls: Vec<Value> = calls.iter().map(call).collect();
    let mut parts = vec![message.text()];
    if !calls.is_empty() {
        parts.push(write(&calls));
    }
    parts.retain(|part| !part.is_empty());
    message.set("content", parts.join("\n"));
    message
}

/// Puts tools into the system prompt, as JSON in its `tools`.
pub(crate) fn attach(messages: &mut Vec<Message>, tools: &[Value]) {
    if tools.is_empty() {
        return;
    }
    if messages.first().is_none_or(|it| it.role() != "system") {
        messages.insert(0, Message::system(""));
    }
    let functions = tools.iter().map(|it| it.get("function").unwrap_or(it));
    let functions: Value = functions.cloned().collect();
    messages[0].set("tools", functions.to_string());
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
