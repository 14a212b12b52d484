//! Reading and writing GGUF model files.
//!
//! [`Gguf`] opens a model (one file or the parts of a split one), [`Metadata`] holds its keys,
//! [`TensorInfo`] describes a tensor, and [`GgufWriter`] writes a file. The format is documented in the source of the
//! `header` module.
//!
//! A file is never trusted. Reading it gives a model whose tensors all lie within the file, or one
//! [`GgufError`]. The error says what is wrong, where, and what to do. Memory is reserved only for
//! what the file can hold.
//!
//! ```no_run
//! use rustorch_gguf::Gguf;
//!
//! let model = Gguf::open("model.gguf")?;
//! println!("{} blocks", model.metadata.u32("llama.block_count")?);
//! for tensor in model.tensors() {
//!     println!("{} {:?} {}: {} bytes", tensor.name, tensor.shape(), tensor.ty, model.data(tensor).len());
//! }
//! # Ok::<(), rustorch_gguf::GgufError>(())
//! ```

mod cursor;
mod error;
mod ggml_type;
mod gguf;
mod header;
mod metadata;
mod sniff;
mod split;
mod storage;
mod tensor;
mod value;
mod writer;

pub use error::{GgufError, KeyProblem, SplitProblem, TensorProblem, io_advice, quoted};
pub use ggml_type::GgmlType;
pub use gguf::Gguf;
pub use metadata::{FromValue, Metadata};
pub use storage::{SharedBytes, TensorBytes};
pub use tensor::TensorInfo;
pub use value::{Array, Value, ValueType};
pub use writer::GgufWriter;
