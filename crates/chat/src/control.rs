//! Control tokens, and the separation of outside text from a template's own.
//!
//! A template is a program that processes strings. Its output does not say where a character comes from. So the
//! characters of control tokens, such as `<` and `|`, become stand-ins before the template sees them. These are
//! characters of the private use area. The replacement is one for one, and survives trimming, replacing, joining and
//! `tojson`. Afterwards the characters are put back. Text in place of a stand-in comes from outside.

use std::collections::BTreeSet;
use std::ops::Range;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use rustorch_tokenizer::Tokenizer;
use serde_json::{Map, Value};

use crate::error::ChatError;

/// The last plane of Unicode, which is for private use.
const PLANE: Range<u32> = 0x10_0000..0x10_FFFE;

/// The control tokens of a vocabulary.
pub struct ControlTokens {
    texts: Vec<String>,
    /// Finds them in a text.
    automaton: Option<AhoCorasick>,
    /// The characters that stand-ins are for: those that structure the tokens, then first characters of
    /// tokens that have none.
    chars: Vec<char>,
    /// Number of `chars` that structure tokens.
    structural: usize,
}

/// The characters that get stand-ins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cover {
    /// All characters that occur in control tokens. Templates that look for such characters in
    /// messages may behave differently then.
    Structure,
    /// The characters of control tokens, and of texts that could become one.
    Tokens,
}

impl ControlTokens {
    /// The characters of a tokenizer's control tokens.
    pub fn of(tokenizer: &Tokenizer) -> Self {
        let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let control = ids.filter(|&id| tokenizer.is_control(id) || tokenizer.unk() == Some(id));
        let texts = control.filter_map(|id| tokenizer.token_text(id));
        ControlTokens::new(texts.map(str::to_owned))
    }

    /// The characters of these texts.
    pub fn new(texts: impl IntoIterator<Item = String>) -> Self {
        let texts: Vec<String> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        let structural: BTreeSet<char> = texts
            .iter()
            .flat_map(|text| text.chars())
            .filter(|&it| structures(it))
            .collect();
        let plain = texts.iter().filter(|text| !text.contains(structures));
        let first: BTreeSet<char> = plain.filter_map(|text| text.chars().next()).collect();
        let automaton = AhoCorasick::builder()
            .kind(Some(AhoCorasickKind::ContiguousNFA))
            .build(&texts);
        ControlTokens {
            automaton: automaton.ok(),
            structural: structural.len(),
            chars: structural.into_iter().chain(first).collect(),
            texts,
        }
    }

    /// The parts of a text that are control tokens, or parts of them at its ends.
    fn found(&self, text: &str) -> Vec<Range<usize>> {
        let Some(automaton) = &self.automaton else {
            // Too many tokens for an automaton: all of the text may be one.
            return Vec::from([Range {
                start: 0,
                end: text.len(),
            }]);
        };
        let mut found: Vec<Range<usize>> = automaton
            .find_overlapping_iter(text)
            .map(|it| it.range())
            .collect();
        // Most strings of a conversation are keys, names and words.
        if !text.contains(structures) {
            return found;
        }
        for token in &self.texts {
            let cuts = token.char_indices().skip(1).map(|(at, _)| at);
            for (before, after) in cuts.map(|at| token.split_at(at)) {
                if text.ends_with(before) && before.contains(structures) {
                    found.push(text.len() - before.len()..text.len());
                }
                if text.starts_with(after) && after.contains(structures) {
                    found.push(0..after.len());
                }
            }
        }
        found
    }
}

/// Whether tokens are made by such a character. Templates compare letters and joiners of words, and
/// `tojson` escapes quotes.
fn structures(char: char) -> bool {
    !(char.is_alphanumeric()
        || char.is_whitespace()
        || char.is_control()
        || matches!(char, '_' | '-' | '"' | '\\' | '\''))
}

/// The stand-ins of one conversation.
pub(crate) struct StandIns<'c> {
    control: &'c ControlTokens,
    /// The index of the first character; the others follow.
    base: u32,
}

impl<'c> StandIns<'c> {
    /// Finds characters that `context` does not have.
    ///
    /// # Errors
    /// Fails if there are too few free characters.
    pub(crate) fn new(
        control: &'c ControlTokens,
        context: &Map<String, Value>,
    ) -> Result<Self, ChatError> {
        let mut taken = BTreeSet::new();
        each_string(context, &mut |text| {
            taken.extend(text.chars().map(u32::from).filter(|it| PLANE.contains(it)));
        });
        let block = u32::try_from(control.chars.len())
            .unwrap_or(u32::MAX)
            .max(1);
        let mut bases = PLANE.step_by(block as usize);
        let free = |base: &u32| {
            let end = base.saturating_add(block);
            end <= PLANE.end && taken.range(*base..end).next().is_none()
        };
        let base = bases.find(free).ok_or(ChatError::Marks)?;
        Ok(StandIns { control, base })
    }

    /// `context` with stand-ins.
    pub(crate) fn cover(&self, context: &Map<String, Value>, how: Cover) -> Map<String, Value> {
        map_object(context, &|text| self.covered(text, how))
    }

    fn covered(&self, text: &str, how: Cover) -> String {
        let structural = &self.control.chars[..self.control.structural];
        if how == Cover::Structure {
            return text
                .chars()
                .map(|it| self.stand_in(structural, it))
                .collect();
        }
        let found = self.control.found(text);
        let inside = |at: usize| found.iter().any(|range| range.contains(&at));
        let cover = |(at, char)| match inside(at) {
            true => self.stand_in(&self.control.chars, char),
            false => char,
        };
        text.char_indices().map(cover).collect()
    }

    fn stand_in(&self, covered: &[char], char: char) -> char {
        let index = covered.iter().position(|&it| it == char);
        let code = index.and_then(|it| u32::try_from(it).ok());
        code.and_then(|it| char::from_u32(self.base + it))
            .unwrap_or(char)
    }

    /// The text with its own characters again, and where they are.
    pub(crate) fn uncover(&self, text: &str) -> (String, Vec<Range<usize>>) {
        let mut out = String::with_capacity(text.len());
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for char in text.chars() {
            let index = u32::from(char).checked_sub(self.base);
            let own = index.and_then(|it| self.control.chars.get(it as usize));
            let start = out.len();
            out.push(*own.unwrap_or(&char));
            if own.is_none() {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = out.len(),
                _ => ranges.push(start..out.len()),
            }
        }
        (out, ranges)
    }
}

fn each_string(object: &Map<String, Value>, see: &mut impl FnMut(&str)) {
    fn value(it: &Value, see: &mut impl FnMut(&str)) {
        match it {
            Value::String(text) => see(text),
            Value::Array(items) => items.iter().for_each(|item| value(item, see)),
            Value::Object(object) => each_string(object, see),
            _ => {}
        }
    }
    for (key, it) in object {
        see(key);
        value(it, see);
    }
}

fn map_object(object: &Map<String, Value>, map: &impl Fn(&str) -> String) -> Map<String, Value> {
    fn value(it: &Value, map: &impl Fn(&str) -> String) -> Value {
        match it {
            Value::String(text) => Value::String(map(text)),
            Value::Array(items) => items.iter().map(|item| value(item, map)).collect(),
            Value::Object(object) => Value::Object(map_object(object, map)),
            other => other.clone(),
        }
    }
    let mapped = object.iter().map(|(key, it)| (map(key), value(it, map)));
    mapped.collect()
}
