//! Data sets: samples by index.

use std::path::Path;
use std::sync::Arc;

use rustorch_files::Tensors;
use rustorch_tensor::Tensor;

use crate::error::{DataError, DataResult, called};

/// Tensors of a sample, or of several samples stacked in a new first dimension, such as images and labels.
pub type Batch = Vec<Tensor>;

/// Samples that can be read in any order: `torch.utils.data.Dataset`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a data set",
    label = "expected a data set",
    note = "`TensorDataset::new(vec![x, y])?` makes one of tensors with equally many rows; others have `impl Dataset`, with `len` and `get`"
)]
pub trait Dataset: Send + Sync {
    /// Number of samples.
    fn len(&self) -> usize;

    /// Returns whether the data set is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tensors of a sample, whose index is below [`Self::len`].
    ///
    /// # Errors
    /// Fails if the sample cannot be read or made.
    fn get(&self, index: usize) -> DataResult<Batch>;

    /// The tensors of several samples, stacked as [`default_collate`] does.
    ///
    /// # Errors
    /// Fails if a sample cannot be read or made, if the list is empty, or if shapes differ.
    fn get_batch(&self, indices: &[usize]) -> DataResult<Batch> {
        stacked(indices.iter().map(|&index| self.get(index)))
    }

    /// [`Self::get`] in an epoch, for samples that change at random.
    ///
    /// # Errors
    /// The same errors as [`Self::get`].
    fn get_in(&self, _epoch: u64, index: usize) -> DataResult<Batch> {
        self.get(index)
    }

    /// [`Self::get_batch`] in an epoch, for samples that change at random.
    ///
    /// # Errors
    /// The same errors as [`Self::get_batch`].
    fn get_batch_in(&self, _epoch: u64, indices: &[usize]) -> DataResult<Batch> {
        self.get_batch(indices)
    }
}

/// Samples in new first dimensions of their tensors.
pub(crate) fn stacked(samples: impl Iterator<Item = DataResult<Batch>>) -> DataResult<Batch> {
    collated(&samples.collect::<DataResult<Vec<_>>>()?)
}

/// A batch of samples, stacked tensor by tensor: `torch.utils.data.default_collate`.
///
/// # Errors
/// Fails for no samples. Also fails for samples with different numbers of tensors or different
/// shapes.
#[track_caller]
pub fn default_collate(samples: Vec<Batch>) -> DataResult<Batch> {
    called("default_collate", collated(&samples))
}

fn collated(samples: &[Batch]) -> DataResult<Batch> {
    let parts = match samples.first() {
        Some(first) => first.len(),
        None => return Err(empty()),
    };
    if let Some(other) = samples.iter().find(|sample| sample.len() != parts) {
        return Err(DataError::Other(format!(
            "expected samples of {parts} tensors, as the first of the batch, got one of {}",
            other.len()
        )));
    }
    let stack = |part: usize| {
        let tensors: Vec<Tensor> = samples.iter().map(|sample| sample[part].clone()).collect();
        let other = tensors.iter().find(|t| t.shape() != tensors[0].shape());
        match other {
            None => Ok(Tensor::stack(&tensors, 0)?),
            Some(other) => Err(DataError::Other(format!(
                "expected samples of one shape, got {:?} and {:?} as tensor {part}; \
                 DataLoader::collate_fn takes a function that pads them",
                tensors[0].shape(),
                other.shape()
            ))),
        }
    };
    (0..parts).map(stack).collect()
}

/// The error of a batch that has no samples.
pub(crate) fn empty() -> DataError {
    DataError::Other("expected a batch of at least one sample, got none".to_owned())
}

/// Fails unless there is a sample of this number.
pub(crate) fn check_index(index: usize, samples: usize) -> DataResult<()> {
    match index < samples {
        true => Ok(()),
        false => Err(DataError::Other(format!(
            "expected a sample's index below {samples}, got {index}"
        ))),
    }
}

