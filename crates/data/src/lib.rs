//! Data for training: samples by index, read from files and transformed at random, in batches whose order can
//! be resumed.
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
//!     let batch = batch?; // the last batch has one sample
//!     assert_eq!(batch[0].shape()[1..], [1]);
//! }
//! // An epoch is over; the next one has another order.
//! assert_eq!(loader.state().epoch, 1);
//! # Ok(())
//! # }
//! ```

//!
//! Sources of samples are [`TensorDataset`] (also from `.npy`, `.npz` and safetensors),
//! [`TextDataset`], [`mnist()`], [`cifar10`] and [`cifar100`]. Features of the same names add
//! `read_csv` (`csv`), pictures in folders (`image`: PNG and JPEG) and `read_parquet` (`parquet`).
//! [`Transformed`] changes them by [`transforms`]. [`Subset`] and [`random_split`] select parts of
//! them, and a [`Sampler`] sets their order.

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
mod sampler;
mod subset;
mod table;
mod text;
pub mod transforms;

pub use cifar::{Labels, cifar10, cifar100, parse_cifar100};
#[cfg(feature = "csv")]
pub use csv::{CsvOptions, parse_csv, read_csv};
pub use dataset::{Batch, Dataset, TensorDataset, default_collate};
pub use error::{DataError, DataResult};
#[cfg(feature = "image")]
pub use folder::{ImageFolder, parse_image, read_image};
pub use loader::{DataLoader, LoaderOptions, LoaderState};
pub use mnist::{Split, mnist, parse_idx, read_idx};
pub use order::{Random, permutation};
#[cfg(feature = "parquet")]
pub use parquet::{parse_parquet, read_parquet};
pub use sampler::{
    BatchSampler, RandomSampler, Sampler, SequentialSampler, SubsetRandomSampler,
    WeightedRandomSampler,
};
pub use subset::{IntoLengths, Lengths, Subset, random_split};
pub use table::{Column, Table};
pub use text::TextDataset;
pub use transforms::{Compose, Transform, Transformed};
