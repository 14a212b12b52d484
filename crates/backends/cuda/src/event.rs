//! Moments of a stream, whose times the device tells.

use std::ptr;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::sys::*;

use crate::context::Context;
use crate::status::{Failure, check};

/// `cuEventElapsedTime`, which all drivers have. What the bindings call so is a later one.
type ElapsedTime = unsafe extern "C" fn(*mut f32, CUevent, CUevent) -> CUresult;

/// The moment at which all is done that was queued before.
pub(crate) struct Event {
    event: CUevent,
    context: Arc<Context>,
}

impl Event {
    /// The moment behind what is queued so far.
    pub(crate) fn record(context: &Arc<Context>) -> Result<Self, Failure> {
        context.enter()?;
        let mut event = ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: there is room for the event.
        check("cuEventCreate", unsafe {
            cuEventCreate(&raw mut event, flags)
        })?;
        let event = Self {
            event,
            context: context.clone(),
        };
        // SAFETY: event and stream are of the current context.
        let status = unsafe { cuEventRecord(event.event, context.main_stream()) };
        check("cuEventRecord", status)?;
        Ok(event)
    }

    /// The time from an earlier moment to this one. Both have come. `None` if it is not told.
    pub(crate) fn since(&self, earlier: &Self) -> Result<Option<Duration>, Failure> {
        // SAFETY: there is a driver, which made the events, and the function has this type.
        let elapsed = unsafe { culib().get::<ElapsedTime>(b"cuEventElapsedTime") };
        let Ok(elapsed) = elapsed else {
            return Ok(None);
        };
        self.context.enter()?;
        let mut milliseconds = 0f32;
        // SAFETY: both events were recorded, and there is room for the time.
        let status = unsafe { elapsed(&raw mut milliseconds, earlier.event, self.event) };
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
