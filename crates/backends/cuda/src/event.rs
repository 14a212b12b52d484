//! Moments of a stream, with times by the device.

use std::ptr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cudarc::driver::sys::*;

use crate::context::Context;
use crate::status::{Failure, check};

/// `cuEventElapsedTime`, which all drivers have. The bindings give this name to a later function.
type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

/// Address of that function, looked up once.
static ELAPSED_TIME: LazyLock<Option<ElapsedTime>> = LazyLock::new(|| {
    // SAFETY: there is a driver, which made the events, and the function has this type.
    let elapsed = unsafe { culib().get::<ElapsedTime>(b"cuEventElapsedTime") };
    elapsed.ok().map(|elapsed| *elapsed)
});

/// The moment at which all work is done that was queued before the event was recorded. It can be
/// recorded again and again.
pub(crate) struct Event {
    event: CUevent,
    context: Arc<Context>,
}

// SAFETY: events may be used by any thread whose current context is theirs.
unsafe impl Send for Event {}

impl Event {
    /// An event without a moment.
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, Failure> {
        context.enter()?;
        let mut event = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: there is room for the event.
        check("cuEventCreate", unsafe {
            cuEventCreate(&raw mut event, flags)
        })?;
        Ok(Self {
            event,
            context: context.clone(),
        })
    }

    /// Sets the moment to the end of the work queued so far.
    pub(crate) fn record(&self) -> Result<(), Failure> {
        self.context.enter()?;
        // SAFETY: event and stream are of the current context.
        let status = unsafe { cuEventRecord(self.event, self.context.main_stream()) };
        check("cuEventRecord", status)
    }

    /// Returns whether it has come.
    pub(crate) fn has_come(&self) -> Result<bool, Failure> {
        self.context.has_come(self.event)
    }

    /// Waits until it has come.
    fn wait(&self) -> Result<(), Failure> {
        self.context.wait_for(self.event)
    }

    /// The time from an earlier moment to this one, which is waited for. `None` if the device does
    /// not report it.
    pub(crate) fn since(&self, earlier: &Self) -> Result<Option<Duration>, Failure> {
        let Some(elapsed) = *ELAPSED_TIME else {
            return Ok(None);
        };
        self.context.enter()?;
        let mut milliseconds = 0f32;
        // SAFETY: both events were recorded, and there is room for the time.
        let mut ask = || unsafe { elapsed(&raw mut milliseconds, earlier.event, self.event) };
        let mut status = ask();
        // To wait takes as long as to ask, so that it is done where it must be.
        if status == CUresult::CUDA_ERROR_NOT_READY {
            self.wait()?;
            status = ask();
        }
        check("cuEventElapsedTime", status)?;
        Ok(Duration::try_from_secs_f32(milliseconds / 1e3).ok())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // A failure leaves nothing to be done.
        if self.context.enter().is_ok() {
            // SAFETY: it is not used again.
            unsafe { cuEventDestroy_v2(self.event) };
        }
    }
}
