//! Samplers: orders of samples.

use crate::error::{DataError, DataResult, called};
use crate::order::{Random, permutation, shuffle};

/// The order of an epoch's samples, or batches of them: `torch.utils.data.Sampler`.
///
/// A `Sampler` gives numbers of samples; a `Sampler<Vec<usize>>` gives those of whole batches. An order is a function of the
/// epoch alone, so that a loader continues exactly where it was.
///
/// ```
/// use rustorch_data::{DataLoader, LoaderOptions, Sampler, TensorDataset};
/// use rustorch_tensor::tensor;
///
/// /// Every second sample, in turns the even and the odd ones.
/// struct Halves(usize);
///
/// impl Sampler for Halves {
///     fn len(&self) -> usize {
///         self.0 / 2
///     }
///
///     fn epoch(&self, epoch: u64) -> Vec<usize> {
///         (0..self.len()).map(|i| 2 * i + (epoch % 2) as usize).collect()
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let samples = TensorDataset::new(vec![tensor![0, 1, 2, 3, 4, 5]])?;
/// let options = LoaderOptions { batch_size: 2, ..LoaderOptions::default() };
/// let mut loader = DataLoader::new(samples, options)?.sampler(Halves(6))?;
/// let first = loader.next_batch()?;
/// assert_eq!(first[0].to_vec::<i64>()?, [0, 2]);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sampler of `{T}`",
    label = "expected a sampler",
    note = "a sampler of samples is a `Sampler`, one of batches a `Sampler<Vec<usize>>`; `BatchSampler::new` makes batches of samples"
)]
pub trait Sampler<T = usize>: Send + Sync {
    /// Number of samples or batches in an epoch.
    fn len(&self) -> usize;

    /// Returns whether the data set is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The samples or batches of an epoch, in order. The same epoch always has the same order.
    fn epoch(&self, epoch: u64) -> Vec<T>;
}

impl<T, S: Sampler<T> + ?Sized> Sampler<T> for Box<S> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn epoch(&self, epoch: u64) -> Vec<T> {
        (**self).epoch(epoch)
    }
}

/// All samples in the order of their indices: `torch.utils.data.SequentialSampler`.
#[derive(Clone, Debug)]
pub struct SequentialSampler(usize);

impl SequentialSampler {
    /// Takes the number of samples.
    pub fn new(len: usize) -> Self {
        Self(len)
    }
}

impl Sampler for SequentialSampler {
    fn len(&self) -> usize {
        self.0
    }

    fn epoch(&self, _epoch: u64) -> Vec<usize> {
        (0..self.0).collect()
    }
}

/// Samples in random order: `torch.utils.data.RandomSampler`. Without replacement, each sample
/// comes once before any comes again.
#[derive(Clone, Debug)]
pub struct RandomSampler {
    samples: usize,
    seed: u64,
    replacement: bool,
    drawn: usize,
}

impl RandomSampler {
    /// Draws all samples once, without replacement. Each epoch has another order.
    pub fn new(samples: usize, seed: u64) -> Self {
        Self {
            samples,
            seed,
            replacement: false,
            drawn: samples,
        }
    }

    /// Sets whether samples are drawn with replacement.
    #[must_use]
    pub fn replacement(mut self, replacement: bool) -> Self {
        self.replacement = replacement;
        self
    }

    /// Sets the number of samples in an epoch.
    #[must_use]
    pub fn num_samples(mut self, num_samples: usize) -> Self {
        self.drawn = num_samples;
        self
    }
}

impl Sampler for RandomSampler {
    /// An epoch of no samples has nothing to draw from.
    fn len(&self) -> usize {
        if self.samples == 0 { 0 } else { self.drawn }
    }

    fn epoch(&self, epoch: u64) -> Vec<usize> {
        let mut random = Random::of_epoch(self.seed, epoch);
        if self.replacement {
            return (0..self.len())
                .map(|_| random.below(self.samples))
                .collect();
        }
        let mut order = Vec::new();
        while order.len() < self.len() {
            let start = order.len();
            order.extend(0..self.samples);
            shuffle(&mut order[start..], &mut random);
            order.truncate(self.len());
        }
        order
    }
}

