//! A device in use: its context, its queue, its errors.

use std::cell::Cell;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use opencl_sys::*;
use rustorch_runtime::{Deadline, DeviceError, DeviceType, FailureClass};

use crate::api::{Api, Object};
use crate::device::Device;
use crate::milestones::Milestones;
use crate::quarantine::Quarantine;
use crate::status::{Failure, check};

/// Number of launches that may wait in the queue before it is flushed.
const FLUSH_EVERY: u32 = 16;

thread_local! {
    /// The queue that this thread's launches go to while they are timed.
    static TIMED: Cell<cl_command_queue> = const { Cell::new(ptr::null_mut()) };
}

/// Common state of all objects that are made on a device.
pub(crate) struct Context {
    pub(crate) api: &'static Api,
    pub(crate) device: Device,
    /// The device's name in errors.
    name: DeviceType,
    /// Options of the compiler.
    pub(crate) options: &'static CStr,
    /// Does the driver keep compiled kernels by itself, so that a source is enough?
    pub(crate) keeps_kernels: bool,
    /// Whether it is the machine's processor.
    pub(crate) is_processor: bool,
    /// Limit of the time without progress.
    deadline: Mutex<Deadline>,
    pub(crate) quarantine: Arc<Quarantine>,
    launches: AtomicU32,
    milestones: Mutex<Milestones>,
    /// Memory that bytes go by way of, see `transfer.rs`.
    pub(crate) way: Mutex<Vec<u8>>,
    /// Released before their context.
    queue: Object,
    /// A queue that reports times, made when it is asked for.
    timed: OnceLock<Object>,
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
        let quarantine = Arc::<Quarantine>::default();
        // SAFETY: it was just made, and nobody else has it.
        let context = unsafe { Object::new(context, api.release_context, &quarantine) };
        let queue = new_queue(api, &context, id, 0, &quarantine)?;
        Ok(Self {
            api,
            device,
            name,
            options: device.build_options()?,
            keeps_kernels: device.keeps_kernels()?,
            is_processor: device.is_processor()?,
            deadline: Mutex::new(Deadline::of_user()),
            quarantine,
            milestones: Mutex::default(),
            way: Mutex::default(),
            launches: AtomicU32::new(0),
            queue,
            timed: OnceLock::new(),
            context,
        })
    }

    /// Context for new objects; none once the device hangs.
    pub(crate) fn context(&self) -> Result<cl_context, Failure> {
        self.quarantine.check()?;
        Ok(self.context.raw())
    }

    /// The queue that this thread's work goes to; none once the device hangs.
    pub(crate) fn queue(&self) -> Result<cl_command_queue, Failure> {
        self.quarantine.check()?;
        let timed = TIMED.get();
        Ok(
            match self.timed.get().is_some_and(|queue| queue.raw() == timed) {
                true => timed,
                false => self.queue.raw(),
            },
        )
    }

    /// Takes over something of this device.
    ///
    /// # Safety
    /// The same as [`Object::new`].
    pub(crate) unsafe fn object(
        &self,
        raw: *mut c_void,
        release: unsafe extern "C" fn(*mut c_void) -> cl_int,
    ) -> Object {
        // SAFETY: as the caller promises.
        unsafe { Object::new(raw, release, &self.quarantine) }
    }

    pub(crate) fn deadline(&self) -> Deadline {
        *(self.deadline.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_deadline(&self, deadline: Deadline) {
        *(self.deadline.lock()).unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    pub(crate) fn milestones(&self) -> MutexGuard<'_, Milestones> {
        self.milestones
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `queue` `steps` times. Returns the device's time on the work that this thread queued
    /// each time; `None` if the driver does not report it.
    pub(crate) fn time(
        &self,
        steps: usize,
        queue: &mut dyn FnMut(usize) -> Result<(), DeviceError>,
    ) -> Result<Option<Vec<Duration>>, DeviceError> {
        let fail = |failure| self.failed(failure);
        self.finish().map_err(fail)?;
        let Ok(timed) = self.timed_queue() else {
            // The driver has no such queue; if anything else is wrong, the other one tells.
            (0..steps).try_for_each(queue)?;
            self.finish().map_err(fail)?;
            return Ok(None);
        };
        TIMED.set(timed);
        let timed = self.marked(steps, queue);
        let finished = self.finish().map_err(fail);
        TIMED.set(ptr::null_mut());
        let events = timed?;
        finished?;
        // All is done; when it was, some drivers do not tell.
        let ends = events.iter().map(|event| self.end_of(event).ok());
        let ends: Option<Vec<u64>> = ends.collect();
        let time = |pair: &[u64]| Duration::from_nanos(pair[1].saturating_sub(pair[0]));
        Ok(ends.map(|ends| ends.windows(2).map(time).collect()))
    }

    /// An event before and behind each step.
    fn marked(
        &self,
        steps: usize,
        queue: &mut dyn FnMut(usize) -> Result<(), DeviceError>,
    ) -> Result<Vec<Object>, DeviceError> {
        let mut events = Vec::with_capacity(steps + 1);
        let mark = || self.mark().map_err(|failure| self.failed(failure));
        events.push(mark()?);
        for step in 0..steps {
            queue(step)?;
            events.push(mark()?);
        }
        Ok(events)
    }

    fn timed_queue(&self) -> Result<cl_command_queue, Failure> {
        if let Some(queue) = self.timed.get() {
            return Ok(queue.raw());
        }
        let properties = CL_QUEUE_PROFILING_ENABLE;
        let (device, quarantine) = (self.device.id(), &self.quarantine);
        let queue = new_queue(self.api, &self.context, device, properties, quarantine)?;
        Ok(self.timed.get_or_init(|| queue).raw())
    }

    /// An event behind all that is queued.
    fn mark(&self) -> Result<Object, Failure> {
        let mut event = ptr::null_mut();
        // SAFETY: the queue is valid and in order, and there is room for the event.
        let status = unsafe { (self.api.enqueue_marker)(self.queue()?, &raw mut event) };
        check("clEnqueueMarker", status)?;
        // SAFETY: it was just made, and nobody else has it.
        Ok(unsafe { self.object(event, self.api.release_event) })
    }

    /// End of a complete event, in nanoseconds of the device's clock.
    fn end_of(&self, event: &Object) -> Result<u64, Failure> {
        let mut time = 0u64;
        // SAFETY: the event is of a queue that tells times, of which there is room for one.
        let status = unsafe {
            (self.api.get_event_profiling_info)(
                event.raw(),
                CL_PROFILING_COMMAND_END,
                size_of_val(&time),
                (&raw mut time).cast(),
                ptr::null_mut(),
            )
        };
        check("clGetEventProfilingInfo", status)?;
        Ok(time)
    }

    /// An error of this device.
    pub(crate) fn error(&self, class: FailureClass, message: impl Into<String>) -> DeviceError {
        DeviceError::new(self.name, class, message)
    }

    /// A failed call as an error of this device.
    pub(crate) fn failed(&self, failure: Failure) -> DeviceError {
        self.error(failure.class(), failure.to_string())
    }

    /// Has `launch` queue a kernel. Drivers of GPUs collect work until they are flushed. So that is
    /// done now and then, or the device would be idle while the host queues more. The event of such
    /// a launch shows the device's progress. On a processor launches may take long, so each one's
    /// event shows it.
    pub(crate) fn launch(
        &self,
        launch: impl FnOnce(cl_command_queue, *mut cl_event) -> cl_int,
    ) -> Result<(), Failure> {
        let queue = self.queue()?;
        let launches = self.launches.fetch_add(1, Ordering::Relaxed);
        let is_flushed = launches % FLUSH_EVERY == FLUSH_EVERY - 1;
        let mut event = ptr::null_mut();
        let told = match is_flushed || self.is_processor {
            true => &raw mut event,
            false => ptr::null_mut(),
        };
        check("clEnqueueNDRangeKernel", launch(queue, told))?;
        if !told.is_null() {
            self.queued(event);
        }
        if !is_flushed {
            return Ok(());
        }
        // SAFETY: the queue is valid.
        check("clFlush", unsafe { (self.api.flush)(queue) })
    }
}

/// A queue that is in order.
fn new_queue(
    api: &Api,
    context: &Object,
    device: cl_device_id,
    properties: cl_command_queue_properties,
    quarantine: &Arc<Quarantine>,
) -> Result<Object, Failure> {
    let mut status = CL_SUCCESS;
    // SAFETY: the device is the context's.
    let queue =
        unsafe { (api.create_command_queue)(context.raw(), device, properties, &raw mut status) };
    check("clCreateCommandQueue", status)?;
    // SAFETY: it was just made, and nobody else has it.
    Ok(unsafe { Object::new(queue, api.release_command_queue, quarantine) })
}
