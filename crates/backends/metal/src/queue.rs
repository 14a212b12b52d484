//! Command buffers: their contents, their commits, and their ends.

use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use rustorch_runtime::{Deadline, DeviceError, DeviceType, FailureClass};
use smallvec::SmallVec;

use crate::buffer::Memory;
use crate::hazards::{Hazards, Use};
use crate::{Api, CommandError, Dispatch};

/// Seconds that a command buffer shall take at most. The system stops those that keep a GPU from
/// the display for seconds.
const LONGEST: f64 = 0.2;

/// Seconds that no command buffer takes, since the system stops those that take less.
const NEVER: f64 = 1000.0;

/// Estimated work of a launch besides the bytes that it uses.
const LAUNCH: usize = 1 << 20;

/// Work of a command buffer for an idle GPU, so that it begins while more is encoded.
const FIRST: usize = 16 * LAUNCH;

/// The work of a command buffer: at the beginning, and at most.
const USUAL: usize = 64 * LAUNCH;
const LARGEST: usize = 256 * LAUNCH;

/// Command buffers that are committed at a time. Metal's queues take 64 and then block.
const IN_FLIGHT: usize = 8;

/// A device and the command buffers on their way.
pub(crate) struct Queue<A: Api> {
    pub(crate) api: Arc<A>,
    /// Its name in errors.
    device: DeviceType,
    state: Mutex<State<A>>,
    /// Number of the last command buffer that is complete.
    completed: AtomicU64,
    /// Limit of the time of a command buffer, and of the compiler.
    deadline: Mutex<Deadline>,
    /// Why the device is lost.
    lost: OnceLock<DeviceError>,
    /// Has a warning about the device's impossible times been given?
    doubted: Once,
}

struct State<A: Api> {
    /// Numbers of command buffers begin with 1.
    begun: u64,
    open: Option<(A::Commands, Hazards, Content<A>)>,
    in_flight: VecDeque<(A::Committed, Content<A>)>,
    /// Work for one command buffer, by the times that the last ones took.
    budget: usize,
    /// Failures that were not reported yet, for each thread whose launches they concern.
    failures: Vec<(ThreadId, DeviceError)>,
}

/// State of a command buffer.
struct Content<A: Api> {
    number: u64,
    /// The estimated work: bytes, and [`LAUNCH`] for each launch.
    work: usize,
    /// Kept until it is complete.
    memory: Vec<Arc<Memory<A>>>,
    /// Threads whose launches are in it.
    threads: SmallVec<[ThreadId; 2]>,
}

impl<A: Api> Queue<A> {
    pub(crate) fn new(api: A, device: DeviceType) -> Self {
        Self {
            api: Arc::new(api),
            device,
            deadline: Mutex::new(Deadline::of_user()),
            state: Mutex::new(State {
                begun: 0,
                open: None,
                in_flight: VecDeque::new(),
                budget: USUAL,
                failures: Vec::new(),
            }),
            completed: AtomicU64::new(0),
            lost: OnceLock::new(),
            doubted: Once::new(),
        }
    }

    /// An error of this device.
    pub(crate) fn error(&self, class: FailureClass, message: impl Into<String>) -> DeviceError {
        DeviceError::new(self.device, class, message)
    }

    /// Fails if the device is lost.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(crate) fn deadline(&self) -> Deadline {
        *(self.deadline.lock()).unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_deadline(&self, deadline: Deadline) {
        *(self.deadline.lock()).unwrap_or_else(PoisonError::into_inner) = deadline;
    }

    /// The device is lost because `what` was not done in time.
    pub(crate) fn hangs(&self, what: &str) -> DeviceError {
        let message = format!("{what}: {}", self.deadline());
        let error = self.error(FailureClass::Timeout, message);
        self.lost.get_or_init(|| error).clone()
    }

    fn state(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a launch that uses `memory`, in the ways of `uses`.
    ///
    /// # Safety
    /// The same as [`Api::dispatch`]; `memory` is all that is bound.
    pub(crate) unsafe fn launch<'a>(
        &self,
        dispatch: &Dispatch<'_, A>,
        memory: impl Iterator<Item = &'a Arc<Memory<A>>>,
        uses: &[Use],
    ) -> Result<(), DeviceError> {
        self.check()?;
        let mut state = self.state();
        let state = &mut *state;
        // Somebody may have found meanwhile that the device hangs.
        self.check()?;
        while state.open.is_none() && state.in_flight.len() >= IN_FLIGHT {
            // The error is told to whom it concerns.
            let _ = self.collect(state);
            self.check()?;
        }
        let (commands, hazards, content) = match &mut state.open {
            Some(open) => open,
            none => {
                state.begun += 1;
                none.insert(self.open(state.begun)?)
            }
        };
        if hazards.needs_barrier(uses) {
            self.api.barrier(commands);
        }
        // SAFETY: as the caller promises; the memory is kept with the command buffer.
        unsafe { self.api.dispatch(commands, dispatch) };
        let number = content.number;
        content
            .memory
            .extend(memory.filter(|m| m.used_by(number)).cloned());
        let thread = thread::current().id();
        if !content.threads.contains(&thread) {
            content.threads.push(thread);
        }
        let bytes = |u: &Use| u.addresses.len();
        let work = uses.iter().map(bytes).fold(LAUNCH, usize::saturating_add);
        content.work = content.work.saturating_add(work);
        let enough = match state.in_flight.is_empty() {
            true => state.budget.min(FIRST),
            false => state.budget,
        };
        if content.work >= enough {
            self.commit(state);
        }
        Ok(())
    }