/// Some samples in random order, without replacement: `torch.utils.data.SubsetRandomSampler`.
#[derive(Clone, Debug)]
pub struct SubsetRandomSampler {
    indices: Vec<usize>,
    seed: u64,
}

impl SubsetRandomSampler {
    /// Takes the indices of the samples. Each epoch has another order.
    pub fn new(indices: Vec<usize>, seed: u64) -> Self {
        Self { indices, seed }
    }
}

impl Sampler for SubsetRandomSampler {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn epoch(&self, epoch: u64) -> Vec<usize> {
        let order = permutation(self.indices.len(), self.seed, epoch);
        order.into_iter().map(|at| self.indices[at]).collect()
    }
}

/// Samples drawn by weights: `torch.utils.data.WeightedRandomSampler`.
#[derive(Clone, Debug)]
pub struct WeightedRandomSampler {
    weights: Vec<f64>,
    drawn: usize,
    replacement: bool,
    seed: u64,
}

impl WeightedRandomSampler {
    /// Draws `num_samples` in an epoch. Each sample has a weight; the weights need not add up to 1.
    ///
    /// # Errors
    /// Fails for a weight that is negative or not finite, or if all weights are 0. Also fails for no
    /// samples, or for too few weights above 0 when sampling without replacement.
    #[track_caller]
    pub fn new(
        weights: Vec<f64>,
        num_samples: usize,
        replacement: bool,
        seed: u64,
    ) -> DataResult<Self> {
        let are_weights = Self::check(&weights, num_samples, replacement);
        called("WeightedRandomSampler.new", are_weights)?;
        Ok(Self {
            weights,
            drawn: num_samples,
            replacement,
            seed,
        })
    }

    fn check(weights: &[f64], num_samples: usize, replacement: bool) -> DataResult<()> {
        if num_samples == 0 {
            return Err(DataError::Other(
                "expected num_samples above 0, got 0".to_owned(),
            ));
        }
        let wrong = weights.iter().position(|w| !w.is_finite() || *w < 0.0);
        if let Some(at) = wrong {
            return Err(DataError::Other(format!(
                "expected weights that are finite and not negative, got {} for sample {at}",
                weights[at]
            )));
        }
        if !weights.iter().sum::<f64>().is_finite() {
            return Err(DataError::Other(
                "expected weights whose sum is finite, got inf; divide them first".to_owned(),
            ));
        }
        let likely = weights.iter().filter(|w| **w > 0.0).count();
        let most = if replacement && likely > 0 {
            usize::MAX
        } else {
            likely
        };
        if num_samples > most {
            return Err(DataError::Other(format!(
                "expected a weight above 0 for each of {num_samples} samples, got {likely}; draw fewer, or with replacement"
            )));
        }
        Ok(())
    }

    fn with_replacement(&self, random: &mut Random) -> Vec<usize> {
        let sum = |sum: &mut f64, weight: &f64| {
            *sum += weight;
            Some(*sum)
        };
        let sums: Vec<f64> = self.weights.iter().scan(0.0, sum).collect();
        let all = sums.last().copied().unwrap_or(0.0);
        // Rounding may reach the sum itself, behind the last sample that has a weight.
        let last = self.weights.iter().rposition(|w| *w > 0.0).unwrap_or(0);
        let draw = |_| {
            let at = random.uniform() * all;
            sums.partition_point(|sum| *sum <= at).min(last)
        };
        (0..self.drawn).map(draw).collect()
    }

    /// Each sample gets a random waiting time, exponential by its weight, and the first ones are
    /// drawn ([Efraimidis and Spirakis](https://doi.org/10.1016/j.ipl.2005.11.003)).
    fn without_replacement(&self, random: &mut Random) -> Vec<usize> {
        let wait = |(at, weight): (usize, &f64)| {
            let wait = -(1.0 - random.uniform()).ln() / weight;
            (*weight > 0.0).then_some((wait, at))
        };
        let mut waits: Vec<(f64, usize)> =
            self.weights.iter().enumerate().filter_map(wait).collect();
        waits.sort_by(|a, b| a.0.total_cmp(&b.0));
        waits
            .into_iter()
            .take(self.drawn)
            .map(|(_, at)| at)
            .collect()
    }
}

