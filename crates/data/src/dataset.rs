//! Samples by their numbers.

use std::path::Path;
use std::sync::Arc;

use rustorch_files::Tensors;
use rustorch_tensor::Tensor;

use crate::error::{DataError, DataResult};

/// Tensors of a sample, or of several, one behind the other in a new first dimension: images and labels, say.
pub type Batch = Vec<Tensor>;

/// Samples that can be asked for in any order: `torch.utils.data.Dataset`.
pub trait Dataset: Send + Sync {
    /// How many samples there are.
    fn len(&self) -> usize;

    /// Are there none?
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tensors of a sample, whose number is below [`Self::len`].
    ///
    /// # Errors
    /// It cannot be read or made.
    fn get(&self, index: usize) -> DataResult<Batch>;

    /// The tensors of several samples, stacked.
    ///
    /// # Errors
    /// One cannot be read or made; their shapes differ.
    fn get_batch(&self, indices: &[usize]) -> DataResult<Batch> {
        stacked(indices.iter().map(|&index| self.get(index)))
    }

    /// [`Self::get`] in an epoch, which makes a difference where samples are changed at random.
    ///
    /// # Errors
    /// As [`Self::get`].
    fn get_in(&self, _epoch: u64, index: usize) -> DataResult<Batch> {
        self.get(index)
    }

    /// [`Self::get_batch`] in an epoch, which makes a difference where samples are changed at random.
    ///
    /// # Errors
    /// As [`Self::get_batch`].
    fn get_batch_in(&self, _epoch: u64, indices: &[usize]) -> DataResult<Batch> {
        self.get_batch(indices)
    }
}

/// Samples in new first dimensions of their tensors.
pub(crate) fn stacked(samples: impl Iterator<Item = DataResult<Batch>>) -> DataResult<Batch> {
    let samples: Vec<Batch> = samples.collect::<Result<_, _>>()?;
    let parts = samples.first().map_or(0, Vec::len);
    let stack = |part| {
        let tensors: Option<Vec<Tensor>> = samples
            .iter()
            .map(|sample| sample.get(part).cloned())
            .collect();
        let tensors = tensors
            .ok_or_else(|| DataError::Other("samples with fewer tensors than others".to_owned()))?;
        Ok(Tensor::stack(&tensors, 0)?)
    };
    (0..parts).map(stack).collect()
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

/// Samples that are rows of tensors: `torch.utils.data.TensorDataset`.
pub struct TensorDataset {
    tensors: Batch,
    len: usize,
}

impl TensorDataset {
    /// Of tensors with equally many rows.
    ///
    /// # Errors
    /// No tensors, one of rank 0, or with another number of rows.
    pub fn new(tensors: Batch) -> DataResult<Self> {
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
                let shapes = shapes.join(", ");
                Err(DataError::Other(format!(
                    "expected tensors with equally many rows, got shapes {shapes}"
                )))
            }
        }
    }
}

impl TensorDataset {
    /// Of tensors in a file, by their names: `.npz`, `.safetensors` and the other formats of
    /// [`rustorch_files`]. The one of a file without names, such as `.npy`, has whatever name is asked for. They stay where
    /// the file is mapped.
    ///
    /// # Errors
    /// The file is damaged, or lacks one; as [`Self::new`].
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
        Self::new(tensors).map_err(|error| DataError::in_file(path, error))
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

    fn get(&self, index: usize) -> DataResult<Batch> {
        let row = |tensor: &Tensor| Ok(tensor.select(0, index as isize)?);
        self.tensors.iter().map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zeros(rows: usize) -> Tensor {
        Tensor::from_vec(vec![0.0f32; 2 * rows], [rows, 2]).unwrap()
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
