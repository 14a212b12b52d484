//! The copies of a storage's bytes: on the host, on devices, and who wrote last.

use std::sync::Arc;

use rustorch_ir::order::sort_by_key;
use smallvec::SmallVec;

use crate::journal::Owner;
use crate::{
    DeviceBuffer, DeviceError, DeviceMemory, DeviceType, FailureClass, Fetch, HostBuffer, RunError,
};

/// Bytes of a copy that is kept for the next one.
const SMALL: usize = 64 << 10;

#[derive(Debug, Default)]
pub(super) struct Copies {
    pub(super) host: Option<HostCopy>,
    pub(super) devices: SmallVec<[Copy; 1]>,
    /// Small copies that the host has overwritten: memory for the next ones, which recorded
    /// launches then find at the same addresses.
    pub(super) outdated: Vec<Copy>,
    /// The device that wrote last, until the host was shown what.
    pub(super) unseen: Option<Arc<Owner>>,
    /// The last writer; `None` for the host.
    pub(super) writer: Option<DeviceType>,
}

#[derive(Debug)]
pub(super) struct HostCopy {
    pub(super) memory: HostBuffer,
    /// The device's buffer whose memory it is, so that it is not used for something else.
    pub(super) _provider: Option<Arc<dyn DeviceBuffer>>,
}

impl HostCopy {
    pub(super) fn of(memory: HostBuffer) -> Self {
        let _provider = None;
        Self { memory, _provider }
    }
}

/// A device with the copy in its memory.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) owner: Arc<Owner>,
    pub(super) buffer: Arc<dyn DeviceBuffer>,
    /// Whether it is the memory of the host's copy.
    pub(super) in_host: bool,
    /// Bytes of the device's memory that it takes.
    pub(super) takes: usize,
}

impl Copy {
    pub(super) fn new(owner: &Arc<Owner>, buffer: Arc<dyn DeviceBuffer>, in_host: bool) -> Self {
        let takes = if in_host { 0 } else { buffer.bytes() };
        owner.took(takes);
        Self {
            owner: owner.clone(),
            buffer,
            in_host,
            takes,
        }
    }

    /// Are the bytes lost for good?
    pub(super) fn is_lost(&self) -> bool {
        self.owner.is_lost() || self.buffer.is_poisoned()
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.owner.gave(self.takes);
    }
}

impl Copies {
    /// Notes that a device is going to write.
    pub(super) fn wrote(&mut self, owner: &Arc<Owner>) {
        self.unseen = Some(owner.clone());
        self.writer = Some(owner.device);
    }

    /// Waits until poisoned copies are known.
    pub(super) fn settle(&self) {
        for copy in &self.devices {
            if let Err(e) = copy.buffer.settle() {
                copy.owner.fail(e);
            }
        }
    }

    /// Drops copies in the memory of lost devices, and poisoned ones.
    pub(super) fn drop_lost(&mut self) {
        if self.devices.iter().all(|c| !c.is_lost()) {
            return;
        }
        let devices = &self.devices;
        let is_gone = |w: &mut Arc<Owner>| {
            let its = devices.iter().find(|c| Arc::ptr_eq(&c.owner, w));
            w.is_lost() || its.is_some_and(Copy::is_lost)
        };
        if let Some(writer) = self.unseen.take_if(is_gone) {
            let is_writer = |c: &Copy| Arc::ptr_eq(&c.owner, &writer);
            // The device's last writes to the host's memory may never have arrived there.
            if self.devices.iter().any(|c| is_writer(c) && c.in_host) {
                self.host = None;
                self.devices.retain(|c| !c.in_host);
            }
        }
        self.devices.retain(|c| !c.is_lost());
        self.outdated.retain(|c| !c.owner.is_lost());
    }

    /// Makes device writes to shared memory visible to the host. Devices see later writes of the host or another
    /// device. `but`: the device that is going to use it.
    pub(super) fn show_host(&mut self, bytes: usize, but: Option<&Arc<Owner>>) {
        self.drop_lost();
        let mut was_asked = false;
        for copy in &mut self.devices {
            if but.is_some_and(|owner| Arc::ptr_eq(owner, &copy.owner)) {
                continue;
            }
            was_asked = true;
            match copy.buffer.host() {
                Ok(Some(memory)) => {
                    let host = self.host.get_or_insert_with(|| {
                        // Nobody counted writes of the memory's earlier owner and of the device.
                        memory.wrote();
                        HostCopy {
                            memory: memory.first(bytes),
                            _provider: Some(copy.buffer.clone()),
                        }
                    });
                    copy.in_host = host.memory.same_start(memory);
                }
                Ok(None) => {}
                Err(e) => {
                    copy.owner.fail(e);
                    continue;
                }
            }
            self.unseen.take_if(|w| Arc::ptr_eq(w, &copy.owner));
        }
        if was_asked {
            self.drop_lost();
        }
    }

