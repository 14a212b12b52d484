//! What a benchmark is.

use rustorch_ir::DType;
use rustorch_tensor::{RusTorchResult, Tensor};

/// What a case does.
#[derive(Clone, Copy)]
pub(crate) enum Work {
    /// Computes something of operands of these shapes.
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
    /// What it is called.
    pub name: &'static str,
    /// What its sizes are.
    pub of: &'static str,
    /// Sizes that it is measured at, increasing.
    pub sizes: &'static [usize],
    /// Types that it is measured in.
    pub dtypes: &'static [DType],
    /// Is it for several devices together alone?
    pub is_hybrid: bool,
    pub(crate) work: Work,
}
