//! Transforms of samples: pictures `[c, h, w]` are cropped, rotated, resized and normalised, labels
//! become vectors. Random transforms depend only on a seed, the epoch and the sample's index. So a
//! resumed loader gives the same samples.

mod geometry;
mod values;

use std::sync::Arc;

use rustorch_tensor::Tensor;

use crate::dataset::{Batch, Dataset, stacked};
use crate::error::{DataError, DataResult};
use crate::order::Random;

pub use geometry::{CenterCrop, RandomCrop, RandomHorizontalFlip, Resize};
pub use values::{Normalize, OneHot, ToFloat};

/// A transform of one tensor of a sample.
pub trait Transform: Send + Sync {
    /// The transformed tensor. `random` has the numbers of this sample in this epoch.
    ///
    /// # Errors
    /// Fails for an unsupported dtype or shape.
    fn apply(&self, tensor: Tensor, random: &mut Random) -> DataResult<Tensor>;
}

/// Transforms in sequence.
#[derive(Default)]
pub struct Compose(Vec<Box<dyn Transform>>);

impl Compose {
    /// A list without transforms.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a transform.
    #[must_use]
    pub fn then(mut self, transform: impl Transform + 'static) -> Self {
        self.0.push(Box::new(transform));
        self
    }
}

impl Transform for Compose {
    fn apply(&self, tensor: Tensor, random: &mut Random) -> DataResult<Tensor> {
        (self.0.iter()).try_fold(tensor, |tensor, transform| transform.apply(tensor, random))
    }
}

/// A data set with transformed samples.
pub struct Transformed<D> {
    dataset: D,
    seed: u64,
    /// The index of a sample's tensor for each transform.
    transforms: Vec<(usize, Arc<dyn Transform>)>,
}

impl<D: Dataset> Transformed<D> {
    /// A data set whose transforms draw their numbers from `seed`.
    pub fn new(dataset: D, seed: u64) -> Self {
        Self {
            dataset,
            seed,
            transforms: Vec::new(),
        }
    }

    /// Appends a transform of the sample's tensor of this number.
    #[must_use]
    pub fn with(mut self, part: usize, transform: impl Transform + 'static) -> Self {
        self.transforms.push((part, Arc::new(transform)));
        self
    }

    fn changed(&self, mut sample: Batch, epoch: u64, index: usize) -> DataResult<Batch> {
        let mut random = Random::of_sample(self.seed, epoch, index);
        for (part, transform) in &self.transforms {
            let parts = sample.len();
            let tensor = sample.get_mut(*part).ok_or_else(|| {
                DataError::Other(format!(
                    "expected a tensor of a sample of {parts}, got number {part}"
                ))
            })?;
            *tensor = transform.apply(tensor.clone(), &mut random)?;
        }
        Ok(sample)
    }
}

impl<D: Dataset> Dataset for Transformed<D> {
    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn get(&self, index: usize) -> DataResult<Batch> {
        self.get_in(0, index)
    }

    fn get_batch(&self, indices: &[usize]) -> DataResult<Batch> {
        self.get_batch_in(0, indices)
    }

    fn get_in(&self, epoch: u64, index: usize) -> DataResult<Batch> {
        self.changed(self.dataset.get_in(epoch, index)?, epoch, index)
    }

    fn get_batch_in(&self, epoch: u64, indices: &[usize]) -> DataResult<Batch> {
        stacked(indices.iter().map(|&index| self.get_in(epoch, index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DataLoader, LoaderOptions, TensorDataset};

    fn loader(workers: usize) -> DataLoader<Transformed<TensorDataset>> {
        let pixels: Vec<u8> = (0..6 * 3 * 5 * 5).map(|i| (i % 251) as u8).collect();
        let images = Tensor::from_vec(pixels, [6, 3, 5, 5]).unwrap();
        let labels = Tensor::from_vec(vec![0i64, 1, 2, 0, 1, 2], 6).unwrap();
        let samples = TensorDataset::new(vec![images, labels]).unwrap();
        let crop = RandomCrop {
            height: 4,
            width: 4,
            padding: 1,
        };
        let change = Compose::new()
            .then(crop)
            .then(RandomHorizontalFlip { probability: 0.5 })
            .then(ToFloat);
        let samples = Transformed::new(samples, 9)
            .with(0, change)
            .with(1, OneHot { classes: 3 });
        let options = LoaderOptions {
            batch_size: 2,
            shuffle: Some(1),
            workers,
            ..LoaderOptions::default()
        };
        DataLoader::new(samples, options).unwrap()
    }

    #[test]
    fn what_is_random_is_gone_on_with_exactly_and_differs_by_epoch() {
        let pixels = |batch: DataResult<Batch>| batch.unwrap()[0].to_vec::<f32>().unwrap();
        let mut straight = loader(0);
        let expected: Vec<Vec<f32>> = (0..9).map(|_| pixels(straight.next_batch())).collect();
        for workers in [0, 2] {
            let mut state = Default::default();
            for expected in &expected {
                let mut resumed = loader(workers);
                resumed.set_state(state).unwrap();
                assert_eq!(pixels(resumed.next_batch()), *expected);
                state = resumed.state();
            }
        }
        let samples = loader(0);
        let of = |epoch| pixels(samples.dataset().get_in(epoch, 3));
        assert!(
            (1..9).any(|epoch| of(epoch) != of(0)),
            "one place in all epochs"
        );
        assert_eq!(of(1), of(1));
        let labels = samples.dataset().get(2).unwrap()[1]
            .to_vec::<f32>()
            .unwrap();
        assert_eq!(labels, [0.0, 0.0, 1.0]);
    }

    #[test]
    fn a_tensor_that_a_sample_lacks_is_told() {
        let samples = TensorDataset::new(vec![Tensor::from_vec(vec![1.0f32], 1).unwrap()]).unwrap();
        let samples = Transformed::new(samples, 0).with(1, ToFloat);
        let error = samples.get(0).unwrap_err().to_string();
        assert!(
            error.contains("expected a tensor of a sample of 1, got number 1"),
            "{error}"
        );
    }
}
