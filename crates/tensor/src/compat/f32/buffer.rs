//! Memory that devices share.

use rustorch_runtime::{DeviceType, Runtime};

use super::{F32MemoryPool, F32SyncManager, F32Tensor, F32Transfer};
use crate::Tensor;
use crate::args::dims::IntoShape;
use crate::error::RusTorchResult;
use crate::lazy::value::View;

/// Memory for `f32` tensors that the devices of a [`Runtime`] share if possible.
///
/// Its tensors lie in memory of its [pool](F32UnifiedBuffer::pool). Its
/// [manager](F32UnifiedBuffer::sync) tracks the devices that may read them. Where memory is
/// unified, nothing is copied.
pub struct F32UnifiedBuffer {
    pool: F32MemoryPool,
    sync: F32SyncManager,
}

impl F32UnifiedBuffer {
    /// An empty buffer for the devices of `runtime`.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            pool: F32MemoryPool::new(),
            sync: F32SyncManager::new(runtime),
        }
    }

    /// The runtime whose devices share the buffer.
    pub fn runtime(&self) -> &Runtime {
        self.sync.runtime()
    }

    /// The memory pool of its tensors.
    pub fn pool(&self) -> &F32MemoryPool {
        &self.pool
    }

    /// The devices that may read its tensors.
    pub fn sync(&self) -> &F32SyncManager {
        &self.sync
    }

    /// The elements `data`, in row-major order, in memory of the pool.
    ///
    /// # Errors
    /// Fails unless the number of elements matches the shape, or if the host is out of memory.
    pub fn from_slice(&self, data: &[f32], shape: impl IntoShape) -> RusTorchResult<F32Tensor> {
        let shape = shape.into_shape();
        let storage = self
            .pool
            .take("F32UnifiedBuffer::from_slice", data, &shape)?;
        self.runtime().write(&storage, bytemuck::cast_slice(data))?;
        self.sync.note(&storage);
        let tensor = Tensor::created(rustorch_ir::DType::F32, View::whole(storage, &shape))?;
        tensor.try_into()
    }

    /// [`F32SyncManager::transfer`] from the first Metal device to the first Core ML device. On a Mac they
    /// share memory, so nothing is copied.
    ///
    /// # Errors
    /// The same errors as [`F32SyncManager::transfer`].
    pub fn transfer_metal_to_coreml(&self, tensor: &F32Tensor) -> RusTorchResult<F32Transfer> {
        let first = |is_kind: fn(&DeviceType) -> bool| {
            let mut devices = self.runtime().devices().map(|info| info.device);
            devices.find(is_kind)
        };
        let metal = first(|device| matches!(device, DeviceType::Metal(_)));
        let coreml = first(|device| matches!(device, DeviceType::CoreML(_)));
        let from = metal.unwrap_or(DeviceType::Metal(0));
        self.sync
            .transfer(tensor, from, coreml.unwrap_or(DeviceType::CoreML(0)))
    }

    /// [`F32SyncManager::synchronize_all`].
    ///
    /// # Errors
    /// The errors of that method.
    pub fn synchronize_all(&self) -> RusTorchResult<usize> {
        self.sync.synchronize_all()
    }
}
