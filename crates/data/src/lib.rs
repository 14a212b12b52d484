//! Data for training: samples by their numbers, and batches of them in an order that can be gone on with.
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

mod dataset;
mod error;
mod loader;
mod order;

pub use dataset::{Batch, Dataset, TensorDataset};
pub use error::{DataError, DataResult};
pub use loader::{DataLoader, LoaderOptions, LoaderState};
pub use order::permutation;
