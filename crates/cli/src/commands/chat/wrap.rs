//! Word wrap for a terminal's window.

use std::mem;

use ratatui::text::Span;

/// Columns between two stops of tabs.
const TAB: usize = 8;

/// Breaks text that comes in pieces into lines of a terminal. A word is held back until it has ended. The terminal
/// breaks text that is longer than a line.
#[derive(Default)]
pub(super) struct Wrap {
    column: usize,
    /// White space before the word; a line break replaces it.
    gap: String,
    gap_width: usize,
    /// The word that has begun, with the codes in it.
    word: String,
    word_width: usize,
    /// A code that has begun: it takes no room.
    in_code: bool,
}

impl Wrap {
    /// The text that is ready, with breaks for lines of `columns`; without columns as it is.
    pub(super) fn push(&mut self, text: &str, columns: Option<usize>) -> String {
        let mut out = String::with_capacity(text.len());
        for char in text.chars() {
            self.take(char, columns, &mut out);
        }
        out
    }

    /// Continues at the beginning of a line, which something else began.
    pub(super) fn restart(&mut self) {
        if self.column > 0 {
            self.gap.clear();
            (self.column, self.gap_width) = (0, 0);
        }
    }

    /// The word that was kept back.
    pub(super) fn finish(&mut self, columns: Option<usize>) -> String {
        let mut out = String::new();
        self.end_word(columns, &mut out);
        out + &mem::take(&mut self.gap)
    }

    fn take(&mut self, char: char, columns: Option<usize>, out: &mut String) {
        if self.in_code || char == '\x1b' {
            self.word.push(char);
            // Codes of SGR end with a letter.
            self.in_code = char == '\x1b' || !char.is_ascii_alphabetic();
            return;
        }
        match char {
            '\n' | '\r' => {
                self.end_word(columns, out);
                out.push_str(&mem::take(&mut self.gap));
                out.push(char);
                (self.column, self.gap_width) = (0, 0);
            }
            ' ' | '\t' => {
                self.end_word(columns, out);
                let at = self.column + self.gap_width;
                self.gap_width += if char == '\t' { TAB - at % TAB } else { 1 };
                self.gap.push(char);
            }
            _ => {
                let width = Span::raw(char.encode_utf8(&mut [0; 4]) as &str).width();
                // Scripts of wide characters have no spaces between words.
                if width > 1 {
                    self.end_word(columns, out);
                }
                self.word.push(char);
                self.word_width += width;
                if width > 1 {
                    self.end_word(columns, out);
                }
            }
        }
    }

    /// Writes the word, on the next line if this one has no room for it.
    fn end_word(&mut self, columns: Option<usize>, out: &mut String) {
        let (word, width) = (mem::take(&mut self.word), mem::take(&mut self.word_width));
        if width == 0 {
            out.push_str(&word);
            return;
        }
        let (gap, gap_width) = (mem::take(&mut self.gap), mem::take(&mut self.gap_width));
        let end = self.column + gap_width + width;
        match columns {
            Some(columns) if end > columns && width <= columns && self.column > 0 => {
                out.push('\n');
                self.column = width;
            }
            _ => {
                out.push_str(&gap);
                // The terminal breaks what is wider than a line.
                self.column = match columns {
                    Some(columns) if end > columns => (end - 1) % columns + 1,
                    _ => end,
                };
            }
        }
        out.push_str(&word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text in lines of `columns` columns, the same for any pieces in which it comes.
    fn wrapped(text: &str, columns: usize) -> String {
        let in_pieces = |len: usize| {
            let mut wrap = Wrap::default();
            let chars: Vec<char> = text.chars().collect();
            let pieces = chars
                .chunks(len)
                .map(|piece| piece.iter().collect::<String>());
            let mut out: String = pieces
                .map(|piece| wrap.push(&piece, Some(columns)))
                .collect();
            out += &wrap.finish(Some(columns));
            out
        };
        let whole = in_pieces(text.len().max(1));
        (1..4).for_each(|len| assert_eq!(in_pieces(len), whole));
        whole
    }

    #[test]
    fn lines_end_between_words() {
        assert_eq!(wrapped("one two three", 7), "one two\nthree");
        assert_eq!(wrapped("one two three", 8), "one two\nthree");
        assert_eq!(wrapped("one two three four", 13), "one two three\nfour");
        assert_eq!(wrapped("  a b\n c ", 4), "  a\nb\n c ");
        assert_eq!(wrapped("a\tb", 6), "a\nb");
        assert_eq!(wrapped("", 6), "");
    }

    #[test]
    fn codes_take_no_room_and_wide_characters_two_columns() {
        assert_eq!(
            wrapped("\x1b[1m**ab**\x1b[0m cd", 9),
            "\x1b[1m**ab**\x1b[0m cd"
        );
        assert_eq!(wrapped("\x1b[1mab\x1b[0m cd", 4), "\x1b[1mab\x1b[0m\ncd");
        assert_eq!(wrapped("日本語 ab", 4), "日本\n語\nab");
    }

    #[test]
    fn a_line_that_was_ended_is_counted_anew() {
        let mut wrap = Wrap::default();
        assert_eq!(wrap.push(" one two", Some(9)), " one");
        wrap.restart();
        assert_eq!(wrap.push(" three", Some(9)), "two");
        assert_eq!(wrap.finish(Some(9)), " three");
        let mut indented = Wrap::default();
        assert_eq!(indented.push("  ", Some(9)), "");
        indented.restart();
        assert_eq!(indented.push("one ", Some(9)), "  one");
    }

    #[test]
    fn words_that_fit_no_line_are_the_terminals() {
        assert_eq!(wrapped("a 1234567890 b", 4), "a 1234567890\nb");
        let mut wrap = Wrap::default();
        assert_eq!(
            wrap.push("as it is ", None) + &wrap.finish(None),
            "as it is "
        );
    }
}
