//! Finds the keys that a text begins with.

/// A set of byte strings, each with a number.
///
/// Nodes are beginnings of keys, in order of their lengths and then of their bytes. So the children of a node
/// lie beside one another.
pub(crate) struct Trie {
    /// The last byte of each node.
    bytes: Vec<u8>,
    /// The first child of each node; its children end where those of the next node begin.
    children: Vec<u32>,
    /// The number of the key that each node is.
    values: Vec<Option<u32>>,
}

const ROOT: u32 = 0;

impl Trie {
    /// The trie of these keys. The last of equal keys counts. Empty keys are never found.
    pub(crate) fn new<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = (K, u32)>) -> Self {
        let mut keys: Vec<(K, u32)> = keys.into_iter().collect();
        keys.sort_by(|(a, _), (b, _)| a.as_ref().cmp(b.as_ref()));

        let mut trie = Trie {
            bytes: vec![0],
            children: Vec::new(),
            values: Vec::new(),
        };
        // The keys that begin with each node of the current length.
        let mut nodes = vec![&keys[..]];
        let mut length = 0;
        while !nodes.is_empty() {
            let mut longer = Vec::new();
            for keys in nodes {
                let ends = keys.partition_point(|(key, _)| key.as_ref().len() == length);
                trie.children.push(trie.bytes.len() as u32);
                trie.values
                    .push(keys[..ends].last().map(|&(_, value)| value));
                let next = |key: &K| key.as_ref()[length];
                for child in keys[ends..].chunk_by(|(a, _), (b, _)| next(a) == next(b)) {
                    trie.bytes.push(next(&child[0].0));
                    longer.push(child);
                }
            }
            nodes = longer;
            length += 1;
        }
        trie.children.push(trie.bytes.len() as u32);
        trie
    }

    /// The nodes on the way along `text`, the shortest first.
    fn walk(&self, text: &[u8]) -> impl Iterator<Item = u32> {
        text.iter().scan(ROOT, |node, &byte| {
            let first = self.children[*node as usize];
            let end = self.children[*node as usize + 1];
            let siblings = &self.bytes[first as usize..end as usize];
            let place = siblings.binary_search(&byte).ok()?;
            *node = first + place as u32;
            Some(*node)
        })
    }

    /// The lengths and numbers of the keys that `text` begins with, the shortest first.
    pub(crate) fn prefixes(&self, text: &[u8]) -> impl Iterator<Item = (usize, u32)> {
        let lengths = (1..).zip(self.walk(text));
        lengths.filter_map(|(length, node)| Some((length, self.values[node as usize]?)))
    }

    /// The length and number of the longest key that `text` begins with.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, u32)> {
        self.prefixes(text).last()
    }

    /// The length of the longest beginning of `text` that is the beginning of a key.
    pub(crate) fn shared(&self, text: &[u8]) -> usize {
        self.walk(text).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_their_beginnings() {
        let keys = [
            ("ab", 1),
            ("abcd", 2),
            ("b", 3),
            ("", 4),
            ("é", 5),
            ("ab", 6),
        ];
        let trie = Trie::new(keys);
        let found = |text: &str| trie.prefixes(text.as_bytes()).collect::<Vec<_>>();
        assert_eq!(found("abcde"), [(2, 6), (4, 2)]);
        assert_eq!(found("abc"), [(2, 6)]);
        assert_eq!(found("é"), [(2, 5)]);
        assert_eq!(found("xb"), []);
        assert_eq!(found(""), []);
        assert_eq!(trie.longest(b"abcd"), Some((4, 2)));
        assert_eq!(trie.longest(b"a"), None);
        assert_eq!(
            [&b"abcx"[..], b"abx", b"\xc3", b"x", b""].map(|it| trie.shared(it)),
            [3, 2, 1, 0, 0]
        );
    }

    #[test]
    fn no_keys_are_a_trie_too() {
        let trie = Trie::new([("", 0); 0]);
        assert_eq!((trie.longest(b"a"), trie.shared(b"a")), (None, 0));
    }
}
