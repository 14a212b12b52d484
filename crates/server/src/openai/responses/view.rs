//! The form of a response, and of its items.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::answers::{End, Reason};
use crate::model::Loaded;

/// The view of a request.
#[derive(Clone)]
pub(crate) struct Responses {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: Arc<Loaded>,
    /// Fields of the request that the response repeats.
    pub(super) repeated: Map<String, Value>,
}

impl Responses {
    /// A response with this output.
    pub(super) fn body(&self, status: &str, output: Vec<Value>, end: Option<&End>) -> Value {
        let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        let mut body = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": null,
            "incomplete_details": incomplete,
            "model": self.model.name,
            "output": output,
            "metadata": {},
            "truncation": "disabled",
            "usage": end.map(usage),
        });
        for (name, value) in &self.repeated {
            body[name] = value.clone();
        }
        body
    }
}

/// Whether the answer is whole.
pub(super) fn status(reason: &Reason) -> &'static str {
    match reason {
        Reason::Length | Reason::Full => "incomplete",
        Reason::End | Reason::Stop(_) => "completed",
    }
}

fn usage(end: &End) -> Value {
    json!({
        "input_tokens": end.usage.prompt,
        "input_tokens_details": {"cached_tokens": end.usage.cached},
        "output_tokens": end.usage.generated,
        // Tokens of reasoning are not counted apart.
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": end.usage.prompt + end.usage.generated,
    })
}

pub(super) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

pub(super) fn message_item(id: &str, text: &str, status: &str) -> Value {
    let content = match text {
        "" => json!([]),
        text => json!([text_part(text)]),
    };
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content})
}

pub(super) fn reasoning_item(id: &str, text: &str) -> Value {
    let content = match text {
        "" => json!([]),
        text => json!([{"type": "reasoning_text", "text": text}]),
    };
    json!({"id": id, "type": "reasoning", "summary": [], "content": content})
}

pub(super) fn call_item(id: &str, call: &str, name: &str, arguments: &str, status: &str) -> Value {
    json!({
        "id": id,
        "type": "function_call",
        "status": status,
        "call_id": call,
        "name": name,
        "arguments": arguments,
    })
}
