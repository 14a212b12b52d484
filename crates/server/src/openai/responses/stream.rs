//! The stream of a response: its items, one after the other.

use rustorch_chat::Delta;
use serde_json::{Value, json};

use super::view::{Responses, call_item, message_item, reasoning_item, status, text_part};
use crate::answers::{End, Part, unique};
use crate::error::{ApiError, Dialect};
use crate::speak::{Frames, Speaker};

/// An item that is open, with its text so far.
enum Item {
    Reasoning {
        id: String,
        text: String,
    },
    Message {
        id: String,
        text: String,
    },
    Call {
        id: String,
        call: String,
        name: String,
        text: String,
    },
}

impl Item {
    fn id(&self) -> &str {
        match self {
            Self::Reasoning { id, .. } | Self::Message { id, .. } | Self::Call { id, .. } => id,
        }
    }

    fn text(&mut self) -> &mut String {
        match self {
            Self::Reasoning { text, .. } | Self::Message { text, .. } | Self::Call { text, .. } => {
                text
            }
        }
    }

    fn json(&self, status: &str) -> Value {
        match self {
            Self::Reasoning { id, text } => reasoning_item(id, text),
            Self::Message { id, text } => message_item(id, text, status),
            Self::Call {
                id,
                call,
                name,
                text,
            } => call_item(id, call, name, text, status),
        }
    }
}

/// The stream of a response.
pub(crate) struct ResponseSpeaker {
    view: Responses,
    events: usize,
    open: Option<Item>,
    output: Vec<Value>,
    end: Option<End>,
}

impl ResponseSpeaker {
    pub(super) fn new(view: Responses) -> Self {
        Self {
            view,
            events: 0,
            open: None,
            output: Vec::new(),
            end: None,
        }
    }

    fn event(&mut self, name: &str, mut value: Value, frames: &mut Frames) {
        value["type"] = name.into();
        value["sequence_number"] = self.events.into();
        self.events += 1;
        frames.event(name, &value);
    }

    /// An event about the item of this identity, which is the last.
    fn about(&mut self, id: &str, name: &str, mut value: Value, frames: &mut Frames) {
        value["output_index"] = self.output.len().into();
        value["item_id"] = id.into();
        self.event(name, value, frames);
    }

    /// Tells new text of the open item, and adds it.
    fn add(&mut self, name: &str, mut value: Value, new: &str, frames: &mut Frames) {
        let Some(mut item) = self.open.take() else {
            return;
        };
        value["delta"] = new.into();
        self.about(item.id(), name, value, frames);
        item.text().push_str(new);
        self.open = Some(item);
    }

    fn open(&mut self, item: Item, frames: &mut Frames) {
        self.close("completed", frames);
        let added = json!({"output_index": self.output.len(), "item": item.json("in_progress")});
        let part = match &item {
            Item::Message { .. } => Some(text_part("")),
            Item::Reasoning { .. } => Some(json!({"type": "reasoning_text", "text": ""})),
            Item::Call { .. } => None,
        };
        self.event("response.output_item.added", added, frames);
        if let Some(part) = part {
            let added = json!({"content_index": 0, "part": part});
            self.about(item.id(), "response.content_part.added", added, frames);
        }
        self.open = Some(item);
    }

    fn close(&mut self, status: &str, frames: &mut Frames) {
        let Some(item) = self.open.take() else {
            return;
        };
        let (done, id) = (item.json(status), item.id());
        match &item {
            Item::Message { text, .. } => {
                let part = text_part(text);
                let told = json!({"content_index": 0, "text": text, "logprobs": []});
                self.about(id, "response.output_text.done", told, frames);
                self.about(
                    id,
                    "response.content_part.done",
                    json!({"content_index": 0, "part": part}),
                    frames,
                );
            }
            Item::Reasoning { text, .. } => {
                let part = json!({"type": "reasoning_text", "text": text});
                let told = json!({"content_index": 0, "text": text});
                self.about(id, "response.reasoning_text.done", told, frames);
                self.about(
                    id,
                    "response.content_part.done",
                    json!({"content_index": 0, "part": part}),
                    frames,
                );
            }
            Item::Call { text, name, .. } => {
                let told = json!({"arguments": text, "name": name});
                self.about(id, "response.function_call_arguments.done", told, frames);
            }
        }
        let told = json!({"output_index": self.output.len(), "item": done});
        self.event("response.output_item.done", told, frames);
        self.output.push(done);
    }
}

impl Speaker for ResponseSpeaker {
    fn begin(&mut self, frames: &mut Frames) {
        let body = self.view.body("in_progress", Vec::new(), None);
        self.event("response.created", json!({"response": body}), frames);
        self.event("response.in_progress", json!({"response": body}), frames);
    }

    fn part(&mut self, _: usize, part: Part, frames: &mut Frames) {
        let deltas = match part {
            Part::Prompt { .. } => return,
            Part::Step { deltas, .. } => deltas,
            Part::End(end) => {
                self.end = Some(end);
                return;
            }
        };
        for delta in deltas {
            match delta {
                Delta::Content(new) => {
                    if !matches!(self.open, Some(Item::Message { .. })) {
                        let (id, text) = (unique("msg_"), String::new());
                        self.open(Item::Message { id, text }, frames);
                    }
                    let told = json!({"content_index": 0, "logprobs": []});
                    self.add("response.output_text.delta", told, &new, frames);
                }
                Delta::Reasoning(new) => {
                    if !matches!(self.open, Some(Item::Reasoning { .. })) {
                        let (id, text) = (unique("rs_"), String::new());
                        self.open(Item::Reasoning { id, text }, frames);
                    }
                    let told = json!({"content_index": 0});
                    self.add("response.reasoning_text.delta", told, &new, frames);
                }
                Delta::Call { name, id, .. } => {
                    let item = Item::Call {
                        id: unique("fc_"),
                        call: id.unwrap_or_default(),
                        name,
                        text: String::new(),
                    };
                    self.open(item, frames);
                }
                Delta::Arguments { text: new, .. } => {
                    self.add(
                        "response.function_call_arguments.delta",
                        json!({}),
                        &new,
                        frames,
                    );
                }
                Delta::Id { .. } => {}
            }
        }
    }

    fn end(&mut self, frames: &mut Frames) {
        let end = self.end.take();
        let status = end.as_ref().map_or("completed", |end| status(&end.reason));
        self.close(status, frames);
        let body = self.view.body(status, self.output.clone(), end.as_ref());
        self.event(
            &format!("response.{status}"),
            json!({"response": body}),
            frames,
        );
    }

    fn error(&mut self, error: &ApiError, frames: &mut Frames) {
        let mut body = self.view.body("failed", self.output.clone(), None);
        let told = &error.json(Dialect::OpenAi)["error"];
        body["error"] = json!({"code": "server_error", "message": told["message"]});
        self.event("response.failed", json!({"response": body}), frames);
    }
}
