//! Host memory that kernels reach in place: rare writes to it need no copy.

use std::ptr;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::*;

use crate::status::{Failure, check};

/// Bytes that are taken from the driver at once. `WORD` is the bytes of a word, with the gap to
/// others.
const PAGE: usize = 4096;
const WORD: usize = 64;

/// A few bytes, as the host and as the device see them. They live as long as the context.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    host: *mut u8,
    address: CUdeviceptr,
}

// SAFETY: nobody but its owner uses it.
unsafe impl Send for Word {}
// SAFETY: it is written to only by who may write to its buffer.
unsafe impl Sync for Word {}

impl Word {
    /// Address for kernels.
    pub(crate) fn address(self) -> CUdeviceptr {
        self.address
    }

    /// Bytes from `offset` on.
    ///
    /// # Safety
    /// No kernel runs that could write to them.
    pub(crate) unsafe fn read(self, offset: usize, to: &mut [u8]) {
        assert!(offset + to.len() <= WORD);
        // SAFETY: the bytes are inside, as just asserted, and nobody writes to them.
        unsafe { ptr::copy_nonoverlapping(self.host.add(offset), to.as_mut_ptr(), to.len()) };
    }

    /// Writes bytes from `offset` on.
    ///
    /// # Safety
    /// No kernel runs that uses them.
    pub(crate) unsafe fn write(self, offset: usize, from: &[u8]) {
        assert!(offset + from.len() <= WORD);
        // SAFETY: as above.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), self.host.add(offset), from.len()) };
    }
}

/// The words of a context.
#[derive(Default)]
pub(crate) struct Words(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Unused words.
    free: Vec<Word>,
    /// Pages that the words are parts of.
    pages: Vec<Word>,
}

impl Words {
    /// A word without another user.
    pub(crate) fn take(&self) -> Result<Word, Failure> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(word) = kept.free.pop() {
            return Ok(word);
        }
        let first = mapped(PAGE)?;
        kept.pages.push(first);
        let words = (WORD..PAGE).step_by(WORD).map(|at| Word {
            host: first.host.wrapping_add(at),
            address: first.address + at as u64,
        });
        kept.free.extend(words);
        Ok(first)
    }

    /// Keeps a word for later requests.
    pub(crate) fn give_back(&self, word: Word) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.free.push(word);
    }

    /// Gives all of them back to the driver. The context is current and idle.
    pub(crate) fn free(&self) {
        let kept = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for page in kept.pages {
            // SAFETY: nobody has a word of it any more, since buffers keep their context.
            unsafe { cuMemFreeHost(page.host.cast()) };
        }
    }
}

/// Memory in which values wait. It may be given back when all that was queued is done with it.
#[derive(Debug)]
pub(crate) struct Pinned(Word);

impl Pinned {
    /// Memory of `bytes` bytes.
    pub(crate) fn new(bytes: usize) -> Result<Self, Failure> {
        mapped(bytes.max(1)).map(Self)
    }

    /// Address for kernels.
    pub(crate) fn address(&self) -> CUdeviceptr {
        self.0.address
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: nobody uses it any more, as whoever drops it has made sure.
        unsafe { cuMemFreeHost(self.0.host.cast()) };
    }
}

/// So many bytes, by their first word.
fn mapped(bytes: usize) -> Result<Word, Failure> {
    let mut host = ptr::null_mut();
    // SAFETY: there is room for the address.
    let status = unsafe { cuMemHostAlloc(&raw mut host, bytes, CU_MEMHOSTALLOC_DEVICEMAP) };
    check("cuMemHostAlloc", status)?;
    let mut address = 0;
    // SAFETY: the memory was made to be seen by devices, and there is room for the address.
    let status = unsafe { cuMemHostGetDevicePointer_v2(&raw mut address, host, 0) };
    if let Err(failure) = check("cuMemHostGetDevicePointer", status) {
        // SAFETY: nobody uses it.
        unsafe { cuMemFreeHost(host) };
        return Err(failure);
    }
    Ok(Word {
        host: host.cast(),
        address,
    })
}
