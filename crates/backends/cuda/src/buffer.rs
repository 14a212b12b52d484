//! Memory of a device.

use std::fmt;
use std::sync::Arc;
use std::task::Poll;

use cudarc::driver::sys::{CUdeviceptr, cuMemAllocAsync, cuMemFreeAsync};
use rustorch_runtime::{DeviceError, Fetch};

use crate::context::Context;
use crate::mapped::{Pinned, Word};
use crate::status::{Failure, check};

/// Memory of a device, freed in the order of its stream.
pub struct Buffer {
    context: Arc<Context>,
    address: CUdeviceptr,
    /// Address for the host, if it is memory of the host's.
    word: Option<Word>,
    /// The host's memory that it is, if values wait there.
    pinned: Option<Pinned>,
}

impl Buffer {
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Result<Self, Failure> {
        context.enter()?;
        let mut address = 0;
        // SAFETY: there is room for the address, and the stream is the context's.
        let status =
            unsafe { cuMemAllocAsync(&raw mut address, bytes.max(1), context.main_stream()) };
        check("cuMemAllocAsync", status)?;
        Ok(Self {
            context: context.clone(),
            address,
            word: None,
            pinned: None,
        })
    }

    /// A word of the host's memory that kernels reach.
    pub(crate) fn mapped(context: &Arc<Context>) -> Result<Self, Failure> {
        context.enter()?;
        let word = context.words.take()?;
        Ok(Self {
            context: context.clone(),
            address: word.address(),
            word: Some(word),
            pinned: None,
        })
    }

    /// Memory of the host's that kernels reach.
    pub(crate) fn pinned(context: &Arc<Context>, bytes: usize) -> Result<Self, Failure> {
        context.enter()?;
        let pinned = Pinned::new(bytes)?;
        Ok(Self {
            context: context.clone(),
            address: pinned.address(),
            word: None,
            pinned: Some(pinned),
        })
    }

    /// The word that it is, if it is memory of the host's.
    pub(crate) fn word(&self) -> Option<Mapped> {
        let context = self.context.clone();
        self.word.map(|word| Mapped { context, word })
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }
}

/// A word of the host's memory, behind all that is queued.
pub(crate) struct Mapped {
    context: Arc<Context>,
    word: Word,
}

impl Mapped {
    /// Bytes from `offset` on.
    pub(crate) fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), Failure> {
        self.context.wait()?;
        // SAFETY: what was queued is done.
        unsafe { self.word.read(offset, to) };
        Ok(())
    }

    /// Writes bytes from `offset` on.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> Result<(), Failure> {
        self.context.wait()?;
        // SAFETY: as above.
        unsafe { self.word.write(offset, from) };
        Ok(())
    }
}

impl Fetch for Mapped {
    fn poll(&mut self, to: &mut [u8]) -> Poll<Result<(), DeviceError>> {
        let is_idle = self.context.is_idle();
        match is_idle.map_err(|failure| self.context.failed(failure))? {
            // SAFETY: everything that was queued is done.
            true => unsafe { self.word.read(0, to) },
            false => return Poll::Pending,
        }
        Poll::Ready(Ok(()))
    }

    fn wait(self: Box<Self>, to: &mut [u8]) -> Result<(), DeviceError> {
        let read = self.read(0, to);
        read.map_err(|failure| self.context.failed(failure))
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device memory at {:#x}", self.address)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(word) = self.word {
            self.context.words.give_back(word);
        } else if let Some(pinned) = self.pinned.take() {
            match self.context.wait() {
                Ok(()) => drop(pinned),
                // A device that is lost may still write to it.
                Err(_) => std::mem::forget(pinned),
            }
        } else if self.context.enter().is_ok() {
            // SAFETY: it is valid and not used again but by what was queued before. A lost
            // device's memory is gone with it.
            unsafe { cuMemFreeAsync(self.address, self.context.main_stream()) };
        }
    }
}
