//! Memory of a device, kept for later requests of the same size.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use rustorch_runtime::{
    DeviceBuffer, DeviceError, DeviceMemory, FailureClass, Fetch, HostBuffer, SystemMemory,
};

use crate::driver::Driver;
use crate::poison::{Poison, Suspected, Suspicion};

/// A driver, and its unused buffers.
pub(crate) struct Pool<D: Driver> {
    pub(crate) driver: D,
    /// Has a warning about the device's impossible times been given?
    pub(crate) doubted: Once,
    free: Mutex<Free<D::Buffer>>,
    pub(crate) poison: Poison<D>,
}

struct Free<B> {
    /// Buffers by their size.
    buffers: HashMap<usize, Vec<B>>,
    bytes: u64,
}

/// The sizes that buffers come in: eight between a power of two and the next.
fn size_class(bytes: usize) -> usize {
    let step = (bytes.max(1).next_power_of_two() / 16).max(256);
    bytes.max(1).next_multiple_of(step)
}

impl<D: Driver> Pool<D> {
    pub(crate) fn new(driver: D) -> Self {
        Self {
            driver,
            doubted: Once::new(),
            free: Mutex::new(Free {
                buffers: HashMap::new(),
                bytes: 0,
            }),
            poison: Poison::default(),
        }
    }

    /// Waits for queued work, if that may find mistakes, and looks for them.
    pub(crate) fn settle(&self) -> Result<(), DeviceError> {
        let look = self.poison.look();
        if !look.is_empty() {
            self.driver.wait()?;
        }
        look.end(&self.driver)
    }

    fn free(&self) -> MutexGuard<'_, Free<D::Buffer>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Uninitialised memory.
    pub(crate) fn alloc(self: &Arc<Self>, bytes: usize) -> Result<GpuBuffer<D>, DeviceError> {
        // A size that fits a buffer is not rounded up beyond the largest buffer.
        let largest = usize::try_from(self.driver.limits().max_buffer).unwrap_or(usize::MAX);
        let size = size_class(bytes).min(largest).max(bytes.max(1));
        let kept = {
            let mut free = self.free();
            let kept = free.buffers.get_mut(&size).and_then(Vec::pop);
            if kept.is_some() {
                free.bytes -= size as u64;
            }
            kept
        };
        let buffer = match kept {
            Some(buffer) => buffer,
            None if size as u64 > self.driver.limits().max_buffer => {
                let most = self.driver.limits().max_buffer;
                return Err(DeviceError::new(
                    self.driver.info().device,
                    FailureClass::OutOfMemory { never_fits: true },
                    format!("{bytes} bytes are more than a buffer can have, {most}"),
                ));
            }
            None => self.driver.alloc(size)?,
        };
        Ok(GpuBuffer {
            pool: self.clone(),
            buffer: Some(buffer),
            bytes,
            pooled: Some(size),
            suspected: Suspected::default(),
        })
    }

    fn keep(&self, buffer: D::Buffer, size: usize) {
        let mut free = self.free();
        // A quarter of the memory for what may never be asked for again.
        if free.bytes + size as u64 <= self.driver.limits().memory / 4 {
            free.bytes += size as u64;
            free.buffers.entry(size).or_default().push(buffer);
        }
    }

    fn clear(&self) {
        let mut free = self.free();
        free.buffers.clear();
        free.bytes = 0;
    }
}

/// A buffer that goes back to its pool.
pub(crate) struct GpuBuffer<D: Driver> {
    pool: Arc<Pool<D>>,
    /// `None` only while it is dropped.
    buffer: Option<D::Buffer>,
    bytes: usize,
    /// Its size class, unless it is memory of the host's.
    pooled: Option<usize>,
    /// The mistakes that it may have come of.
    pub(crate) suspected: Suspected,
}

impl<D: Driver> GpuBuffer<D> {
    /// The driver's buffer.
    pub(crate) fn inner(&self) -> &D::Buffer {
        let buffer = self.buffer.as_ref();
        buffer.expect("a buffer is taken only when it is dropped")
    }

    /// May a mistake be found that it came of?
    fn is_suspect(&self) -> bool {
        self.pool.poison.is_suspect(self.suspected.get())
    }
}

impl<D: Driver> Drop for GpuBuffer<D> {
    fn drop(&mut self) {
        if let (Some(buffer), Some(size)) = (self.buffer.take(), self.pooled) {
            self.pool.keep(buffer, size);
        }
    }
}

impl<D: Driver> fmt::Debug for GpuBuffer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {} bytes", self.buffer, self.bytes)
    }
}

impl<D: Driver> DeviceBuffer for GpuBuffer<D> {
    fn bytes(&self) -> usize {
        self.bytes
    }

