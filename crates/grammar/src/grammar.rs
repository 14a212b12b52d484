//! What a text may be.

use llguidance::api::TopLevelGrammar;
use serde_json::Value;

use crate::{Constraint, GrammarError, Vocabulary, gbnf, network, schema};

/// What a text may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// JSON that is valid by this JSON schema (draft 2020-12, and older ones where they mean the
    /// same), as its text. Properties come in the schema's order, and what separates them is
    /// nothing, one space, or one or two line breaks with at most 20 spaces or tabs behind them.
    JsonSchema(String),
    /// Texts of the rule `root` of a grammar as llama.cpp writes them.
    Gbnf(String),
    /// Texts that match this regular expression as a whole, in the syntax of Rust's `regex`.
    Regex(String),
    /// Texts of the rule `start` of a grammar in llguidance's Lark.
    Lark(String),
}

impl Grammar {
    /// Holds texts of `vocabulary` to this grammar.
    ///
    /// # Errors
    /// The grammar is wrong, or cannot be held to: see [`GrammarError`].
    pub fn constrain(&self, vocabulary: &Vocabulary) -> Result<Constraint, GrammarError> {
        match self {
            Self::JsonSchema(text) => {
                let schema: Value =
                    serde_json::from_str(text).map_err(|error| GrammarError::NotJson {
                        reason: error.to_string(),
                    })?;
                schema::constrain(&schema, vocabulary)
            }
            Self::Gbnf(text) => {
                let network = gbnf::to_network(text, vocabulary)?;
                vocabulary.constrain_bytes(network, "grammar")
            }
            Self::Regex(pattern) => {
                let network = network::of_regex(pattern)?;
                vocabulary.constrain_bytes(network, "regular expression")
            }
            Self::Lark(text) => {
                let grammar = TopLevelGrammar::from_lark(text.clone());
                vocabulary.constrain(grammar, "Lark grammar")
            }
        }
    }
}
