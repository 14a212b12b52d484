//! The texts of a vocabulary's tokens, and a trie of them.

use std::cmp::Reverse;
use std::ops::Range;

/// The texts of all tokens. Tokens that are found as text have their place in the trie.
pub(crate) struct Trie {
    /// All texts, one after the other.
    bytes: Vec<u8>,
    /// The start of a token's text; one more than there are tokens.
    starts: Vec<u32>,
    /// Nodes, each before those below it.
    /// [`Kind`] of texts.
    nodes: Vec<Node>,
    /// The tokens in the order of their nodes.
    tokens: Vec<u32>,
    /// The bytes of the nodes below each node.
    below: Vec<Bytes>,
    /// The tokens in the trie, the longest first.
    longest: Vec<u32>,
}

/// Texts of similar characters: mostly either all tokens below a node may follow, or none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// Small letters and spaces.
    Letters,
    /// The characters of names in programs, and spaces.
    Words,
    Ascii,
    Other,
}

impl Kind {
    fn of(text: &[u8]) -> Self {
        let kind = |byte: &u8| match byte {
            b'a'..=b'z' | b' ' => Self::Letters,
            b'A'..=b'Z' | b'0'..=b'9' | b'_' => Self::Words,
            ..=0x7F => Self::Ascii,
            _ => Self::Other,
        };
        text.iter().map(kind).max().unwrap_or(Self::Letters)
    }
}

/// A set of bytes; those from 0x7F on are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes(u128);

impl Bytes {
    /// The class of equivalent bytes.
    const LAST: u8 = 0x7F;

    /// The bytes for which `is` holds; the last ones count if it holds for all of them.
    pub(crate) fn of(mut is: impl FnMut(u8) -> bool) -> Self {
        let mut set = (0..Self::LAST).fold(0, |set, byte| set | u128::from(is(byte)) << byte);
        set |= u128::from((Self::LAST..=u8::MAX).all(is)) << Self::LAST;
        Self(set)
    }

    fn extend(&mut self, others: Self) {
        self.0 |= others.0;
    }

    fn insert(&mut self, byte: u8) {
        self.0 |= 1 << byte.min(Self::LAST);
    }

    /// Are all of them among the others?
    pub(crate) fn within(self, others: Self) -> bool {
        self.0 & !others.0 == 0
    }
}

/// The text that is the bytes of the nodes from the root to this one.
struct Node {
    byte: u8,
    /// Number of its text's bytes.
    depth: u32,
    /// The first node behind it that is not below it.
    end: u32,
    /// The first of its tokens. They end where those of the next node begin.
    tokens: u32,
    /// The depth of the deepest node below it, or its own.
    deepest: u32,
}

