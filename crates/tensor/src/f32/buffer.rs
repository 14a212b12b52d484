//! Memory that devices share, and who may read it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustorch_ir::{OpError, Shape};
use rustorch_runtime::{
    DeviceType, HostPool, HostPoolCounters, Routing, Runtime, Storage, TransferMethod, WeakStorage,
};

use super::F32Tensor;
use crate::devices::with_runtime;
use crate::dims::IntoShape;
use crate::error::{RusTorchError, RusTorchResult, require};
use crate::value::View;
use crate::{Activity, Tensor};

/// Bytes that are kept to be used again.
const KEPT: usize = 256 << 20;

/// Memory for `f32` tensors that the devices of a [`Runtime`] share, as far as they can.
///
/// Tensors made by it lie in host memory that comes back to its pool when they are dropped, and
/// that devices which share the host's memory use in place. It knows who wrote each of its
/// tensors last and who may read it, moves them, and makes all of them visible to the host. What
/// it copies is counted by [`Runtime::memory`]: where memory is unified, nothing is.
pub struct F32UnifiedBuffer {
    runtime: Runtime,
    pool: HostPool,
    tensors: Mutex<Vec<WeakStorage>>,
}

/// What [`F32UnifiedBuffer::transfer`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct F32Transfer {
    /// How bytes get from the one device to the other.
    pub method: TransferMethod,
    /// What the runtime counted meanwhile.
    pub activity: Activity,
}

