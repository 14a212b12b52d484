//! Memory of devices; the host's own.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::any::{Any, TypeId};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;

use crate::{DeviceError, DeviceType, FailureClass, SystemMemory, platform};

/// Alignment and granularity of the host allocator: Apple's page size, so that the same
/// pages can serve CPU, Metal, Core ML and OpenCL without a copy.
pub const HOST_ALIGNMENT: usize = 16 * 1024;

/// Alignment of the largest scalar, a complex number of two doubles, and of every block.
const SCALAR_ALIGNMENT: usize = 8;

/// Below this size only the processor's vector units and cache lines matter.
const SMALL: usize = 64 * 1024;

/// Bytes of memory whose small pages cost more than the computation in them.
const LARGE: usize = 32 * 1024 * 1024;

/// Bytes of the longest cache line, that of Apple's processors: no two buffers share one. A device might write
/// to one while the processor writes to the other.
const CACHE_LINE: usize = 128;

/// Memory on a device.
pub trait DeviceBuffer: Send + Sync + fmt::Debug {
    /// Size in bytes.
    fn bytes(&self) -> usize;

    /// Copies bytes from `offset` on to the host.
    ///
    /// # Safety
    /// Nothing writes to the buffer meanwhile.
    ///
    /// # Errors
    /// Fails if the device is lost. Fails as the caller's mistake if the buffer is
    /// [poisoned](Self::is_poisoned). Fails if the range is not inside the buffer.
    unsafe fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies bytes from the host to `offset`.
    ///
    /// # Safety
    /// Nothing else uses the buffer meanwhile.
    ///
    /// # Errors
    /// Fails if the device is lost. Fails if the range is not inside the buffer.
    unsafe fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError>;

    /// Starts a copy of the first `bytes` to the host, after all queued work; later work does not
    /// delay it.
    ///
    /// # Errors
    /// Fails if the device is lost. Fails if the bytes are not inside the buffer.
    fn fetch(&self, bytes: usize) -> Result<Option<Box<dyn Fetch>>, DeviceError> {
        let _ = bytes;
        Ok(None)
    }

    /// The host memory of this buffer, if device and host share it, with all of the device's
    /// writes. The host may use it until the buffer's next launch.
    ///
    /// Cheap while the device has not written since the last call. It stays the buffer's as long
    /// as the buffer lives, and may be larger than the buffer.
    ///
    /// # Errors
    /// Fails if the device is lost.
    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError>;

    /// Returns whether its contents come from a run that [found a mistake](crate::Program::run_ahead) of the caller.
    /// Then it cannot be read.
    fn is_poisoned(&self) -> bool {
        false
    }

    /// Waits until it is known whether it is [poisoned](Self::is_poisoned).
    ///
    /// # Errors
    /// Fails if the device is lost.
    fn settle(&self) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Notes that it has been written to, once for each run or copy that wrote. A buffer whose
    /// [`HostBuffer::contents`] is known counts them; other buffers need not.
    fn wrote(&self) {}

    /// For the backend that made the buffer.
    fn as_any(&self) -> &dyn Any;
}

/// Bytes that are being copied from a device to the host.
pub trait Fetch: Send {
    /// Writes the bytes to `to`, whose length is the number asked for, if they have arrived. It does not wait.
    ///
    /// # Errors
    /// Fails if the device is lost.
    fn poll(&mut self, to: &mut [u8]) -> Poll<Result<(), DeviceError>>;

    /// Waits until the bytes are in `to`. Drivers that can limit the wait do so.
    ///
    /// # Errors
    /// Fails if the device is lost.
    fn wait(mut self: Box<Self>, to: &mut [u8]) -> Result<(), DeviceError> {
        loop {
            match self.poll(to) {
                Poll::Ready(arrived) => return arrived,
                Poll::Pending => platform::give_way(),
            }
        }
    }
}

