//! Parts of data sets.

use std::sync::Arc;

use rustorch_tensor::Generator;

use crate::dataset::{Batch, Dataset, check_index};
use crate::error::{DataError, DataResult, called};
use crate::order::permutation;

/// Samples of another data set by their indices: `torch.utils.data.Subset`.
pub struct Subset<D> {
    dataset: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    /// The samples with these indices, in this order. An index may occur several times.
    ///
    /// # Errors
    /// Fails if a number is not below the number of samples.
    #[track_caller]
    pub fn new(dataset: D, indices: Vec<usize>) -> DataResult<Self> {
        let len = dataset.len();
        let are_there = indices
            .iter()
            .try_for_each(|&index| check_index(index, len));
        called("Subset.new", are_there)?;
        Ok(Self { dataset, indices })
    }

    /// The original data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// Indices of its samples in the original data set.
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }

    fn index(&self, index: usize) -> DataResult<usize> {
        check_index(index, self.indices.len())?;
        Ok(self.indices[index])
    }

    fn all(&self, indices: &[usize]) -> DataResult<Vec<usize>> {
        indices.iter().map(|&index| self.index(index)).collect()
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    fn len(&self) -> usize {
        self.indices.len()
    }

    fn get(&self, index: usize) -> DataResult<Batch> {
        self.dataset.get(self.index(index)?)
    }

    fn get_batch(&self, indices: &[usize]) -> DataResult<Batch> {
        self.dataset.get_batch(&self.all(indices)?)
    }

    fn get_in(&self, epoch: u64, index: usize) -> DataResult<Batch> {
        self.dataset.get_in(epoch, self.index(index)?)
    }

    fn get_batch_in(&self, epoch: u64, indices: &[usize]) -> DataResult<Batch> {
        self.dataset.get_batch_in(epoch, &self.all(indices)?)
    }
}

/// Sizes of parts: numbers of samples, or fractions of all. An [`IntoLengths`] makes it.
#[derive(Clone, PartialEq, Debug)]
pub enum Lengths {
    /// Numbers of samples.
    Samples(Vec<usize>),
    /// Fractions, which add up to 1.
    Fractions(Vec<f64>),
}

/// Sizes of parts as an argument: `[80, 20]` or `[0.8, 0.2]`, as an array, slice or vector.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of lengths",
    label = "expected numbers of samples, or fractions",
    note = "lengths are an array, slice or vector of `usize` (`[80, 20]`), or of `f64` that add up to 1 (`[0.8, 0.2]`)"
)]
pub trait IntoLengths {
    /// The lengths.
    fn into_lengths(self) -> Lengths;
}

impl IntoLengths for Lengths {
    fn into_lengths(self) -> Lengths {
        self
    }
}

macro_rules! lengths {
    ($($Item:ty => $Kind:ident;)*) => {
        $(
            impl IntoLengths for Vec<$Item> {
                fn into_lengths(self) -> Lengths {
                    Lengths::$Kind(self)
                }
            }

            impl IntoLengths for &[$Item] {
                fn into_lengths(self) -> Lengths {
                    self.to_vec().into_lengths()
                }
            }

            impl<const N: usize> IntoLengths for [$Item; N] {
                fn into_lengths(self) -> Lengths {
                    self.to_vec().into_lengths()
                }
            }

            impl<const N: usize> IntoLengths for &[$Item; N] {
                fn into_lengths(self) -> Lengths {
                    self.to_vec().into_lengths()
                }
            }
        )*
    };
}

lengths! {
    usize => Samples;
    f64 => Fractions;
}

/// Tolerance of the sum of fractions: Python's `math.isclose`.
const CLOSE: f64 = 1e-9;

impl Lengths {
    /// Numbers of samples, which add up to all.
    fn of(self, samples: usize) -> DataResult<Vec<usize>> {
        let lengths = match self {
            Self::Samples(lengths) => lengths,
            Self::Fractions(fractions) => fractions_of(&fractions, samples)?,
        };
        let sum = lengths
            .iter()
            .try_fold(0usize, |sum, n| sum.checked_add(*n));
        match sum == Some(samples) {
            true => Ok(lengths),
            false => Err(DataError::Other(format!(
                "expected lengths that add up to {samples} samples, got {lengths:?}"
            ))),
        }
    }
}

