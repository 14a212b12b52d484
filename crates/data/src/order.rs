//! The order of samples.

/// The numbers below `len` in an order that follows from `seed` and `epoch` alone, each as likely as any other:
/// Fisher and Yates' shuffle by SplitMix64 ([Steele et al.](https://doi.org/10.1145/2714064.2660195)).
pub fn permutation(len: usize, seed: u64, epoch: u64) -> Vec<usize> {
    // Seeds and epochs that are near each other begin far apart.
    let mut random = SplitMix(SplitMix(seed).next() ^ SplitMix(!epoch).next());
    let mut order: Vec<usize> = (0..len).collect();
    for last in (1..len).rev() {
        order.swap(last, random.below(last as u64 + 1) as usize);
    }
    order
}

struct SplitMix(u64);

impl SplitMix {
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
    fn every_place_is_as_likely() {
        let mut first = [0; 5];
        (0..5000).for_each(|epoch| first[permutation(5, 3, epoch)[0]] += 1);
        assert!(
            first.iter().all(|&count| (850..1150).contains(&count)),
            "{first:?}"
        );
    }
}