/// Allocates and frees the memory of one device.
pub trait DeviceMemory: Send + Sync {
    /// Uninitialised memory.
    ///
    /// # Errors
    /// Fails if memory runs out, or if the device is lost.
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>, DeviceError>;

    /// Makes host memory usable on the device: in place if possible, else by a copy.
    ///
    /// # Errors
    /// Fails if memory runs out, or if the device is lost.
    fn adopt(&self, host: &HostBuffer) -> Result<Arc<dyn DeviceBuffer>, DeviceError>;

    /// Names devices that copy from one to another without the host: those with the same name.
    /// `None` if it does not copy so.
    fn peers(&self) -> Option<TypeId> {
        None
    }

    /// A copy of memory of another device, from the one to the other. `None` where that goes by
    /// way of the host, as between all that are no [peers](Self::peers).
    ///
    /// # Safety
    /// Only work that was queued before writes to it meanwhile.
    ///
    /// # Errors
    /// Fails if memory runs out, or if the device is lost.
    unsafe fn copy_of(
        &self,
        other: &dyn DeviceBuffer,
    ) -> Result<Option<Arc<dyn DeviceBuffer>>, DeviceError> {
        let _ = other;
        Ok(None)
    }

    /// Returns cached memory to the system.
    fn trim(&self);

    /// Bytes that could be allocated now, if the device reports them.
    fn free(&self) -> Option<u64> {
        None
    }
}

/// A piece of host memory: allocated, or borrowed from an owner such as a mapped file.
///
/// Clones share the same bytes. They are reached through a raw pointer; [`Storage`](crate::Storage)
/// controls writes.
#[derive(Clone)]
pub struct HostBuffer {
    start: NonNull<u8>,
    bytes: usize,
    writable: bool,
    memory: Arc<Memory>,
}

/// The owner of memory, with the number of writes.
struct Memory<T: ?Sized = dyn Any + Send + Sync> {
    writes: AtomicU64,
    owner: T,
}

impl<T> Memory<T> {
    fn new(owner: T) -> Arc<Self> {
        Arc::new(Self {
            writes: AtomicU64::new(0),
            owner,
        })
    }
}

/// A version of the contents of a piece of memory, which the next write changes.
///
/// The owner of a copy uses it to check whether the copy is current.
#[derive(Clone)]
pub struct Contents {
    memory: Weak<Memory>,
    writes: u64,
}

impl Contents {
    /// The version after one more write.
    #[must_use]
    pub fn next(self) -> Self {
        Self {
            writes: self.writes + 1,
            ..self
        }
    }
}

impl PartialEq for Contents {
    fn eq(&self, other: &Self) -> bool {
        self.memory.ptr_eq(&other.memory) && self.writes == other.writes
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents(behind {} writes)", self.writes)
    }
}

// SAFETY: the owner is Send and Sync and keeps the bytes alive; access to them is unsafe.
unsafe impl Send for HostBuffer {}
// SAFETY: as above.
unsafe impl Sync for HostBuffer {}

struct Allocation {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: an allocation has no thread affinity.
unsafe impl Send for Allocation {}
// SAFETY: it is only touched when it is dropped.
unsafe impl Sync for Allocation {}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `HostBuffer::allocate` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

impl HostBuffer {
    /// Uninitialised memory; `None` if there is not enough.
    pub fn uninit(bytes: usize) -> Option<Self> {
        let buffer = Self::allocate(bytes, alloc)?;
        if bytes >= LARGE {
            platform::prefer_huge_pages(buffer.start, bytes);
        }
        Some(buffer)
    }

    /// Zeros; the system provides their pages when they are first touched.
    pub fn zeroed(bytes: usize) -> Option<Self> {
        Self::allocate(bytes, alloc_zeroed)
    }

