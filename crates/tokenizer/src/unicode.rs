//! Characters made plain, each by another single one, as in llama.cpp's tables.

use unicode_normalization::char::decompose_canonical;

/// The lower-case character, where Unicode has a single one.
pub(crate) fn lower(char: char) -> char {
    // Only İ has several; the first is the single one of Unicode's list.
    char.to_lowercase().next().unwrap_or(char)
}

/// The first character of what this one is composed of.
pub(crate) fn base(char: char) -> char {
    let mut first = None;
    decompose_canonical(char, |part| {
        first.get_or_insert(part);
    });
    first.unwrap_or(char)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_become_plain() {
        assert_eq!(
            "AÉİΣßǅ中".chars().map(lower).collect::<String>(),
            "aéiσßǆ中"
        );
        assert_eq!(
            "éǘÅ한Ω中a".chars().map(base).collect::<String>(),
            "euA\u{1112}Ω中a"
        );
    }
}