impl Sampler for WeightedRandomSampler {
    fn len(&self) -> usize {
        self.drawn
    }

    fn epoch(&self, epoch: u64) -> Vec<usize> {
        let random = &mut Random::of_epoch(self.seed, epoch);
        match self.replacement {
            true => self.with_replacement(random),
            false => self.without_replacement(random),
        }
    }
}

/// Batches of another sampler's samples: `torch.utils.data.BatchSampler`.
#[derive(Clone, Debug)]
pub struct BatchSampler<S> {
    sampler: S,
    batch_size: usize,
    drop_last: bool,
}

impl<S: Sampler> BatchSampler<S> {
    /// Takes the batch size. With `drop_last` the last samples are dropped if they are too few for
    /// a batch.
    ///
    /// # Errors
    /// Fails for a batch size of 0.
    #[track_caller]
    pub fn new(sampler: S, batch_size: usize, drop_last: bool) -> DataResult<Self> {
        called("BatchSampler.new", Self::of(sampler, batch_size, drop_last))
    }

    pub(crate) fn of(sampler: S, batch_size: usize, drop_last: bool) -> DataResult<Self> {
        match batch_size {
            0 => Err(DataError::Other(
                "expected a batch size of at least 1, got 0".to_owned(),
            )),
            _ => Ok(Self {
                sampler,
                batch_size,
                drop_last,
            }),
        }
    }
}

impl<S: Sampler> BatchSampler<S> {
    /// The samples of an epoch in their order, and how many of them a batch has. All batches but the last are full.
    pub(crate) fn samples(&self, epoch: u64) -> (Vec<usize>, usize) {
        let mut order = self.sampler.epoch(epoch);
        if self.drop_last {
            order.truncate(order.len() / self.batch_size * self.batch_size);
        }
        (order, self.batch_size)
    }
}

impl<S: Sampler> Sampler<Vec<usize>> for BatchSampler<S> {
    fn len(&self) -> usize {
        let samples = self.sampler.len();
        match self.drop_last {
            true => samples / self.batch_size,
            false => samples.div_ceil(self.batch_size),
        }
    }