    /// Aligned by hand: for larger alignments than malloc's own, the standard library writes the zeros itself.
    /// Writing takes time and touches every page.
    fn allocate(bytes: usize, how: unsafe fn(Layout) -> *mut u8) -> Option<Self> {
        const MALLOC_ALIGNMENT: usize = 16;
        let granule = match bytes < SMALL {
            true => CACHE_LINE,
            false => HOST_ALIGNMENT,
        };
        let size = bytes.max(1).checked_next_multiple_of(granule)?;
        let layout = Layout::from_size_align(size.checked_add(granule)?, MALLOC_ALIGNMENT).ok()?;
        // SAFETY: the layout's size is not zero.
        let base = NonNull::new(unsafe { how(layout) })?;
        let address = base.addr().get();
        let padding = address.next_multiple_of(granule) - address;
        Some(Self {
            // SAFETY: the padding is less than a granule, by which the allocation is larger.
            start: unsafe { base.add(padding) },
            bytes,
            writable: true,
            memory: Memory::new(Allocation { base, layout }),
        })
    }

    /// A copy of `bytes`; `None` if there is not enough memory.
    pub fn copy_of(bytes: &[u8]) -> Option<Self> {
        let buffer = Self::uninit(bytes.len())?;
        // SAFETY: freshly allocated with this length.
        unsafe {
            buffer
                .as_ptr()
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        Some(buffer)
    }

    /// Bytes that `owner` holds and that stay where they are as long as it lives.
    pub fn borrowed<T: AsRef<[u8]> + Send + Sync + 'static>(owner: T) -> Self {
        let memory = Memory::new(owner);
        let slice = memory.owner.as_ref();
        Self {
            start: NonNull::from(slice).cast(),
            bytes: slice.len(),
            writable: false,
            memory,
        }
    }

    /// First byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns whether the bytes may be written to. Borrowed ones may not.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns whether this is the same memory as `other`.
    pub fn same_memory(&self, other: &Self) -> bool {
        self.same_start(other) && self.bytes == other.bytes
    }

    /// Do both begin at the same byte? A device may have more memory than it was asked for.
    pub(crate) fn same_start(&self, other: &Self) -> bool {
        self.start == other.start
    }

    /// The first `bytes` bytes, or all if there are fewer.
    pub(crate) fn first(&self, bytes: usize) -> Self {
        Self {
            bytes: self.bytes.min(bytes),
            ..self.clone()
        }
    }

    /// The same bytes, with another owner that keeps them alive. Writes are counted anew.
    pub(crate) fn owned_by(self, owner: impl Any + Send + Sync) -> Self {
        Self {
            memory: Memory::new(owner),
            ..self
        }
    }

    /// The version counter of a [`Storage`](crate::Storage)'s memory: each write counts, on any
    /// device. A writer in a run sees the contents before it, and [the next](Contents::next) are
    /// those after it.
    pub fn contents(&self) -> Contents {
        Contents {
            memory: Arc::downgrade(&self.memory),
            writes: self.memory.writes.load(Ordering::Acquire),
        }
    }
}

impl fmt::Debug for HostBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuffer({} bytes)", self.bytes)
    }
}

