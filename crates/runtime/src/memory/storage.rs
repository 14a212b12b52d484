//! Bytes that may be in the memory of several devices.
//!
//! Devices that share the host's memory use one piece of it. Before the host, or another
//! device, reads or writes such memory, every device that shares it is asked for
//! [`DeviceBuffer::host`]: its own writes are then visible, and it will see those of others
//! with its next launch.

use std::sync::atomic::{AtomicIsize, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::task::Poll;

use smallvec::SmallVec;

use crate::journal::{Owner, lock};
use crate::memory::copies::{Copies, Copy, HostCopy, StorageError};
use crate::memory::moment::{Latest, Moment};
use crate::platform::{self, Instant};
use crate::{
    Call, DeviceBuffer, DeviceError, DeviceMemory, DeviceType, Fetch, HostBuffer, RunError,
};

/// The elements of a tensor, on the host, on devices, or both.
///
/// Clones are handles on the same bytes. A device gets a copy when it first needs one. A write
/// leaves one valid copy, and those in the same memory.
#[derive(Clone, Debug)]
pub struct Storage(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes: usize,
    copies: Mutex<Copies>,
    /// Number of runs that read; −1 while one writes.
    users: AtomicIsize,
    /// Moment of the last write over it.
    overwritten: Latest,
    /// Moment of the last recorded write, done or not.
    announced: Latest,
    /// Number of writes to it since it was made.
    version: AtomicU64,
}

/// A handle on a [`Storage`] that does not keep its bytes.
#[derive(Clone, Debug)]
pub struct WeakStorage(Weak<Inner>);

impl WeakStorage {
    /// The storage, if it still has a handle.
    pub fn upgrade(&self) -> Option<Storage> {
        self.0.upgrade().map(Storage)
    }
}

/// A [`Storage`]'s bytes that are being copied to the host by
/// [`Runtime::fetch`](crate::Runtime::fetch).
pub struct Fetched {
    storage: Storage,
    way: Option<(Arc<Owner>, Box<dyn Fetch>)>,
}

impl Fetched {
    /// Waits for the bytes, and writes them to `to`.
    ///
    /// # Errors
    /// The same errors as [`Runtime::read`](crate::Runtime::read).
    pub fn read(self, to: &mut [u8]) -> Result<(), RunError> {
        if let Some((owner, fetch)) = self.way {
            let begin = owner.journal.clock();
            if arrive(&owner, fetch.wait(to), to, begin) {
                return Ok(());
            }
        }
        read_now(&self.storage, to)
    }

    /// Writes the bytes to `to` if they have arrived. It does not wait, unless the device cannot copy while it
    /// computes. After that the bytes are those that the storage has by then.
    ///
    /// # Errors
    /// The same errors as [`Runtime::read`](crate::Runtime::read).
    pub fn poll(&mut self, to: &mut [u8]) -> Poll<Result<(), RunError>> {
        if let Some((owner, fetch)) = &mut self.way {
            let begin = owner.journal.clock();
            let Poll::Ready(arrived) = fetch.poll(to) else {
                return Poll::Pending;
            };
            let has_arrived = arrive(owner, arrived, to, begin);
            self.way = None;
            if has_arrived {
                return Poll::Ready(Ok(()));
            }
        }
        Poll::Ready(read_now(&self.storage, to))
    }
}

/// Counts the bytes that a device sent, or its failure. Returns whether they have arrived.
fn arrive(
    owner: &Owner,
    arrived: Result<(), DeviceError>,
    to: &[u8],
    begin: Option<Instant>,
) -> bool {
    match arrived {
        Ok(()) => {
            owner.read(to.len(), begin);
            true
        }
        Err(e) => {
            owner.fail(e);
            false
        }
    }
}

fn read_now(storage: &Storage, to: &mut [u8]) -> Result<(), RunError> {
    let result = storage.read(0, to);
    result.map_err(|e| e.into_run_error(DeviceType::Cpu))
}

impl Storage {
    /// Host memory.
    pub fn from_host(host: HostBuffer) -> Self {
        let bytes = host.bytes();
        let copies = Copies {
            host: Some(HostCopy::of(host)),
            ..Copies::default()
        };
        Self::new(bytes, copies)
    }

    /// A new buffer of a device, which is going to write it.
    pub(crate) fn on_device(owner: &Arc<Owner>, buffer: Arc<dyn DeviceBuffer>) -> Self {
        let bytes = buffer.bytes();
        let mut copies = Copies::default();
        copies.devices.push(Copy::new(owner, buffer, false));
        copies.wrote(owner);
        Self::new(bytes, copies)
    }

    #[inline]
    fn new(bytes: usize, copies: Copies) -> Self {
        Self(Arc::new(Inner {
            bytes,
            copies: Mutex::new(copies),
            users: AtomicIsize::new(0),
            overwritten: Latest::default(),
            announced: Latest::default(),
            version: AtomicU64::new(0),
        }))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes
    }

    /// Returns whether both handles refer to the same bytes.
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// A number that identifies this storage while a handle on it lives.
    pub fn id(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// The bytes on the host, if they are there.
    pub fn host_address(&self) -> Option<usize> {
        let host = &self.copies().host;
        host.as_ref().map(|host| host.memory.as_ptr().addr())
    }

    /// The devices that can use the bytes now, without a copy and without waiting for another device's write;
    /// the host is [`DeviceType::Cpu`]. Empty if the bytes were lost with a device.
    pub fn valid_on(&self) -> SmallVec<[DeviceType; 2]> {
        self.copies().valid_on()
    }

    /// Waits until it is known whether a mistake spoiled the bytes. A device may [find it
    /// late](crate::Program::run_ahead). If so, the bytes are lost.
    pub fn settle(&self) {
        self.copies().settle();
    }

    /// The last writer of the bytes; the host is [`DeviceType::Cpu`].
    pub fn last_writer(&self) -> DeviceType {
        self.copies().writer.unwrap_or(DeviceType::Cpu)
    }

    /// A handle that does not keep the bytes.
    pub fn downgrade(&self) -> WeakStorage {
        WeakStorage(Arc::downgrade(&self.0))
    }

    /// Moment of the last write, as given to [`Storage::overwrite_at`].
    pub fn overwritten(&self) -> Moment {
        self.0.overwritten.get()
    }

    /// Notes a write at a moment, by a call. Earlier recordings mean the old bytes.
    pub fn overwrite_at(&self, moment: Moment, by: Option<Call>) {
        self.0.overwritten.raise(moment, by);
    }

    /// The call that wrote last, or recorded the write.
    pub fn last_write(&self) -> Option<Call> {
        let (done, recorded) = (&self.0.overwritten, &self.0.announced);
        match done.get() < recorded.get() {
            true => recorded.call(),
            false => done.call(),
        }
    }

    /// Moment of the last recorded write over it, as given to [`Storage::announce_overwrite`].
    pub fn announced(&self) -> Moment {
        self.0.announced.get()
    }

    /// Notes that a call recorded, at a moment, a later write over the bytes.
    pub fn announce_overwrite(&self, moment: Moment, by: Call) {
        self.0.announced.raise(moment, Some(by));
    }

    /// Version of the bytes; each write changes it.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Acquire)
    }

    fn change(&self) {
        self.0.version.fetch_add(1, Ordering::AcqRel);
    }

    /// Has the host a copy of the bytes as they are now?
    pub(crate) fn is_on_host(&self) -> bool {
        let mut copies = self.copies();
        copies.drop_lost();
        copies.host.is_some() && copies.unseen.is_none()
    }

    /// The host memory that has the bytes, if it is read-only.
    pub(crate) fn constant(&self) -> Option<HostBuffer> {
        let copies = self.copies();
        let host = copies.host.as_ref().filter(|_| copies.unseen.is_none())?;
        (!host.memory.is_writable()).then(|| host.memory.clone())
    }

    /// Number of handles on these bytes, including this one.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// Returns whether this is the only handle, now and later.
    pub(crate) fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1 && Arc::weak_count(&self.0) == 0
    }

    /// The devices that have a copy.
    pub(crate) fn devices(&self) -> SmallVec<[DeviceType; 2]> {
        let copies = self.copies();
        let present = copies.devices.iter().filter(|c| !c.is_lost());
        present.map(|c| c.owner.device).collect()
    }

    /// Whether there is a copy on the host, and which devices have one.
    pub(crate) fn whereabouts(&self) -> (bool, SmallVec<[Arc<Owner>; 2]>) {
        let copies = self.copies();
        let present = copies.devices.iter().filter(|c| !c.is_lost());
        let owners = present.map(|c| c.owner.clone()).collect();
        (copies.host.is_some(), owners)
    }

    fn copies(&self) -> MutexGuard<'_, Copies> {
        lock(&self.0.copies)
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

    /// Ends the access of [`Storage::acquire`].
    pub(crate) fn release(&self, write: bool) {
        let change = if write { 1 } else { -1 };
        self.0.users.fetch_add(change, Ordering::Release);
    }

    /// The copy on `owner`'s device, made if there is none yet. `write`: the caller is going
    /// to change it, so it has to be writable; [`Storage::wrote`] follows.
    pub(crate) fn on(
        &self,
        owner: &Arc<Owner>,
        memory: &dyn DeviceMemory,
        write: bool,
    ) -> Result<Arc<dyn DeviceBuffer>, StorageError> {
        let mut copies = self.copies();
        copies.show_host(self.0.bytes, Some(owner));
        if copies.find(owner, write).is_none() {
            let copy = copies.place(self.0.bytes, owner, memory, write)?;
            copies.devices.retain(|c| !Arc::ptr_eq(&c.owner, owner));
            copies.devices.push(copy);
        }
        let found = copies.find(owner, write);
        let found = found.ok_or(StorageError::Gone)?;
        Ok(copies.devices[found].buffer.clone())
    }

    /// The device has changed its copy, which is the only one that is left.
    pub(crate) fn wrote(&self, owner: &Arc<Owner>) {
        self.change();
        self.copies().keep_only(owner);
    }

    /// Drops all copies: their contents are wrong.
    pub(crate) fn lose(&self) {
        self.change();
        *self.copies() = Copies::default();
    }

    /// The copy on `owner`'s device, if there is one, to be overwritten as a whole.
    pub(crate) fn overwrite(&self, owner: &Arc<Owner>) -> Option<Arc<dyn DeviceBuffer>> {
        self.change();
        let mut copies = self.copies();
        copies.show_host(self.0.bytes, Some(owner));
        let buffer = copies.devices[copies.find(owner, true)?].buffer.clone();
        copies.keep_only(owner);
        Some(buffer)
    }

    /// Copies the bytes from `offset` on to `to`.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), StorageError> {
        while !self.acquire(false) {
            platform::give_way();
        }
        let result = self.copies().read(self.0.bytes, offset, to);
        self.release(false);
        result
    }

    /// Sends the bytes to the host, if a device has them that can do so while it works on.
    pub(crate) fn fetch(&self) -> Fetched {
        Fetched {
            storage: self.clone(),
            way: self.copies().send(self.0.bytes),
        }
    }

    /// Makes the host's copy valid. A device that shares the host's memory shows its writes there;
    /// others copy.
    pub(crate) fn synchronize(&self) -> Result<(), StorageError> {
        while !self.acquire(false) {
            platform::give_way();
        }
        let result = self.copies().synchronize(self.0.bytes);
        self.release(false);
        result
    }

    /// The host's memory that has the bytes, where there is such without a copy.
    pub(crate) fn host_memory(&self) -> Result<Option<HostBuffer>, StorageError> {
        if self.copies().host.is_none() {
            return Ok(None);
        }
        self.synchronize()?;
        let host = &self.copies().host;
        Ok(host.as_ref().map(|host| host.memory.clone()))
    }

    /// Replaces the bytes; the host's memory becomes the only copy.
    pub(crate) fn write(&self, from: &[u8]) -> Result<(), StorageError> {
        while !self.acquire(true) {
            platform::give_way();
        }
        self.change();
        let result = self.copies().write(self.0.bytes, from);
        self.release(true);
        result
    }
}