    /// The usable copy of a device.
    pub(super) fn find(&self, owner: &Arc<Owner>, write: bool) -> Option<usize> {
        let read_only = self.host.as_ref().is_some_and(|h| !h.memory.is_writable());
        let found = self
            .devices
            .iter()
            .position(|c| Arc::ptr_eq(&c.owner, owner))?;
        let fits = !write || !read_only || !self.devices[found].in_host;
        fits.then_some(found)
    }

    /// A new copy on a device.
    pub(super) fn place(
        &mut self,
        bytes: usize,
        owner: &Arc<Owner>,
        memory: &dyn DeviceMemory,
        write: bool,
    ) -> Result<Copy, StorageError> {
        let journal = &owner.journal;
        let begin = journal.clock();
        let host = match &self.host {
            Some(host) => host.memory.clone(),
            None => {
                // A device that shares the host's memory needs none of its own.
                let peer = self.devices.first().filter(|_| !owner.shares_host_memory);
                if let Some(copy) = peer {
                    owner.admit(bytes)?;
                    // SAFETY: the storage was acquired, so no run writes to it.
                    if let Some(buffer) = unsafe { memory.copy_of(&*copy.buffer)? } {
                        journal.moved(copy.owner.device, owner.device, bytes, begin);
                        return Ok(Copy::new(owner, buffer, false));
                    }
                }
                self.stage(bytes)?
            }
        };
        let begin = journal.clock();
        let is_its = |c: &Copy| Arc::ptr_eq(&c.owner, owner);
        if let Some(at) = self.outdated.iter().position(is_its) {
            let copy = self.outdated.swap_remove(at);
            // SAFETY: the storage was acquired, so nobody writes to the host's memory, and
            // nobody reads what is outdated.
            unsafe {
                let all = std::slice::from_raw_parts(host.as_ptr(), bytes);
                copy.buffer.write(0, all)?;
            }
            journal.moved(DeviceType::Cpu, owner.device, bytes, begin);
            return Ok(copy);
        }
        let copies = write && !host.is_writable();
        if copies || !owner.shares_host_memory {
            owner.admit(bytes)?;
        }
        if copies {
            let buffer = memory.alloc(bytes)?;
            // SAFETY: the storage was acquired, so nobody writes to the host's memory, and
            // nobody else has the new buffer.
            unsafe {
                let all = std::slice::from_raw_parts(host.as_ptr(), bytes);
                buffer.write(0, all)?;
            }
            journal.moved(DeviceType::Cpu, owner.device, bytes, begin);
            return Ok(Copy::new(owner, buffer, false));
        }
        let buffer = memory.adopt(&host)?;
        let own = buffer.host()?;
        let in_host = own.is_some_and(|own| own.same_start(&host));
        match in_host {
            true => {
                self.host.get_or_insert_with(|| HostCopy::of(host));
            }
            false => journal.moved(DeviceType::Cpu, owner.device, bytes, begin),
        }
        Ok(Copy::new(owner, buffer, in_host))
    }

    /// The bytes of a device with its own memory, brought to the host.
    pub(super) fn stage(&mut self, bytes: usize) -> Result<HostBuffer, StorageError> {
        let host = HostBuffer::zeroed(bytes).ok_or(StorageError::NoHostMemory)?;
        // SAFETY: nobody else has the new memory, which was initialised.
        let all = unsafe { std::slice::from_raw_parts_mut(host.as_ptr(), bytes) };
        self.fetch(0, all)?;
        Ok(host)
    }

    /// Sends bytes that the host does not have.
    pub(super) fn send(&mut self, bytes: usize) -> Option<(Arc<Owner>, Box<dyn Fetch>)> {
        self.drop_lost();
        if self.host.is_some() {
            return None;
        }
        let copy = self.devices.first()?;
        match copy.buffer.fetch(bytes) {
            Ok(fetch) => Some((copy.owner.clone(), fetch?)),
            Err(e) => {
                copy.owner.fail(e);
                None
            }
        }
    }

