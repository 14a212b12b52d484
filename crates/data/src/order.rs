//! The order of samples.

/// A permutation of the numbers below `len` that depends only on `seed` and `epoch`: Fisher and
/// Yates' shuffle with SplitMix64 ([Steele et al.](https://doi.org/10.1145/2714064.2660195)).
pub fn permutation(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    shuffle(&mut order, &mut Random::of_epoch(seed, epoch));
    order
}

/// Puts a list into an order that is as likely as any other.
pub(crate) fn shuffle(list: &mut [usize], random: &mut Random) {
    for last in (1..list.len()).rev() {
        list.swap(last, random.below(last + 1));
    }
}

/// Random numbers that depend only on a seed, an epoch and a sample's index, in any thread.
#[derive(Clone, Debug)]
pub struct Random(SplitMix);

impl Random {
    /// The numbers of an epoch.
    pub(crate) fn of_epoch(seed: u64, epoch: u64) -> Self {
        Self(SplitMix::of(seed, epoch))
    }

    /// The random numbers of a sample.
    pub fn of_sample(seed: u64, epoch: u64, index: usize) -> Self {
        let of_epoch = SplitMix::of(seed, epoch).next();
        Self(SplitMix::of(of_epoch, index as u64))
    }

    /// An integer below `bound`; 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// A number from 0 to below 1.
    pub fn uniform(&mut self) -> f64 {
        const BITS: u32 = f64::MANTISSA_DIGITS;
        (self.0.next() >> (u64::BITS - BITS)) as f64 / (1u64 << BITS) as f64
    }
}

#[derive(Clone, Debug)]
struct SplitMix(u64);

impl SplitMix {
    /// Mixes two numbers. Neighbouring numbers give distant results.
    fn of(seed: u64, other: u64) -> Self {
        Self(Self(seed).next() ^ Self(!other).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, whose bias of less than `bound / 2⁶⁴` no one sees
    /// ([Lemire](https://arxiv.org/abs/1805.10941)).
    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The first numbers of seed 1234567, as in other implementations.
        let mut random = SplitMix(1_234_567);
        assert_eq!(
            [random.next(), random.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
    }

    #[test]
    fn an_order_has_every_number_and_follows_from_seed_and_epoch() {
        let order = permutation(1000, 1, 0);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        assert_eq!(order, permutation(1000, 1, 0));
        assert_ne!(order, permutation(1000, 1, 1));
        assert_ne!(order, permutation(1000, 2, 0));
        assert!(permutation(0, 1, 1).is_empty());
    }

    #[test]
    fn numbers_of_a_sample_follow_from_seed_epoch_and_index() {
        let first = |seed, epoch, index| Random::of_sample(seed, epoch, index).below(usize::MAX);
        let all = [
            first(1, 0, 0),
            first(1, 0, 1),
            first(1, 1, 0),
            first(2, 0, 0),
        ];
        assert_eq!(first(1, 0, 1), all[1]);
        assert!((1..4).all(|i| all[..i].iter().all(|other| *other != all[i])));
        let mut random = Random::of_sample(3, 0, 0);
        assert_eq!(random.below(0), 0);
        let mean = (0..1000).map(|_| random.uniform()).sum::<f64>() / 1000.0;
        assert!((0.45..0.55).contains(&mean), "{mean}");
    }

    #[test]
    fn every_place_is_as_likely() {
        let mut first = [0; 5];
        (0..5000).for_each(|epoch| first[permutation(5, 3, epoch)[0]] += 1);
        assert!(
            first.iter().all(|&count| (850..1150).contains(&count)),
            "{first:?}"
        );
    }
}
