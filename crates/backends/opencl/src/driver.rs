//! The driver: the GPU layer's interface to a device.

use std::ptr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rustorch_gpu::{Dialect, Driver, Launch, Limits};
use rustorch_runtime::{Deadline, DeviceError, DeviceInfo, DeviceType, FailureClass, HostBuffer};

use crate::buffer::Buffer;
use crate::context::Context;
use crate::device::Device;
use crate::program::{self, Kernel};
use crate::status::{Failure, check};

/// Alignment that host memory needs to be used by a processor: that of the widest loads that
/// kernels make.
const VECTOR: usize = 16;

/// Alignment that host memory needs to be used by a GPU. For less than whole pages the driver would
/// secretly make its own copy. Source: Intel, "Getting the Most from OpenCL 1.2: How to Increase
/// Performance by Minimizing Buffer Copies".
const PAGE: usize = 4096;

/// An OpenCL device.
pub struct OpenCl {
    context: Arc<Context>,
    info: DeviceInfo,
    limits: Limits,
}

impl OpenCl {
    pub(crate) fn new(device: Device, name: DeviceType) -> Result<Self, Failure> {
        let limits = device.limits(name)?;
        Ok(Self {
            info: device.info(name, &limits)?,
            limits,
            context: Arc::new(Context::new(device, name)?),
        })
    }

    /// From now on the device may get nothing done for so long; at first it is as the
    /// [user](Deadline::of_user) says.
    pub fn set_deadline(&self, deadline: Deadline) {
        self.context.set_deadline(deadline);
    }

    fn failed(&self, failure: Failure) -> DeviceError {
        self.context.failed(failure)
    }

    fn try_alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let buffer = if self.info.shares_host_memory {
            let host = HostBuffer::uninit(bytes).ok_or_else(|| {
                let class = FailureClass::OutOfMemory { never_fits: false };
                let message = format!("the system refused {bytes} bytes");
                self.context.error(class, message)
            })?;
            Buffer::over(&self.context, &host)
        } else {
            Buffer::on_device(&self.context, bytes)
        };
        buffer.map_err(|failure| self.failed(failure))
    }

    fn try_launch(&self, kernel: &Kernel, launch: &Launch<'_, Self>) -> Result<(), Failure> {
        for buffer in launch.buffers {
            buffer.to_device()?;
        }
        let api = self.context.api;
        let _arguments = kernel
            .arguments
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let mut index = 0;
        let mut set = |bytes: usize, value: *const u32| {
            // SAFETY: the value has these bytes, as the caller promises the parameter does.
            let status = unsafe { (api.set_kernel_arg)(kernel.raw(), index, bytes, value.cast()) };
            index += 1;
            check("clSetKernelArg", status)
        };
        for buffer in launch.buffers {
            let memory = buffer.memory();
            set(size_of_val(&memory), (&raw const memory).cast())?;
        }
        if !launch.params.is_empty() {
            set(size_of_val(launch.params), launch.params.as_ptr())?;
        }
        let local = [launch.group as usize, 1, 1];
        let [x, y, z] = launch.groups.map(|n| n as usize);
        let global = [x.saturating_mul(local[0]), y, z];
        self.context.launch(|queue, event| {
            // SAFETY: three sizes each; of the rest, the caller takes care.
            unsafe {
                (api.enqueue_nd_range_kernel)(
                    queue,
                    kernel.raw(),
                    3,
                    ptr::null(),
                    global.as_ptr(),
                    local.as_ptr(),
                    0,
                    ptr::null(),
                    event,
                )
            }
        })
    }
}

impl Driver for OpenCl {
    type Buffer = Buffer;
    type Kernel = Kernel;
    type Recording = std::convert::Infallible;

    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn dialect(&self) -> Dialect {
        Dialect::OpenCl
    }

    /// Released memory is free again only when queued work is done with it. So the driver waits for
    /// that before it gives up.
    fn alloc(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        let largest = self.limits.max_buffer;
        if u64::try_from(bytes).is_ok_and(|bytes| bytes > largest) {
            return Err(self.context.error(
                FailureClass::OutOfMemory { never_fits: true },
                format!("{bytes} bytes in one piece, of which the device has {largest} at most"),
            ));
        }
        match self.try_alloc(bytes) {
            Err(e) if matches!(e.class, FailureClass::OutOfMemory { .. }) => {
                self.wait()?;
                self.try_alloc(bytes)
            }
            result => result,
        }
    }