    fn epoch(&self, epoch: u64) -> Vec<Vec<usize>> {
        let (order, size) = self.samples(epoch);
        order.chunks(size).map(<[usize]>::to_vec).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::tests::assert_told;

    fn sorted(mut order: Vec<usize>) -> Vec<usize> {
        order.sort_unstable();
        order
    }

    #[test]
    fn orders_are_functions_of_seed_and_epoch() {
        let weights = vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        let weighted = |replacement, seed| {
            WeightedRandomSampler::new(weights.clone(), 7, replacement, seed).unwrap()
        };
        let samplers: [fn(u64) -> Box<dyn Sampler>; 3] = [
            |seed| Box::new(RandomSampler::new(20, seed)),
            |seed| Box::new(RandomSampler::new(20, seed).replacement(true)),
            |seed| Box::new(SubsetRandomSampler::new((5..25).collect(), seed)),
        ];
        let mut all: Vec<[Box<dyn Sampler>; 3]> =
            samplers.iter().map(|of| [of(1), of(1), of(2)]).collect();
        for replacement in [false, true] {
            all.push(
                [1, 1, 2].map(|seed| Box::new(weighted(replacement, seed)) as Box<dyn Sampler>),
            );
        }
        for [one, same, other] in all {
            assert_eq!(one.epoch(3), same.epoch(3));
            assert_eq!(one.epoch(3).len(), one.len());
            assert!((0..9).any(|epoch| one.epoch(epoch) != one.epoch(epoch + 1)));
            assert!((0..9).any(|epoch| one.epoch(epoch) != other.epoch(epoch)));
        }
        assert_eq!(SequentialSampler::new(3).epoch(8), [0, 1, 2]);
    }

    #[test]
    fn random_samples_come_again_only_with_replacement() {
        let once = RandomSampler::new(5, 3);
        assert_eq!(sorted(once.epoch(0)), [0, 1, 2, 3, 4]);
        // The order of a shuffled loader.
        assert_eq!(once.epoch(7), permutation(5, 3, 7));
        let more = once.clone().num_samples(12).epoch(0);
        assert_eq!(sorted(more[..5].to_vec()), [0, 1, 2, 3, 4]);
        assert_eq!(sorted(more[5..10].to_vec()), [0, 1, 2, 3, 4]);
        assert_ne!(more[..5], more[5..10]);
        assert!(more.len() == 12 && more[10] != more[11]);
        assert_eq!(once.num_samples(2).epoch(0).len(), 2);
        let mut counts = [0; 5];
        let again = RandomSampler::new(5, 3).replacement(true).num_samples(5000);
        again.epoch(0).into_iter().for_each(|at| counts[at] += 1);
        assert!(
            counts.iter().all(|count| (850..1150).contains(count)),
            "{counts:?}"
        );
        // Nothing can be drawn from no samples.
        for replacement in [false, true] {
            let none = RandomSampler::new(0, 1)
                .replacement(replacement)
                .num_samples(3);
            assert!(none.is_empty() && none.epoch(0).is_empty());
        }
        let some = SubsetRandomSampler::new(vec![9, 4, 7], 1);
        assert_eq!(sorted(some.epoch(2)), [4, 7, 9]);
        assert!(SubsetRandomSampler::new(Vec::new(), 1).epoch(0).is_empty());
    }

    #[test]
    fn weights_say_how_likely_samples_are() {
        let weights = vec![0.0, 1.0, 3.0, 0.0];
        let drawn = WeightedRandomSampler::new(weights.clone(), 8000, true, 1).unwrap();
        let ones = drawn.epoch(0).into_iter().filter(|at| *at == 1).count();
        assert!((1850..2150).contains(&ones), "{ones}");
        assert!(drawn.epoch(0).into_iter().all(|at| at == 1 || at == 2));
        // The first without replacement is as likely; the second is the other one.
        let both = WeightedRandomSampler::new(weights, 2, false, 1).unwrap();
        let orders: Vec<_> = (0..4000).map(|epoch| both.epoch(epoch)).collect();
        let first = orders.iter().filter(|order| order[0] == 1).count();
        assert!((900..1100).contains(&first), "{first}");
        assert!(orders.into_iter().all(|order| sorted(order) == [1, 2]));
    }

    #[test]
    fn weights_that_are_none_are_refused() {
        for (weights, number, replacement, said) in [
            (vec![1.0, -1.0], 1, true, "got -1 for sample 1"),
            (vec![f64::NAN], 1, true, "got NaN for sample 0"),
            (vec![1.0, f64::INFINITY], 1, false, "got inf for sample 1"),
            (vec![f64::MAX, f64::MAX], 1, true, "whose sum is finite"),
            (vec![0.0, 0.0], 1, true, "each of 1 samples, got 0"),
            (vec![], 1, true, "each of 1 samples, got 0"),
            (vec![1.0, 0.0, 1.0], 3, false, "each of 3 samples, got 2"),
            (vec![1.0], 0, true, "expected num_samples above 0, got 0"),
        ] {
            let error = WeightedRandomSampler::new(weights, number, replacement, 0);
            let error = error.unwrap_err().to_string();
            let begins = error.starts_with(concat!("WeightedRandomSampler.new at ", file!()));
            assert!(begins && error.contains(said), "{error}");
        }
    }

    #[test]
    fn batches_are_of_one_size_but_for_the_last() {
        let batches =
            |drop_last| BatchSampler::new(SequentialSampler::new(7), 3, drop_last).unwrap();
        assert_eq!(
            batches(false).epoch(0),
            [vec![0, 1, 2], vec![3, 4, 5], vec![6]]
        );
        assert_eq!(batches(true).epoch(0), [[0, 1, 2], [3, 4, 5]]);
        assert_eq!([batches(false).len(), batches(true).len()], [3, 2]);
        let error = BatchSampler::new(SequentialSampler::new(7), 0, false).unwrap_err();
        assert_told(
            &error.to_string(),
            "expected a batch size of at least 1, got 0",
        );
    }
}
