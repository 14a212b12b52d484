//! Text from tokens in a stream, although a character may span several.

use crate::Tokenizer;

/// Turns tokens into text one by one; made by [`Tokenizer::decoder`].
///
/// Each token returns the characters that it completes. Bytes that cannot become UTF-8 are replaced
/// by U+FFFD, as by [`String::from_utf8_lossy`]. The whole text does not depend on how bytes are
/// spread over tokens.
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    /// The beginning of a character, at most three bytes between calls.
    pending: Vec<u8>,
    text: String,
}

impl Tokenizer {
    /// The text of `ids`: the bytes of all tokens, concatenated, with U+FFFD for bytes that are not
    /// UTF-8. Unknown ids give nothing.
    ///
    /// All spaces stay, including the one that a SentencePiece model puts before its text.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = self.decoder();
        let mut text = String::new();
        for &id in ids {
            text.push_str(decoder.push(id));
        }
        text.push_str(&decoder.finish());
        text
    }

    /// Decodes tokens one by one while they are generated.
    pub fn decoder(&self) -> StreamDecoder<'_> {
        StreamDecoder::new(self)
    }
}

impl<'t> StreamDecoder<'t> {
    fn new(tokenizer: &'t Tokenizer) -> Self {
        StreamDecoder {
            tokenizer,
            pending: Vec::new(),
            text: String::new(),
        }
    }

    /// The text that the token `id` completes. It is often a part of a word, and sometimes empty.
    /// An unknown id always gives nothing.
    pub fn push(&mut self, id: u32) -> &str {
        self.text.clear();
        if let Some(bytes) = self.tokenizer.token_bytes(id) {
            self.pending.extend_from_slice(&bytes);
        }
        let mut complete = 0;
        for chunk in self.pending.utf8_chunks() {
            self.text.push_str(chunk.valid());
            complete += chunk.valid().len();
            let invalid = chunk.invalid();
            if complete + invalid.len() == self.pending.len() && may_continue(invalid) {
                break;
            }
            complete += invalid.len();
            self.text.push(char::REPLACEMENT_CHARACTER);
        }
        self.pending.drain(..complete);
        &self.text
    }

    /// The remaining text when no more tokens come: U+FFFD for an incomplete character.
    pub fn finish(self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }
}

/// Whether `bytes` are a character of which only the end is missing (or nothing).
fn may_continue(bytes: &[u8]) -> bool {
    match str::from_utf8(bytes) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}
