//! Files of one tensor.

use std::path::Path;

use rustorch_tensor::Tensor;

use crate::error::FileResult;
use crate::format::{Format, load, save};
use crate::pt;
use crate::tensors::Tensors;

/// Saves and loads a tensor: `x.save("x.pt")?`, `Tensor::load("x.pt")?`.
///
/// ```
/// use rustorch_files::TensorFile;
/// use rustorch_tensor::{Tensor, tensor};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("x.pt");
/// tensor![1.0, 2.0].save(&path)?;
/// assert_eq!(Tensor::load(&path)?.shape(), [2]);
/// # Ok(())
/// # }
/// ```
pub trait TensorFile: Sized {
    /// Writes the tensor to a file, whose name decides the format as in [`save`]. A `.pt` file holds the
    /// tensor itself, as `torch.save(x, "x.pt")` writes it. Formats with names call it `tensor`.
    ///
    /// # Errors
    /// The errors of [`save`].
    fn save(&self, path: impl AsRef<Path>) -> FileResult<()>;

    /// Reads the only tensor of a file.
    ///
    /// # Errors
    /// The errors of [`load`]. Also fails unless the file holds exactly one tensor.
    fn load(path: impl AsRef<Path>) -> FileResult<Self>;
}

impl TensorFile for Tensor {
    fn save(&self, path: impl AsRef<Path>) -> FileResult<()> {
        let path = path.as_ref();
        match Format::of_name(path) {
            Some(Format::PyTorch) => pt::save_value(path, &self.clone().into()),
            _ => save(path, &Tensors::from(self.clone())),
        }
    }

    fn load(path: impl AsRef<Path>) -> FileResult<Self> {
        let path = path.as_ref();
        let tensors = load(path)?;
        let only = tensors.only().cloned();
        only.map_err(|error| error.in_file(path))
    }
}
