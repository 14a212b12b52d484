//! Extent of tests that grow with operations and formats.

use std::io::{Write, stderr};
use std::process::Command;
use std::sync::LazyLock;

/// All tests, or a sample that changes with each commit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// All cases.
    Full,
    /// The sample with this number.
    Sample(u64),
}

impl Extent {
    /// The extent of tests: all cases if `RUSTORCH_TEST_FULL` is set. Else a sample, by
    /// `RUSTORCH_TEST_SEED`, a hexadecimal number, or the checked-out commit, or 0. Prints the
    /// choice once on standard error.
    ///
    /// # Panics
    /// Panics if `RUSTORCH_TEST_SEED` is not a seed.
    pub fn of_tests() -> Self {
        static OF_TESTS: LazyLock<Extent> = LazyLock::new(Extent::of_environment);
        *OF_TESTS
    }

    fn of_environment() -> Self {
        if std::env::var_os("RUSTORCH_TEST_FULL").is_some() {
            return Self::Full;
        }
        let given = std::env::var("RUSTORCH_TEST_SEED").ok();
        let name = given.or_else(commit).unwrap_or_else(|| "0".to_owned());
        let digits = name.get(..16).unwrap_or(&name);
        let seed = u64::from_str_radix(digits, 16)
            .unwrap_or_else(|_| panic!("RUSTORCH_TEST_SEED={name} is not a hexadecimal number"));
        // Past what the test harness captures. It is of no importance that nobody may read it.
        let _ = writeln!(
            stderr(),
            "a sample: RUSTORCH_TEST_SEED={seed:x} tries it again, RUSTORCH_TEST_FULL=1 all"
        );
        Self::Sample(seed)
    }

    /// `count` entries of a list, in order and spread out; or all.
    pub fn choose<T>(self, list: impl IntoIterator<Item = T>, count: usize) -> Vec<T> {
        let list: Vec<T> = list.into_iter().collect();
        let Self::Sample(seed) = self else {
            return list;
        };
        let n = list.len();
        let count = count.min(n);
        // One of each of so many parts of equal length.
        let chosen = (0..count).map(|part| {
            let (start, end) = (part * n / count, (part + 1) * n / count);
            start + (mixed(seed ^ part as u64) % (end - start) as u64) as usize
        });
        let mut chosen = chosen.peekable();
        let numbered = list.into_iter().enumerate();
        numbered
            .filter_map(|(i, x)| chosen.next_if_eq(&i).map(|_| x))
            .collect()
    }
}

/// The commit that is checked out, if that is known.
fn commit() -> Option<String> {
    let git = Command::new("git").args(["rev-parse", "HEAD"]).output();
    let output = git.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// A number without likeness to its neighbours'
/// ([SplitMix64](https://doi.org/10.1145/2714064.2660195)).
pub(crate) fn mixed(x: u64) -> u64 {
    let z = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn samples_are_of_their_size_in_order_and_meet_all_in_time() {
        for n in [0, 1, 7, 100] {
            let mut met = HashSet::new();
            for seed in 0..1000 {
                let chosen = Extent::Sample(seed).choose(0..n, 7);
                assert_eq!(chosen.len(), n.min(7));
                assert!(chosen.is_sorted_by(|a, b| a < b), "{chosen:?}");
                assert_eq!(chosen, Extent::Sample(seed).choose(0..n, 7));
                met.extend(chosen);
            }
            assert_eq!(met.len(), n);
            assert_eq!(Extent::Full.choose(0..n, 7).len(), n);
        }
    }
}
