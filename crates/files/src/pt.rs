//! PyTorch's files, `.pt` and `.pth`, as `torch.save` writes them.
//!
//! Source: `torch/serialization.py` and `torch/_utils.py` of PyTorch 2.15. Since PyTorch 1.6 a file is an
//! uncompressed zip archive. It has a pickle (`data.pkl`) and the aligned bytes of each storage (`data/KEY`);
//! before, it was several pickles and then the storages. Both are read. The pickle runs no code: it may name
//! functions of a closed list only, and any other name is an error.

mod place;
mod reading;
mod value;
mod writing;

use std::path::Path;

use rustorch_macros::track_calls;

use crate::error::FileResult;
use crate::source::Source;
use crate::tensors::Tensors;

pub use value::{Key, Value};
pub use writing::{save, save_value, write, write_value};

/// Deepest nesting of containers.
const DEEPEST: usize = 100;

/// The pickle that begins files of the older format: the number 0x1950a86a20f9469cfc6c, of protocol 2.
pub(crate) const LEGACY_MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

/// Reads the tensors of a file, such as a module's `state_dict()`, by [`Value::tensors`]. They stay
/// in the mapped file, with their saved strides.
///
/// # Errors
/// Fails if the file cannot be read or has a wrong format. Also fails for values other than tensors
/// and plain data.
#[track_calls(pt)]
pub fn load(path: impl AsRef<Path>) -> FileResult<Tensors> {
    crate::source::reading(path.as_ref(), read)
}

/// [`load`] of bytes.
///
/// # Errors
/// The same errors as [`load`].
#[track_calls(pt)]
pub fn read(source: &Source) -> FileResult<Tensors> {
    read_value(source)?.tensors()
}

/// Reads the whole content of a file, as `torch.load(weights_only=True)` does: a checkpoint with
/// its numbers and texts.
///
/// ```
/// use rustorch_files::pt::{self, Value};
/// use rustorch_tensor::tensor;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("checkpoint.pt");
/// let model = Value::dict([("fc.weight", tensor![[1.0, 2.0]])]);
/// let rates: Vec<Value> = vec![0.1.into(), 0.01.into()];
/// pt::save_value(&path, &Value::dict([("model", model), ("epoch", 3.into()), ("rates", rates.into())]))?;
///
/// let checkpoint = pt::load_value(&path)?;
/// assert_eq!(checkpoint["epoch"].as_int()?, 3);
/// assert_eq!(checkpoint["rates"][1].as_float()?, 0.01);
/// assert_eq!(checkpoint["model"].tensors()?.get("fc.weight")?.shape(), [1, 2]);
/// let error = checkpoint.get("modle").unwrap_err().to_string();
/// assert_eq!(error, "there is no `modle` in a dictionary, which has `model`, `epoch`, `rates`");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// The same errors as [`load`].
#[track_calls(pt)]
pub fn load_value(path: impl AsRef<Path>) -> FileResult<Value> {
    crate::source::reading(path.as_ref(), read_value)
}

/// [`load_value`] of bytes.
///
/// # Errors
/// The same errors as [`load`].
#[track_calls(pt)]
pub fn read_value(source: &Source) -> FileResult<Value> {
    match source.starts_with(LEGACY_MAGIC) {
        true => reading::legacy(source),
        false => reading::archive(source),
    }
}
