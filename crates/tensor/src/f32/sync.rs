//! Who may read which tensors, and bringing them there.

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustorch_ir::OpError;
use rustorch_runtime::{DeviceType, Routing, Runtime, Storage, TransferMethod, WeakStorage};

use super::F32Tensor;
use crate::Activity;
use crate::devices::with_runtime;
use crate::error::RusTorchResult;

/// What [`F32SyncManager::transfer`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct F32Transfer {
    /// How bytes get from the one device to the other.
    pub method: TransferMethod,
    /// What the runtime counted meanwhile.
    pub activity: Activity,
}

/// Knows who wrote each of its tensors last and who may read it, moves them, and makes all of them
/// visible to the host. What it copies is counted by [`Runtime::memory`].
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

    /// Takes part in what happens to a storage.
    pub(super) fn note(&self, storage: &Storage) {
        self.list().push(storage.downgrade());
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
        storage.ok_or_else(|| OpError::new("F32SyncManager", "a value", "a placeholder").into())
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
}