impl F32UnifiedBuffer {
    /// An empty buffer for the devices of `runtime`.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            pool: HostPool::new(KEPT),
            tensors: Mutex::default(),
        }
    }

    /// The runtime whose devices share it.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The elements `data`, in row-major order, in memory of the pool.
    ///
    /// # Errors
    /// Another number of elements than the shape has; the host is out of memory.
    pub fn from_slice(&self, data: &[f32], shape: impl IntoShape) -> RusTorchResult<F32Tensor> {
        const NAME: &str = "F32UnifiedBuffer::from_slice";
        let shape = Shape::from(&shape.into_shape()[..]);
        let expected = format_args!("{} elements for {shape}", shape.elements());
        require(NAME, shape.elements() == data.len(), expected, data.len())?;
        let bytes: &[u8] = bytemuck::cast_slice(data);
        let memory = self.pool.take(bytes.len());
        let storage = Storage::from_host(memory.ok_or(RusTorchError::OutOfMemory {
            op: NAME,
            bytes: bytes.len(),
        })?);
        self.runtime.write(&storage, bytes)?;
        self.list().push(storage.downgrade());
        let tensor = Tensor::created(rustorch_ir::DType::F32, View::whole(storage, &shape))?;
        tensor.try_into()
    }

    /// Takes part in what happens to a tensor that was made elsewhere; computes it, by the rules
    /// of the f32 hybrid, if that was not done yet.
    ///
    /// # Errors
    /// See [`eval_all`](crate::eval_all).
    pub fn adopt(&self, tensor: &F32Tensor) -> RusTorchResult<()> {
        let storage = self.storage(tensor)?;
        let mut list = self.list();
        let is_it = |weak: &WeakStorage| weak.upgrade().is_some_and(|s| s.same_as(&storage));
        if !list.iter().any(is_it) {
            list.push(storage.downgrade());
        }
        Ok(())
    }

    fn storage(&self, tensor: &F32Tensor) -> RusTorchResult<Storage> {
        with_runtime(&self.runtime, Routing::F32_HYBRID, || tensor.eval())?;
        let storage = tensor.as_ref().storage_in_memory();
        storage.ok_or_else(|| OpError::new("F32UnifiedBuffer", "a value", "a placeholder").into())
    }

    /// The list, without those that are gone.
    fn list(&self) -> MutexGuard<'_, Vec<WeakStorage>> {
        let list = self.tensors.lock();
        let mut list = list.unwrap_or_else(PoisonError::into_inner);
        list.retain(|weak| weak.upgrade().is_some());
        list
    }

    /// Who wrote a tensor's elements last.
    ///
    /// # Errors
    /// See [`eval_all`](crate::eval_all).
    pub fn writer(&self, tensor: &F32Tensor) -> RusTorchResult<DeviceType> {
        Ok(self.storage(tensor)?.last_writer())
    }

    /// Who may read a tensor's elements as they are now, without a copy and without waiting for
    /// what was written; the host goes by [`DeviceType::Cpu`].
    ///
    /// # Errors
    /// See [`eval_all`](crate::eval_all).
    pub fn readers(&self, tensor: &F32Tensor) -> RusTorchResult<Vec<DeviceType>> {
        Ok(self.storage(tensor)?.valid_on().into_vec())
    }

    /// Brings a tensor's elements from one device to another, which then share them until
    /// somebody writes; the host goes by [`DeviceType::Cpu`].
    ///
    /// # Errors
    /// `from` does not have them as they are now; there is no device `to`; a device fails.
    pub fn transfer(
        &self,
        tensor: &F32Tensor,
        from: DeviceType,
        to: DeviceType,
    ) -> RusTorchResult<F32Transfer> {
        let storage = self.storage(tensor)?;
        let valid = storage.valid_on();
        if !valid.contains(&from) {
            let places: Vec<String> = valid.iter().map(DeviceType::to_string).collect();
            let got = match places.is_empty() {
                true => "one whose elements were lost with their device".to_owned(),
                false => format!("one of {}", places.join(", ")),
            };
            let expected = format_args!("a tensor that {from} can read");
            return Err(OpError::new("F32UnifiedBuffer::transfer", expected, got).into());
        }
        let before = Activity::of(&self.runtime);
        match to {
            DeviceType::Cpu => self.runtime.synchronize(&storage)?,
            device => self.runtime.place(&storage, device)?,
        }
        Ok(F32Transfer {
            method: self.runtime.memory().optimize_transfer(from, to),
            activity: Activity::of(&self.runtime).since(before),
        })
    }

    /// [`Self::transfer`] from the first Metal device to the first Core ML device. On a Mac they
    /// have one memory, so nothing is copied.
    ///
    /// # Errors
    /// As [`Self::transfer`].
    pub fn transfer_metal_to_coreml(&self, tensor: &F32Tensor) -> RusTorchResult<F32Transfer> {
        let first = |is_kind: fn(&DeviceType) -> bool| {
            let mut devices = self.runtime.devices().map(|info| info.device);
            devices.find(is_kind)
        };
        let metal = first(|device| matches!(device, DeviceType::Metal(_)));
        let coreml = first(|device| matches!(device, DeviceType::CoreML(_)));
        let from = metal.unwrap_or(DeviceType::Metal(0));
        self.transfer(tensor, from, coreml.unwrap_or(DeviceType::CoreML(0)))
    }

    /// Makes what devices wrote to any of its tensors visible to the host, by a copy only where
    /// a device has memory of its own. Returns how many tensors had to wait for it.
    ///
    /// # Errors
    /// Elements were lost with their device; the host is out of memory. All others are
    /// synchronized nevertheless.
    pub fn synchronize_all(&self) -> RusTorchResult<usize> {
        let list = self.list();
        let tensors = list.iter().filter_map(WeakStorage::upgrade);
        let unseen = tensors.filter(|s| !s.valid_on().contains(&DeviceType::Cpu));
        let mut count = 0;
        let mut result = Ok(());
        for storage in unseen {
            count += 1;
            result = result.and(self.runtime.synchronize(&storage));
        }
        result?;
        Ok(count)
    }

    /// How often memory could be used again, and how much there is.
    pub fn counters(&self) -> HostPoolCounters {
        self.pool.counters()
    }

    /// Gives memory that nobody uses back to the system.
    pub fn trim(&self) {
        self.pool.trim();
    }
}
