//! Prompts: a template's text with marks for outside text.

use std::ops::Range;

use rustorch_tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::control::{ControlTokens, Cover, StandIns};
use crate::error::ChatError;

/// A prompt as text, and the ranges in which control tokens are not allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    text: String,
    guarded: Vec<Range<usize>>,
}

impl Prompt {
    /// The output of `render` for `context`. None of its strings becomes a control token.
    ///
    /// In the text of a conversation, only control tokens, and texts that could become one, have stand-ins:
    /// where there are none, that is the conversation itself. If stand-ins for every structural character give
    /// the same text, they mark outside text more exactly.
    ///
    /// # Errors
    /// The errors of `render`, and [`ChatError::Marks`].
    pub(crate) fn guarded(
        context: &Map<String, Value>,
        control: &ControlTokens,
        render: impl Fn(&Map<String, Value>) -> Result<String, ChatError>,
    ) -> Result<Self, ChatError> {
        let stand_ins = StandIns::new(control, context)?;
        let few = stand_ins.cover(context, Cover::Tokens);
        let (text, mut guarded) = stand_ins.uncover(&render(&few)?);
        let many = stand_ins.cover(context, Cover::Structure);
        if many != few
            && let Ok(written) = render(&many)
            && let (same, exact) = stand_ins.uncover(&written)
            && same == text
        {
            guarded = exact;
        }
        Ok(Prompt { text, guarded })
    }

    /// Adds text from outside to the end.
    pub fn push(&mut self, text: &str) {
        let begin = self.text.len();
        self.text += text;
        if !text.is_empty() {
            self.guarded.push(begin..self.text.len());
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Byte ranges from outside, in order: no control token may overlap one of them.
    pub fn guards(&self) -> &[Range<usize>] {
        &self.guarded
    }

    /// The ids of the prompt, with control tokens only where the template wrote them. It begins
    /// with BOS if the tokenizer wants that; only once even if the template wrote it too.
    pub fn encode(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let mut ids = tokenizer.encode_guarded(&self.text, &self.guarded);
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        if let Some(bos) = bos.filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids
    }
}