impl<D: Dataset + ?Sized> Dataset for Arc<D> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn get(&self, index: usize) -> DataResult<Batch> {
        (**self).get(index)
    }

    fn get_batch(&self, indices: &[usize]) -> DataResult<Batch> {
        (**self).get_batch(indices)
    }

    fn get_in(&self, epoch: u64, index: usize) -> DataResult<Batch> {
        (**self).get_in(epoch, index)
    }

    fn get_batch_in(&self, epoch: u64, indices: &[usize]) -> DataResult<Batch> {
        (**self).get_batch_in(epoch, indices)
    }
}

/// A data set whose samples are rows of tensors: `torch.utils.data.TensorDataset`.
pub struct TensorDataset {
    tensors: Batch,
    len: usize,
}

impl TensorDataset {
    /// A data set of tensors with equally many rows.
    ///
    /// # Errors
    /// Fails for no tensors, for one of rank 0, or for different numbers of rows.
    #[track_caller]
    pub fn new(tensors: Batch) -> DataResult<Self> {
        called("TensorDataset.new", Self::of(tensors))
    }

    fn of(tensors: Batch) -> DataResult<Self> {
        let rows = |tensor: &Tensor| tensor.shape().first().copied();
        let len = tensors.first().and_then(rows);
        match len {
            Some(len) if tensors.iter().all(|tensor| rows(tensor) == Some(len)) => {
                Ok(Self { tensors, len })
            }
            _ => {
                let shapes: Vec<String> = tensors
                    .iter()
                    .map(|tensor| format!("{:?}", tensor.shape()))
                    .collect();
                let shapes = match shapes.is_empty() {
                    true => "no tensors".to_owned(),
                    false => format!("shapes {}", shapes.join(", ")),
                };
                Err(DataError::Other(format!(
                    "expected tensors with equally many rows, got {shapes}"
                )))
            }
        }
    }
}

impl TensorDataset {
    /// A data set of tensors from a file, by name: `.npz`, `.safetensors` and the other formats of
    /// [`rustorch_files`]. The only tensor of a file without names, such as `.npy`, matches any
    /// name. The tensors stay in the mapped file.
    ///
    /// # Errors
    /// Fails if the file is damaged or lacks one of the names. Also the errors of [`Self::new`].
    pub fn from_file(path: impl AsRef<Path>, names: &[&str]) -> DataResult<Self> {
        let path = path.as_ref();
        let tensors = rustorch_files::load(path)?;
        let only = tensors.opt(Tensors::ONLY).filter(|_| tensors.len() == 1);
        let named = |name: &&str| match only {
            Some(tensor) => Ok(tensor.clone()),
            None => tensors.get(name).cloned(),
        };
        let named = names.iter().map(named).collect::<Result<Vec<_>, _>>();
        let tensors = named.map_err(|error| DataError::in_file(path, error))?;
        Self::of(tensors).map_err(|error| DataError::in_file(path, error))
    }

    /// The tensors.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
}

impl Dataset for TensorDataset {
    fn len(&self) -> usize {
        self.len
    }

    #[track_caller]
    fn get(&self, index: usize) -> DataResult<Batch> {
        called("TensorDataset.get", check_index(index, self.len))?;
        let row = |tensor: &Tensor| Ok(tensor.select(0, index as isize)?);
        self.tensors.iter().map(row).collect()
    }

