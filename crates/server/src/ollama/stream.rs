//! The lines of an answer.

use std::sync::Arc;
use std::time::Instant;

use rustorch_chat::{Answer, AnswerPart, Delta, ToolCall};
use serde_json::{Map, Value, json};

use super::now;
use crate::answers::{End, Part, Reason, Whole};
use crate::error::{ApiError, Dialect};
use crate::model::Loaded;
use crate::speak::{Frames, Framing, Speaker};

/// The view of a request: texts and answers of conversations differ in where their text is.
#[derive(Clone)]
pub(crate) struct View {
    pub(super) model: Arc<Loaded>,
    pub(super) begin: Instant,
    pub(super) is_chat: bool,
}

impl View {
    pub(super) fn new(model: &Arc<Loaded>, is_chat: bool) -> Self {
        Self {
            model: Arc::clone(model),
            begin: Instant::now(),
            is_chat,
        }
    }

    /// A line with this content and reasoning.
    fn line(&self, content: &str, reasoning: &str, calls: &[ToolCall]) -> Value {
        let mut line = json!({"model": self.model.name, "created_at": now()});
        let mut inner = Map::new();
        let text = if self.is_chat { "content" } else { "response" };
        if self.is_chat {
            inner.insert("role".to_owned(), "assistant".into());
        }
        inner.insert(text.to_owned(), content.into());
        if !reasoning.is_empty() {
            inner.insert("thinking".to_owned(), reasoning.into());
        }
        if !calls.is_empty() {
            let call = |call: &ToolCall| {
                let arguments: Option<Map<String, Value>> =
                    serde_json::from_str(&call.arguments).ok();
                json!({"function": {"name": call.name, "arguments": arguments.unwrap_or_default()}})
            };
            inner.insert("tool_calls".to_owned(), calls.iter().map(call).collect());
        }
        match (&mut line, self.is_chat) {
            (line, true) => line["message"] = inner.into(),
            (Value::Object(line), false) => line.extend(inner),
            _ => {}
        }
        line["done"] = false.into();
        line
    }

    /// Adds what the last line has.
    fn finish(&self, line: &mut Value, end: &End) {
        let nanoseconds = |time: std::time::Duration| time.as_nanos() as u64;
        line["done"] = true.into();
        line["done_reason"] = match end.reason {
            Reason::Length | Reason::Full => "length",
            Reason::End | Reason::Stop(_) => "stop",
        }
        .into();
        line["total_duration"] = nanoseconds(self.begin.elapsed()).into();
        line["load_duration"] = nanoseconds(end.usage.queued).into();
        line["prompt_eval_count"] = end.usage.prompt.into();
        line["prompt_eval_duration"] = nanoseconds(end.usage.prefill.time).into();
        line["eval_count"] = end.usage.generated.into();
        line["eval_duration"] = nanoseconds(end.usage.decode.time).into();
    }

    /// The whole answer as one line.
    pub(super) fn whole(&self, answers: &[Whole]) -> Value {
        let Some(Whole { answer, end, .. }) = answers.first() else {
            return Value::Null;
        };
        let mut line = self.line(&answer.content, &answer.reasoning, &answer.calls);
        self.finish(&mut line, end);
        line
    }
}

/// The stream of an answer.
pub(crate) struct LineSpeaker {
    view: View,
    /// Calls, which are told when they are whole.
    calls: Answer,
}

impl LineSpeaker {
    pub(super) fn new(view: View) -> Self {
        Self {
            view,
            calls: Answer::default(),
        }
    }
}

impl Speaker for LineSpeaker {
    const FRAMING: Framing = Framing::Lines;

    fn part(&mut self, _: usize, part: Part, frames: &mut Frames) {
        match part {
            Part::Prompt { .. } => {}
            Part::Step { deltas, .. } => {
                for delta in deltas {
                    match delta {
                        Delta::Content(text) => frames.data(&self.view.line(&text, "", &[])),
                        Delta::Reasoning(text) => frames.data(&self.view.line("", &text, &[])),
                        delta => {
                            let (source, delta) = (String::new(), Some(delta));
                            self.calls.add(&AnswerPart { source, delta });
                        }
                    }
                }
            }
            Part::End(end) => {
                if !self.calls.calls.is_empty() {
                    frames.data(&self.view.line("", "", &self.calls.calls));
                }
                let mut line = self.view.line("", "", &[]);
                self.view.finish(&mut line, &end);
                frames.data(&line);
            }
        }
    }

    fn end(&mut self, _: &mut Frames) {}

    fn error(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error.json(Dialect::Ollama));
    }
}
