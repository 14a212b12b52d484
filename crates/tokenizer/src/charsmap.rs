//! SentencePiece's precompiled map of characters.
//!
//! A number comes first: the size of the trie in bytes. The trie and the replacements of its keys follow. A zero ends
//! each replacement. The trie is an array of 32-bit units (Kanda 2018, "Space- and time-efficient string
//! dictionaries"). A node's children are found by the exclusive or of its base and their byte.

use std::borrow::Cow;

use rustorch_gguf::{Array, FromValue, Metadata, Value};

use crate::TokenizerError;

const KEY: &str = "tokenizer.ggml.precompiled_charsmap";

/// The bytes of an array.
struct Bytes<'a>(Cow<'a, [u8]>);

impl<'a> FromValue<'a> for Bytes<'a> {
    const EXPECTED: &'static str = "array of u8";

    fn from_value(value: &'a Value) -> Option<Self> {
        match value {
            Value::Array(Array::U8(bytes)) => Some(Bytes(bytes.into())),
            Value::Array(Array::I8(bytes)) => Some(Bytes(
                bytes.iter().map(|&byte| byte.cast_unsigned()).collect(),
            )),
            _ => None,
        }
    }
}

/// The map; empty if the file has none.
#[derive(Default)]
pub(crate) struct Charsmap {
    units: Vec<Unit>,
    replacements: Vec<u8>,
}

/// A node of the trie or, behind a key's last byte, the place of its replacement.
#[derive(Clone, Copy)]
struct Unit(u32);

impl Unit {
    /// The distance to its children.
    fn base(self) -> usize {
        ((self.0 >> 10) << ((self.0 >> 6) & 8)) as usize
    }

    /// Whether it is the child for this byte.
    fn is_child(self, byte: u8) -> bool {
        self.0 & 0x8000_00ff == u32::from(byte)
    }

    /// Whether a key ends here.
    fn ends_key(self) -> bool {
        self.0 & 0x100 != 0
    }

    /// The place of a replacement.
    fn replacement(self) -> usize {
        (self.0 & 0x7fff_ffff) as usize
    }
}

impl Charsmap {
    /// Reads the map, and makes sure that all of it can be followed.
    pub(crate) fn from_gguf(metadata: &Metadata) -> Result<Self, TokenizerError> {
        let Some(Bytes(bytes)) = metadata.opt_as(KEY)? else {
            return Ok(Self::default());
        };
        let damaged = |problem| TokenizerError::Charsmap { problem };
        let (size, rest) = bytes
            .split_first_chunk()
            .ok_or_else(|| damaged("it has fewer than 4 bytes"))?;
        let size = u32::from_le_bytes(*size) as usize;
        if size >= rest.len() {
            return Err(damaged("its trie is longer than the map"));
        }
        let (trie, replacements) = rest.split_at(size);
        let (units, _) = trie.as_chunks();
        let map = Charsmap {
            units: units
                .iter()
                .map(|&unit| Unit(u32::from_le_bytes(unit)))
                .collect(),
            replacements: replacements.to_vec(),
        };
        map.check().map_err(damaged)?;
        Ok(map)
    }

    /// The length of the longest key that `text` begins with, and its replacement.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        let mut node = self.units.first()?.base();
        let mut longest = None;
        for (length, &byte) in (1..).zip(text) {
            let Some((place, unit)) = self.child(node, byte) else {
                break;
            };
            node = place ^ unit.base();
            if unit.ends_key() {
                longest = Some((length, node));
            }
        }
        let (length, node) = longest?;
        Some((length, self.replacement(node)?))
    }

    /// The child of a node for this byte, and where it is.
    fn child(&self, node: usize, byte: u8) -> Option<(usize, Unit)> {
        let place = node ^ usize::from(byte);
        let unit = *self.units.get(place)?;
        (byte != 0 && unit.is_child(byte)).then_some((place, unit))
    }

    /// The replacement of the key that ends at a node.
    fn replacement(&self, node: usize) -> Option<&[u8]> {
        let place = self.units.get(node)?.replacement();
        let text = self.replacements.get(place..)?;
        let end = text.iter().position(|&byte| byte == 0)?;
        Some(&text[..end])
    }

    /// Follows every key. Keys may share their ends, but a key that comes back to where it was does not end.
    fn check(&self) -> Result<(), &'static str> {
        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            OnTheWay,
            Done,
        }

        let last_end = self.replacements.iter().rposition(|&byte| byte == 0);
        let mut states = vec![State::New; self.units.len()];
        let mut way = Vec::from_iter(self.units.first().map(|root| (None, root.base(), 1..=255)));
        while let Some((place, node, bytes)) = way.last_mut() {
            let Some(byte) = bytes.next() else {
                if let Some(place) = *place {
                    states[place] = State::Done;
                }
                way.pop();
                continue;
            };
            let Some((child, unit)) = self.child(*node, byte) else {
                continue;
            };
            match states[child] {
                State::Done => continue,
                State::OnTheWay => return Err("its trie loops"),
                State::New => states[child] = State::OnTheWay,
            }
            let node = child ^ unit.base();
            let replacement = self.units.get(node).map(|unit| unit.replacement());
            if unit.ends_key() && replacement.is_none_or(|place| Some(place) > last_end) {
                return Err("a replacement lies outside");
            }
            way.push((Some(child), node, 1..=255));
        }
        Ok(())
    }
}
