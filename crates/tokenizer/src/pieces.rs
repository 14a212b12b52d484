//! Texts that are larger than memory, piece by piece.

use std::io::Read;

use crate::TokenizerError;

/// Bytes that are read at once.
const BLOCK: usize = 1 << 20;

/// A piece without white space is ended at this size, whatever that does to a word.
const LONGEST: usize = 16 << 20;

/// Reads a text in pieces of about a mebibyte. Each but the first begins with white space that follows no other white
/// space. Words of byte-level BPE do not extend across such a position. So the pieces have the tokens of the whole
/// text.
///
/// ```
/// use rustorch_tokenizer::TextPieces;
///
/// let mut pieces = TextPieces::new("a text".as_bytes());
/// assert_eq!(pieces.next_piece()?, Some("a text"));
/// assert_eq!(pieces.next_piece()?, None);
/// # Ok::<(), rustorch_tokenizer::TokenizerError>(())
/// ```
pub struct TextPieces<R> {
    reader: R,
    /// The text that was read and not returned, after the last piece of length `given`.
    buffer: Vec<u8>,
    given: usize,
    /// Bytes of the text before the buffer.
    before: u64,
    ended: bool,
}

impl<R: Read> TextPieces<R> {
    /// The pieces of `reader`'s text.
    pub fn new(reader: R) -> Self {
        Self {
            reader,
            buffer: Vec::new(),
            given: 0,
            before: 0,
            ended: false,
        }
    }

    /// The next piece; `None` after the last one.
    ///
    /// # Errors
    /// Fails if the text cannot be read, or is not UTF-8.
    pub fn next_piece(&mut self) -> Result<Option<&str>, TokenizerError> {
        self.buffer.drain(..self.given);
        self.before += self.given as u64;
        self.given = 0;
        let mut wanted = BLOCK;
        loop {
            self.fill(wanted)?;
            let valid = self.valid()?;
            let cut = match self.ended {
                true => Some(valid),
                false => last_word_end(&self.buffer[..valid]),
            };
            match cut {
                Some(cut) => self.given = cut,
                None if wanted < LONGEST => {
                    wanted += BLOCK;
                    continue;
                }
                None => self.given = valid,
            }
            let piece = str::from_utf8(&self.buffer[..self.given]).map_err(|e| {
                TokenizerError::NotUtf8 {
                    at: self.before + e.valid_up_to() as u64,
                }
            })?;
            return Ok((!piece.is_empty()).then_some(piece));
        }
    }

    /// Reads until the buffer has `wanted` bytes, or the text ends.
    fn fill(&mut self, wanted: usize) -> Result<(), TokenizerError> {
        if let Some(missing) = wanted.checked_sub(self.buffer.len()) {
            let read = (&mut self.reader)
                .take(missing as u64)
                .read_to_end(&mut self.buffer)?;
            self.ended = read < missing;
        }
        Ok(())
    }

    /// How many bytes of the buffer are whole characters.
    fn valid(&self) -> Result<usize, TokenizerError> {
        match str::from_utf8(&self.buffer) {
            Ok(_) => Ok(self.buffer.len()),
            Err(error) if error.error_len().is_none() && !self.ended => Ok(error.valid_up_to()),
            Err(error) => Err(TokenizerError::NotUtf8 {
                at: self.before + error.valid_up_to() as u64,
            }),
        }
    }
}

/// The last place, but the beginning, where white space follows something else.
fn last_word_end(text: &[u8]) -> Option<usize> {
    // ASCII's white space is enough, and is not a part of other characters.
    let is_end = |at: &usize| text[*at].is_ascii_whitespace() && text[*at - 1].is_ascii_graphic();
    (1..text.len()).rev().find(is_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &[u8]) -> Result<Vec<String>, TokenizerError> {
        let mut reader = TextPieces::new(text);
        let mut all = Vec::new();
        while let Some(piece) = reader.next_piece()? {
            all.push(piece.to_owned());
        }
        Ok(all)
    }

    #[test]
    fn pieces_end_behind_words_and_are_all_of_the_text() {
        let text = "wörd\n\n  indented; ".repeat(200_000);
        let all = pieces(text.as_bytes()).unwrap();
        assert!(all.len() > 2);
        assert!(all.concat() == text);
        for pair in all.windows(2) {
            assert!(pair[0].ends_with(|c: char| !c.is_whitespace()));
            assert!(pair[1].starts_with(char::is_whitespace));
        }
        assert!(pieces(b"").unwrap().is_empty());
    }

    #[test]
    fn a_text_without_spaces_is_cut_between_characters() {
        let text = "字".repeat(LONGEST / 2);
        let all = pieces(text.as_bytes()).unwrap();
        assert!(all.len() > 1 && all.concat() == text);
    }

    #[test]
    fn the_place_of_what_is_not_utf8_is_told() {
        let mut text = "a word ".repeat(400_000).into_bytes();
        for at in [5, BLOCK, 2_000_000] {
            let old = std::mem::replace(&mut text[at], 0xff);
            let error = pieces(&text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("byte {at} ")), "{error}");
            text[at] = old;
        }
        // A character that the text ends within.
        let error = pieces("abc\u{e9}".as_bytes().split_last().unwrap().1).unwrap_err();
        assert!(error.to_string().starts_with("byte 3 "), "{error}");
    }
}