    fn open(&self, number: u64) -> Result<(A::Commands, Hazards, Content<A>), DeviceError> {
        let commands = self.api.commands().ok_or_else(|| {
            let class = FailureClass::OutOfMemory { never_fits: false };
            self.error(class, "Metal gives no command buffer")
        })?;
        let content = Content {
            number,
            work: 0,
            memory: Vec::new(),
            threads: SmallVec::new(),
        };
        Ok((commands, Hazards::default(), content))
    }

    fn commit(&self, state: &mut State<A>) {
        if let Some((commands, _, content)) = state.open.take() {
            let committed = self.api.commit(commands);
            state.in_flight.push_back((committed, content));
        }
    }

    /// Waits for the oldest command buffer; the seconds that it took.
    fn collect(&self, state: &mut State<A>) -> Result<f64, DeviceError> {
        let Some((committed, content)) = state.in_flight.pop_front() else {
            return Ok(0.0);
        };
        let Some(ended) = self.api.wait(&committed, self.deadline().limit()) else {
            // The GPU may go on with all of it at any time: what it uses is never given back.
            mem::forget((committed, content, state.open.take()));
            mem::forget(mem::take(&mut state.in_flight));
            return Err(self.hangs("command buffer"));
        };
        let result = match ended {
            Ok(seconds) => {
                self.adapt(state, content.work, seconds);
                Ok(seconds)
            }
            Err(error) => Err(self.failed(state, &content, &error)),
        };
        // Last: who sees this, sees a loss too.
        self.completed.store(content.number, Ordering::Release);
        result
    }

    /// Fits the budget to the GPU's time for `work`: it grows while command buffers are short, and
    /// shrinks at once when one was too long.
    fn adapt(&self, state: &mut State<A>, work: usize, seconds: f64) {
        let is_time = seconds > 0.0 && seconds < NEVER;
        if !is_time {
            state.budget = state.budget.min(USUAL);
            self.doubted.call_once(|| {
                tracing::warn!(
                    "{} reports an impossible time of {seconds} s; the size of its command buffers \
                     stays unchanged",
                    self.device
                );
            });
        } else if seconds > LONGEST {
            let fits = work as f64 * LONGEST / seconds;
            state.budget = state.budget.min(fits as usize).max(LAUNCH);
        } else if seconds < LONGEST / 8.0 && work >= state.budget {
            state.budget = state.budget.saturating_mul(2).min(LARGEST);
        }
    }

    fn failed(
        &self,
        state: &mut State<A>,
        content: &Content<A>,
        error: &CommandError,
    ) -> DeviceError {
        let error = self.error(error.class(), error.to_string());
        tracing::debug!("{error}");
        if error.class.loses_device() {
            let _ = self.lost.set(error.clone());
            return error;
        }
        for thread in &content.threads {
            if !state.failures.iter().any(|(t, _)| t == thread) {
                state.failures.push((*thread, error.clone()));
            }
        }
        error
    }

    /// Waits until the command buffer of this number, and with it those before, are complete.
    pub(crate) fn finish(&self, number: u64) -> Result<(), DeviceError> {
        if number <= self.completed.load(Ordering::Acquire) {
            return self.check();
        }
        self.check()?;
        let mut state = self.state();
        let open = state.open.as_ref();
        if open.is_some_and(|(_, _, content)| content.number <= number) {
            self.commit(&mut state);
        }
        let mut result = Ok(());
        while let Some((_, content)) = state.in_flight.front()
            && content.number <= number
        {
            result = result.and(self.collect(&mut state).map(drop));
        }
        self.check().and(result)
    }

    /// Waits for everything; the seconds that the GPU worked on it.
    pub(crate) fn time(&self) -> Result<f64, DeviceError> {
        let mut state = self.state();
        self.commit(&mut state);
        let mut seconds = 0.0;
        while !state.in_flight.is_empty() {
            seconds += self.collect(&mut state)?;
        }
        Ok(seconds)
    }

    /// Waits for everything. Returns the failure of this thread's launches, if there is one that
    /// was not reported before.
    pub(crate) fn wait(&self) -> Result<(), DeviceError> {
        let mut state = self.state();
        self.commit(&mut state);
        while !state.in_flight.is_empty() {
            // The error is told to whom it concerns.
            let _ = self.collect(&mut state);
        }
        let thread = thread::current().id();
        let mine = state.failures.iter().position(|(t, _)| *t == thread);
        let mine = mine.map(|at| state.failures.swap_remove(at).1);
        self.check().and(mine.map_or(Ok(()), Err))
    }
}

impl<A: Api> Drop for Queue<A> {
    /// The GPU may still be using memory.
    fn drop(&mut self) {
        let _ = self.wait();
    }
}
