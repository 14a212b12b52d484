//! The definition of a benchmark.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

/// Work of a case.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Computes an operation on operands of these shapes.
    Compute {
        operands: fn(usize) -> Vec<Vec<usize>>,
        call: fn(&[Tensor]) -> RusTorchResult<Tensor>,
        /// Multiplications and additions, of a product.
        flops: fn(usize) -> f64,
    },
    /// Copies elements from the host to the device.
    Upload,
    /// Copies elements from the device to the host.
    Download,
}

/// A benchmark.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name of the benchmark.
    pub name: &'static str,
    /// Description of its sizes.
    pub of: &'static str,
    /// Sizes of the measurement, ascending.
    pub sizes: &'static [usize],
    /// Types of the measurement.
    pub dtypes: &'static [DType],
    /// Whether it needs several devices together.
    pub is_hybrid: bool,
    pub(crate) work: Work,
}
