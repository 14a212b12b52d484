//! Waiting for a device, which can be given up.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use opencl_sys::*;
use rustorch_gpu::Signal;
use rustorch_runtime::DeviceError;

use crate::api::Object;
use crate::context::Context;
use crate::milestones::Milestones;
use crate::status::{Failure, check, check_wait};

/// Time for which a GPU is polled before the thread sleeps: waking up takes longer than most waits.
const POLLED: Duration = Duration::from_millis(2);

/// Longest sleep, in case a driver forgets to wake the thread.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

impl Context {
    /// Waits for the work that `queue` queues, by its event. If the wait is given up, the device is
    /// not touched any more.
    pub(crate) fn wait(
        &self,
        call: &'static str,
        queue: impl FnOnce(cl_command_queue, *mut cl_event) -> cl_int,
    ) -> Result<(), Failure> {
        let mut event = ptr::null_mut();
        check_wait(call, queue(self.queue()?, &raw mut event))?;
        // SAFETY: it was just made, and nobody else has it.
        let event = unsafe { self.object(event, self.api.release_event) };
        // SAFETY: the queue is valid.
        check("clFlush", unsafe { (self.api.flush)(self.queue()?) })?;
        self.wait_for(call, &event)
    }

    /// Waits for all that was queued.
    pub(crate) fn finish(&self) -> Result<(), Failure> {
        self.wait("clEnqueueMarker", |queue, event| {
            // SAFETY: the queue is valid and in order, and there is room for the event.
            unsafe { (self.api.enqueue_marker)(queue, event) }
        })
    }

    fn wait_for(&self, call: &'static str, event: &Object) -> Result<(), Failure> {
        let start = Instant::now();
        let mut is_over = self.is_over(call, event)?;
        while !is_over && !self.is_processor && start.elapsed() < POLLED {
            thread::yield_now();
            is_over = self.is_over(call, event)?;
        }
        if !is_over {
            self.sleep(call, event)?;
        }
        // SAFETY: there is one event. It is over, but only from here on is what it did visible.
        let status = unsafe { (self.api.wait_for_events)(1, &event.raw()) };
        check_wait(call, status)
    }

    /// Sleeps until an event is over.
    fn sleep(&self, call: &'static str, event: &Object) -> Result<(), Failure> {
        let signal = Arc::new(Signal::default());
        self.ask_to_be_woken(event, &signal)?;
        let limit = self.deadline().limit();
        let longest = limit.map_or(LONGEST_SLEEP, |limit| limit.min(LONGEST_SLEEP));
        let (mut since, mut passed) = (Instant::now(), self.passed());
        loop {
            signal.sleep(Some(longest));
            self.quarantine.check()?;
            if self.is_over(call, event)? {
                return Ok(());
            }
            let now = self.passed();
            if now != passed {
                (since, passed) = (Instant::now(), now);
            } else if limit.is_some_and(|limit| since.elapsed() >= limit) {
                return Err(self.give_up(call));
            }
        }
    }

    fn ask_to_be_woken(&self, event: &Object, signal: &Arc<Signal>) -> Result<(), Failure> {
        unsafe extern "C" fn wake(_: cl_event, _: cl_int, signal: *mut c_void) {
            // SAFETY: it comes from the handle below, and this is called once.
            unsafe { Arc::from_raw(signal.cast::<Signal>()) }.tell();
        }
        let handle = Arc::into_raw(signal.clone()).cast_mut().cast();
        let ask = self.api.set_event_callback;
        // SAFETY: the event is valid, and the function fits the handle, which is its own.
        let status = unsafe { ask(event.raw(), CL_COMPLETE, Some(wake), handle) };
        let asked = check("clSetEventCallback", status);
        if asked.is_err() {
            // SAFETY: the callback was not registered, so that the handle is still ours.
            drop(unsafe { Arc::from_raw(handle.cast::<Signal>().cast_const()) });
        }
        asked
    }

    /// Is the event complete?
    fn is_over(&self, call: &'static str, event: &Object) -> Result<bool, Failure> {
        let mut status: cl_int = CL_COMPLETE;
        // SAFETY: the event is valid, and there is room for its status.
        let asked = unsafe {
            (self.api.get_event_info)(
                event.raw(),
                CL_EVENT_COMMAND_EXECUTION_STATUS,
                size_of_val(&status),
                (&raw mut status).cast(),
                ptr::null_mut(),
            )
        };
        check("clGetEventInfo", asked)?;
        match status {
            CL_COMPLETE => Ok(true),
            failed if failed < 0 => check_wait(call, failed).map(|()| true),
            _ => Ok(false),
        }
    }

    /// The device is touched no more.
    fn give_up(&self, call: &'static str) -> Failure {
        self.quarantine.begin(Failure::hung(call, self.deadline()))
    }

    /// Puts up a milestone.
    pub(crate) fn queued(&self, event: cl_event) {
        // SAFETY: the queue has just made it, and nobody else has it.
        let event = unsafe { self.object(event, self.api.release_event) };
        let mut milestones = self.milestones();
        self.pass(&mut milestones);
        milestones.ahead.push_back(event);
    }

    /// Number of milestones passed so far.
    fn passed(&self) -> u64 {
        let mut milestones = self.milestones();
        self.pass(&mut milestones);
        milestones.passed
    }

    /// Takes those away that were passed. Failures belong to the work that is waited for.
    fn pass(&self, milestones: &mut Milestones) {
        let is_passed = |event: &mut Object| self.is_over("", event).unwrap_or(true);
        while milestones.ahead.pop_front_if(is_passed).is_some() {
            milestones.passed += 1;
        }
    }

    /// Result of a call in which the driver may hang. The call runs on a thread that can be given
    /// up. The thread owns all that it needs.
    pub(crate) fn watch<T: Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        call: impl FnOnce(&Self) -> Result<T, DeviceError> + Send + 'static,
    ) -> Result<T, DeviceError> {
        (self.quarantine.check()).map_err(|failure| self.failed(failure))?;
        let context = self.clone();
        let called = self.deadline().watch(move || call(&context));
        called.unwrap_or_else(|| Err(self.failed(self.give_up(name))))
    }
}
