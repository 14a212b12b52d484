//! A device in use: its context, its stream, its errors.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::driver::sys::*;
use rustorch_runtime::{Deadline, DeviceError, DeviceType, FailureClass};

use crate::mapped::Words;
use crate::status::{Failure, check};

thread_local! {
    /// The stream that this thread's launches are recorded from, if they are.
    static RECORDING: Cell<CUstream> = const { Cell::new(ptr::null_mut()) };
    /// The context that this thread's calls go to.
    static CURRENT: Cell<CUcontext> = const { Cell::new(ptr::null_mut()) };
}

/// For so long a wait asks the driver all the time; behind that, with pauses.
const EAGER: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_micros(100);

/// Common state of all objects that are made on a device.
pub(crate) struct Context {
    /// The device's name in errors.
    name: DeviceType,
    device: CUdevice,
    context: CUcontext,
    stream: CUstream,
    /// Stream for recordings, so that other threads' work is not recorded.
    recorder: CUstream,
    /// Limit of a wait.
    deadline: Deadline,
    /// Did one take longer? The device is called no more then, and its memory stays as it is.
    hung: AtomicBool,
    /// Memory of the host's that kernels reach.
    pub(crate) words: Words,
}

// SAFETY: contexts and streams may be used by any thread that makes the context current, which
// every call does first.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the device's primary context, which other libraries of the process share.
    pub(crate) fn new(device: CUdevice, name: DeviceType) -> Result<Self, Failure> {
        let mut context = ptr::null_mut();
        // SAFETY: the device is valid, and there is room for the context.
        let status = unsafe { cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", status)?;
        let mut opened = Self {
            name,
            device,
            context,
            stream: ptr::null_mut(),
            recorder: ptr::null_mut(),
            deadline: Deadline::of_user(),
            hung: AtomicBool::new(false),
            words: Words::default(),
        };
        opened.enter()?;
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        for stream in [&mut opened.stream, &mut opened.recorder] {
            // SAFETY: the context is current, and there is room for the stream.
            check("cuStreamCreate", unsafe { cuStreamCreate(stream, flags) })?;
        }
        opened.keep_memory()?;
        Ok(opened)
    }

    /// Memory that is given back stays with the process until [`Context::trim`].
    fn keep_memory(&self) -> Result<(), Failure> {
        let mut most = u64::MAX;
        let threshold = CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        let pool = self.memory_pool()?;
        // SAFETY: the attribute is a number of 64 bits.
        let status = unsafe { cuMemPoolSetAttribute(pool, threshold, (&raw mut most).cast()) };
        check("cuMemPoolSetAttribute", status)
    }

    fn memory_pool(&self) -> Result<CUmemoryPool, Failure> {
        let mut pool = ptr::null_mut();
        // SAFETY: the device is valid, and there is room for the pool.
        let status = unsafe { cuDeviceGetDefaultMemPool(&raw mut pool, self.device) };
        check("cuDeviceGetDefaultMemPool", status)?;
        Ok(pool)
    }

    /// Returns unused memory to the system.
    pub(crate) fn trim(&self) -> Result<(), Failure> {
        self.wait()?;
        let pool = self.memory_pool()?;
        // SAFETY: the pool is valid.
        check("cuMemPoolTrimTo", unsafe { cuMemPoolTrimTo(pool, 0) })
    }

    /// Bytes that could be taken now, and those that there are.
    pub(crate) fn memory(&self) -> Result<(u64, u64), Failure> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: there is room for both numbers.
        let status = unsafe { cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        check("cuMemGetInfo", status)?;
        let pool = self.memory_pool()?;
        let number = |attribute| {
            let mut value = 0u64;
            // SAFETY: the attributes are numbers of 64 bits.
            let status = unsafe { cuMemPoolGetAttribute(pool, attribute, (&raw mut value).cast()) };
            check("cuMemPoolGetAttribute", status).map(|()| value)
        };
        let reserved = number(CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)?;
        let used = number(CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT)?;
        Ok((free as u64 + reserved.saturating_sub(used), total as u64))
    }

    /// Makes this thread's next calls go to this device, unless it hangs.
    pub(crate) fn enter(&self) -> Result<(), Failure> {
        if self.hung.load(Ordering::Relaxed) {
            return Err(Failure::hung("cuCtxSetCurrent"));
        }
        if CURRENT.get() == self.context {
            return Ok(());
        }
        // SAFETY: the context is valid.
        check("cuCtxSetCurrent", unsafe { cuCtxSetCurrent(self.context) })?;
        CURRENT.set(self.context);
        Ok(())
    }

    /// The stream of memory and copies, which are not recorded.
    pub(crate) fn main_stream(&self) -> CUstream {
        self.stream
    }

    /// The stream that this thread's launches go to.
    pub(crate) fn stream(&self) -> CUstream {
        match RECORDING.get() == self.recorder {
            true => self.recorder,
            false => self.stream,
        }
    }

    /// Calls `queue` and records the work that this thread queues.
    pub(crate) fn record(
        &self,
        queue: &mut dyn FnMut() -> Result<(), DeviceError>,
    ) -> Result<CUgraph, DeviceError> {
        let fail = |failure| self.failed(failure);
        self.enter().map_err(fail)?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is this device's, and no other thread uses it meanwhile: programs
        // record one at a time, see `Cuda::record`.
        let status = unsafe { cuStreamBeginCapture_v2(self.recorder, mode) };
        check("cuStreamBeginCapture", status).map_err(fail)?;
        RECORDING.set(self.recorder);
        let queued = queue();
        RECORDING.set(ptr::null_mut());
        let mut graph = ptr::null_mut();
        // SAFETY: as above; there is room for the graph.
        let status = unsafe { cuStreamEndCapture(self.recorder, &raw mut graph) };
        queued?;
        check("cuStreamEndCapture", status).map_err(fail)?;
        Ok(graph)
    }

    /// Queues a copy of bytes of another device: where to, where from, how many. Later work on
    /// either device comes after it.
    ///
    /// # Safety
    /// Both buffers have these bytes.
    pub(crate) unsafe fn copy_from(
        &self,
        other: &Self,
        (to, from, bytes): (CUdeviceptr, CUdeviceptr, usize),
    ) -> Result<(), Failure> {
        // Without it the driver goes by way of the host, as it does where there is no link.
        if let Err(failure) = other.grant(self.device) {
            tracing::debug!("{} does not reach {}: {failure}", self.name, other.name);
        }
        self.follow(other)?;
        self.enter()?;
        // SAFETY: as the caller promises; both contexts are valid.
        let status =
            unsafe { cuMemcpyPeerAsync(to, self.context, from, other.context, bytes, self.stream) };
        check("cuMemcpyPeerAsync", status)?;
        other.follow(self)
    }

    /// Lets another device read this one's memory.
    fn grant(&self, device: CUdevice) -> Result<(), Failure> {
        let access = CUmemAccessDesc {
            location: CUmemLocation {
                type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: device,
            },
            flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let pool = self.memory_pool()?;
        // SAFETY: the pool is valid, and there is one description.
        let status = unsafe { cuMemPoolSetAccess(pool, &raw const access, 1) };
        check("cuMemPoolSetAccess", status)
    }

    /// Later work here waits for the work that is queued there.
    fn follow(&self, other: &Self) -> Result<(), Failure> {
        other.enter()?;
        let mut event = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: there is room for the event.
        check("cuEventCreate", unsafe {
            cuEventCreate(&raw mut event, flags)
        })?;
        // SAFETY: event and stream are of the current context.
        let recorded = check("cuEventRecord", unsafe {
            cuEventRecord(event, other.stream)
        });
        let waits = recorded.and_then(|()| {
            self.enter()?;
            // SAFETY: both are valid; events may be waited for by other devices.
            check("cuStreamWaitEvent", unsafe {
                cuStreamWaitEvent(self.stream, event, 0)
            })
        });
        // SAFETY: it is not used again; the driver keeps it until it has happened.
        unsafe { cuEventDestroy_v2(event) };
        waits
    }

    /// Waits for all that was queued.
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        self.enter()?;
        // SAFETY: the stream is valid.
        self.until("cuStreamQuery", || unsafe { cuStreamQuery(self.stream) })
    }

    /// Waits for an event of this device, which comes at once if it was never recorded.
    pub(crate) fn wait_for(&self, event: CUevent) -> Result<(), Failure> {
        self.enter()?;
        // SAFETY: the event is valid, as only its owner asks.
        self.until("cuEventQuery", || unsafe { cuEventQuery(event) })
    }

    /// Returns whether all queued work is done.
    pub(crate) fn is_idle(&self) -> Result<bool, Failure> {
        self.enter()?;
        // SAFETY: the stream is valid.
        is_done("cuStreamQuery", unsafe { cuStreamQuery(self.stream) })
    }

    /// Returns whether an event of this device has come. One that was never recorded has.
    pub(crate) fn has_come(&self, event: CUevent) -> Result<bool, Failure> {
        self.enter()?;
        // SAFETY: the event is valid, as only its owner asks.
        is_done("cuEventQuery", unsafe { cuEventQuery(event) })
    }

    /// Asks until something is done, or the deadline is over. The driver's own waits cannot be given up.
    fn until(&self, call: &'static str, ask: impl Fn() -> CUresult) -> Result<(), Failure> {
        let begun = Instant::now();
        loop {
            if is_done(call, ask())? {
                return Ok(());
            }
            let waited = begun.elapsed();
            if self.deadline.limit().is_some_and(|limit| waited > limit) {
                self.hung.store(true, Ordering::Relaxed);
                return Err(Failure::hung(call));
            }
            match waited < EAGER {
                true => thread::yield_now(),
                false => thread::sleep(PAUSE),
            }
        }
    }

    pub(crate) fn error(&self, class: FailureClass, message: impl Into<String>) -> DeviceError {
        DeviceError::new(self.name, class, message)
    }

    pub(crate) fn failed(&self, failure: Failure) -> DeviceError {
        let message = match failure.is_hung() {
            true => format!("{failure}: {}", self.deadline),
            false => failure.to_string(),
        };
        self.error(failure.class(), message)
    }
}

/// The answer of a driver that was asked whether something is done.
fn is_done(call: &'static str, status: CUresult) -> Result<bool, Failure> {
    match status {
        CUresult::CUDA_ERROR_NOT_READY => Ok(false),
        status => check(call, status).map(|()| true),
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // Behind a device that hangs everything stays as it is. Another failure has no reader any more.
        let _ = self.wait();
        if self.hung.load(Ordering::Relaxed) {
            return;
        }
        self.words.free();
        for stream in [self.stream, self.recorder] {
            if !stream.is_null() {
                // SAFETY: it is valid, idle, and not used again.
                unsafe { cuStreamDestroy_v2(stream) };
            }
        }
        CURRENT.set(ptr::null_mut());
        // SAFETY: retained once, when this was made.
        unsafe { cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