    /// Row indices are data, so all batches of one size share a plan.
    fn get_batch(&self, indices: &[usize]) -> DataResult<Batch> {
        if indices.is_empty() {
            return Err(empty());
        }
        indices
            .iter()
            .try_for_each(|&index| check_index(index, self.len))?;
        let places: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
        let places = Tensor::from_vec(places, indices.len())?;
        let rows = |tensor: &Tensor| Ok(tensor.index_select(0, &places)?);
        self.tensors.iter().map(rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use rustorch_ir::DType;
    use rustorch_runtime::{Routing, Runtime};
    use rustorch_tensor::{host, with_runtime};

    use super::*;
    use crate::error::tests::assert_told;

    fn zeros(rows: usize) -> Tensor {
        Tensor::from_vec(vec![0.0f32; 2 * rows], [rows, 2]).unwrap()
    }

    #[test]
    fn samples_that_make_no_batch_are_refused() {
        let of = |lengths: &[usize]| -> Batch { lengths.iter().map(|&rows| zeros(rows)).collect() };
        for (samples, said) in [
            (vec![], "expected a batch of at least one sample, got none"),
            (
                vec![of(&[1, 2]), of(&[1])],
                "expected samples of 2 tensors, as the first of the batch, got one of 1",
            ),
            (
                vec![of(&[1]), of(&[1, 2])],
                "expected samples of 1 tensors, as the first of the batch, got one of 2",
            ),
            (
                vec![of(&[1, 2]), of(&[1, 3])],
                "expected samples of one shape, got [2, 2] and [3, 2] as tensor 1; \
                 DataLoader::collate_fn takes a function that pads them",
            ),
        ] {
            let error = default_collate(samples).unwrap_err().to_string();
            assert_told(&error, said);
        }
        let batch = default_collate(vec![of(&[1, 2]), of(&[1, 2])]).unwrap();
        assert_eq!([batch[0].shape(), batch[1].shape()], [[2, 1, 2], [2, 2, 2]]);
        let samples = TensorDataset::new(of(&[3])).unwrap();
        assert!(samples.get_batch(&[]).is_err());
        let error = samples.get(3).unwrap_err().to_string();
        assert_told(&error, "expected a sample's index below 3, got 3");
    }

    #[test]
    fn batches_of_a_size_have_one_plan() {
        let runtime = Runtime::new(host(1));
        with_runtime(&runtime, Routing::AUTO, || {
            let rows = Tensor::arange_with(0, 60, 1, DType::F32).unwrap();
            let rows = rows.reshape([20, 3]).unwrap();
            rows.eval().unwrap();
            let samples = TensorDataset::new(vec![rows]).unwrap();
            let before = runtime.plans().new;
            for i in 0..20 {
                let batch = samples.get_batch(&[i, 7, (i * i) % 20, i]).unwrap();
                let row = |row: usize| [0, 1, 2].map(|i| (3 * row + i) as f32);
                let expected = [i, 7, (i * i) % 20, i].map(row).concat();
                assert_eq!(batch[0].to_vec::<f32>().unwrap(), expected);
            }
            assert_eq!(runtime.plans().new, before + 1);
            let error = samples.get_batch(&[3, 20]).unwrap_err().to_string();
            assert_eq!(error, "expected a sample's index below 20, got 20");
        });
    }

    #[test]
    fn tensors_of_files_are_those_that_were_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let save = |name: &str, tensors: &[(&str, usize)]| {
            let mut file = Tensors::new();
            for &(name, rows) in tensors {
                file.insert(name, zeros(rows));
            }
            let path = folder.path().join(name);
            rustorch_files::save(&path, &file).unwrap();
            path
        };
        let both = save("both.npz", &[("x", 3), ("y", 3), ("z", 4)]);
        assert_eq!(
            TensorDataset::from_file(&both, &["y", "x"]).unwrap().len(),
            3
        );
        let one = save("one.npz", &[("x", 5)]);
        assert_eq!(TensorDataset::from_file(&one, &["x"]).unwrap().len(), 5);
        // An array without a name is the one that is meant.
        let npy = save("x.npy", &[("x", 6)]);
        assert_eq!(
            TensorDataset::from_file(&npy, &["images"]).unwrap().len(),
            6
        );
        for (path, names, told) in [
            (&both, &["x", "z"][..], "equally many rows"),
            (&both, &[], "equally many rows"),
            // Not `x` in its place, as of a file without names.
            (&one, &["labels"], "labels"),
            (&one, &["x", "labels"], "labels"),
        ] {
            let error = TensorDataset::from_file(path, names)
                .err()
                .unwrap()
                .to_string();
            let is_named = error.contains(".npz") && error.contains(told);
            assert!(is_named && !error.contains('\n'), "{error}");
        }
    }
}
