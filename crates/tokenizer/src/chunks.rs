//! The kind `test`: ids computed from the text itself, for models that llama.cpp generates for its tests.

use crate::vocab::Vocab;

/// Bytes of text in a token.
const CHUNK: usize = 5;

/// Appends the ids of `text`: a hash of each chunk.
pub(crate) fn encode(vocab: &Vocab, text: &str, ids: &mut Vec<u32>) {
    let hash = |chunk: &[u8]| {
        chunk
            .iter()
            .fold(0, |hash: u64, &byte| 31 * hash + u64::from(byte))
    };
    let tokens = vocab.len() as u64;
    let chunks = text.as_bytes().chunks(CHUNK);
    ids.extend(chunks.map(|chunk| (hash(chunk) % tokens) as u32));
}

/// The bytes that a token stands for: its id in hexadecimal digits.
pub(crate) fn decode(id: u32) -> Vec<u8> {
    format!("{id:x}").into_bytes()
}
