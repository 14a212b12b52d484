//! The form of a message.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::answers::{End, Reason};
use crate::model::Loaded;

/// The view of a request.
#[derive(Clone)]
pub(crate) struct Messages {
    pub(super) id: String,
    pub(super) model: Arc<Loaded>,
}

impl Messages {
    /// A message with this content.
    pub(super) fn body(&self, content: Value, usage: Value) -> Value {
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model.name,
            "content": content,
            "stop_reason": null,
            "stop_sequence": null,
            "usage": usage,
        })
    }
}

/// Counts of tokens. Cached ones are apart.
pub(super) fn usage(end: &End) -> Value {
    json!({
        "input_tokens": end.usage.prompt - end.usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": end.usage.cached,
        "output_tokens": end.usage.generated,
    })
}

/// Anthropic's word for the reason of an end, and the stop text.
pub(super) fn stop_reason(reason: &Reason, calls: bool) -> (&'static str, Value) {
    match reason {
        Reason::Stop(text) => ("stop_sequence", text.as_str().into()),
        Reason::Length | Reason::Full => ("max_tokens", Value::Null),
        Reason::End if calls => ("tool_use", Value::Null),
        Reason::End => ("end_turn", Value::Null),
    }
}
