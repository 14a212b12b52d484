//! Handling of the reasoning in an answer.

use std::str::FromStr;

use crate::error::ChatError;

/// llama.cpp's `--reasoning-format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReasoningFormat {
    /// Reasoning stays in the content, with its tags.
    None,
    /// Reasoning is separated from the content.
    Deepseek,
    /// The same as `Deepseek` for a whole answer, and as `None` while it is streamed.
    DeepseekLegacy,
    /// The same as `Deepseek`.
    #[default]
    Auto,
}

impl ReasoningFormat {
    /// The formats by their names.
    pub const NAMES: [(&'static str, Self); 4] = [
        ("none", ReasoningFormat::None),
        ("deepseek", ReasoningFormat::Deepseek),
        ("deepseek-legacy", ReasoningFormat::DeepseekLegacy),
        ("auto", ReasoningFormat::Auto),
    ];

    /// Whether reasoning is separated, in a stream or in a whole answer.
    pub(crate) fn separates(self, streamed: bool) -> bool {
        match self {
            ReasoningFormat::None => false,
            ReasoningFormat::DeepseekLegacy => !streamed,
            ReasoningFormat::Deepseek | ReasoningFormat::Auto => true,
        }
    }
}

impl FromStr for ReasoningFormat {
    type Err = ChatError;

    fn from_str(name: &str) -> Result<Self, ChatError> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found
            .map(|&(_, format)| format)
            .ok_or_else(|| ChatError::UnknownFormat {
                name: name.to_owned(),
                known: Self::NAMES.map(|(known, _)| known).to_vec(),
            })
    }
}