/// Each fraction of `samples` samples, cut. The rest goes to the first ones, one each, as in PyTorch.
fn fractions_of(fractions: &[f64], samples: usize) -> DataResult<Vec<usize>> {
    let are_parts = fractions.iter().all(|part| (0.0..=1.0).contains(part));
    if !are_parts || (fractions.iter().sum::<f64>() - 1.0).abs() > CLOSE {
        return Err(DataError::Other(format!(
            "expected fractions from 0 to 1 that add up to 1, got {fractions:?}"
        )));
    }
    let cut = fractions
        .iter()
        .map(|part| (samples as f64 * part) as usize);
    let mut lengths: Vec<usize> = cut.collect();
    let left = samples.saturating_sub(lengths.iter().sum());
    let parts = lengths.len();
    (0..left).for_each(|i| lengths[i % parts] += 1);
    Ok(lengths)
}

/// Splits a data set at random into parts of these lengths: `torch.utils.data.random_split`. The
/// order depends on a number that `generator` draws. `manual_seed` restarts the
/// [`default_generator`](rustorch_tensor::default_generator). An empty part gives a warning.
///
/// ```
/// use rustorch_data::{Dataset, TensorDataset, random_split};
/// use rustorch_ir::DType;
/// use rustorch_tensor::{Generator, Tensor};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let samples = TensorDataset::new(vec![Tensor::arange_with(0, 10, 1, DType::I64)?])?;
/// let parts = random_split(samples, [0.8, 0.2], &Generator::new(42))?;
/// assert_eq!([parts[0].len(), parts[1].len()], [8, 2]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails for lengths that do not add up to the number of samples. Also fails for fractions that do
/// not add up to 1.
#[track_caller]
pub fn random_split<D: Dataset>(
    dataset: D,
    lengths: impl IntoLengths,
    generator: &Generator,
) -> DataResult<Vec<Subset<Arc<D>>>> {
    let dataset = Arc::new(dataset);
    let lengths = lengths.into_lengths().of(dataset.len());
    let lengths = called("random_split", lengths)?;
    let empty = lengths
        .iter()
        .enumerate()
        .filter(|(_, length)| **length == 0);
    empty.for_each(|(part, _)| tracing::warn!("random_split: part {part} has no samples"));
    let seed = generator.fork().initial_seed();
    let mut order = permutation(dataset.len(), seed, 0).into_iter();
    let part = |length| Subset {
        dataset: dataset.clone(),
        indices: order.by_ref().take(length).collect(),
    };
    Ok(lengths.into_iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use rustorch_tensor::Tensor;

    use super::*;
    use crate::TensorDataset;
    use crate::error::tests::assert_told;

    fn samples(len: usize) -> TensorDataset {
        let numbers: Vec<i64> = (0..len as i64).map(|i| 10 * i).collect();
        TensorDataset::new(vec![Tensor::from_vec(numbers, len).unwrap()]).unwrap()
    }

    /// Samples whose numbers are those of the epoch and of the sample.
    struct Seen;

    impl Dataset for Seen {
        fn len(&self) -> usize {
            5
        }

        fn get(&self, index: usize) -> DataResult<Batch> {
            self.get_in(0, index)
        }

        fn get_in(&self, epoch: u64, index: usize) -> DataResult<Batch> {
            Ok(vec![Tensor::from_vec(vec![epoch as i64, index as i64], 2)?])
        }

        fn get_batch_in(&self, epoch: u64, indices: &[usize]) -> DataResult<Batch> {
            let numbers: Vec<i64> = indices
                .iter()
                .map(|&i| (100 * epoch) as i64 + i as i64)
                .collect();
            let len = numbers.len();
            Ok(vec![Tensor::from_vec(numbers, len)?])
        }
    }

    fn numbers(batch: DataResult<Batch>) -> Vec<i64> {
        batch.unwrap()[0].to_vec().unwrap()
    }

    #[test]
    fn subsets_have_the_samples_of_their_numbers() {
        let part = Subset::new(samples(5), vec![4, 1, 1]).unwrap();
        assert_eq!((part.len(), part.indices()), (3, &[4, 1, 1][..]));
        assert_eq!(numbers(part.get(0)), [40]);
        assert_eq!(numbers(part.get_batch(&[2, 0])), [10, 40]);
        // A dataset that changes with the epoch gets a sample's number in the whole.
        let part = Subset::new(Subset::new(Seen, vec![3, 2, 1]).unwrap(), vec![2, 0]).unwrap();
        assert_eq!(numbers(part.get_in(7, 0)), [7, 1]);
        assert_eq!(numbers(part.get_batch_in(7, &[1, 0])), [703, 701]);
        assert_eq!(part.dataset().dataset().len(), 5);
    }

    #[test]
    fn numbers_of_no_sample_are_refused() {
        let error = Subset::new(samples(5), vec![4, 5]).err().unwrap();
        assert_told(
            &error.to_string(),
            "expected a sample's index below 5, got 5",
        );
        let part = Subset::new(samples(5), vec![4]).unwrap();
        for result in [
            part.get(1),
            part.get_in(2, 1),
            part.get_batch(&[0, 1]),
            part.get_batch_in(0, &[9]),
        ] {
            let error = result.unwrap_err().to_string();
            assert!(
                error.starts_with("expected a sample's index below 1"),
                "{error}"
            );
        }
        let none = Subset::new(samples(5), Vec::new()).unwrap();
        assert!(none.is_empty() && none.get(0).is_err());
    }

    #[test]
    fn parts_have_every_sample_once_and_follow_from_the_generator() {
        let split = |seed| random_split(samples(10), [7, 0, 3], &Generator::new(seed)).unwrap();
        let (_, warned) = rustorch_testing::warnings(|| split(5));
        assert_eq!(warned, ["random_split: part 1 has no samples"]);
        let parts = split(5);
        assert_eq!(
            parts.iter().map(|part| part.len()).collect::<Vec<_>>(),
            [7, 0, 3]
        );
        let mut all: Vec<usize> = parts
            .iter()
            .flat_map(|part| part.indices().to_vec())
            .collect();
        assert_eq!(
            all,
            split(5)
                .iter()
                .flat_map(|part| part.indices().to_vec())
                .collect::<Vec<_>>()
        );
        assert_ne!(parts[0].indices(), split(6)[0].indices());
        all.sort_unstable();
        assert!(all.into_iter().eq(0..10));
        // A generator goes on, so that its next split is another one.
        let generator = Generator::new(5);
        let next = || {
            random_split(samples(10), [0.5, 0.5], &generator).unwrap()[0]
                .indices()
                .to_vec()
        };
        assert_ne!(next(), next());
    }

    /// Lengths that PyTorch 2.15 gives.
    #[test]
    fn fractions_are_cut_and_what_is_left_goes_to_the_first() {
        for (samples, fractions, expected) in [
            (10, vec![0.8, 0.2], vec![8, 2]),
            (10, vec![0.3, 0.3, 0.4], vec![3, 3, 4]),
            (11, vec![0.5, 0.5], vec![6, 5]),
            (7, vec![0.1; 10], vec![1, 1, 1, 1, 1, 1, 1, 0, 0, 0]),
            (8, vec![0.3, 0.3, 0.4], vec![3, 2, 3]),
            (5, vec![1.0, 0.0], vec![5, 0]),
            (0, vec![0.5, 0.5], vec![0, 0]),
        ] {
            let lengths = Lengths::Fractions(fractions.clone()).of(samples).unwrap();
            assert_eq!(lengths, expected, "{fractions:?} of {samples}");
        }
    }

    #[test]
    fn lengths_that_do_not_add_up_are_refused() {
        let said = |lengths: Lengths| {
            let parts = random_split(samples(10), lengths, &Generator::new(0));
            parts.err().unwrap().to_string()
        };
        for lengths in [vec![7, 2], vec![11], vec![], vec![usize::MAX, 11]] {
            let expected = format!("expected lengths that add up to 10 samples, got {lengths:?}");
            assert_told(&said(lengths.into_lengths()), &expected);
        }
        for fractions in [
            vec![0.5, 0.4],
            vec![0.9, 0.2],
            vec![1.5, -0.5],
            vec![f64::NAN, 1.0],
            vec![],
        ] {
            let expected =
                format!("expected fractions from 0 to 1 that add up to 1, got {fractions:?}");
            assert_told(&said(fractions.into_lengths()), &expected);
        }
    }
}
