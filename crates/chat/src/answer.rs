//! Answers: what a parser makes of a model's text.

use serde::{Deserialize, Serialize};

/// What a part of an answer adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// To the reasoning.
    Reasoning(String),
    /// To the content.
    Content(String),
    /// A tool call, the `index`th of the answer.
    Call {
        /// Which call, from 0.
        index: usize,
        /// The tool's name.
        name: String,
        /// The identifier that the model gave it before its arguments.
        id: Option<String>,
    },
    /// The identifier of a call, where the model wrote it behind the arguments.
    Id {
        /// Which call, from 0.
        index: usize,
        /// The identifier.
        id: String,
    },
    /// To the arguments of a call, which are JSON when it is complete.
    Arguments {
        /// Which call, from 0.
        index: usize,
        /// More of the JSON.
        text: String,
    },
}

/// A step of a parser. The sources of all steps, one after the other, are the text that it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The text that this is about.
    pub source: String,
    /// What it adds; nothing if it is a mark, or white space around one.
    pub delta: Option<Delta>,
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The identifier that the model gave it; empty if none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as JSON. Not complete if the answer was cut off within.
    pub arguments: String,
}

/// An answer, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// What the model thought.
    pub reasoning: String,
    /// What it says.
    pub content: String,
    /// What it wants done, in its order.
    pub calls: Vec<ToolCall>,
}

impl Answer {
    /// Adds what a step says.
    pub fn add(&mut self, step: &Step) {
        match &step.delta {
            None => {}
            Some(Delta::Reasoning(text)) => self.reasoning += text,
            Some(Delta::Content(text)) => self.content += text,
            Some(Delta::Call { index, name, id }) => {
                let call = self.call(*index);
                call.name.clone_from(name);
                call.id = id.clone().unwrap_or_default();
            }
            Some(Delta::Id { index, id }) => self.call(*index).id.clone_from(id),
            Some(Delta::Arguments { index, text }) => self.call(*index).arguments += text,
        }
    }

    fn call(&mut self, index: usize) -> &mut ToolCall {
        if self.calls.len() <= index {
            self.calls.resize_with(index + 1, ToolCall::default);
        }
        &mut self.calls[index]
    }
}
