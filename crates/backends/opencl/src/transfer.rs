//! Copies between the host and memory of a device's own.
//!
//! A device that hangs may go on with a copy whenever it likes. So it is never given memory that a
//! caller has only lent: bytes go by way of memory that is the context's, or that can be kept.

use std::mem;
use std::ptr;
use std::sync::PoisonError;

use opencl_sys::*;
use rustorch_runtime::HostBuffer;

use crate::context::Context;
use crate::status::Failure;

/// Bytes that are copied at once by way of the context's memory.
const PIECE: usize = 4 << 20;

impl Context {
    /// Copies bytes of a buffer from `offset` on, after all that was queued before.
    ///
    /// # Safety
    /// The range lies inside the buffer.
    pub(crate) unsafe fn read(
        &self,
        memory: cl_mem,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), Failure> {
        for (at, part) in (offset..).step_by(PIECE).zip(to.chunks_mut(PIECE)) {
            self.by_way(part.len(), |context, way| {
                context.wait("clEnqueueReadBuffer", |queue, event| {
                    let (count, to) = (way.len(), way.as_mut_ptr().cast());
                    let read = context.api.enqueue_read_buffer;
                    // SAFETY: the range lies inside the buffer, and there is room for it, which
                    // `by_way` keeps until it is copied.
                    unsafe {
                        read(
                            queue,
                            memory,
                            CL_FALSE,
                            at,
                            count,
                            to,
                            0,
                            ptr::null(),
                            event,
                        )
                    }
                })?;
                part.copy_from_slice(way);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Copies bytes to a buffer from `offset` on, after all that was queued before.
    ///
    /// # Safety
    /// The range lies inside the buffer.
    pub(crate) unsafe fn write(
        &self,
        memory: cl_mem,
        offset: usize,
        from: &[u8],
    ) -> Result<(), Failure> {
        for (at, part) in (offset..).step_by(PIECE).zip(from.chunks(PIECE)) {
            self.by_way(part.len(), |context, way| {
                way.copy_from_slice(part);
                // SAFETY: the range lies inside the buffer, and `by_way` keeps the bytes until they
                // are copied.
                unsafe { context.write_from(memory, at, way.as_ptr(), way.len()) }
            })?;
        }
        Ok(())
    }

    /// Copies host memory to the beginning of a buffer, after all that was queued before.
    ///
    /// # Safety
    /// The buffer is as large.
    pub(crate) unsafe fn upload(&self, memory: cl_mem, host: &HostBuffer) -> Result<(), Failure> {
        // SAFETY: as the caller promises; the memory is kept below.
        let written = unsafe { self.write_from(memory, 0, host.as_ptr(), host.bytes()) };
        if written.is_err() {
            // The device may still read it, so that it is never given back.
            mem::forget(host.clone());
        }
        written
    }

    /// # Safety
    /// The range lies inside the buffer; there are `count` bytes, until the device is done with
    /// them.
    unsafe fn write_from(
        &self,
        memory: cl_mem,
        at: usize,
        from: *const u8,
        count: usize,
    ) -> Result<(), Failure> {
        let write = self.api.enqueue_write_buffer;
        self.wait("clEnqueueWriteBuffer", |queue, event| {
            let from = from.cast();
            // SAFETY: as the caller promises.
            unsafe {
                write(
                    queue,
                    memory,
                    CL_FALSE,
                    at,
                    count,
                    from,
                    0,
                    ptr::null(),
                    event,
                )
            }
        })
    }

    /// Has `copy` use `count` bytes of the context's memory. If it fails, the device may still use
    /// them, so that they are never given back.
    fn by_way(
        &self,
        count: usize,
        copy: impl FnOnce(&Self, &mut [u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        if way.len() < count {
            way.resize(count, 0);
        }
        let copied = copy(self, &mut way[..count]);
        if copied.is_err() {
            mem::forget(mem::take(&mut *way));
        }
        copied
    }
}
