//! Mistakes of the caller's in runs without a wait.
//!
//! Kernels note a mistake, such as an index out of range, in their program's status word. If the run
//! returned before that, a later read looks at the word. The results of the run are
//! [suspect](Suspicion) until then, with all that later runs computed from them. After a mistake they are poisoned,
//! and nothing else is.

use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use rustorch_runtime::DeviceError;

use crate::driver::Driver;
use crate::lock;

/// Bits of a suspicion that are words; the others are the number of their period.
const WORDS: u32 = 24;

/// The status words that may report a mistake in a buffer's contents: none, or some of one period. A
/// period lasts from one look at all words to the next.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Suspicion(u64);

impl Suspicion {
    fn new(period: u64, word: usize) -> Self {
        Self(period << WORDS | 1 << word.min(WORDS as usize - 1))
    }

    fn period(self) -> u64 {
        self.0 >> WORDS
    }

    fn words(self) -> u64 {
        self.0 & ((1 << WORDS) - 1)
    }

    /// Is a word in both?
    fn meets(self, other: Self) -> bool {
        self.period() == other.period() && self.words() & other.words() != 0
    }
}

/// A place for a suspicion.
#[derive(Default)]
pub(crate) struct Suspected(AtomicU64);

impl Suspected {
    pub(crate) fn get(&self) -> Suspicion {
        Suspicion(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, suspicion: Suspicion) {
        self.0.store(suspicion.0, Ordering::Relaxed);
    }
}

/// The word in which a program's kernels report mistakes: 0 without one.
pub(crate) struct Status<D: Driver> {
    pub(crate) word: D::Buffer,
    /// Suspicion of results of runs that are not checked yet; none without such a run.
    unsettled: Suspected,
    /// Is such a run being queued?
    is_queueing: AtomicBool,
}

impl<D: Driver> Status<D> {
    /// A new word, of 0.
    pub(crate) fn new(driver: &D) -> Result<Self, DeviceError> {
        let word = driver.alloc_status()?;
        // SAFETY: nobody else has the new word.
        unsafe { driver.write(&word, 0, &[0; 4])? };
        Ok(Self {
            word,
            unsettled: Suspected::default(),
            is_queueing: AtomicBool::new(false),
        })
    }

    /// Was a run queued whose mistakes were not looked for?
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled.get() != Suspicion::default()
    }

    /// The status word, which is then 0 again. All runs that may write it are over.
    pub(crate) fn take(&self, driver: &D) -> Result<u32, DeviceError> {
        let mut word = [0; 4];
        // SAFETY: the runs are over, as the caller promises.
        unsafe { driver.read(&self.word, 0, &mut word)? };
        let code = u32::from_ne_bytes(word);
        if code != 0 {
            // SAFETY: as above.
            unsafe { driver.write(&self.word, 0, &[0; 4])? };
        }
        Ok(code)
    }
}

/// The words of the period that lasts now.
struct Period<D: Driver> {
    number: u64,
    words: Vec<Arc<Status<D>>>,
}

impl<D: Driver> Period<D> {
    /// A run of this word is one of the period's.
    fn add(&mut self, status: Arc<Status<D>>) {
        let suspicion = Suspicion::new(self.number, self.words.len());
        status.unsettled.set(suspicion);
        self.words.push(status);
    }
}

/// State of the mistakes of one device's runs.
pub(crate) struct Poison<D: Driver> {
    now: Mutex<Period<D>>,
    /// Lock of the thread that looks at the words of a period, until that is done.
    turn: Mutex<()>,
    /// The last period with a known word.
    last: AtomicU64,
    /// The last period whose mistakes were looked for.
    settled: AtomicU64,
    /// Suspicions that count as mistakes.
    poisoned: Mutex<Vec<Suspicion>>,
    is_any: AtomicBool,
}

impl<D: Driver> Default for Poison<D> {
    fn default() -> Self {
        Self {
            now: Mutex::new(Period {
                number: 1,
                words: Vec::new(),
            }),
            turn: Mutex::default(),
            last: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            poisoned: Mutex::default(),
            is_any: AtomicBool::new(false),
        }
    }
}

impl<D: Driver> Poison<D> {
    /// Begins an asynchronous run that may find a mistake.
    pub(crate) fn begin(&self, status: &Arc<Status<D>>) {
        let mut now = lock(&self.now);
        status.is_queueing.store(true, Ordering::Relaxed);
        if !status.is_unsettled() {
            now.add(status.clone());
            self.last.store(now.number, Ordering::Relaxed);
        }
    }

