//! Block-quantised number formats: layout, quantise, dequantise.
//!
//! The formats are those of [ggml](https://github.com/ggml-org/ggml), which GGUF files hold. Each has its own
//! file with its block as a plain struct. The struct's bytes are those in a GGUF file.
//! [`BlockFormat`] names them at run time and converts rows, [`Block`] does so at compile time.
//!
//! Quantising gives the bytes of ggml's reference quantisers (`quantize_row_*_ref`, no importance matrix).
//! Dequantising gives the values of the Python package `gguf`, bit for bit: f32 arithmetic in the same order,
//! no product fused with a sum. ggml's C code means that, and its x86 builds do it; a build whose compiler
//! fuses them, as on ARM, may differ in a last bit.
//!
//! ```
//! use rustorch_quant::BlockFormat;
//!
//! let format: BlockFormat = "Q8_0".parse()?;
//! let row = [0.5_f32; 64];
//! let mut bytes = vec![0; format.row_bytes(row.len()).expect("64 values are two blocks")];
//! format.quantize(&row, &mut bytes)?;
//!
//! let mut back = [0.0; 64];
//! format.dequantize(&bytes, &mut back)?;
//! assert!(back.iter().all(|value| (value - 0.5).abs() < 1e-3));
//! # Ok::<(), rustorch_quant::QuantError>(())
//! ```

#[cfg(target_endian = "big")]
compile_error!(
    "blocks are used in place as their bytes, which are little-endian: build for such a target"
);

mod affine;
mod bits;
mod error;
mod format;
mod numerics;
mod packed_scales;
mod symmetric;

pub use error::QuantError;
pub use format::*;
pub use packed_scales::unpack_scales_mins;
