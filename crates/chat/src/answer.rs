//! Answers: the results of parsing a model's text.

use serde::{Deserialize, Serialize};

/// A new part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delta {
    /// Text of the reasoning.
    Reasoning(String),
    /// Text of the content.
    Content(String),
    /// A tool call, the `index`th of the answer.
    Call {
        /// The call's index, from 0.
        index: usize,
        /// The tool's name.
        name: String,
        /// The identifier that the model gave it before its arguments.
        id: Option<String>,
    },
    /// The identifier of a call, if the model wrote it after the arguments.
    Id {
        /// The call's index, from 0.
        index: usize,
        /// The identifier.
        id: String,
    },
    /// An addition to the arguments of a call, which are JSON when it is complete.
    Arguments {
        /// The call's index, from 0.
        index: usize,
        /// Continuation of the JSON.
        text: String,
    },
}

/// A part of an answer. The sources of all parts, concatenated, are the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerPart {
    /// The text of this part.
    pub source: String,
    /// The added part; `None` for a mark, or white space around one.
    pub delta: Option<Delta>,
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The model's identifier of the call; empty if none.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as JSON. They are incomplete if the answer was cut off within.
    pub arguments: String,
}

/// A parsed answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The reasoning.
    pub reasoning: String,
    /// The content.
    pub content: String,
    /// The tool calls, in order.
    pub calls: Vec<ToolCall>,
}

impl Answer {
    /// Adds the text of a part.
    pub fn add(&mut self, part: &AnswerPart) {
        match &part.delta {
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
