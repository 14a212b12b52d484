//! Anthropic's messages and tools as OpenAI's, which templates know.

use rustorch_chat::Message;
use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// Claude Code's line before its system prompt. It differs in each request, so that no cached beginning would fit.
const BILLING: &str = "x-anthropic-billing-header:";

/// The system prompt.
pub(super) fn system(
    system: Value,
    ignored: &mut Vec<String>,
) -> Result<Option<Message>, ApiError> {
    let texts = match system {
        Value::String(text) => vec![text],
        Value::Array(blocks) => {
            let text = |(index, block): (usize, &Value)| {
                let text = block["text"].as_str().filter(|_| block["type"] == "text");
                let wrong =
                    || ApiError::field(format!("system[{index}]"), "expected a block of text");
                text.map(str::to_owned).ok_or_else(wrong)
            };
            blocks
                .iter()
                .enumerate()
                .map(text)
                .collect::<Result<_, _>>()?
        }
        _ => {
            return Err(ApiError::field(
                "system",
                "expected a text, or an array of blocks",
            ));
        }
    };
    let count = texts.len();
    let kept: Vec<String> = texts
        .into_iter()
        .filter(|text| !text.starts_with(BILLING))
        .collect();
    if kept.len() < count {
        ignored.push("x-anthropic-billing-header in system".to_owned());
    }
    let text = kept.join("\n");
    Ok((!text.is_empty()).then(|| Message::system(&text)))
}

/// The tools. Tools that Anthropic's own servers run are left out, and added to `ignored`.
pub(super) fn tools(tools: Vec<Value>, ignored: &mut Vec<String>) -> Result<Vec<Value>, ApiError> {
    let mut kept = Vec::new();
    for (index, tool) in tools.into_iter().enumerate() {
        match tool["type"].as_str() {
            None | Some("custom") => {}
            Some(kind) => {
                ignored.push(format!("tools[{index}] of type {kind}"));
                continue;
            }
        }
        let Some(name) = tool["name"].as_str() else {
            return Err(ApiError::field(
                format!("tools[{index}].name"),
                "expected a string",
            ));
        };
        let mut function = json!({"name": name});
        if let Some(description) = tool.get("description") {
            function["description"] = description.clone();
        }
        match tool.get("input_schema") {
            Some(schema @ Value::Object(_)) => function["parameters"] = schema.clone(),
            _ => {
                return Err(ApiError::field(
                    format!("tools[{index}].input_schema"),
                    "expected a JSON schema",
                ));
            }
        }
        kept.push(json!({"type": "function", "function": function}));
    }
    Ok(kept)
}

/// Adds a message: results of tools are messages of their own.
pub(super) fn message(
    index: usize,
    mut message: Map<String, Value>,
    messages: &mut Vec<Message>,
) -> Result<(), ApiError> {
    let at = |field: &str| format!("messages[{index}].{field}");
    let role = match message.get("role").and_then(Value::as_str) {
        Some(role @ ("user" | "assistant" | "system")) => role.to_owned(),
        _ => return Err(ApiError::field(at("role"), "expected user or assistant")),
    };
    let blocks = match message.remove("content") {
        Some(Value::String(text)) => {
            messages.push(Message::new(&role, &text));
            return Ok(());
        }
        Some(Value::Array(blocks)) => blocks,
        _ => {
            return Err(ApiError::field(
                at("content"),
                "expected a text, or an array of blocks",
            ));
        }
    };
    let (mut texts, mut reasoning, mut calls) = (Vec::new(), String::new(), Vec::new());
    for (number, block) in blocks.iter().enumerate() {
        let param = || at(&format!("content[{number}]"));
        let text = |field: &str| {
            let missing = || ApiError::field(format!("{}.{field}", param()), "expected a string");
            block[field].as_str().map(str::to_owned).ok_or_else(missing)
        };
        match block["type"].as_str() {
            Some("text") => texts.push(text("text")?),
            Some("thinking") => reasoning += &text("thinking")?,
            Some("redacted_thinking") => {}
            Some("tool_use") => {
                let function =
                    json!({"name": text("name")?, "arguments": block["input"].to_string()});
                calls.push(json!({"id": text("id")?, "type": "function", "function": function}));
            }
            Some("tool_result") => {
                let mut result = Message::new("tool", &result(&block["content"], &param())?);
                result.set("tool_call_id", text("tool_use_id")?);
                messages.push(result);
            }
            Some(kind) => {
                let problem = format!("this server reads no blocks of type {kind}; send text");
                return Err(ApiError::field(param(), problem));
            }
            None => return Err(ApiError::field(param(), "its type is missing")),
        }
    }
    if texts.is_empty() && calls.is_empty() && reasoning.is_empty() {
        return Ok(());
    }
    let mut spoken = Message::new(&role, &texts.join("\n"));
    if !reasoning.is_empty() {
        spoken.set("reasoning_content", reasoning);
    }
    if !calls.is_empty() {
        spoken.set("tool_calls", calls);
    }
    messages.push(spoken);
    Ok(())
}

/// The text of a tool's result.
fn result(content: &Value, param: &str) -> Result<String, ApiError> {
    match content {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let text = |block: &Value| {
                let text = block["text"].as_str().filter(|_| block["type"] == "text");
                let wrong = || {
                    ApiError::field(
                        format!("{param}.content"),
                        "this server reads results of text alone",
                    )
                };
                text.map(str::to_owned).ok_or_else(wrong)
            };
            let texts: Vec<String> = blocks.iter().map(text).collect::<Result<_, _>>()?;
            Ok(texts.join("\n"))
        }
        _ => Err(ApiError::field(
            format!("{param}.content"),
            "expected a text, or an array of blocks",
        )),
    }
}
