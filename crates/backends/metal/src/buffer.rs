//! Memory: always the host's, used in place.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustorch_gpu::Access;
use rustorch_runtime::HostBuffer;

use crate::hazards::Use;
use crate::{Api, Binding};

/// Alignment of the first byte: that of the widest loads that kernels make.
const ALIGNMENT: usize = 16;

/// Host memory that kernels use.
pub struct Buffer<A: Api> {
    memory: Arc<Memory<A>>,
    /// The byte of the pages that is the memory's first.
    offset: usize,
    host: HostBuffer,
}

/// Whole pages, as long as a buffer or a command buffer needs them.
pub(crate) struct Memory<A: Api> {
    /// Dropped before the memory that it is made of.
    pages: A::Buffer,
    _host: HostBuffer,
    /// Number of the last command buffer that uses it.
    last_use: AtomicU64,
}

impl<A: Api> Memory<A> {
    /// Notes that a command buffer uses it: is that news?
    pub(crate) fn used_by(&self, number: u64) -> bool {
        self.last_use.swap(number, Ordering::AcqRel) != number
    }
}

impl<A: Api> Buffer<A> {
    /// `host` in place, by way of the pages that it is in; `None` if its first byte is not
    /// aligned, if they are more than `largest` bytes, or if Metal refuses.
    pub(crate) fn over(api: &A, host: &HostBuffer, largest: u64) -> Option<Self> {
        // No buffer is empty; kernels get one unused element instead.
        let used = match host.bytes() {
            0 => HostBuffer::uninit(1)?,
            _ => host.clone(),
        };
        let page = api.properties().page_bytes;
        let first = used.as_ptr().addr();
        let offset = first % page;
        let bytes = offset
            .checked_add(used.bytes())?
            .checked_next_multiple_of(page)?;
        if !first.is_multiple_of(ALIGNMENT) || u64::try_from(bytes).ok()? > largest {
            return None;
        }
        let start = NonNull::new(used.as_ptr().wrapping_sub(offset))?;
        // SAFETY: these are the pages that the memory is in, of which the system has mapped
        // each whole; it keeps them until the memory is given back, after `pages`.
        let pages = unsafe { api.buffer_no_copy(start.cast(), bytes) }?;
        Some(Self {
            memory: Arc::new(Memory {
                pages,
                _host: used,
                last_use: AtomicU64::new(0),
            }),
            offset,
            host: host.clone(),
        })
    }

    /// Argument for a dispatch.
    pub(crate) fn binding(&self) -> Binding<'_, A> {
        (&self.memory.pages, self.offset)
    }

    pub(crate) fn memory(&self) -> &Arc<Memory<A>> {
        &self.memory
    }

    pub(crate) fn host(&self) -> &HostBuffer {
        &self.host
    }

    /// Number of the last command buffer that uses it; 0 if none does.
    pub(crate) fn last_use(&self) -> u64 {
        self.memory.last_use.load(Ordering::Acquire)
    }

    /// The addresses of a range of its bytes.
    pub(crate) fn addresses(&self, access: &Access) -> Use {
        let (first, bytes) = (self.host.as_ptr().addr(), self.host.bytes());
        Use {
            addresses: first + access.start.min(bytes)..first + access.end.min(bytes),
            is_written: access.is_written,
        }
    }
}

impl<A: Api> fmt::Debug for Buffer<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes of the host)", self.host.bytes())
    }
}