    unsafe fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), DeviceError> {
        assert!(inside(offset, to.len(), self.bytes));
        let look = self.pool.poison.look_behind(self.suspected.get());
        // SAFETY: in bounds, as just asserted.
        unsafe { self.pool.driver.read(self.inner(), offset, to)? };
        // The read was queued last, so all earlier work is over.
        look.map_or(Ok(()), |look| look.end(&self.pool.driver))?;
        match self.is_poisoned() {
            true => Err(DeviceError::new(
                self.pool.driver.info().device,
                FailureClass::Caller,
                "computed from what a mistake led to",
            )),
            false => Ok(()),
        }
    }

    unsafe fn write(&self, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        assert!(inside(offset, from.len(), self.bytes));
        if from.len() == self.bytes {
            self.suspected.set(Suspicion::default());
        }
        // SAFETY: in bounds, as just asserted; nothing else uses it, as the caller promises.
        unsafe { self.pool.driver.write(self.inner(), offset, from) }
    }

    fn fetch(&self, bytes: usize) -> Result<Option<Box<dyn Fetch>>, DeviceError> {
        assert!(bytes <= self.bytes);
        if self.is_suspect() {
            return Ok(None);
        }
        // SAFETY: in bounds, as just asserted.
        unsafe { self.pool.driver.fetch(self.inner(), bytes) }
    }

    fn host(&self) -> Result<Option<&HostBuffer>, DeviceError> {
        self.pool.driver.host(self.inner())
    }

    fn is_poisoned(&self) -> bool {
        self.pool.poison.has(self.suspected.get())
    }

    fn settle(&self) -> Result<(), DeviceError> {
        match self.is_suspect() {
            true => self.pool.settle(),
            false => Ok(()),
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn inside(offset: usize, len: usize, bytes: usize) -> bool {
    offset.checked_add(len).is_some_and(|end| end <= bytes)
}

/// The memory of a driver's device.
pub(crate) struct GpuMemory<D: Driver>(pub(crate) Arc<Pool<D>>);

impl<D: Driver> DeviceMemory for GpuMemory<D> {
    fn alloc(&self, bytes: usize) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        Ok(Arc::new(self.0.alloc(bytes)?))
    }

    fn adopt(&self, host: &HostBuffer) -> Result<Arc<dyn DeviceBuffer>, DeviceError> {
        if let Some(buffer) = self.0.driver.share(host)? {
            return Ok(Arc::new(GpuBuffer {
                pool: self.0.clone(),
                buffer: Some(buffer),
                bytes: host.bytes(),
                pooled: None,
                suspected: Suspected::default(),
            }));
        }
        let copy = self.0.alloc(host.bytes())?;
        // SAFETY: the host's memory has these bytes, and nothing writes to what a storage is
        // moved from; the copy is new and as large.
        unsafe { self.0.driver.upload(copy.inner(), host)? };
        Ok(Arc::new(copy))
    }

    fn peers(&self) -> Option<TypeId> {
        D::HAS_PEERS.then(TypeId::of::<D>)
    }

    unsafe fn copy_of(
        &self,
        other: &dyn DeviceBuffer,
    ) -> Result<Option<Arc<dyn DeviceBuffer>>, DeviceError> {
        let Some(other) = other.as_any().downcast_ref::<GpuBuffer<D>>() else {
            return Ok(None);
        };
        if !D::HAS_PEERS || other.is_suspect() {
            return Ok(None);
        }
        let copy = self.0.alloc(other.bytes)?;
        let (from, of) = (&other.pool.driver, other.inner());
        // SAFETY: both have these bytes; the copy is new.
        unsafe { self.0.driver.copy(copy.inner(), from, of, other.bytes)? };
        Ok(Some(Arc::new(copy)))
    }

    fn trim(&self) {
        self.0.clear();
    }

    /// Free memory that the device reports, and the memory that is kept for later requests. If its
    /// memory is the host's, the system's figure counts.
    fn free(&self) -> Option<u64> {
        let driver = &self.0.driver;
        let host = match driver.info().shares_host_memory {
            true => SystemMemory::now().map(|host| host.free.min(driver.limits().memory)),
            false => None,
        };
        let free = driver.free_memory().into_iter().chain(host).min()?;
        Some(free.saturating_add(self.0.free().bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_waste_little() {
        for bytes in [1, 255, 256, 257, 5000, 1 << 20, (1 << 20) + 1, 123_456_789] {
            let size = size_class(bytes);
            assert!(size >= bytes && size_class(size) == size, "{bytes} {size}");
            assert!(size - bytes < 256.max(bytes / 8), "{bytes} {size}");
        }
    }
}
