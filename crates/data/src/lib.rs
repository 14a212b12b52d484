//! Data for training: samples by their numbers, read from files and changed at random, and batches of them in an
//! order that can be gone on with.
//!
//! ```
//! use rustorch_data::{DataLoader, LoaderOptions, TensorDataset};
//! use rustorch_tensor::{RusTorchResult, Tensor, tensor};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let samples = TensorDataset::new(vec![tensor![[1.0], [2.0], [3.0]], tensor![10, 20, 30]])?;
//! let options = LoaderOptions { batch_size: 2, shuffle: Some(7), ..LoaderOptions::default() };
//! let mut loader = DataLoader::new(samples, options)?;
//! for batch in &mut loader {
//!     let batch = batch?; // of the last one there is one sample
//!     assert_eq!(batch[0].shape()[1..], [1]);
//! }
//! // An epoch is over; the next one has another order.
//! assert_eq!(loader.state().epoch, 1);
//! # Ok(())
//! # }
//! ```

//!
//! Samples come of tensors and files: [`TensorDataset`] (also of `.npy`, `.npz` and safetensors), [`TextDataset`],
//! [`mnist()`], [`cifar10`], [`cifar100`], and with the features of their names `read_csv` (`csv`), pictures in folders
//! (`image`: PNG and JPEG) and `read_parquet` (`parquet`). [`Transformed`] changes them by [`transforms`].

mod cifar;
#[cfg(feature = "csv")]
mod csv;
mod dataset;
mod error;
#[cfg(feature = "image")]
mod folder;
mod loader;
mod mnist;
mod order;
#[cfg(feature = "parquet")]
mod parquet;
mod table;
mod text;
pub mod transforms;

pub use cifar::{Labels, cifar10, cifar100, parse_cifar100};
#[cfg(feature = "csv")]
pub use csv::{CsvOptions, parse_csv, read_csv};
pub use dataset::{Batch, Dataset, TensorDataset};
pub use error::{DataError, DataResult};
#[cfg(feature = "image")]
pub use folder::{ImageFolder, parse_image, read_image};
pub use loader::{DataLoader, LoaderOptions, LoaderState};
pub use mnist::{Split, mnist, parse_idx, read_idx};
pub use order::{Random, permutation};
#[cfg(feature = "parquet")]
pub use parquet::{parse_parquet, read_parquet};
pub use table::{Column, Table};
pub use text::TextDataset;
pub use transforms::{Compose, Transform, Transformed};
