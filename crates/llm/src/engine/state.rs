//! The state that callers and the engine's thread share.

use std::collections::HashSet;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::request::{Request, RequestId, Sink};
use super::scheduler::Scheduler;
use super::slot_task::SlotTask;
use crate::sampler::SamplerChain;
use crate::session::SessionOptions;

/// Options of an [`Engine`](crate::Engine).
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Sequences that are computed at once; each has a context and a cache of its own.
    pub sequences: usize,
    /// Requests that may wait for a sequence. More are refused with [`LlmError::Busy`](crate::LlmError::Busy).
    pub queue: usize,
    /// Context, cache and devices of each sequence. Its `batch` is the number of a prompt's tokens that are computed
    /// between two tokens of the other texts.
    pub session: SessionOptions,
    /// Computes a text by the same sums alone and in company, on the CPU. A pass then has at most 8 texts.
    pub batch_invariant: bool,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            sequences: 4,
            queue: 64,
            session: SessionOptions::default(),
            batch_invariant: false,
        }
    }
}

/// Counts of an engine since its begin, and the requests in it now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStats {
    /// Requests that are computed now.
    pub running: usize,
    /// Requests that wait now.
    pub waiting: usize,
    /// Requests that ended, whatever the reason.
    pub finished: u64,
    /// Requests among these that failed.
    pub failed: u64,
    /// Tokens of prompts, including those in the cache.
    pub prompt_tokens: u64,
    /// Tokens of prompts that were in the cache.
    pub cached_tokens: u64,
    /// Generated tokens.
    pub generated_tokens: u64,
    /// Time of prompts, from their begins to the first tokens.
    pub prompt_time: Duration,
    /// Time of the tokens after the first.
    pub generated_time: Duration,
    /// Most tokens of a prompt and its text.
    pub longest: u64,
    /// Passes that computed a token of one or more texts.
    pub steps: u64,
    /// Texts of all these passes.
    pub rows: u64,
}

/// A request in the engine.
pub(super) struct Job {
    pub(super) id: RequestId,
    pub(super) request: Request,
    pub(super) chain: SamplerChain,
    pub(super) sink: Sink,
    pub(super) submitted: Instant,
}

/// State that callers and the engine's thread share.
pub(super) struct State {
    pub(super) queue: Scheduler<Job>,
    /// Tasks that wait until their slots are free.
    pub(super) tasks: Vec<SlotTask>,
    /// The slots that requests have.
    pub(super) busy: Vec<usize>,
    /// Requests to cancel, which may have ended meanwhile.
    pub(super) cancelled: HashSet<RequestId>,
    pub(super) stats: EngineStats,
    pub(super) next: u64,
    /// No new requests are taken.
    pub(super) is_draining: bool,
    /// The engine's thread is to end, or has ended.
    pub(super) is_closed: bool,
}

pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    /// There is something to do.
    pub(super) work: Condvar,
    /// All requests have ended.
    pub(super) idle: Condvar,
}

impl Shared {
    /// An empty queue for this number of requests.
    pub(super) fn new(queue: usize) -> Self {
        Self {
            state: Mutex::new(State {
                queue: Scheduler::new(queue),
                tasks: Vec::new(),
                busy: Vec::new(),
                cancelled: HashSet::new(),
                stats: EngineStats::default(),
                next: 0,
                is_draining: false,
                is_closed: false,
            }),
            work: Condvar::new(),
            idle: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says at the end of the engine's thread, be it a panic, that no request is going to be answered.
pub(super) struct Closing<'a>(pub(super) &'a Shared);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        state.stats.running = 0;
        state.busy.clear();
        // Streams of requests that are left hear of it when their sinks go.
        let left = mem::replace(&mut state.queue, Scheduler::new(0));
        let tasks = mem::take(&mut state.tasks);
        drop(state);
        drop((left, tasks));
        self.0.idle.notify_all();
    }
}
