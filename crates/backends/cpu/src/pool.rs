//! The worker pool: a parallel loop that costs about a microsecond.
//!
//! A token's decoding is many short parallel loops with little between them. Workers that slept
//! after each would spend more time waking than working. Here they spin for a moment after each
//! loop, then give way to other threads. They park only after a pause in the work. After a longer
//! pause they park as soon as they have spun. A sleeper is woken only for work that takes longer than
//! waking it ([`Pool::run_if_worth`]). The thread that
//! calls [`Pool::run`] works too, and never waits for a worker that has not begun: on a busy machine
//! it does the whole loop itself.
//!
//! Each thread begins with its own share, neighbouring chunks that it claims without disturbing the
//! others. Then it takes from the ends of the others' shares.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustorch_runtime::platform::{self, Instant};

/// Time that an idle worker spins before it offers its core to other threads.
const SPIN: Duration = Duration::from_micros(30);
/// Time that an idle worker stays awake in all.
const LINGER: Duration = Duration::from_micros(200);
/// Element operations within [`LINGER`] that a sleeper is woken for: about ten microseconds of them.
const WORTH: usize = 1 << 18;

/// Worker threads that share loops. Results do not depend on their number: see [`Pool::run`].
pub struct Pool {
    shared: Arc<Shared>,
    /// Held by the caller whose loop runs: loops of several callers go one after the other.
    turn: Mutex<()>,
    /// Recent work of callers alone, while all workers slept.
    alone: Mutex<Alone>,
    workers: Vec<JoinHandle<()>>,
}

/// Element operations since a time.
#[derive(Default)]
struct Alone {
    since: Option<Instant>,
    work: usize,
}

impl Alone {
    /// Adds so many, and says whether there are now more of them than sleepers should miss.
    fn add(&mut self, work: usize) -> bool {
        if self.since.is_none_or(|since| since.elapsed() > LINGER) {
            *self = Self {
                since: Some(Instant::now()),
                work: 0,
            };
        }
        self.work = self.work.saturating_add(work);
        self.work >= WORTH
    }
}

/// The body of a loop, called with the index of a chunk.
type Body<'a> = dyn Fn(usize) + Sync + 'a;

/// One loop: its body, borrowed from the caller's stack, and the number of its chunks.
#[derive(Clone, Copy)]
struct Job {
    body: *const Body<'static>,
    chunks: u32,
}

/// Its own cache line, so that a counter's traffic does not slow its neighbours.
#[derive(Default)]
#[repr(align(128))]
struct Line<T>(T);

/// Neighbouring chunks: the first in the lower half, the end in the upper.
#[derive(Default)]
struct Share(AtomicU64);

impl Share {
    fn set(&self, chunks: Range<u32>) {
        let packed = u64::from(chunks.start) | u64::from(chunks.end) << 32;
        self.0.store(packed, Ordering::Relaxed);
    }

    /// Takes the first chunk.
    fn first(&self) -> Option<usize> {
        self.take(|chunks| (chunks.start, chunks.start + 1..chunks.end))
    }

    /// Takes the last chunk.
    fn last(&self) -> Option<usize> {
        self.take(|chunks| (chunks.end - 1, chunks.start..chunks.end - 1))
    }

    /// Takes a chunk; the chunks that `choose` leaves stay. Chunks alone are claimed here, and
    /// their data was published with the loop: no ordering is needed.
    fn take(&self, choose: impl Fn(Range<u32>) -> (u32, Range<u32>)) -> Option<usize> {
        let mut packed = self.0.load(Ordering::Relaxed);
        loop {
            let chunks = packed as u32..(packed >> 32) as u32;
            if chunks.is_empty() {
                return None;
            }
            let (taken, left) = choose(chunks);
            let left = u64::from(left.start) | u64::from(left.end) << 32;
            let relaxed = Ordering::Relaxed;
            match self.0.compare_exchange_weak(packed, left, relaxed, relaxed) {
                Ok(_) => return Some(taken as usize),
                Err(now) => packed = now,
            }
        }
    }
}

