//! Items of the input as messages, and tools as chats have them.

use rustorch_chat::Message;
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// A tool. Other types than functions stay as they are, and are left out later.
pub(super) fn tool(mut tool: Map<String, Value>) -> Value {
    let is_function = tool.get("type").is_some_and(|kind| kind == "function");
    match is_function {
        false => Value::Object(tool),
        true => {
            tool.shift_remove("type");
            tool.shift_remove("strict");
            json!({"type": "function", "function": tool})
        }
    }
}

/// The messages of an input.
///
/// # Errors
/// Fails for items that this server cannot read.
pub(super) fn messages(
    instructions: Option<String>,
    input: Value,
) -> Result<Vec<Message>, ApiError> {
    let mut messages: Vec<Message> = instructions
        .as_deref()
        .map(Message::system)
        .into_iter()
        .collect();
    let items = match input {
        Value::String(text) => {
            messages.push(Message::user(&text));
            return Ok(messages);
        }
        Value::Array(items) => items,
        _ => {
            return Err(ApiError::field(
                "input",
                "expected a text, or an array of items",
            ));
        }
    };
    // Reasoning and calls are part of the model's message.
    let mut reasoning = String::new();
    for (index, item) in items.iter().enumerate() {
        let text = |field: &str| {
            let missing =
                || ApiError::field(format!("input[{index}].{field}"), "expected a string");
            item[field].as_str().map(str::to_owned).ok_or_else(missing)
        };
        match item["type"].as_str() {
            None | Some("message") => {
                let content = content(&item["content"], &format!("input[{index}].content"))?;
                let mut message = Message::new(&text("role")?, &content);
                think(&mut message, &mut reasoning);
                messages.push(message);
            }
            Some("reasoning") => {
                for part in item["content"].as_array().into_iter().flatten() {
                    reasoning += part["text"].as_str().unwrap_or_default();
                }
            }
            Some("function_call") => {
                let function = json!({"name": text("name")?, "arguments": text("arguments")?});
                let call =
                    json!({"id": text("call_id")?, "type": "function", "function": function});
                let last = messages.pop_if(|message| message.role() == "assistant");
                let mut message = last.unwrap_or_else(|| Message::assistant(""));
                think(&mut message, &mut reasoning);
                let earlier = message.get("tool_calls").and_then(Value::as_array);
                let mut calls = earlier.cloned().unwrap_or_default();
                calls.push(call);
                message.set("tool_calls", calls);
                messages.push(message);
            }
            Some("function_call_output") => {
                let output = content(&item["output"], &format!("input[{index}].output"))?;
                let mut message = Message::new("tool", &output);
                message.set("tool_call_id", text("call_id")?);
                messages.push(message);
            }
            Some(kind) => {
                let problem = format!("this server reads no items of type {kind}");
                return Err(ApiError::field(format!("input[{index}]"), problem));
            }
        }
    }
    Ok(messages)
}

/// Gives a message of the model the reasoning before it.
fn think(message: &mut Message, reasoning: &mut String) {
    if message.role() == "assistant" && !reasoning.is_empty() {
        message.set("reasoning_content", std::mem::take(reasoning));
    }
}

/// The text of a content, or of its parts.
fn content(content: &Value, param: &str) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(parts) => {
            let text = |(number, part): (usize, &Value)| {
                let is_text = matches!(
                    part["type"].as_str(),
                    Some("input_text" | "output_text" | "text")
                );
                let text = part["text"].as_str().filter(|_| is_text);
                let wrong = || {
                    ApiError::field(
                        format!("{param}[{number}]"),
                        "this server reads parts of text alone",
                    )
                };
                text.map(str::to_owned).ok_or_else(wrong)
            };
            let texts = parts.iter().enumerate().map(text);
            Ok(texts.collect::<Result<Vec<_>, _>>()?.join("\n"))
        }
        _ => Err(ApiError::field(
            param,
            "expected a text, or an array of parts",
        )),
    }
}