    /// Notes that the run is queued: later looks wait for it, too. Returns the suspicion of its results.
    pub(crate) fn queued(&self, status: &Status<D>) -> Suspicion {
        let _now = lock(&self.now);
        status.is_queueing.store(false, Ordering::Relaxed);
        status.unsettled.get()
    }

    /// Begins to look for mistakes, one thread at a time: all queued work has to be over before the
    /// look [ends](Look::end).
    pub(crate) fn look(&self) -> Look<'_, D> {
        self.look_in(lock(&self.turn))
    }

    /// The same before a buffer is read; `None` where another thread does so now, and may.
    pub(crate) fn look_behind(&self, suspicion: Suspicion) -> Option<Look<'_, D>> {
        match self.turn.try_lock() {
            Ok(turn) => Some(self.look_in(turn)),
            Err(TryLockError::Poisoned(turn)) => Some(self.look_in(turn.into_inner())),
            Err(TryLockError::WouldBlock) => self.is_suspect(suspicion).then(|| self.look()),
        }
    }

    fn look_in<'p>(&'p self, turn: MutexGuard<'p, ()>) -> Look<'p, D> {
        let mut now = lock(&self.now);
        let words = mem::take(&mut now.words);
        now.number += u64::from(!words.is_empty());
        let period = now.number - 1;
        let mut taken = Vec::with_capacity(words.len());
        for status in words {
            taken.push((status.unsettled.get(), status.clone()));
            match status.is_queueing.load(Ordering::Relaxed) {
                // Its run comes behind all that is waited for.
                true => {
                    now.add(status);
                    self.last.store(now.number, Ordering::Relaxed);
                }
                false => status.unsettled.set(Suspicion::default()),
            }
        }
        Look {
            poison: self,
            _turn: turn,
            period,
            words: taken,
        }
    }

    fn add(&self, poisoned: Suspicion) {
        lock(&self.poisoned).push(poisoned);
        self.is_any.store(true, Ordering::Release);
    }

    /// Returns whether there may be anything that is suspect or poisoned.
    pub(crate) fn may_be_any(&self) -> bool {
        let is_open = self.last.load(Ordering::Relaxed) > self.settled.load(Ordering::Relaxed);
        is_open || self.is_any.load(Ordering::Relaxed)
    }

    /// May the suspicion turn out to be a mistake?
    pub(crate) fn is_suspect(&self, suspicion: Suspicion) -> bool {
        suspicion.words() != 0 && suspicion.period() > self.settled.load(Ordering::Acquire)
    }

    /// Is the suspicion known to be a mistake?
    pub(crate) fn has(&self, suspicion: Suspicion) -> bool {
        self.is_any.load(Ordering::Acquire)
            && (lock(&self.poisoned).iter()).any(|poisoned| poisoned.meets(suspicion))
    }

    /// The suspicion of results computed from both.
    pub(crate) fn both(&self, a: Suspicion, b: Suspicion) -> Suspicion {
        if a.period() != b.period() && self.is_suspect(a) && self.is_suspect(b) {
            // Another thread looks at the words of the earlier one.
            drop(lock(&self.turn));
        }
        // Before it is known what is poisoned.
        let are_suspect = (self.is_suspect(a), self.is_suspect(b));
        match are_suspect {
            _ if self.has(a) => a,
            _ if self.has(b) => b,
            (true, true) => Suspicion(a.0 | b.0),
            (true, false) => a,
            (false, true) => b,
            (false, false) => Suspicion::default(),
        }
    }
}

/// A look at the words of a period, which is over.
pub(crate) struct Look<'p, D: Driver> {
    poison: &'p Poison<D>,
    _turn: MutexGuard<'p, ()>,
    period: u64,
    /// Words that are still to be looked at.
    words: Vec<(Suspicion, Arc<Status<D>>)>,
}

impl<D: Driver> Look<'_, D> {
    /// Returns whether there is nothing to look at.
    pub(crate) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Finds the mistakes of the period's runs, which are over.
    pub(crate) fn end(mut self, driver: &D) -> Result<(), DeviceError> {
        while let Some((suspicion, status)) = self.words.last() {
            if status.take(driver)? != 0 {
                self.poison.add(*suspicion);
                // It may be the mistake of a run that was queued since.
                let _now = lock(&self.poison.now);
                if status.is_unsettled() {
                    self.poison.add(status.unsettled.get());
                }
            }
            self.words.pop();
        }
        Ok(())
    }
}

impl<D: Driver> Drop for Look<'_, D> {
    fn drop(&mut self) {
        // After a failure, all that might be wrong is as good as wrong: it can be computed again.
        for (suspicion, _) in &self.words {
            self.poison.add(*suspicion);
        }
        self.poison.settled.store(self.period, Ordering::Release);
    }
}