struct Shared {
    /// The open loop, and the number of workers inside: see [`OPEN`].
    state: Line<AtomicU64>,
    /// The chunks that are left of each thread's share, the caller's first.
    shares: Box<[Line<Share>]>,
    /// Written by the caller while the loop is closed and empty, read by workers inside it.
    job: UnsafeCell<Option<Job>>,
    /// Workers that are parked or about to park.
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    /// The first panic of the running loop.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `job` is the one field that is not `Sync` by itself. It is written only by the holder of
// the turn while no worker is inside and none can enter (`OPEN` is clear), and read only by workers
// inside; the release and acquire operations on `state` order the two. The body it points to is
// `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: the body that `job` points to is `Sync`, so it may be called from any thread.
unsafe impl Send for Shared {}

// `state` holds, from the lowest bit: the workers inside the loop (31 bits), whether it is open,
// whether the pool shuts down, and the number of the loop.
const INSIDE: u64 = OPEN - 1;
const OPEN: u64 = 1 << 31;
const SHUTDOWN: u64 = 1 << 32;
const LOOP: u64 = 1 << 33;

thread_local! {
    /// Set while this thread runs a chunk: a loop started from inside runs inline.
    static INSIDE_CHUNK: Cell<bool> = const { Cell::new(false) };
}

impl Pool {
    /// A pool of `threads` threads, such as [`default_threads`], including the caller of
    /// [`Self::run`]; at least one. It has fewer if the system refuses to start them.
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            state: Line(AtomicU64::new(0)),
            shares: (0..threads.max(1)).map(|_| Line::default()).collect(),
            job: UnsafeCell::new(None),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            panic: Mutex::new(None),
        });
        let workers = (1..threads)
            .map_while(|i| {
                let shared = Arc::clone(&shared);
                platform::spawn(format!("rustorch-cpu-{i}"), move || shared.work(i)).ok()
            })
            .collect();
        Self {
            shared,
            turn: Mutex::new(()),
            alone: Mutex::default(),
            workers,
        }
    }

    /// Threads that share a loop, the caller included.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `body` once with each of `0..chunks`, in any order and on any of the threads. Returns
    /// when all are done.
    ///
    /// Chunks are claimed one at a time, so uneven ones balance. Called from inside a chunk (of any
    /// pool) it runs inline.
    ///
    /// # Panics
    /// Panics if a chunk panics. Chunks that have not begun are dropped, and the pool stays usable.
    pub fn run(&self, chunks: usize, body: &Body<'_>) {
        if self.is_alone(chunks) {
            return (0..chunks).for_each(body);
        }
        // More than anybody has use for: one after the other.
        let Ok(chunks) = u32::try_from(chunks) else {
            return (0..chunks).for_each(body);
        };
        let turn = lock(&self.turn);
        let body: *const Body<'_> = body;
        // SAFETY: only the lifetime changes. Workers use the body only while they are inside the
        // loop, and `close` returns when none is.
        let body = unsafe { std::mem::transmute::<*const Body<'_>, *const Body<'static>>(body) };
        let job = Job { body, chunks };
        self.shared.open(job);
        self.shared.run_chunks(job, 0);
        self.shared.close();
        let panic = lock(&self.shared.panic).take();
        drop(turn);
        if let Some(panic) = panic {
            resume_unwind(panic);
        }
    }

    /// Runs chunks that take `work` element operations in all. The caller calls `body` alone if all workers sleep and
    /// the work is not worth waking them.
    ///
    /// # Panics
    /// Panics as [`Self::run`] does.
    pub fn run_if_worth(&self, chunks: usize, work: usize, body: &Body<'_>) {
        let all_sleep = || self.shared.sleepers.load(Ordering::Relaxed) == self.workers.len();
        if !self.is_alone(chunks) && all_sleep() && !lock(&self.alone).add(work) {
            return (0..chunks).for_each(body);
        }
        self.run(chunks, body);
    }

    /// Returns whether there is nobody to share a loop with.
    fn is_alone(&self, chunks: usize) -> bool {
        self.workers.is_empty() || chunks <= 1 || INSIDE_CHUNK.get()
    }

    /// Cuts `data` into chunks of `len` elements, the last one shorter. Calls `body` once with the
    /// start of each and its elements, as [`Self::run`] does.
    ///
    /// # Panics
    /// Panics as [`Self::run`] does, and if `len` is zero.
    pub fn for_each_chunk<T: Send>(
        &self,
        data: &mut [T],
        len: usize,
        body: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        /// The start of the elements, which different threads reach through it at different
        /// offsets.
        struct Start<T>(*mut T);
        // SAFETY: elements go to one thread each, which `T: Send` allows.
        unsafe impl<T: Send> Sync for Start<T> {}

        let (total, data) = (data.len(), &Start(data.as_mut_ptr()));
        self.run(total.div_ceil(len), &|chunk| {
            let start = chunk * len;
            let len = len.min(total - start);
            // SAFETY: the range lies within the data, no other chunk has a part of it, and `run`
            // calls each chunk once.
            let chunk = unsafe { std::slice::from_raw_parts_mut(data.0.add(start), len) };
            body(start, chunk);
        });
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.0.fetch_or(SHUTDOWN, Ordering::SeqCst);
        self.shared.wake(usize::MAX);
        for worker in self.workers.drain(..) {
            // A worker catches the panics of chunks, so it ends without one.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// Lets workers into a new loop.
    fn open(&self, job: Job) {
        // SAFETY: the caller has the turn, and the last loop was closed: no worker reads the job.
        unsafe { *self.job.get() = Some(job) };
        let threads = self.shares.len() as u64;
        let bound = |thread| (u64::from(job.chunks) * thread / threads) as u32;
        for (share, thread) in self.shares.iter().zip(0..) {
            share.0.set(bound(thread)..bound(thread + 1));
        }
        // Sequentially consistent, here and in `park`: either the worker about to park sees the
        // open loop or this sees the worker.
        self.state.0.fetch_add(LOOP | OPEN, Ordering::SeqCst);
        self.wake(job.chunks as usize - 1);
    }

    /// Shuts the loop and waits for the workers inside.
    fn close(&self) {
        let mut inside = self.state.0.fetch_and(!OPEN, Ordering::AcqRel) & INSIDE;
        let mut idle = Idle::default();
        while inside != 0 {
            // A chunk is being finished: never park, its end is near.
            idle.wait(LINGER);
            inside = self.state.0.load(Ordering::Acquire) & INSIDE;
        }
    }

    /// Claims and runs chunks until none is left: those of thread `me`, then those of others.
    fn run_chunks(&self, job: Job, me: usize) {
        INSIDE_CHUNK.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the loop's caller waits in `close` while this thread is inside, so the body
            // it borrowed is alive.
            let body = unsafe { &*job.body };
            let (before, rest) = self.shares.split_at(me);
            while let Some(chunk) = rest[0].0.first() {
                body(chunk);
            }
            for share in rest[1..].iter().chain(before) {
                while let Some(chunk) = share.0.last() {
                    body(chunk);
                }
            }
        }));
        INSIDE_CHUNK.set(false);
        if let Err(panic) = result {
            self.shares.iter().for_each(|share| share.0.set(0..0));
            lock(&self.panic).get_or_insert(panic);
        }
    }

    /// The life of worker `me`.
    fn work(&self, me: usize) {
        let mut done = 0;
        let mut idle = Idle::default();
        let mut patience = LINGER;
        loop {
            let state = self.state.0.load(Ordering::Acquire);
            if state & SHUTDOWN != 0 {
                return;
            }
            if state & OPEN == 0 || state / LOOP == done {
                if !idle.wait(patience) {
                    self.park(state);
                    patience = idle.patience().unwrap_or(patience);
                    idle = Idle::default();
                }
                continue;
            }
            let entered = self.state.0.compare_exchange(
                state,
                state + 1,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if entered.is_ok() {
                patience = idle.patience().unwrap_or(patience);
                // SAFETY: the caller wrote the job before it opened the loop, and will not write
                // again while this worker is inside.
                if let Some(job) = unsafe { *self.job.get() } {
                    self.run_chunks(job, me);
                }
                self.state.0.fetch_sub(1, Ordering::Release);
                done = state / LOOP;
                idle = Idle::default();
            }
        }
    }

    /// Sleeps until the state is not `seen` any more, or for no reason.
    fn park(&self, seen: u64) {
        let guard = lock(&self.sleep);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        // Workers that leave a loop change the state too, which only means another round of
        // spinning.
        if self.state.0.load(Ordering::SeqCst) == seen {
            drop(self.wake.wait(guard));
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes up to `workers` sleepers.
    fn wake(&self, workers: usize) {
        let sleepers = self.sleepers.load(Ordering::SeqCst);
        if sleepers == 0 {
            return;
        }
        // A worker holds the lock from its last look at the state until it sleeps.
        drop(lock(&self.sleep));
        for _ in 0..sleepers.min(workers) {
            self.wake.notify_one();
        }
    }
}

/// The physical cores that this process may use: a second thread on a core would share its vector
/// units and its memory bandwidth.
pub fn default_threads() -> usize {
    platform::parallelism().min(platform::cores()).max(1)
}

/// The wait of a thread with nothing to do: first spinning, then giving way.
#[derive(Default)]
struct Idle {
    rounds: u32,
    since: Option<Instant>,
    gives_way: bool,
}

impl Idle {
    /// Waits a moment. False once it has lasted for as long as `patience`.
    fn wait(&mut self, patience: Duration) -> bool {
        self.rounds += 1;
        if self.gives_way {
            platform::give_way();
        } else {
            std::hint::spin_loop();
        }
        // The clock is not free: look at it now and then.
        if !self.rounds.is_multiple_of(16) {
            return true;
        }
        let elapsed = self.since.get_or_insert_with(Instant::now).elapsed();
        self.gives_way = elapsed > SPIN;
        elapsed < patience
    }

    /// How long to wait the next time, where this wait says: all of [`LINGER`] if work came within it, and else [`SPIN`],
    /// since giving way was for nothing. Work that came while it spun does not say.
    fn patience(&self) -> Option<Duration> {
        let lasted = self.since?.elapsed();
        (lasted > SPIN).then_some(if lasted < LINGER { LINGER } else { SPIN })
    }
}

/// Locks, also after a panic: none of the mutexes here guards data that a panic could leave
/// half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a loop and returns how often each chunk was called.
    fn calls(pool: &Pool, chunks: usize) -> Vec<usize> {
        let counts: Vec<AtomicUsize> = (0..chunks).map(|_| AtomicUsize::new(0)).collect();
        pool.run(chunks, &|chunk| {
            counts[chunk].fetch_add(1, Ordering::Relaxed);
        });
        counts.into_iter().map(AtomicUsize::into_inner).collect()
    }

    #[test]
    fn every_chunk_runs_once() {
        for threads in [0, 1, 2, 3, 8] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads.max(1));
            for chunks in [0, 1, 2, 3, 64, 1000] {
                assert_eq!(calls(&pool, chunks), vec![1; chunks], "{threads} threads");
            }
        }
    }

    #[test]
    fn chunks_cover_the_data() {
        let pool = Pool::new(3);
        for total in [0, 1, 9, 10, 101] {
            let mut data = vec![0; total];
            pool.for_each_chunk(&mut data, 10, &|start, chunk| {
                for (i, value) in chunk.iter_mut().enumerate() {
                    *value += start + i;
                }
            });
            assert!(data.into_iter().eq(0..total));
        }
    }

    #[test]
    fn many_short_loops_and_pauses() {
        let pool = Pool::new(4);
        for round in 0..5000 {
            assert_eq!(calls(&pool, 5), [1; 5]);
            if round % 500 == 0 {
                // Long enough for the workers to park.
                std::thread::sleep(2 * LINGER);
            }
        }
    }

    #[test]
    fn workers_take_part() {
        let pool = Pool::new(2);
        // Two chunks that each wait for the other can only finish on two threads.
        let barrier = std::sync::Barrier::new(2);
        pool.run(2, &|_| {
            barrier.wait();
        });
    }

    #[test]
    fn sleepers_are_woken_for_what_is_worth_it() {
        let pool = Pool::new(3);
        while pool.shared.sleepers.load(Ordering::SeqCst) < 2 {
            std::thread::sleep(LINGER);
        }
        let me = std::thread::current().id();
        let is_mine = |_| assert_eq!(std::thread::current().id(), me);
        pool.run_if_worth(3, 10, &is_mine);
        assert_eq!(pool.shared.sleepers.load(Ordering::SeqCst), 2);
        // Chunks that wait for each other can only finish on as many threads.
        let barrier = std::sync::Barrier::new(3);
        pool.run_if_worth(3, WORTH, &|_| {
            barrier.wait();
        });
        // The same is worth it in parts that follow each other at once.
        let mut alone = Alone::default();
        assert!(!alone.add(WORTH / 2));
        alone.since = Some(Instant::now() + LINGER);
        assert!(alone.add(WORTH / 2));
        alone.since = Instant::now().checked_sub(2 * LINGER);
        assert!(!alone.add(WORTH / 2));
    }

    #[test]
    fn patience_follows_the_last_pause() {
        let paused = |pause: Duration| Idle {
            since: Instant::now().checked_sub(pause),
            ..Idle::default()
        };
        assert_eq!(Idle::default().patience(), None);
        assert_eq!(paused(2 * LINGER).patience(), Some(SPIN));
        // A busy machine may take longer than that to ask.
        assert!(paused(2 * SPIN).patience().is_some());
    }

    #[test]
    fn a_nested_loop_runs_inline() {
        let pool = Pool::new(3);
        let total = AtomicUsize::new(0);
        pool.run(6, &|_| {
            let outer = std::thread::current().id();
            pool.run(7, &|_| {
                assert_eq!(std::thread::current().id(), outer);
                total.fetch_add(1, Ordering::Relaxed);
            });
        });
        assert_eq!(total.into_inner(), 42);
    }

    #[test]
    fn callers_take_turns() {
        let pool = Pool::new(3);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        assert_eq!(calls(&pool, 9), [1; 9]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(3);
        for guilty in [0, 7, 99] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(100, &|chunk| assert!(chunk != guilty, "chunk {guilty}"));
            }));
            let panic = result.expect_err("the panic was swallowed");
            assert_eq!(
                panic.downcast_ref::<String>(),
                Some(&format!("chunk {guilty}"))
            );
            assert_eq!(calls(&pool, 50), [1; 50]);
        }
    }
}
