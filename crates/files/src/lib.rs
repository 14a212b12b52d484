//! Files of tensors.
//!
//! [`load`] and [`save`] read and write a file of any format. Each format has a module. Tensors stay in the mapped
//! file, if their numbers are aligned and in the machine's byte order. Then nothing is copied, and a device that uses
//! the host's memory computes with them there.
//!
//! A file is never trusted: whatever its bytes, reading it gives tensors, or one [`FileError`] with the problem, the
//! place, and advice. No code in a file is run. Memory is taken only for data that the file really holds.
//!
//! ```
//! use rustorch_files::{Tensors, load, save};
//! use rustorch_tensor::Tensor;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("model.safetensors");
//! let mut tensors = Tensors::new();
//! tensors.insert("weight", Tensor::from_slice(&[1.0f32, 2.0], [2, 1])?);
//! tensors.metadata.insert("format".into(), "pt".into());
//! save(&path, &tensors)?;
//!
//! let tensors = load(&path)?;
//! assert_eq!(tensors.get("weight")?.shape(), [2, 1]);
//! assert_eq!(tensors.metadata["format"], "pt");
//! # Ok(())
//! # }
//! ```

// The code that `track_calls` writes looks for it here.
use rustorch_tensor::call;

pub mod dlpack;
mod elements;
mod error;
mod format;
pub mod gguf;
#[cfg(feature = "image")]
pub mod image;
mod literal;
#[cfg(feature = "ndarray")]
pub mod ndarray;
pub mod npy;
pub mod npz;
mod pickle;
pub mod pt;
pub mod raw;
pub mod safetensors;
mod source;
mod tensor;
mod tensors;
mod zip;

pub use error::{FileError, FileResult};
pub use format::{Format, load, read, save};
pub use source::Source;
pub use tensor::TensorFile;
pub use tensors::Tensors;