impl DeviceBuffer for HostBuffer {
    fn bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        assert!(
            offset
                .checked_add(to.len())
                .is_some_and(|end| end <= self.bytes)
        );
        // SAFETY: in bounds, as just asserted; nothing writes, as the caller promises.
        unsafe {
            self.as_ptr()
                .add(offset)
                .copy_to_nonoverlapping(to.as_mut_ptr(), to.len())
        };
        Ok(())
    }

    unsafe fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        assert!(self.is_writable());
        assert!(
            offset
                .checked_add(from.len())
                .is_some_and(|end| end <= self.bytes)
        );
        // SAFETY: in bounds, as just asserted; nothing else uses it, as the caller promises.
        unsafe {
            self.as_ptr()
                .add(offset)
                .copy_from_nonoverlapping(from.as_ptr(), from.len())
        };
        Ok(())
    }

    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError> {
        Ok(Some(self))
    }

    fn wrote(&self) {
        self.memory.writes.fetch_add(1, Ordering::AcqRel);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The memory of a device that computes in host memory.
#[derive(Debug)]
pub struct HostMemory {
    device: DeviceType,
}

impl HostMemory {
    /// Host memory as `device`'s own.
    pub fn new(device: DeviceType) -> Self {
        Self { device }
    }
}

impl DeviceMemory for HostMemory {
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        match HostBuffer::uninit(bytes) {
            Some(buffer) => Ok(Arc::new(buffer)),
            None => Err(DeviceError::new(
                self.device,
                FailureClass::OutOfMemory { never_fits: false },
                format!("the system refused {bytes} bytes"),
            )),
        }
    }

    /// The same memory, unless it is borrowed from where scalars are not aligned.
    fn adopt(&self, host: &HostBuffer) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        if host.as_ptr().addr().is_multiple_of(SCALAR_ALIGNMENT) {
            return Ok(Arc::new(host.clone()));
        }
        let copy = self.alloc(host.bytes())?;
        // SAFETY: both have these bytes; the copy is new, and nothing writes to what a storage
        // is moved from.
        unsafe {
            let bytes = std::slice::from_raw_parts(host.as_ptr(), host.bytes());
            copy.write(0, bytes)?;
        }
        Ok(copy)
    }

    fn trim(&self) {}

    fn free(&self) -> Option<u64> {
        SystemMemory::now().map(|memory| memory.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_are_aligned_and_zeroed() {
        let b = HostBuffer::zeroed(100_000).unwrap();
        assert_eq!(b.as_ptr() as usize % HOST_ALIGNMENT, 0);
        let mut bytes = [1; 8];
        // SAFETY: nothing else uses the buffer.
        unsafe {
            b.read(99_992, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 8]);
            b.write(3, &[7, 8]).unwrap();
            b.read(0, &mut bytes).unwrap();
        }
        assert_eq!(bytes, [0, 0, 0, 7, 8, 0, 0, 0]);
        assert!(HostBuffer::uninit(usize::MAX).is_none());
    }

    #[test]
    fn misaligned_bytes_are_copied_to_be_used() {
        struct Shifted(Vec<u8>);
        impl AsRef<[u8]> for Shifted {
            fn as_ref(&self) -> &[u8] {
                &self.0[1..]
            }
        }
        let host = HostBuffer::borrowed(Shifted((0..65).collect()));
        let memory = HostMemory::new(DeviceType::Cpu);
        let adopted = memory.adopt(&host).unwrap();
        let used = adopted.host().unwrap().unwrap();
        assert!(used.as_ptr().addr().is_multiple_of(8) && !used.same_memory(&host));
        let mut bytes = [0; 64];
        // SAFETY: nothing writes to the buffer.
        unsafe { adopted.read(0, &mut bytes).unwrap() };
        assert!((1..65).eq(bytes));
    }

    #[test]
    fn memory_tells_whether_it_was_written_to() {
        let memory = HostBuffer::zeroed(8).unwrap();
        let before = memory.contents();
        assert_eq!(memory.clone().contents(), before);
        assert_eq!(memory.first(4).contents(), before);
        memory.first(4).wrote();
        assert_ne!(memory.contents(), before);
        assert_eq!(memory.contents(), before.clone().next());
        // Other memory is never the same, wherever it lies.
        drop(memory);
        assert_ne!(HostBuffer::zeroed(8).unwrap().contents(), before);
    }

    #[test]
    fn the_host_tells_what_is_free() {
        assert!(HostMemory::new(DeviceType::Cpu).free() > Some(0));
    }

    #[test]
    fn borrowed_bytes_are_not_copied() {
        let owner = vec![1u8, 2, 3];
        let at = owner.as_ptr();
        let b = HostBuffer::borrowed(owner);
        assert_eq!(b.as_ptr().cast_const(), at);
        assert!(!b.is_writable());
    }
}
