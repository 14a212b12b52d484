//! Metal that notes what is asked of it and fails on command. Its kernels copy their first
//! buffer's word to their last's, plus one: enough to see what ran when.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use rustorch_metal::{Api, CommandError, Dispatch, Properties};

pub(crate) const PAGE: usize = 16 << 10;

/// A call that matters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    Dispatch,
    Barrier,
    /// With the number of dispatches.
    Commit(usize),
    Wait,
}

/// Script of the fake, and a record of its calls.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) events: Vec<Event>,
    /// How the next command buffers end; those after them take a microsecond.
    pub(crate) endings: VecDeque<Result<f64, CommandError>>,
    pub(crate) refuses_buffers: bool,
    pub(crate) refuses_commands: bool,
    /// Offsets, relative to their pages, of what was bound.
    pub(crate) bound: Vec<usize>,
    pub(crate) params: Vec<u32>,
    pub(crate) compiled: usize,
    pub(crate) live_buffers: usize,
    /// Bytes that the device reports as allocated.
    pub(crate) allocated: u64,
    pub(crate) in_flight: usize,
    pub(crate) most_in_flight: usize,
    /// Are command buffers never complete?
    pub(crate) hangs: bool,
    /// Work that would go on if they were.
    hung: Vec<PlusOne>,
    /// Does the compiler take anything for a kernel?
    pub(crate) takes_any_source: bool,
    pub(crate) compiler_hangs: bool,
}

#[derive(Clone)]
pub(crate) struct Fake {
    properties: Properties,
    script: Arc<Mutex<Script>>,
}

#[derive(Debug)]
pub(crate) struct Pages {
    start: NonNull<c_void>,
    script: Arc<Mutex<Script>>,
}

// SAFETY: it is only a pointer, used as the callers of `Api` promise.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl std::fmt::Debug for Script {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.events.fmt(f)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.script.lock().unwrap().live_buffers -= 1;
    }
}

/// Addresses of the words that a dispatch reads and writes.
#[derive(Clone, Copy)]
pub(crate) struct PlusOne {
    from: *const u32,
    to: *mut u32,
}

// SAFETY: as for the pages.
unsafe impl Send for PlusOne {}

impl PlusOne {
    fn run(self) {
        let Self { from, to } = self;
        // SAFETY: the driver keeps the memory until now.
        unsafe { to.write(from.read().wrapping_add(1)) };
    }
}

/// A pipeline of groups of so many threads.
pub(crate) struct Pipeline(usize);

impl Fake {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Properties)) -> Self {
        let mut properties = Properties {
            name: "fake".to_owned(),
            apple_family: 7,
            system: "none".to_owned(),
            has_unified_memory: true,
            max_buffer_length: 1 << 30,
            recommended_max_working_set_size: 4 << 30,
            max_threads_per_threadgroup: 1024,
            max_threadgroup_memory_length: 32 << 10,
            page_bytes: PAGE,
        };
        change(&mut properties);
        Self {
            properties,
            script: Arc::default(),
        }
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap()
    }

    /// The events since the last call.
    pub(crate) fn events(&self) -> Vec<Event> {
        std::mem::take(&mut self.script().events)
    }

    /// The GPU goes on with what hung.
    pub(crate) fn go_on(&self) {
        let mut script = self.script();
        (script.hangs, script.compiler_hangs) = (false, false);
        for command in std::mem::take(&mut script.hung) {
            command.run();
        }
    }

    /// The next command buffer ends with this code.
    pub(crate) fn fail_with(&self, code: isize) {
        let message = "on command".to_owned();
        let error = CommandError { code, message };
        self.script().endings.push_back(Err(error));
    }
}

impl Api for Fake {
    type Buffer = Pages;
    type Pipeline = Pipeline;
    type Commands = Vec<PlusOne>;
    type Committed = Vec<PlusOne>;

    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn current_allocated_size(&self) -> u64 {
        self.script().allocated
    }

    unsafe fn buffer_no_copy(&self, pages: NonNull<c_void>, bytes: usize) -> Option<Pages> {
        assert!(pages.addr().get().is_multiple_of(PAGE));
        assert!(bytes > 0 && bytes.is_multiple_of(PAGE));
        let mut script = self.script();
        if script.refuses_buffers {
            return None;
        }
        script.live_buffers += 1;
        Some(Pages {
            start: pages,
            script: self.script.clone(),
        })
    }

    /// The source is the most threads of a group, or not a number, which is a mistake.
    fn pipeline(&self, source: &str, name: &str) -> Result<Pipeline, String> {
        self.script().compiled += 1;
        while self.script().compiler_hangs {
            thread::yield_now();
        }
        if self.script().takes_any_source {
            return Ok(Pipeline(1024));
        }
        let threads = source.parse();
        let mistake = |_| format!("warnings\n{name}:1:2: error: no number\nnotes");
        threads.map(Pipeline).map_err(mistake)
    }

    fn max_threads(&self, pipeline: &Pipeline) -> usize {
        pipeline.0
    }

    fn commands(&self) -> Option<Vec<PlusOne>> {
        (!self.script().refuses_commands).then(Vec::new)
    }

    unsafe fn dispatch(&self, commands: &mut Vec<PlusOne>, dispatch: &Dispatch<'_, Self>) {
        let mut script = self.script();
        script.events.push(Event::Dispatch);
        script.bound = dispatch.buffers.iter().map(|(_, at)| *at).collect();
        script.params = dispatch.params.to_vec();
        let word = |(pages, at): &(&Pages, usize)| {
            let start: *mut u8 = pages.start.as_ptr().cast();
            start.wrapping_add(*at).cast::<u32>()
        };
        if let (Some(first), Some(last)) = (dispatch.buffers.first(), dispatch.buffers.last()) {
            commands.push(PlusOne {
                from: word(first),
                to: word(last),
            });
        }
    }

    fn barrier(&self, _: &mut Vec<PlusOne>) {
        self.script().events.push(Event::Barrier);
    }

    fn commit(&self, commands: Vec<PlusOne>) -> Vec<PlusOne> {
        let mut script = self.script();
        script.events.push(Event::Commit(commands.len()));
        script.in_flight += 1;
        script.most_in_flight = script.most_in_flight.max(script.in_flight);
        commands
    }

    fn wait(
        &self,
        committed: &Vec<PlusOne>,
        limit: Option<Duration>,
    ) -> Option<Result<f64, CommandError>> {
        let mut script = self.script();
        script.events.push(Event::Wait);
        if script.hangs {
            assert!(limit.is_some(), "it would hang for ever");
            script.hung.extend(committed);
            return None;
        }
        script.in_flight -= 1;
        let ending = script.endings.pop_front().unwrap_or(Ok(1e-6));
        if ending.is_ok() {
            committed.iter().copied().for_each(PlusOne::run);
        }
        Some(ending)
    }
}
