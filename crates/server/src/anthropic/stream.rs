//! The stream of a message: its blocks, one after the other.

use rustorch_chat::Delta;
use serde_json::{Value, json};

use super::view::{Messages, stop_reason, usage};
use crate::answers::{End, Part};
use crate::error::{ApiError, Dialect};
use crate::speak::{Frames, Speaker};

/// A block that is open.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Thinking,
    Text,
    Call(usize),
}

/// The stream of a message.
pub(crate) struct MessageSpeaker {
    view: Messages,
    /// Tokens of the prompt.
    prompt: usize,
    open: Option<Block>,
    /// Blocks that were opened.
    blocks: usize,
    calls: bool,
    end: Option<End>,
}

impl MessageSpeaker {
    pub(super) fn new(view: Messages, prompt: usize) -> Self {
        Self {
            view,
            prompt,
            open: None,
            blocks: 0,
            calls: false,
            end: None,
        }
    }

    fn close(&mut self, frames: &mut Frames) {
        if self.open.take().is_some() {
            let stop = json!({"type": "content_block_stop", "index": self.blocks - 1});
            frames.event("content_block_stop", &stop);
        }
    }

    fn open(&mut self, block: Block, content: impl FnOnce() -> Value, frames: &mut Frames) {
        if self.open == Some(block) {
            return;
        }
        self.close(frames);
        let start = json!({"type": "content_block_start", "index": self.blocks, "content_block": content()});
        frames.event("content_block_start", &start);
        self.open = Some(block);
        self.blocks += 1;
    }

    fn add(&self, delta: Value, frames: &mut Frames) {
        let delta =
            json!({"type": "content_block_delta", "index": self.blocks - 1, "delta": delta});
        frames.event("content_block_delta", &delta);
    }
}

impl Speaker for MessageSpeaker {
    fn begin(&mut self, frames: &mut Frames) {
        let usage = json!({
            "input_tokens": self.prompt,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "output_tokens": 0,
        });
        let message = self.view.body(json!([]), usage);
        frames.event(
            "message_start",
            &json!({"type": "message_start", "message": message}),
        );
        frames.event("ping", &json!({"type": "ping"}));
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
                Delta::Content(text) => {
                    self.open(Block::Text, || json!({"type": "text", "text": ""}), frames);
                    self.add(json!({"type": "text_delta", "text": text}), frames);
                }
                Delta::Reasoning(text) => {
                    let block = || json!({"type": "thinking", "thinking": "", "signature": ""});
                    self.open(Block::Thinking, block, frames);
                    self.add(json!({"type": "thinking_delta", "thinking": text}), frames);
                }
                Delta::Call { index, name, id } => {
                    self.calls = true;
                    let block = || json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                    self.open(Block::Call(index), block, frames);
                }
                Delta::Arguments { text, .. } => {
                    self.add(
                        json!({"type": "input_json_delta", "partial_json": text}),
                        frames,
                    );
                }
                Delta::Id { .. } => {}
            }
        }
    }

    fn end(&mut self, frames: &mut Frames) {
        self.close(frames);
        if let Some(end) = &self.end {
            let (reason, stop) = stop_reason(&end.reason, self.calls);
            let delta = json!({"stop_reason": reason, "stop_sequence": stop});
            let delta = json!({"type": "message_delta", "delta": delta, "usage": usage(end)});
            frames.event("message_delta", &delta);
        }
        frames.event("message_stop", &json!({"type": "message_stop"}));
    }

    fn error(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.event("error", &error.json(Dialect::Anthropic));
    }
}
