//! Memory of a device: its own, or the host's used in place.

use std::ffi::c_void;
use std::fmt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use opencl_sys::*;
use rustorch_runtime::HostBuffer;

use crate::api::Object;
use crate::context::Context;
use crate::status::{Failure, check};

/// Memory that kernels use.
///
/// Writable host memory belongs to one side at a time: mapped, to the host; else to the device.
/// Read-only memory serves both at once.
pub struct Buffer {
    context: Arc<Context>,
    memory: Object,
    bytes: usize,
    host: Option<HostBuffer>,
    mapped: AtomicBool,
    /// Held while `mapped` changes.
    change: Mutex<()>,
}

impl Buffer {
    /// Memory of the device's own.
    pub(crate) fn on_device(context: &Arc<Context>, bytes: usize) -> Result<Self, Failure> {
        let memory = Self::own_memory(context, bytes.max(1))?;
        Ok(Self::new(context, memory, bytes, None))
    }

    /// Memory of the host's that the device reaches.
    pub(crate) fn on_host(context: &Arc<Context>, bytes: usize) -> Result<Self, Failure> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        // SAFETY: no host memory is used.
        let memory = unsafe { create(context, flags, bytes.max(1), ptr::null_mut()) }?;
        Ok(Self::new(context, memory, bytes, None))
    }

    fn own_memory(context: &Context, bytes: usize) -> Result<Object, Failure> {
        // SAFETY: no host memory is used.
        unsafe { create(context, CL_MEM_READ_WRITE, bytes, ptr::null_mut()) }
    }

    /// Host memory, which is kept alive until the device is done with it.
    pub(crate) fn over(context: &Arc<Context>, host: &HostBuffer) -> Result<Self, Failure> {
        let bytes = host.bytes();
        if bytes == 0 {
            // No buffer is empty; kernels get one unused element instead.
            let memory = Self::own_memory(context, 1)?;
            return Ok(Self::new(context, memory, 0, Some(host.clone())));
        }
        let access = if host.is_writable() {
            CL_MEM_READ_WRITE
        } else {
            CL_MEM_READ_ONLY
        };
        let flags = access | CL_MEM_USE_HOST_PTR;
        // SAFETY: the host memory has these bytes, and lives as long, as is seen to below. If
        // it may not be written to, nor will the device.
        let memory = unsafe { create(context, flags, bytes, host.as_ptr().cast()) }?;
        keep_alive(context, &memory, host)?;
        Ok(Self::new(context, memory, bytes, Some(host.clone())))
    }

    fn new(context: &Arc<Context>, memory: Object, bytes: usize, host: Option<HostBuffer>) -> Self {
        Self {
            context: context.clone(),
            memory,
            bytes,
            host,
            mapped: AtomicBool::new(false),
            change: Mutex::new(()),
        }
    }

    /// Argument for kernels.
    pub(crate) fn memory(&self) -> cl_mem {
        self.memory.raw()
    }

    /// Hands the memory to the host, once all queued work is done; `None` if it is not a host
    /// memory.
    pub(crate) fn to_host(&self) -> Result<Option<&HostBuffer>, Failure> {
        let Some(host) = &self.host else {
            return Ok(None);
        };
        if !self.has_sides() || self.mapped.load(Ordering::Acquire) {
            return Ok(Some(host));
        }
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        if self.mapped.load(Ordering::Acquire) {
            return Ok(Some(host));
        }
        self.context.wait("clEnqueueMapBuffer", |queue, event| {
            let mut status = CL_SUCCESS;
            // SAFETY: the whole buffer is mapped, which gives the host memory that it was made of.
            unsafe {
                (self.context.api.enqueue_map_buffer)(
                    queue,
                    self.memory(),
                    CL_FALSE,
                    CL_MAP_READ | CL_MAP_WRITE,
                    0,
                    self.bytes,
                    0,
                    ptr::null(),
                    event,
                    &raw mut status,
                )
            };
            status
        })?;
        self.mapped.store(true, Ordering::Release);
        Ok(Some(host))
    }

    /// Hands the memory to the device, for later work.
    pub(crate) fn to_device(&self) -> Result<(), Failure> {
        if !self.mapped.load(Ordering::Acquire) {
            return Ok(());
        }
        let _change = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.mapped.load(Ordering::Acquire) {
            return Ok(());
        }
        let mapped = self
            .host
            .as_ref()
            .map_or(ptr::null_mut(), HostBuffer::as_ptr);
        // SAFETY: it is mapped there.
        let status = unsafe {
            (self.context.api.enqueue_unmap_mem_object)(
                self.context.queue()?,
                self.memory(),
                mapped.cast(),
                0,
                ptr::null(),
                ptr::null_mut(),
            )
        };
        check("clEnqueueUnmapMemObject", status)?;
        self.mapped.store(false, Ordering::Release);
        Ok(())
    }

    /// Does the memory belong to one side at a time?
    fn has_sides(&self) -> bool {
        self.bytes > 0 && self.host.as_ref().is_some_and(HostBuffer::is_writable)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // A mapped buffer is never released; if the device is lost, it does not matter.
        let _ = self.to_device();
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whose = if self.host.is_some() {
            "host"
        } else {
            "device"
        };
        write!(f, "Buffer({} bytes of the {whose})", self.bytes)
    }
}

/// # Safety
/// If the flags say that `host` is used, it has these bytes, as long as the buffer lives.
unsafe fn create(
    context: &Context,
    flags: cl_mem_flags,
    bytes: usize,
    host: *mut c_void,
) -> Result<Object, Failure> {
    let mut status = CL_SUCCESS;
    let create = context.api.create_buffer;
    // SAFETY: as the caller promises.
    let memory = unsafe { create(context.context()?, flags, bytes, host, &raw mut status) };
    check("clCreateBuffer", status)?;
    // SAFETY: it was just made, and nobody else has it.
    Ok(unsafe { context.object(memory, context.api.release_mem_object) })
}

/// Keeps `host` until `memory` is gone. Release is not the end: the last queued work that uses it
/// has to be done. If the device hangs, `host` is kept for ever.
fn keep_alive(context: &Context, memory: &Object, host: &HostBuffer) -> Result<(), Failure> {
    unsafe extern "C" fn let_go(_: cl_mem, host: *mut c_void) {
        // SAFETY: it comes from the box below, and this is called once.
        drop(unsafe { Box::from_raw(host.cast::<HostBuffer>()) });
    }
    let host = Box::into_raw(Box::new(host.clone())).cast();
    let set = context.api.set_mem_object_destructor_callback;
    // SAFETY: the memory object is valid, and the function fits the box.
    let status = unsafe { set(memory.raw(), Some(let_go), host) };
    let set = check("clSetMemObjectDestructorCallback", status);
    if set.is_err() {
        // SAFETY: the callback was not registered, so that the box is still ours.
        unsafe { let_go(memory.raw(), host) };
    }
    set
}