    fn alloc_host(&self, bytes: usize) -> Result<Buffer, DeviceError> {
        match self.info.shares_host_memory {
            true => self.alloc(bytes),
            false => Buffer::on_host(&self.context, bytes).map_err(|failure| self.failed(failure)),
        }
    }

    fn free_memory(&self) -> Option<u64> {
        self.context.device.free_memory()
    }

    fn share(&self, host: &HostBuffer) -> Result<Option<Buffer>, DeviceError> {
        let alignment = if self.limits.is_processor {
            VECTOR
        } else {
            PAGE
        };
        let aligned = host.bytes() == 0 || host.as_ptr().addr().is_multiple_of(alignment);
        if !self.info.shares_host_memory || !aligned {
            return Ok(None);
        }
        match Buffer::over(&self.context, host) {
            Ok(buffer) => Ok(Some(buffer)),
            Err(failure) if failure.class().loses_device() => Err(self.failed(failure)),
            Err(_) => Ok(None),
        }
    }

    fn host<'b>(&self, buffer: &'b Buffer) -> Result<Option<&'b HostBuffer>, DeviceError> {
        buffer.to_host().map_err(|failure| self.failed(failure))
    }

    unsafe fn read(
        &self,
        buffer: &Buffer,
        offset: usize,
        to: &mut [u8],
    ) -> Result<(), DeviceError> {
        if to.is_empty() {
            return Ok(());
        }
        if let Some(host) = self.host(buffer)? {
            // SAFETY: the range lies inside the buffer, as the caller promises; it is the
            // host's now, and nothing writes to it.
            unsafe {
                let from = host.as_ptr().add(offset);
                from.copy_to_nonoverlapping(to.as_mut_ptr(), to.len());
            }
            return Ok(());
        }
        // SAFETY: the range lies inside the buffer, as the caller promises.
        let read = unsafe { self.context.read(buffer.memory(), offset, to) };
        read.map_err(|failure| self.failed(failure))
    }

    unsafe fn write(&self, buffer: &Buffer, offset: usize, from: &[u8]) -> Result<(), DeviceError> {
        if from.is_empty() {
            return Ok(());
        }
        if let Some(host) = self.host(buffer)? {
            // SAFETY: the range lies inside the buffer, which may be written to, as the caller
            // promises; it is the host's now, and nothing else uses it.
            unsafe {
                let to = host.as_ptr().add(offset);
                to.copy_from_nonoverlapping(from.as_ptr(), from.len());
            }
            return Ok(());
        }
        // SAFETY: the range lies inside the buffer, as the caller promises.
        let written = unsafe { self.context.write(buffer.memory(), offset, from) };
        written.map_err(|failure| self.failed(failure))
    }

    unsafe fn upload(&self, buffer: &Buffer, host: &HostBuffer) -> Result<(), DeviceError> {
        if host.bytes() == 0 || self.info.shares_host_memory {
            // SAFETY: nothing writes to the memory, and the buffer is as large, as the caller
            // promises.
            return unsafe {
                let bytes = std::slice::from_raw_parts(host.as_ptr(), host.bytes());
                self.write(buffer, 0, bytes)
            };
        }
        // SAFETY: the buffer is as large, as the caller promises.
        let written = unsafe { self.context.upload(buffer.memory(), host) };
        written.map_err(|failure| self.failed(failure))
    }

    fn compile(&self, source: &str) -> Result<Vec<u8>, DeviceError> {
        program::compile(&self.context, source)
    }

    /// Drivers detect a foreign format, but may crash on a damaged file of their own. So files need
    /// a checksum.
    fn load(&self, binary: &[u8], name: &str) -> Result<Kernel, DeviceError> {
        program::load(&self.context, binary, name)
    }

    unsafe fn launch(&self, kernel: &Kernel, launch: &Launch<'_, Self>) -> Result<(), DeviceError> {
        let given = launch.buffers.len() + usize::from(!launch.params.is_empty());
        if given != kernel.parameters {
            // Some drivers notice it only later, when it is too late for the whole queue.
            let message = format!("{given} arguments for {} parameters", kernel.parameters);
            return Err(self.context.error(FailureClass::Unsupported, message));
        }
        self.try_launch(kernel, launch)
            .map_err(|failure| self.failed(failure))
    }

    fn time(
        &self,
        steps: usize,
        queue: &mut dyn FnMut(usize) -> Result<(), DeviceError>,
    ) -> Result<Option<Vec<Duration>>, DeviceError> {
        self.context.time(steps, queue)
    }

    fn wait(&self) -> Result<(), DeviceError> {
        self.context
            .finish()
            .map_err(|failure| self.failed(failure))
    }
}
