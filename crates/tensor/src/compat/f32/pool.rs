//! A pool of host memory for `f32` tensors.

use rustorch_ir::Shape;
use rustorch_runtime::{HostPool, HostPoolCounters, Storage};

use crate::error::{RusTorchError, RusTorchResult, require};

/// Bytes that are kept to be used again.
const KEPT: usize = 256 << 20;

/// Host memory that devices with shared memory use in place. Memory that tensors release is used
/// again.
pub struct F32MemoryPool(HostPool);

impl F32MemoryPool {
    pub(super) fn new() -> Self {
        Self(HostPool::new(KEPT))
    }

    /// Memory for the elements `data` of a tensor of this shape.
    pub(super) fn take(
        &self,
        op: &'static str,
        data: &[f32],
        shape: &Shape,
    ) -> RusTorchResult<Storage> {
        let expected = format_args!("{} elements for {shape}", shape.elements());
        require(op, shape.elements() == data.len(), expected, data.len())?;
        let bytes = size_of_val(data);
        let memory = self.0.take(bytes);
        let memory = memory.ok_or(RusTorchError::OutOfMemory { op, bytes })?;
        Ok(Storage::from_host(memory))
    }

    /// Number of reuses, and bytes in the pool.
    pub fn counters(&self) -> HostPoolCounters {
        self.0.counters()
    }

    /// Returns unused memory to the system.
    pub fn trim(&self) {
        self.0.trim();
    }
}
