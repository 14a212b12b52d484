//! CIFAR-10 and CIFAR-100 in their binary versions.
//!
//! Source: <https://www.cs.toronto.edu/~kriz/cifar.html>. A record has a label, or a coarse and a
//! fine one, and an image of 32 × 32 pixels: all of red, then green, then blue.

use std::path::Path;

use rustorch_tensor::Tensor;

use crate::dataset::TensorDataset;
use crate::error::{DataError, DataResult, reading};
use crate::mnist::Split;

/// Sides of an image, channels first.
const SHAPE: [usize; 3] = [3, 32, 32];

/// The set of CIFAR-100's labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// The 20 coarse classes.
    Coarse,
    /// The 100.
    Fine,
}

/// CIFAR-10 from a folder with `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`:
/// images `[n, 3, 32, 32]`, `u8`, and labels `[n]`, `i64`.
///
/// # Errors
/// Fails if a file is missing or damaged.
pub fn cifar10(folder: impl AsRef<Path>, split: Split) -> DataResult<TensorDataset> {
    let names = match split {
        Split::Train => (1..=5).map(|i| format!("data_batch_{i}.bin")).collect(),
        Split::Test => vec!["test_batch.bin".to_owned()],
    };
    let mut records = Records::default();
    for name in names {
        reading(&folder.as_ref().join(name), |source| {
            records.add(source, 0..1, 10)
        })?;
    }
    records.samples()
}

/// CIFAR-100 from a folder with `train.bin` and `test.bin`: images `[n, 3, 32, 32]`, `u8`, and
/// labels `[n]`, `i64`.
///
/// # Errors
/// Fails if a file is missing or damaged.
pub fn cifar100(
    folder: impl AsRef<Path>,
    split: Split,
    labels: Labels,
) -> DataResult<TensorDataset> {
    let name = match split {
        Split::Train => "train.bin",
        Split::Test => "test.bin",
    };
    reading(&folder.as_ref().join(name), |source| {
        parse_cifar100(source, labels)
    })
}

/// The samples in a file's bytes, as [`cifar100`].
///
/// # Errors
/// The errors of that method.
pub fn parse_cifar100(bytes: &[u8], labels: Labels) -> DataResult<TensorDataset> {
    let mut records = Records::default();
    let (label, classes) = match labels {
        Labels::Coarse => (0, 20),
        Labels::Fine => (1, 100),
    };
    records.add(bytes, label..2, classes)?;
    records.samples()
}

/// Images with their labels.
#[derive(Default)]
struct Records {
    images: Vec<u8>,
    labels: Vec<i64>,
}

impl Records {
    /// Adds the samples of a file. Its records begin with labels up to the end of the range; the label at the
    /// range's start is used.
    fn add(&mut self, bytes: &[u8], label: std::ops::Range<usize>, classes: u8) -> DataResult<()> {
        let record = label.end + SHAPE.iter().product::<usize>();
        if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
            let size = bytes.len();
            return Err(DataError::Damaged(format!(
                "expected records of {record} bytes, got a file of {size}; it is cut short, or another one"
            )));
        }
        for (i, record) in bytes.chunks_exact(record).enumerate() {
            let number = record[label.start];
            if number >= classes {
                return Err(DataError::Damaged(format!(
                    "record {i} has the label {number} of {classes}"
                )));
            }
            self.labels.push(number.into());
            self.images.extend(&record[label.end..]);
        }
        Ok(())
    }

    fn samples(self) -> DataResult<TensorDataset> {
        let n = self.labels.len();
        let [channels, height, width] = SHAPE;
        TensorDataset::new(vec![
            Tensor::from_vec(self.images, [n, channels, height, width])?,
            Tensor::from_vec(self.labels, n)?,
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dataset;

    fn record(labels: &[u8], pixel: u8) -> Vec<u8> {
        let mut record = labels.to_vec();
        record.extend((0..3072).map(|i| if i == 1024 { pixel } else { 0 }));
        record
    }

    #[test]
    fn batches_follow_each_other() {
        let folder = tempfile::tempdir().unwrap();
        for i in 1..=5 {
            let bytes = [record(&[i], i), record(&[9 - i], 0)].concat();
            std::fs::write(folder.path().join(format!("data_batch_{i}.bin")), bytes).unwrap();
        }
        let samples = cifar10(folder.path(), Split::Train).unwrap();
        assert_eq!(samples.len(), 10);
        let batch = samples.get_batch(&[8, 9]).unwrap();
        assert_eq!(batch[0].shape(), [2, 3, 32, 32]);
        assert_eq!(batch[1].to_vec::<i64>().unwrap(), [5, 4]);
        // The first pixel of green.
        assert_eq!(batch[0].to_vec::<u8>().unwrap()[1024], 5);
        let error = cifar10(folder.path(), Split::Test).err().unwrap();
        assert!(error.to_string().contains("test_batch.bin"), "{error}");
    }

    #[test]
    fn either_label_and_what_is_wrong() {
        let bytes = record(&[3, 77], 0);
        for (labels, expected) in [(Labels::Coarse, 3), (Labels::Fine, 77)] {
            let samples = parse_cifar100(&bytes, labels).unwrap();
            let label = &samples.get(0).unwrap()[1];
            assert_eq!(label.to_vec::<i64>().unwrap(), [expected]);
        }
        for (bytes, told) in [
            (&bytes[1..], "expected records of 3074 bytes"),
            (&[], "a file of 0"),
            (&record(&[0, 100], 0), "record 0 has the label 100"),
        ] {
            let error = parse_cifar100(bytes, Labels::Fine).err().unwrap();
            assert!(error.to_string().contains(told), "{error}");
        }
    }
}
