//! Hashes of graphs and their parts, in a few nanoseconds.

use std::hash::Hasher;

/// Mixes words by folded multiplication, as [wyhash](https://github.com/wangyi-fudan/wyhash) does.
/// The upper half of a product of 128 bits is added to the lower one without carries. It does not
/// protect against chosen keys; entries that are found are compared.
#[derive(Clone, Default, Debug)]
pub struct FoldingHasher(u64);

impl FoldingHasher {
    #[inline]
    fn add(&mut self, word: u64) {
        let product =
            u128::from(self.0 ^ 0xa076_1d64_78bd_642f) * u128::from(word ^ 0xe703_7ed1_a0b4_28db);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for FoldingHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(last));
        }
    }

    #[inline]
    fn write_u8(&mut self, word: u8) {
        self.add(word.into());
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.add(word.into());
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::BuildHasher;
    use std::hash::BuildHasherDefault;

    use super::*;

    #[test]
    fn words_that_differ_little_have_hashes_that_differ_much() {
        let hash = |words: [u64; 2]| BuildHasherDefault::<FoldingHasher>::default().hash_one(words);
        let small = (0..100).flat_map(|a| (0..100).map(move |b| hash([a, b])));
        let (mut low, mut high) = (HashSet::new(), HashSet::new());
        for hash in small {
            low.insert(hash as u32);
            high.insert(hash >> 32);
        }
        // Among 10⁴ of 2³² numbers, a collision is expected once in a hundred times.
        assert!(
            low.len() > 9990 && high.len() > 9990,
            "{} {}",
            low.len(),
            high.len()
        );
    }
}
