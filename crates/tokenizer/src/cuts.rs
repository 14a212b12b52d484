//! The places in a text that no symbol of a vocabulary reaches across.

use std::collections::HashSet;

/// The character for a space in the texts of tokens.
pub(crate) const SPACE: &str = "\u{2581}";

/// Knows the places before a [`SPACE`] that no symbol reaches across. The parts between can be merged on their
/// own, in less time than all at once.
pub(crate) struct Cuts {
    /// The characters that some symbol has before a space.
    before_space: HashSet<char>,
}

impl Cuts {
    /// The cuts for symbols with these texts.
    pub(crate) fn new<'t>(symbols: impl Iterator<Item = &'t str>) -> Self {
        let spaces = symbols.flat_map(|text| {
            text.match_indices(SPACE)
                .filter_map(|(at, _)| text[..at].chars().next_back())
        });
        Cuts {
            before_space: spaces.collect(),
        }
    }

    /// The parts of `text`.
    pub(crate) fn parts<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let begins_part = |&at: &usize| {
            let before = text[..at].chars().next_back();
            before.is_some_and(|before| !self.before_space.contains(&before))
        };
        let spaces = text.match_indices(SPACE).map(|(at, _)| at);
        let ends = spaces.filter(begins_part).chain([text.len()]);
        ends.scan(0, |from, to| Some(&text[std::mem::replace(from, to)..to]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_begin_with_spaces_that_no_symbol_has_that_character_before() {
        let cuts = Cuts::new(["a\u{2581}b", "c\u{2581}\u{2581}", "d"].into_iter());
        let parts = |text: &str| {
            let text = text.replace(' ', SPACE);
            let parts = cuts.parts(&text).map(|part| part.replace(SPACE, " "));
            parts.collect::<Vec<_>>()
        };
        assert_eq!(parts("a b c d e"), ["a b", " c d", " e"]);
        assert_eq!(parts(" d  d"), [" d", "  d"]);
        assert_eq!(parts(""), [""]);
    }
}