    /// Copies bytes from the first device that can give them.
    pub(super) fn fetch(&mut self, offset: usize, to: &mut [u8]) -> Result<(), StorageError> {
        while let Some(copy) = self.devices.first() {
            let begin = copy.owner.journal.clock();
            // SAFETY: the storage was acquired, so no run writes to it.
            match unsafe { copy.buffer.read(offset, to) } {
                Ok(()) => {
                    copy.owner.read(to.len(), begin);
                    return Ok(());
                }
                Err(e) => copy.owner.fail(e),
            }
            self.drop_lost();
        }
        Err(StorageError::Gone)
    }

    /// Drops copies that a write to a device's copy makes outdated.
    pub(super) fn keep_only(&mut self, owner: &Arc<Owner>) {
        let is_owner = |c: &Copy| Arc::ptr_eq(&c.owner, owner);
        let in_host = self.devices.iter().any(|c| is_owner(c) && c.in_host);
        if !in_host {
            self.host = None;
        }
        self.devices
            .retain(|c| is_owner(c) || (in_host && c.in_host));
        match &self.host {
            Some(host) => host.memory.wrote(),
            None => self.devices.iter().for_each(|copy| copy.buffer.wrote()),
        }
        self.wrote(owner);
    }

    pub(super) fn read(
        &mut self,
        bytes: usize,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), StorageError> {
        self.show_host(bytes, None);
        match &self.host {
            // SAFETY: the storage was acquired, so no run writes to it.
            Some(host) => Ok(unsafe { host.memory.read(offset, to) }?),
            None => self.fetch(offset, to),
        }
    }

    pub(super) fn write(&mut self, bytes: usize, from: &[u8]) -> Result<(), StorageError> {
        self.show_host(bytes, None);
        match &self.host {
            Some(host) if host.memory.is_writable() => {
                // SAFETY: the storage was acquired for writing.
                unsafe { host.memory.write(0, from)? };
                host.memory.wrote();
                let devices = self.devices.drain(..);
                // Without memory of their own where there is one.
                let (shared, outdated): (SmallVec<[Copy; 1]>, SmallVec<[Copy; 1]>) =
                    devices.partition(|c| c.in_host);
                self.devices = shared;
                if bytes <= SMALL {
                    self.outdated.extend(outdated);
                }
            }
            _ => {
                let copy = HostBuffer::copy_of(from).ok_or(StorageError::NoHostMemory)?;
                self.host = Some(HostCopy::of(copy));
                self.devices.clear();
            }
        }
        self.unseen = None;
        self.writer = None;
        Ok(())
    }

    /// The devices that can use the bytes as they are now.
    pub(super) fn valid_on(&mut self) -> SmallVec<[DeviceType; 2]> {
        self.drop_lost();
        if let Some(writer) = &self.unseen {
            return [writer.device].into_iter().collect();
        }
        let host = self.host.as_ref().map(|_| DeviceType::Cpu);
        let devices = self.devices.iter().map(|c| c.owner.device);
        let mut valid: SmallVec<[DeviceType; 2]> = host.into_iter().chain(devices).collect();
        sort_by_key(&mut valid, |device| *device != DeviceType::Cpu);
        valid.dedup();
        valid
    }

    /// Makes the host's copy valid.
    pub(super) fn synchronize(&mut self, bytes: usize) -> Result<(), StorageError> {
        self.show_host(bytes, None);
        if self.host.is_none() {
            self.host = Some(HostCopy::of(self.stage(bytes)?));
        }
        Ok(())
    }
}

/// Reasons for which bytes are not available.
#[derive(Debug)]
pub(crate) enum StorageError {
    /// No copy is left.
    Gone,
    /// The host has too little memory for a copy.
    NoHostMemory,
    /// The target device failed.
    Device(DeviceError),
}

impl From<DeviceError> for StorageError {
    fn from(e: DeviceError) -> Self {
        Self::Device(e)
    }
}

impl StorageError {
    /// The error of a run on `device`, if it is the only input.
    pub(crate) fn into_run_error(self, device: DeviceType) -> RunError {
        match self.on_device(device) {
            Some(e) => RunError::Device(e),
            None => RunError::DataLost {
                input: 0,
                during: None,
            },
        }
    }

    /// The error of `device`; `None` says that nothing is left.
    pub(crate) fn on_device(self, device: DeviceType) -> Option<DeviceError> {
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