impl Trie {
    /// The text of token `id` is `texts[id]`. Only tokens of `found` are in the trie.
    pub(crate) fn new<'a>(
        texts: impl Iterator<Item = &'a [u8]>,
        found: impl Fn(u32) -> bool,
    ) -> Self {
        let mut trie = Self {
            bytes: Vec::new(),
            starts: vec![0],
            nodes: Vec::new(),
            tokens: Vec::new(),
            below: Vec::new(),
            longest: Vec::new(),
        };
        for text in texts {
            trie.bytes.extend_from_slice(text);
            trie.starts.push(trie.bytes.len() as u32);
        }
        let mut tokens: Vec<u32> = (0..trie.len() as u32)
            .filter(|&token| found(token) && !trie.text(token).is_empty())
            .collect();
        let order = |&token: &u32| (Kind::of(trie.text(token)), trie.text(token));
        tokens.sort_by_cached_key(order);
        trie.grow(&tokens);
        let mut longest = tokens.clone();
        longest.sort_by_key(|&token| Reverse(trie.text(token).len()));
        trie.longest = longest;
        trie.tokens = tokens;
        trie
    }

    /// Makes the nodes of `tokens`, which are in the order of their kinds and texts.
    fn grow(&mut self, tokens: &[u32]) {
        let node = |byte, depth, tokens: usize| Node {
            byte,
            depth: depth as u32,
            end: 0,
            tokens: tokens as u32,
            deepest: depth as u32,
        };
        let mut nodes = vec![node(0, 0, 0)];
        // The nodes of the last text, from the root.
        let mut path = vec![0];
        let mut last: &[u8] = &[];
        for (at, &token) in tokens.iter().enumerate() {
            let text = self.text(token);
            let same = match Kind::of(last) == Kind::of(text) {
                true => last.iter().zip(text).take_while(|(a, b)| a == b).count(),
                false => 0,
            };
            for closed in path.drain(same + 1..) {
                nodes[closed].end = nodes.len() as u32;
            }
            for (depth, &byte) in text.iter().enumerate().skip(same) {
                path.push(nodes.len());
                nodes.push(node(byte, depth + 1, at));
            }
            last = text;
        }
        for closed in path {
            nodes[closed].end = nodes.len() as u32;
        }
        // A last node marks the end of the tokens of the one before it.
        nodes.push(node(0, 0, tokens.len()));
        self.nodes = nodes;
        self.below = vec![Bytes::default(); self.nodes.len()];
        for node in (0..self.nodes.len() - 1).rev() {
            // Nodes below come later, so they are known already.
            let children: Vec<usize> = self.children(node).collect();
            for child in children {
                let bytes = self.below[child];
                self.below[node].extend(bytes);
                self.below[node].insert(self.nodes[child].byte);
                self.nodes[node].deepest = self.nodes[node].deepest.max(self.nodes[child].deepest);
            }
        }
    }

    /// Number of tokens.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The text of a token; empty, if it has none or is not there.
    pub(crate) fn text(&self, token: u32) -> &[u8] {
        let at = token as usize;
        match (self.starts.get(at), self.starts.get(at + 1)) {
            (Some(&start), Some(&end)) => &self.bytes[start as usize..end as usize],
            _ => &[],
        }
    }

    /// The nodes below this one.
    pub(crate) fn below(&self, node: usize) -> Range<usize> {
        node + 1..self.end(node)
    }

    /// The first node behind this one that is not below it.
    pub(crate) fn end(&self, node: usize) -> usize {
        self.nodes[node].end as usize
    }

    /// The last byte of a node's text.
    pub(crate) fn byte(&self, node: usize) -> u8 {
        self.nodes[node].byte
    }

    /// Number of bytes of a node's text.
    pub(crate) fn depth(&self, node: usize) -> usize {
        self.nodes[node].depth as usize
    }

    /// The depth of the deepest node below this one, or its own.
    pub(crate) fn deepest(&self, node: usize) -> usize {
        self.nodes[node].deepest as usize
    }

    /// The tokens in the trie that have more bytes.
    pub(crate) fn longer_than(&self, bytes: usize) -> &[u32] {
        let longest = &self.longest;
        let end = longest.partition_point(|&token| self.text(token).len() > bytes);
        &longest[..end]
    }

    /// The nodes one byte below this one.
    pub(crate) fn children(&self, node: usize) -> impl Iterator<Item = usize> {
        let below = self.below(node);
        let first = (!below.is_empty()).then_some(below.start);
        std::iter::successors(first, move |&child| {
            Some(self.end(child)).filter(|&next| next < below.end)
        })
    }

    /// The bytes of the nodes below this one.
    pub(crate) fn bytes_below(&self, node: usize) -> Bytes {
        self.below[node]
    }

    /// The tokens of the nodes below this one.
    pub(crate) fn tokens_below(&self, node: usize) -> &[u32] {
        let below = self.below(node);
        let tokens = self.nodes[below.start].tokens as usize..self.nodes[below.end].tokens as usize;
        &self.tokens[tokens]
    }

    /// The tokens of exactly this text.
    pub(crate) fn tokens(&self, node: usize) -> &[u32] {
        let tokens = self.nodes[node].tokens as usize..self.nodes[node + 1].tokens as usize;
        &self.tokens[tokens]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_has_its_node() {
        let texts: [&[u8]; 8] = [b"b", b"ab", b"", b"abc", b"ab", b"a", b"\xff", b"hidden"];
        let trie = Trie::new(texts.into_iter(), |token| token != 7);
        let mut found = Vec::new();
        let mut path: Vec<u8> = Vec::new();
        for node in trie.below(0) {
            path.truncate(trie.depth(node) - 1);
            path.push(trie.byte(node));
            found.push((path.clone(), trie.tokens(node).to_vec()));
        }
        let expected: [(&[u8], &[u32]); 5] = [
            (b"a", &[5]),
            (b"ab", &[1, 4]),
            (b"abc", &[3]),
            (b"b", &[0]),
            (b"\xff", &[6]),
        ];
        assert_eq!(
            found,
            expected.map(|(text, ids)| (text.to_vec(), ids.to_vec()))
        );
        let bytes = |bytes: &[u8]| Bytes::of(|byte| bytes.contains(&byte));
        assert!(trie.bytes_below(1).within(bytes(b"bc")));
        assert!(!trie.bytes_below(1).within(bytes(b"b")));
        assert!(!trie.bytes_below(0).within(bytes(b"abc")));
        assert!(trie.bytes_below(0).within(Bytes::of(|byte| byte >= 0x60)));
        assert!(!trie.bytes_below(0).within(Bytes::of(|byte| byte != 0xF0)));
        assert_eq!(trie.tokens_below(1), [1, 4, 3]);
        assert_eq!((trie.deepest(1), trie.longer_than(1)), (3, &[3, 1, 4][..]));
        let children: Vec<u8> = trie.children(0).map(|child| trie.byte(child)).collect();
        assert_eq!(children, b"ab\xff");
        assert_eq!((trie.text(3), trie.text(8)), (&b"abc"[..], &b""[..]));
    }
}
