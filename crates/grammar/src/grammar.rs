//! A constraint of texts.

use llguidance::api::TopLevelGrammar;
use serde_json::Value;

use crate::{Constraint, GrammarError, Vocabulary, gbnf, network, schema};

/// A constraint of texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// JSON that is valid by this JSON schema, given as text. The version is draft 2020-12; older
    /// ones work if they have the same meaning. Properties come in the schema's order. White space
    /// between tokens is at most one space, or two line breaks and 20 spaces or tabs.
    JsonSchema(String),
    /// Texts of the rule `root` of a grammar in llama.cpp's language (GBNF).
    Gbnf(String),
    /// Texts that match this regular expression as a whole, in the syntax of Rust's `regex`.
    Regex(String),
    /// Texts of the rule `start` of a grammar in llguidance's Lark.
    Lark(String),
}

impl Grammar {
    /// Constrains texts of `vocabulary` to this grammar.
    ///
    /// # Errors
    /// Fails if the grammar is invalid or cannot be enforced: see [`GrammarError`].
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
