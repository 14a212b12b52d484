//! Prompts: what a template wrote, and which of it is from outside.

use std::ops::Range;

use rustorch_tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::control::{ControlTokens, Cover, StandIns};
use crate::error::ChatError;

/// A prompt as text, with the places where a control token must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    text: String,
    guarded: Vec<Range<usize>>,
}

impl Prompt {
    /// What `render` writes for `context`, none of whose strings becomes a control token.
    ///
    /// The text is that of a conversation in which only control tokens, and what could become one beside
    /// other text, have stand-ins: where there are none, that is the conversation itself. Where stand-ins for
    /// every character that structures tokens give the same text, they say more exactly what is from outside.
    ///
    /// # Errors
    /// Those of `render`, and [`ChatError::Marks`].
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

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Bytes that are from outside, in order: no control token may cover one of them.
    pub fn guards(&self) -> &[Range<usize>] {
        &self.guarded
    }

    /// The ids of the prompt: control tokens where the template wrote them, and only there. It begins with
    /// BOS if the tokenizer wants that, once also where the template wrote it.
    pub fn encode(&self, tokenizer: &Tokenizer) -> Vec<u32> {
        let mut ids = tokenizer.encode_guarded(&self.text, &self.guarded);
        let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
        if let Some(bos) = bos.filter(|bos| ids.first() != Some(bos)) {
            ids.insert(0, bos);
        }
        ids
    }
}
