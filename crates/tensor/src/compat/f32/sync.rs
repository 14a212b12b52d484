//! Access to tensors by devices, and transfers.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustorch_ir::OpError;
use rustorch_runtime::{DeviceType, Routing, Runtime, Storage, TransferMethod, WeakStorage};

use super::F32Tensor;
use crate::Activity;
use crate::device::devices::with_runtime;
use crate::error::RusTorchResult;

/// The result of [`F32SyncManager::transfer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct F32Transfer {
    /// Path of the bytes from one device to the other.
    pub method: TransferMethod,
    /// The runtime's counters during the transfer.
    pub activity: Activity,
}

/// Tracks the last writer and the possible readers of each of its tensors. Moves tensors, and makes
/// all of them visible to the host. [`Runtime::memory`] counts its copies.
pub struct F32SyncManager {
    runtime: Runtime,
    tensors: Mutex<Vec<WeakStorage>>,
}

impl F32SyncManager {
    pub(super) fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            tensors: Mutex::default(),
        }
    }

    /// The runtime whose devices share the tensors.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Tracks a storage.
    pub(super) fn note(&self, storage: &Storage) {
        self.list().push(storage.downgrade());
    }

    /// Tracks a tensor that was made elsewhere. Computes it, by the rules of the f32 hybrid, unless
    /// it is computed already.
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
        storage.ok_or_else(|| OpError::new("F32SyncManager", "a value", "a placeholder").into())
    }

    /// The list, without those that are gone.
    fn list(&self) -> MutexGuard<'_, Vec<WeakStorage>> {
        let list = self.tensors.lock();
        let mut list = list.unwrap_or_else(PoisonError::into_inner);
        list.retain(|weak| weak.upgrade().is_some());
        list
    }

    /// The last device that wrote a tensor's elements.
    ///
    /// # Errors
    /// See [`eval_all`](crate::eval_all).
    pub fn writer(&self, tensor: &F32Tensor) -> RusTorchResult<DeviceType> {
        Ok(self.storage(tensor)?.last_writer())
    }

    /// The devices that can read a tensor's elements now, without a copy and without waiting for a
    /// write. The host is [`DeviceType::Cpu`].
    ///
    /// # Errors
    /// See [`eval_all`](crate::eval_all).
    pub fn readers(&self, tensor: &F32Tensor) -> RusTorchResult<Vec<DeviceType>> {
        Ok(self.storage(tensor)?.valid_on().into_vec())
    }

    /// Brings a tensor's elements from one device to another. Both share them until a write.
    ///
    /// # Errors
    /// Fails if `from` lacks the current elements, if there is no device `to`, or if a device
    /// fails.
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
                true => "a tensor whose elements were lost with their device".to_owned(),
                false => format!("one of {}", places.join(", ")),
            };
            let expected = format_args!("a tensor that {from} can read");
            return Err(OpError::new("F32SyncManager::transfer", expected, got).into());
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

    /// Makes device writes to any of its tensors visible to the host. It copies only if a device
    /// has its own memory. Returns the number of tensors that had to wait.
    ///
    /// # Errors
    /// Fails if elements were lost with their device, or if the host is out of memory. All other
    /// tensors are synchronized nevertheless.
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
}
