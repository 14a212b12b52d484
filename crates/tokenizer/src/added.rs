//! Finds added tokens in text, which stand for themselves and are not built from bytes.

use std::cmp::Reverse;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use rustorch_gguf::Metadata;

use crate::TokenizerError;
use crate::vocab::{TokenType, Vocab};

/// A part of a text.
#[derive(Debug, PartialEq)]
pub(crate) enum Fragment<'t> {
    /// Text to be encoded.
    Text(&'t str),
    /// An added token.
    Token(u32),
}

/// The added tokens of a vocabulary.
pub(crate) struct AddedTokens {
    /// In the order in which text is searched for them: the longest first.
    tokens: Vec<AddedToken>,
    /// Finds out, in one pass, which of them a text has at all.
    automaton: AhoCorasick,
}

struct AddedToken {
    id: u32,
    text: Box<str>,
    /// Found only where special tokens are to be parsed.
    special: bool,
    /// White space before it is dropped.
    strips_left: bool,
    /// White space after it is dropped.
    strips_right: bool,
}

impl AddedTokens {
    /// The control, unknown and user-defined tokens of `vocab`.
    ///
    /// Files do not say which tokens strip white space. A few models are known by their names, as at the end of
    /// llama.cpp's `llama_vocab::impl::load`.
    pub(crate) fn new(metadata: &Metadata, vocab: &Vocab) -> Result<Self, TokenizerError> {
        let model = metadata
            .display("general.name")
            .unwrap_or_default()
            .to_ascii_lowercase();
        let pre_tokenizer = metadata.opt_str("tokenizer.ggml.pre")?.unwrap_or_default();
        let architecture = metadata
            .opt_str("general.architecture")?
            .unwrap_or_default();
        let any = |text: &str, names: &[&str]| names.iter().any(|name| text.contains(name));
        let (mask, phi_3) = if any(pre_tokenizer, &["jina-v2-de", "jina-v2-es", "jina-v2-code"])
            || any(architecture, &["nomic-bert-moe", "jina-bert-v3"])
        {
            (Some("<mask>"), false)
        } else if any(&model, &["phi-3", "phi3"]) {
            (None, true)
        } else {
            (model.contains("modern-bert").then_some("[MASK]"), false)
        };

        let mut tokens: Vec<AddedToken> = vocab
            .iter()
            .filter_map(|(id, text, ty)| {
                let special = match ty {
                    TokenType::Control | TokenType::Unknown => true,
                    TokenType::UserDefined => false,
                    _ => return None,
                };
                Some(AddedToken {
                    id,
                    text: text.into(),
                    special,
                    strips_left: mask == Some(text),
                    strips_right: phi_3 && !["<unk>", "<s>", "<|endoftext|>"].contains(&text),
                })
            })
            .collect();
        tokens.sort_by_key(|token| Reverse(token.text.len()));
        // The size of this kind of automaton is in proportion to the texts.
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(tokens.iter().map(|token| token.text.as_bytes()))?;
        Ok(AddedTokens { tokens, automaton })
    }

    /// Cuts `text` at its added tokens; at a special one only if `special` says so of where it is, in
    /// bytes.
    ///
    /// The longest token is searched for first, in all of the text, then the next one in what is
    /// left: so a long token wins against a shorter one that begins before it.
    pub(crate) fn split<'t>(
        &self,
        text: &'t str,
        special: impl Fn(Range<usize>) -> bool,
    ) -> Vec<Fragment<'t>> {
        let mut present = vec![false; self.tokens.len()];
        for found in self.automaton.find_overlapping_iter(text) {
            present[found.pattern()] = true;
        }

        let mut fragments = vec![Fragment::Text(text)];
        for (token, present) in self.tokens.iter().zip(present) {
            if !present {
                continue;
            }
            let is_token = |part: &str| {
                let start = part.as_ptr().addr() - text.as_ptr().addr();
                !token.special || special(start..start + part.len())
            };
            let mut parts = Vec::with_capacity(fragments.len());
            for fragment in fragments {
                match fragment {
                    Fragment::Text(text) => token.split(text, is_token, &mut parts),
                    Fragment::Token(_) => parts.push(fragment),
                }
            }
            fragments = parts;
        }
        fragments.retain(|fragment| *fragment != Fragment::Text(""));
        fragments
    }
}

impl AddedToken {
    /// Appends the fragments into which this token cuts `text`, wherever `is_token` holds of what it covers.
    fn split<'t>(
        &self,
        mut text: &'t str,
        is_token: impl Fn(&str) -> bool,
        fragments: &mut Vec<Fragment<'t>>,
    ) {
        let mut searched = 0;
        while let Some(at) = text[searched..].find(&*self.text) {
            let start = searched + at;
            let (mut left, rest) = text.split_at(start);
            let (found, mut right) = rest.split_at(self.text.len());
            if !is_token(found) {
                searched = start + found.chars().next().map_or(1, char::len_utf8);
                continue;
            }
            if self.strips_left {
                left = left.trim_end_matches(is_space);
            }
            if self.strips_right {
                right = right.trim_start_matches(is_space);
            }
            fragments.extend([Fragment::Text(left), Fragment::Token(self.id)]);
            text = right;
            searched = 0;
        }
        fragments.push(Fragment::Text(text));
    }
}

/// C's `isspace`.
fn is_space(char: char) -> bool {
    matches!(char, ' ' | '\t'..='\r')
}
