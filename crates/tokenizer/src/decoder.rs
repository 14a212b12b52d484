//! Text from tokens as they come, although a character may be spread over several.

use crate::Tokenizer;

/// Turns tokens into text one by one; made by [`Tokenizer::decoder`].
///
/// Each token gives the characters that are complete with it. Bytes that cannot become UTF-8 any
/// more are replaced by U+FFFD, as by [`String::from_utf8_lossy`]: all texts together are the same
/// however the bytes are spread over tokens.
pub struct StreamDecoder<'t> {
    tokenizer: &'t Tokenizer,
    /// The beginning of a character, at most three bytes between calls.
    pending: Vec<u8>,
    text: String,
}

impl Tokenizer {
    /// The text of `ids`: the bytes of all tokens, one after the other, with U+FFFD for what is not
    /// UTF-8. Ids that are not in the vocabulary give nothing.
    ///
    /// Nothing is tidied up: a space that a SentencePiece model puts before its text is there, and
    /// so are all others.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = self.decoder();
        let mut text = String::new();
        for &id in ids {
            text.push_str(decoder.push(id));
        }
        text.push_str(&decoder.finish());
        text
    }

    /// Decodes tokens one by one, as they are generated.
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

    /// The text that is complete with the token `id`. Often a part of a word, sometimes nothing;
    /// always nothing for an id that is not in the vocabulary.
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

    /// What is left when no more tokens come: U+FFFD if a character has remained incomplete.
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
