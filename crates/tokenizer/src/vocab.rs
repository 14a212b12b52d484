//! The token texts and their types.

use indexmap::IndexSet;
use rustorch_gguf::{Array, Metadata, Value};

use crate::TokenizerError;

const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const SCORES: &str = "tokenizer.ggml.scores";

/// The kind of a token; llama.cpp's `llama_token_type`, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenType {
    Undefined = 0,
    Normal = 1,
    Unknown = 2,
    Control = 3,
    UserDefined = 4,
    Unused = 5,
    Byte = 6,
}

impl TokenType {
    /// The type with this number; other numbers mean `Undefined`, as in llama.cpp.
    fn from_number(number: i32) -> Self {
        use TokenType::*;
        let types = [Normal, Unknown, Control, UserDefined, Unused, Byte];
        types
            .into_iter()
            .find(|&ty| ty as i32 == number)
            .unwrap_or(Undefined)
    }
}

/// Tokens by id and by text.
pub(crate) struct Vocab {
    texts: IndexSet<Box<str>>,
    types: Vec<TokenType>,
    /// A suffix that is not shown, and the token behind which texts have it.
    hidden: Option<(&'static str, u32)>,
}

impl Vocab {
    /// Reads the tokens. Without types all are normal, and an empty text becomes `[EMPTY_id]`, both
    /// as in llama.cpp.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let tokens = metadata.str_array(TOKENS)?;
        if tokens.is_empty() {
            return Err(TokenizerError::NoTokens);
        }
        let mut texts = IndexSet::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            let text: Box<str> = if token.is_empty() {
                format!("[EMPTY_{id}]").into()
            } else {
                token.as_str().into()
            };
            if let (first, false) = texts.insert_full(text) {
                let text = texts[first].to_string();
                return Err(TokenizerError::DuplicateToken {
                    text,
                    first,
                    second: id,
                });
            }
        }
        let types = match metadata.opt_i32_array(TYPES)? {
            Some(numbers) => {
                let numbers = per_token(TYPES, &numbers, tokens.len())?;
                numbers
                    .iter()
                    .map(|&number| TokenType::from_number(number))
                    .collect()
            }
            None => vec![TokenType::Normal; tokens.len()],
        };
        Ok(Vocab {
            texts,
            types,
            hidden: None,
        })
    }

    /// The number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    /// Hides `suffix` at the end of the texts behind token `after`. [`id`](Self::id) still wants it.
    pub(crate) fn hide(&mut self, suffix: &'static str, after: u32) {
        self.hidden = Some((suffix, after));
    }

    /// The token with this text.
    pub(crate) fn id(&self, text: &str) -> Option<u32> {
        self.texts.get_index_of(text).map(|id| id as u32)
    }

    /// A token's text.
    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        let text = self.texts.get_index(id as usize)?;
        Some(self.shown(id, text))
    }

    fn shown<'t>(&self, id: u32, text: &'t str) -> &'t str {
        let suffix = self.hidden.filter(|(_, after)| id > *after);
        let shown = suffix.and_then(|(suffix, _)| text.strip_suffix(suffix));
        shown.filter(|text| !text.is_empty()).unwrap_or(text)
    }

    /// The scores by token; zeros if the file has none, as in llama.cpp.
    pub(crate) fn scores(&self, metadata: &Metadata) -> Result<Vec<f32>, TokenizerError> {
        Ok(match metadata.get(SCORES) {
            None => vec![0.0; self.len()],
            Some(Value::Array(Array::I32(scores))) => per_token(SCORES, scores, self.len())?
                .iter()
                .map(|&score| score as f32)
                .collect(),
            Some(_) => per_token(SCORES, metadata.f32_array(SCORES)?, self.len())?.to_vec(),
        })
    }

    /// A token's type.
    pub(crate) fn token_type(&self, id: u32) -> Option<TokenType> {
        self.types.get(id as usize).copied()
    }

    /// Overrides the type of the token with this text, if there is one. Returns its id.
    pub(crate) fn set_type(&mut self, text: &str, ty: TokenType) -> Option<u32> {
        let id = self.id(text)?;
        self.types[id as usize] = ty;
        Some(id)
    }

    /// All tokens in order of their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &str, TokenType)> {
        (0..)
            .zip(&self.texts)
            .zip(&self.types)
            .map(|((id, text), &ty)| (id, self.shown(id, text), ty))
    }

    /// The texts by which [`id`](Self::id) finds tokens, in order of their ids.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(|text| &**text)
    }
}

/// The first `tokens` elements of the array at `key`, which may be longer but not shorter.
fn per_token<'a, T>(
    key: &'static str,
    array: &'a [T],
    tokens: usize,
) -> Result<&'a [T], TokenizerError> {
    array.get(..tokens).ok_or(TokenizerError::TooFew {
        key,
        found: array.len(),
        tokens,
    })
}
