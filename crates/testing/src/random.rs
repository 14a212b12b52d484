//! Random numbers that are the same in every run.

use std::ops::Range;

/// SplitMix64 (Steele, Lea, Flood 2014): a small generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end - 1`.
    ///
    /// # Panics
    /// Panics if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.bits() % end as u64) as usize
    }

    /// One of the choices.
    ///
    /// # Panics
    /// Fails if there is none.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A range of at most 23 places before `end`.
    pub(crate) fn range(&mut self, end: usize) -> Range<usize> {
        let start = self.below(end);
        start..(start + self.below(24)).min(end)
    }
}
