//! Messages of a conversation.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::answer::{Answer, ToolCall};
use crate::error::ChatError;

/// One message: an object with a `role` and the fields that the model's template knows. These are OpenAI's,
/// such as `content`, `reasoning_content`, `tool_calls`, `tool_call_id` and `name`.
///
/// Its keys keep their order, which templates can see.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Message(Map<String, Value>);

impl Message {
    /// A message with a `role` and `content`.
    pub fn new(role: &str, content: &str) -> Self {
        let mut message = Message(Map::new());
        message.set("role", role).set("content", content);
        message
    }

    /// A system prompt.
    pub fn system(content: &str) -> Self {
        Message::new("system", content)
    }

    /// A message of the user.
    pub fn user(content: &str) -> Self {
        Message::new("user", content)
    }

    /// A message of the model.
    pub fn assistant(content: &str) -> Self {
        Message::new("assistant", content)
    }

    /// A message of the model, with its reasoning and tool calls.
    pub fn answer(answer: &Answer) -> Self {
        let mut message = Message::assistant(&answer.content);
        if !answer.reasoning.is_empty() {
            message.set("reasoning_content", answer.reasoning.as_str());
        }
        if !answer.calls.is_empty() {
            let call = |call: &ToolCall| {
                let function = json!({"name": call.name, "arguments": call.arguments});
                json!({"id": call.id, "type": "function", "function": function})
            };
            let calls: Vec<Value> = answer.calls.iter().map(call).collect();
            message.set("tool_calls", calls);
        }
        message
    }

    /// The result of a tool call.
    pub fn tool(call: &ToolCall, result: &str) -> Self {
        let mut message = Message::new("tool", result);
        message.set("name", call.name.as_str());
        message.set("tool_call_id", call.id.as_str());
        message
    }

    /// The messages of a JSON array.
    ///
    /// # Errors
    /// Fails if the value is not an array, or if an item is not an object with a string `role`.
    pub fn list(messages: &Value) -> Result<Vec<Self>, ChatError> {
        let wrong = |index, reason: &str| ChatError::Message {
            index,
            reason: reason.to_owned(),
        };
        let Value::Array(items) = messages else {
            return Err(wrong(0, "the messages are not an array"));
        };
        let one = |(index, item): (usize, &Value)| match item {
            Value::Object(object) if object.get("role").is_some_and(Value::is_string) => {
                Ok(Message(object.clone()))
            }
            Value::Object(_) => Err(wrong(index, "it has no role")),
            _ => Err(wrong(index, "it is not an object")),
        };
        items.iter().enumerate().map(one).collect()
    }

    /// Sets a field.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// A field.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// A field that can be changed.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.0.get_mut(key)
    }

    /// Takes a field out.
    pub(crate) fn remove(&mut self, key: &str) -> Option<Value> {
        // The others keep their order.
        self.0.shift_remove(key)
    }

    /// The role of the speaker.
    pub fn role(&self) -> &str {
        self.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// The content, or the text of its parts on separate lines. It is empty if there is none.
    pub fn text(&self) -> String {
        match self.get("content") {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Array(parts)) => {
                let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
                texts.collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        }
    }

    /// Gives the reasoning the names that templates have for it, as transformers does.
    pub(crate) fn name_reasoning(&mut self) {
        const NAMES: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];
        let given = NAMES
            .iter()
            .find_map(|name| self.get(name).filter(|it| !it.is_null()));
        let Some(reasoning) = given.cloned() else {
            return;
        };
        let mut named = Map::new();
        named.insert("thinking".to_owned(), reasoning.clone());
        named.extend(std::mem::take(&mut self.0));
        self.0 = named;
        self.set("reasoning_content", reasoning);
    }

    /// Puts `text` before the content.
    pub(crate) fn prepend(&mut self, text: &str) {
        match self.get_mut("content") {
            Some(Value::Array(parts)) => {
                let part = json!({"type": "text", "text": text});
                parts.insert(0, part);
            }
            _ => {
                let whole = text.to_owned() + &self.text();
                self.set("content", whole);
            }
        }
    }
}
