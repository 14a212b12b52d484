//! RWKV's tokenizer: always the longest token.

use crate::trie::Trie;
use crate::vocab::Vocab;

/// The tokens of one vocabulary, by the bytes that they stand for.
pub(crate) struct Rwkv {
    tokens: Trie,
    /// The token for a byte that no token begins with.
    unknown: Option<u32>,
}

impl Rwkv {
    pub(crate) fn new(vocab: &Vocab, unknown: Option<u32>) -> Self {
        Rwkv {
            tokens: Trie::new(vocab.iter().map(|(id, text, _)| (decode(text), id))),
            unknown,
        }
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, text: &str, ids: &mut Vec<u32>) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let (length, id) = match self.tokens.longest(rest) {
                Some((length, id)) => (length, Some(id)),
                None => (1, self.unknown),
            };
            ids.extend(id);
            rest = &rest[length..];
        }
    }
}

/// The bytes that a token's text stands for: a text with escapes as in Python.
pub(crate) fn decode(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b't') => bytes.push(b'\t'),
            Some(b'n') => bytes.push(b'\n'),
            Some(b'r') => bytes.push(b'\r'),
            Some(b'x') => {
                if let (Some(high), Some(low)) = (rest.next(), rest.next()) {
                    bytes.push((digit(high) << 4).wrapping_add(digit(low)));
                }
            }
            other => bytes.extend(other),
        }
    }
    bytes
}

/// The value of a hexadecimal digit in lower case. Others have what llama.cpp's formula gives.
fn digit(byte: u8) -> u8 {
    match byte {
        b'a'..=0x7f => byte - b'a' + 10,
        _ => byte.wrapping_sub(b'0'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_bytes() {
        assert_eq!(decode(r"a\t\n\r\\\'é"), "a\t\n\r\\'é".as_bytes());
        assert_eq!(decode(r"\xe4\xb8z"), [0xe4, 0xb8, b'z']);
        assert_eq!(decode(r"\"), []);
        assert_eq!(decode(r"\x4"), []);
    }
}
