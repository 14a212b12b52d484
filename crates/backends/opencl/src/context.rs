//! A device in use: its context, its queue, its errors.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use opencl_sys::*;
use rustorch_runtime::{DeviceError, DeviceType, FailureClass};

use crate::api::{Api, Object};
use crate::device::Device;
use crate::status::{Failure, check};

/// How many launches may wait in the queue before the device is told of them.
const FLUSH_EVERY: u32 = 16;

/// What everything that is made on a device needs of it.
pub(crate) struct Context {
    pub(crate) api: &'static Api,
    pub(crate) device: Device,
    /// The device's name in errors.
    name: DeviceType,
    /// Of the compiler.
    pub(crate) options: &'static CStr,
    /// Is a source as good as what it was compiled to?
    pub(crate) keeps_kernels: bool,
    launches: AtomicU32,
    /// Released before its context.
    queue: Object,
    context: Object,
}

impl Context {
    pub(crate) fn new(device: Device, name: DeviceType) -> Result<Self, Failure> {
        let api = device.api();
        let properties = [
            CL_CONTEXT_PLATFORM,
            device.platform().expose_provenance().cast_signed(),
            0,
        ];
        let mut status = CL_SUCCESS;
        let id = device.id();
        // SAFETY: the properties are a list that ends with zero; there is one device.
        let context = unsafe {
            (api.create_context)(
                properties.as_ptr(),
                1,
                &raw const id,
                None,
                ptr::null_mut(),
                &raw mut status,
            )
        };
        check("clCreateContext", status)?;
        // SAFETY: it was just made, and nobody else has it.
        let context = unsafe { Object::new(context, api.release_context) };
        // SAFETY: the device is the context's. Without properties a queue is in order.
        let queue = unsafe { (api.create_command_queue)(context.raw(), id, 0, &raw mut status) };
        check("clCreateCommandQueue", status)?;
        // SAFETY: as for the context.
        let queue = unsafe { Object::new(queue, api.release_command_queue) };
        Ok(Self {
            api,
            device,
            name,
            options: device.build_options()?,
            keeps_kernels: device.keeps_kernels()?,
            launches: AtomicU32::new(0),
            queue,
            context,
        })
    }

    pub(crate) fn context(&self) -> cl_context {
        self.context.raw()
    }

    pub(crate) fn queue(&self) -> cl_command_queue {
        self.queue.raw()
    }

    /// An error of this device.
    pub(crate) fn error(&self, class: FailureClass, message: impl Into<String>) -> DeviceError {
        DeviceError::new(self.name, class, message)
    }

    /// A failed call as an error of this device.
    pub(crate) fn failed(&self, failure: Failure) -> DeviceError {
        self.error(failure.class(), failure.to_string())
    }

    /// Notes a launch. Drivers of GPUs collect work until they are told to begin, so that is
    /// done now and then, lest the device be idle while the host queues more.
    pub(crate) fn launched(&self) -> Result<(), Failure> {
        let launches = self.launches.fetch_add(1, Ordering::Relaxed);
        if launches % FLUSH_EVERY != FLUSH_EVERY - 1 {
            return Ok(());
        }
        // SAFETY: the queue is valid.
        check("clFlush", unsafe { (self.api.flush)(self.queue()) })
    }
}
