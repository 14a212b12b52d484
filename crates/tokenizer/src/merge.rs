//! Byte-pair merging, the step that both algorithms share.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The result of joining two neighbours.
#[derive(Clone, Copy)]
pub(crate) struct Join<S> {
    /// How eagerly they are joined: the lowest rank first.
    pub(crate) rank: u32,
    /// The symbol that takes their place.
    pub(crate) symbol: S,
}

/// Merges neighbouring symbols until none can be joined.
///
/// The pair of lowest rank is joined first and, of equals, the leftmost: the order of llama.cpp's
/// `llm_bigram_bpe` and `llm_bigram_spm`. It keeps its buffers between runs.
pub(crate) struct Merger<S> {
    links: Vec<Link<S>>,
    /// Ranks of joins and the left ones' indices. An entry is outdated if that link has no join of
    /// that rank any more.
    queue: BinaryHeap<Reverse<(u32, usize)>>,
}

/// A symbol in a doubly linked list that lives in a vector.
struct Link<S> {
    /// `None` once merged into the symbol before it.
    symbol: Option<S>,
    previous: Option<usize>,
    next: Option<usize>,
    /// The join with the next symbol.
    join: Option<Join<S>>,
}

impl<S: Copy> Merger<S> {
    /// Merges `symbols`, asking `join` which neighbours can be joined.
    pub(crate) fn run(
        &mut self,
        symbols: impl Iterator<Item = S>,
        join: impl Fn(S, S) -> Option<Join<S>>,
    ) -> impl Iterator<Item = S> {
        self.links.clear();
        self.links
            .extend(symbols.enumerate().map(|(at, symbol)| Link {
                symbol: Some(symbol),
                previous: at.checked_sub(1),
                next: Some(at + 1),
                join: None,
            }));
        if let Some(last) = self.links.last_mut() {
            last.next = None;
        }

        for left in 0..self.links.len() {
            self.update(left, &join);
        }
        while let Some(Reverse((rank, left))) = self.queue.pop() {
            let link = &mut self.links[left];
            let (Some(join_now), Some(right)) = (link.join, link.next) else {
                continue;
            };
            if join_now.rank != rank {
                continue;
            }
            link.symbol = Some(join_now.symbol);
            let previous = link.previous;

            let merged = &mut self.links[right];
            (merged.symbol, merged.join) = (None, None);
            let next = merged.next;
            self.links[left].next = next;
            if let Some(next) = next {
                self.links[next].previous = Some(left);
            }
            if let Some(previous) = previous {
                self.update(previous, &join);
            }
            self.update(left, &join);
        }
        self.links.iter().filter_map(|link| link.symbol)
    }

    /// Finds out whether a symbol can be joined with the next one now.
    fn update(&mut self, left: usize, join: impl Fn(S, S) -> Option<Join<S>>) {
        let next = self.links[left]
            .next
            .and_then(|right| self.links[right].symbol);
        let found = self.links[left]
            .symbol
            .zip(next)
            .and_then(|(symbol, next)| join(symbol, next));
        self.links[left].join = found;
        if let Some(Join { rank, .. }) = found {
            self.queue.push(Reverse((rank, left)));
        }
    }
}

impl<S> Default for Merger<S> {
    fn default() -> Self {
        Merger {
            links: Vec::new(),
            queue: BinaryHeap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges the characters of `text` by `rules`, (left, right) in order of rank; symbols are
    /// the spans they cover.
    fn merged(text: &'static str, rules: &[(&str, &str)]) -> Vec<&'static str> {
        let spans = (0..text.len()).map(|at| (at, at + 1));
        let join = |left: (usize, usize), right: (usize, usize)| {
            let pair = (&text[left.0..left.1], &text[right.0..right.1]);
            let rank = rules.iter().position(|rule| *rule == pair)?;
            Some(Join {
                rank: rank as u32,
                symbol: (left.0, right.1),
            })
        };
        Merger::default()
            .run(spans, join)
            .map(|(from, to)| &text[from..to])
            .collect()
    }

    #[test]
    fn the_lowest_rank_goes_first_wherever_it_is() {
        assert_eq!(merged("abc", &[("b", "c"), ("a", "b")]), ["a", "bc"]);
        assert_eq!(merged("abc", &[("a", "b"), ("b", "c")]), ["ab", "c"]);
        assert_eq!(
            merged("abcd", &[("b", "c"), ("a", "bc"), ("abc", "d")]),
            ["abcd"]
        );
    }

    #[test]
    fn of_equals_the_leftmost_goes_first() {
        assert_eq!(merged("aaaaa", &[("a", "a")]), ["aa", "aa", "a"]);
        assert_eq!(merged("aaaaa", &[("a", "a"), ("aa", "aa")]), ["aaaa", "a"]);
    }

    #[test]
    fn nothing_and_single_symbols_stay() {
        assert_eq!(merged("", &[("a", "a")]), [""; 0]);
        assert_eq!(merged("a", &[("a", "a")]), ["a"]);
        assert_eq!(merged("ab", &[]), ["a", "b"]);
    }
}
