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
    /// JSON that is valid by `schema`, between two texts. These may be control tokens. A line break may be on either
    /// side of the JSON, and between repetitions.
    Framed {
        /// The text before.
        before: String,
        /// A JSON schema, as in [`Grammar::JsonSchema`].
        schema: String,
        /// The text behind.
        after: String,
        /// Whether all of it may be repeated.
        repeats: bool,
    },
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
            Self::JsonSchema(text) => schema::constrain(
                &parsed(text)?,
                vocabulary,
                TopLevelGrammar::from_json_schema,
            ),
            Self::Framed {
                before,
                schema,
                after,
                repeats,
            } => {
                let [before, after] = [before, after].map(|mark| literal(mark, vocabulary));
                let more = if *repeats { r#"("\n"? call)*"# } else { "" };
                let frame = |document: Value| {
                    TopLevelGrammar::from_lark(format!(
                        "start: call {more}\ncall: {before} \"\\n\"? body \"\\n\"? {after}\nbody: %json {document}\n"
                    ))
                };
                schema::constrain(&parsed(schema)?, vocabulary, frame)
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

fn parsed(schema: &str) -> Result<Value, GrammarError> {
    serde_json::from_str(schema).map_err(|error| GrammarError::NotJson {
        reason: error.to_string(),
    })
}

/// A mark as Lark writes it: a control token by its id, or a text.
fn literal(mark: &str, vocabulary: &Vocabulary) -> String {
    match vocabulary.control(mark) {
        Some(id) => format!("<[{id}]>"),
        None if mark.is_empty() => String::new(),
        None => Value::from(mark).to_string(),
    }
}
