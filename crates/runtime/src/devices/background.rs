//! Programs that take long to compile, made on a separate thread while other devices serve.
//!
//! The thread is there as long as there is something to compile. Nobody waits for it when a runtime goes: a
//! call of a compiler cannot be taken back. The call owns its arguments, a graph and a reference to the
//! backend, and drops them at its end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};

use rustorch_ir::Graph;

use crate::devices::placement::DeviceId;
use crate::journal::{Journal, lock};
use crate::{Backend, DeviceError, FailureClass, HostBuffer, HostWork, Program, platform};

/// The result of compiling.
type Outcome = Result<Arc<dyn Program>, DeviceError>;

/// A program that is to be compiled.
pub(crate) struct Job {
    pub(crate) device: DeviceId,
    pub(crate) graph: Graph,
    /// The same as [`Backend::compile_with`] takes them.
    constants: Vec<Option<HostBuffer>>,
    /// For each node, the index of that of the caller's graph that it is, or is a part of.
    pub(crate) origins: Vec<usize>,
    backend: Arc<dyn Backend>,
    journal: Arc<Journal>,
    outcome: OnceLock<Outcome>,
    /// Was its failure answered?
    is_answered: AtomicBool,
}

impl Job {
    pub(crate) fn new(
        device: DeviceId,
        backend: Arc<dyn Backend>,
        journal: Arc<Journal>,
        graph: Graph,
        constants: Vec<Option<HostBuffer>>,
        origins: Vec<usize>,
    ) -> Self {
        Self {
            device,
            graph,
            constants,
            origins,
            backend,
            journal,
            outcome: OnceLock::new(),
            is_answered: AtomicBool::new(false),
        }
    }

    /// Returns whether it is for this graph on the device, with these constants.
    pub(crate) fn compiles(
        &self,
        device: DeviceId,
        graph: &Graph,
        constants: &[Option<HostBuffer>],
    ) -> bool {
        let is_same = |pair: (&Option<HostBuffer>, &Option<HostBuffer>)| match pair {
            (Some(a), Some(b)) => a.same_memory(b),
            (a, b) => a.is_none() && b.is_none(),
        };
        device == self.device
            && constants.len() == self.constants.len()
            && constants.iter().zip(&self.constants).all(is_same)
            && *graph == self.graph
    }

    /// The result; `None` before its end.
    pub(crate) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }

    /// Its failure, once.
    pub(crate) fn failure(&self) -> Option<&DeviceError> {
        let error = self.outcome()?.as_ref().err()?;
        (!self.is_answered.swap(true, Ordering::Relaxed)).then_some(error)
    }

    fn compile(&self) -> Outcome {
        let device = self.backend.info().device;
        let gallery = &self.journal.gallery;
        let _span = gallery.begin(HostWork::Compile, || format!("compile for {device}"));
        let compile = || self.backend.compile_with(&self.graph, &self.constants);
        match catch_unwind(AssertUnwindSafe(compile)) {
            Ok(compiled) => compiled.map(Arc::from),
            Err(_) => Err(DeviceError::new(
                device,
                FailureClass::Unsupported,
                "the compiler panicked",
            )),
        }
    }
}

/// Compiles one program after the other.
#[derive(Default)]
pub(crate) struct Compiler(Arc<Shared>);

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    /// Told whenever a job ends.
    ended: Condvar,
}

#[derive(Default)]
struct Work {
    /// Queue of jobs; abandoned ones are skipped.
    jobs: VecDeque<Weak<Job>>,
    /// Whether there is a thread.
    is_running: bool,
}

impl Compiler {
    /// Begins a job as soon as those before it have ended.
    pub(crate) fn start(&self, job: &Arc<Job>) {
        let mut work = lock(&self.0.work);
        work.jobs.push_back(Arc::downgrade(job));
        if work.is_running {
            return;
        }
        work.is_running = true;
        drop(work);
        let shared = self.0.clone();
        if platform::spawn("rustorch-compile", move || shared.run()).is_err() {
            // Without a thread it is better done here than not at all.
            self.0.run();
        }
    }

    /// Waits for the end of a job that was begun.
    pub(crate) fn wait_for<'j>(&self, job: &'j Job) -> &'j Outcome {
        let mut work = lock(&self.0.work);
        loop {
            match job.outcome() {
                Some(outcome) => return outcome,
                None => work = self.0.wait(work),
            }
        }
    }

    /// Waits for the end of all jobs.
    pub(crate) fn wait(&self) {
        let mut work = lock(&self.0.work);
        while work.is_running {
            work = self.0.wait(work);
        }
    }
}

impl Drop for Compiler {
    fn drop(&mut self) {
        lock(&self.0.work).jobs.clear();
    }
}

impl Shared {
    fn wait<'w>(&self, work: std::sync::MutexGuard<'w, Work>) -> std::sync::MutexGuard<'w, Work> {
        let waited = self.ended.wait(work);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the jobs until none is left.
    fn run(&self) {
        while let Some(job) = self.next() {
            let Some(job) = job.upgrade() else {
                continue;
            };
            let outcome = job.compile();
            let work = lock(&self.work);
            // There is none yet: only this thread does jobs, and each once.
            let _ = job.outcome.set(outcome);
            drop(work);
            self.ended.notify_all();
        }
        self.ended.notify_all();
    }

    fn next(&self) -> Option<Weak<Job>> {
        let mut work = lock(&self.work);
        let next = work.jobs.pop_front();
        work.is_running = next.is_some();
        next
    }
}
