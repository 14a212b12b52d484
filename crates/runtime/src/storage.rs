//! Bytes that may be in the memory of several devices.

use std::sync::atomic::{AtomicBool, AtomicIsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;

use crate::{DeviceBuffer, DeviceError, DeviceMemory, DeviceType, FailureClass, HostBuffer};

/// A device of some runtime, as storages know it.
#[derive(Debug)]
pub(crate) struct Owner {
    pub(crate) device: DeviceType,
    lost: AtomicBool,
}

impl Owner {
    pub(crate) fn new(device: DeviceType) -> Arc<Self> {
        Arc::new(Self {
            device,
            lost: AtomicBool::new(false),
        })
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(crate) fn set_lost(&self) {
        self.lost.store(true, Ordering::Release);
    }
}

/// A device with the copy in its memory.
type Copy = (Arc<Owner>, Arc<dyn DeviceBuffer>);

/// The elements of a tensor, wherever they are: on the host, on devices, or both.
///
/// Clones are handles on the same bytes. Copies on further devices are made when they are
/// first needed there; a write leaves one valid copy.
#[derive(Clone, Debug)]
pub struct Storage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: usize,
    copies: Mutex<Copies>,
    /// Number of runs that read; −1 while one writes.
    users: AtomicIsize,
}

#[derive(Debug, Default)]
struct Copies {
    host: Option<HostBuffer>,
    devices: SmallVec<[Copy; 2]>,
}

impl Storage {
    /// Host memory.
    pub fn from_host(host: HostBuffer) -> Self {
        Self::new(host.bytes(), Some(host), SmallVec::new())
    }

    pub(crate) fn on_device(device: Arc<Owner>, buffer: Arc<dyn DeviceBuffer>) -> Self {
        let bytes = buffer.bytes();
        Self::new(bytes, None, [(device, buffer)].into_iter().collect())
    }

    fn new(bytes: usize, host: Option<HostBuffer>, devices: SmallVec<[Copy; 2]>) -> Self {
        Self(Arc::new(Inner {
            bytes,
            copies: Mutex::new(Copies { host, devices }),
            users: AtomicIsize::new(0),
        }))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Are both handles on the same bytes?
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that tells this storage from any other while a handle on it lives.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// A device that has a copy; `None` if only the host has one.
    pub(crate) fn device(&self) -> Option<DeviceType> {
        self.copies().devices.first().map(|(owner, _)| owner.device)
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        self.0.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a run; `false` if that must wait for another to end.
    pub(crate) fn acquire(&self, write: bool) -> bool {
        let change = |users| match (users, write) {
            (0, true) => Some(-1),
            (0.., false) => Some(users + 1),
            _ => None,
        };
        let users = &self.0.users;
        users
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, change)
            .is_ok()
    }

    /// Ends what [`Storage::acquire`] began.
    pub(crate) fn release(&self, write: bool) {
        let change = if write { 1 } else { -1 };
        self.0.users.fetch_add(change, Ordering::Release);
    }

    /// The copy on `device`, made if there is none yet. `write`: the caller is going to
    /// change it, so it has to be writable and becomes the only one.
    pub(crate) fn on(
        &self,
        device: &Arc<Owner>,
        memory: &dyn DeviceMemory,
        write: bool,
    ) -> Result<Arc<dyn DeviceBuffer>, StorageError> {
        let mut copies = self.copies();
        copies.devices.retain(|(owner, _)| !owner.is_lost());
        let found = copies.devices.iter().find(|(d, _)| Arc::ptr_eq(d, device));
        let buffer = match found {
            Some((_, buffer)) => buffer.clone(),
            None => {
                let buffer = match &copies.host {
                    Some(host) if !write || host.is_writable() => memory.adopt(host)?,
                    _ => {
                        let bytes = copies.read_all(self.0.bytes)?;
                        let buffer = memory.alloc(self.0.bytes)?;
                        // SAFETY: nobody else has the new buffer.
                        unsafe { buffer.write(0, &bytes)? };
                        buffer
                    }
                };
                copies.devices.push((device.clone(), buffer.clone()));
                buffer
            }
        };
        if write {
            let shared = match (&copies.host, buffer.host()?) {
                (Some(host), Some(own)) => own.same_memory(host),
                _ => false,
            };
            if !shared {
                copies.host = None;
            }
            copies.devices.retain(|(d, _)| Arc::ptr_eq(d, device));
        }
        Ok(buffer)
    }

    /// Copies the bytes from `offset` on to `to`.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), StorageError> {
        while !self.acquire(false) {
            std::thread::yield_now();
        }
        let mut copies = self.copies();
        copies.devices.retain(|(owner, _)| !owner.is_lost());
        let result = copies.read(offset, to);
        drop(copies);
        self.release(false);
        result
    }

    /// Replaces the bytes; the host's copy becomes the only one.
    pub(crate) fn write(&self, from: &[u8]) -> Result<(), StorageError> {
        while !self.acquire(true) {
            std::thread::yield_now();
        }
        let mut copies = self.copies();
        let result = copies.write(from);
        drop(copies);
        self.release(true);
        result
    }
}

impl Copies {
    fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), StorageError> {
        let buffer: &dyn DeviceBuffer = match (&self.host, self.devices.first()) {
            (Some(host), _) => host,
            (None, Some((_, buffer))) => &**buffer,
            (None, None) => return Err(StorageError::Gone),
        };
        // SAFETY: the storage was acquired, so no run writes to it.
        Ok(unsafe { buffer.read(offset, to) }?)
    }

    fn read_all(&self, bytes: usize) -> Result<Vec<u8>, StorageError> {
        let mut all = vec![0; bytes];
        self.read(0, &mut all)?;
        Ok(all)
    }

    fn write(&mut self, from: &[u8]) -> Result<(), StorageError> {
        // A copy that is the host's own memory stays valid.
        match &self.host {
            Some(host) if host.is_writable() => {
                // SAFETY: the storage was acquired for writing.
                unsafe { host.write(0, from)? };
                let host = host.clone();
                (self.devices)
                    .retain(|(_, b)| matches!(b.host(), Ok(Some(b)) if b.same_memory(&host)));
            }
            _ => {
                self.host = Some(HostBuffer::copy_of(from).ok_or(StorageError::NoHostMemory)?);
                self.devices.clear();
            }
        }
        Ok(())
    }
}

/// Why bytes could not be had.
#[derive(Debug)]
pub(crate) enum StorageError {
    /// No copy is left.
    Gone,
    /// The host has no memory for one.
    NoHostMemory,
    /// A device failed.
    Device(DeviceError),
}

impl From<DeviceError> for StorageError {
    fn from(e: DeviceError) -> Self {
        Self::Device(e)
    }
}

impl StorageError {
    /// As an error of `device`; `Err` gives back that nothing is left.
    pub(crate) fn on_device(self, device: crate::DeviceType) -> Option<DeviceError> {
        match self {
            Self::Gone => None,
            Self::NoHostMemory => Some(DeviceError::new(
                device,
                FailureClass::OutOfMemory { never_fits: false },
                "the host has no memory left",
            )),
            Self::Device(e) => Some(e),
        }
    }
}
