//! Mistakes of the caller's that are found in runs which nobody waits for.
//!
//! Kernels note a mistake, such as an index out of range, in their program's status word. Where a run
//! returned before that, the word is looked at when something is read: what the run wrote, and what
//! later runs did, is then poisoned, since it may have been computed from that.

use std::mem;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustorch_runtime::DeviceError;

use crate::driver::Driver;

/// The word that a program's kernels tell mistakes in: 0 without one.
pub(crate) struct Status<D: Driver> {
    pub(crate) word: D::Buffer,
    /// The moment of the first run that nobody has looked behind; 0 if there is none.
    unsettled_from: AtomicU64,
}

impl<D: Driver> Status<D> {
    /// A new word, of 0.
    pub(crate) fn new(driver: &D) -> Result<Self, DeviceError> {
        let word = driver.alloc_status()?;
        // SAFETY: nobody else has the new word.
        unsafe { driver.write(&word, 0, &[0; 4])? };
        Ok(Self {
            word,
            unsettled_from: AtomicU64::new(0),
        })
    }

    /// Was a run queued that nobody has looked behind?
    pub(crate) fn is_unsettled(&self) -> bool {
        self.unsettled_from.load(Ordering::Relaxed) != 0
    }

    /// What the word says, which is then 0 again. All runs that may write it are over.
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

/// Status words that somebody has to look at, with the moment of the first run that each is for.
pub(crate) type Unsettled<D> = Vec<(u64, Arc<Status<D>>)>;

/// What is known of the mistakes of one device's runs.
///
/// A run that may find a mistake, and is not waited for, begins a new moment.
pub(crate) struct Poison<D: Driver> {
    now: AtomicU64,
    unsettled: Mutex<Unsettled<D>>,
    /// Moments whose runs wrote what is wrong.
    poisoned: Mutex<Vec<RangeInclusive<u64>>>,
    is_any: AtomicBool,
}

impl<D: Driver> Default for Poison<D> {
    fn default() -> Self {
        Self {
            now: AtomicU64::new(1),
            unsettled: Mutex::default(),
            poisoned: Mutex::default(),
            is_any: AtomicBool::new(false),
        }
    }
}

impl<D: Driver> Poison<D> {
    fn words(&self) -> MutexGuard<'_, Unsettled<D>> {
        self.unsettled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The moment that runs write at now.
    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// A run is about to be queued that may find a mistake, which nobody waits for: its moment.
    pub(crate) fn begin(&self) -> u64 {
        self.now.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The run that began at `moment` is queued: who waits from now on waits for it, too.
    pub(crate) fn queued(&self, status: &Arc<Status<D>>, moment: u64) {
        let mut words = self.words();
        if !status.is_unsettled() {
            status.unsettled_from.store(moment, Ordering::Relaxed);
            words.push((moment, status.clone()));
        }
    }

    /// Is there a run that nobody has looked behind?
    pub(crate) fn is_unsettled(&self) -> bool {
        !self.words().is_empty()
    }

    /// What has to be [settled](Self::settle) once all that was queued by now is over.
    pub(crate) fn unsettled(&self) -> Unsettled<D> {
        let words = mem::take(&mut *self.words());
        for (_, status) in &words {
            status.unsettled_from.store(0, Ordering::Relaxed);
        }
        words
    }

    /// Looks for mistakes of runs that are over.
    pub(crate) fn settle(&self, driver: &D, unsettled: Unsettled<D>) -> Result<(), DeviceError> {
        for (from, status) in unsettled {
            if status.take(driver)? != 0 {
                let mut poisoned = self.poisoned.lock().unwrap_or_else(PoisonError::into_inner);
                poisoned.push(from..=self.now());
                self.now.fetch_add(1, Ordering::Relaxed);
                self.is_any.store(true, Ordering::Release);
            }
        }
        Ok(())
    }

    /// Was there any mistake so far?
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// Is what was written at a moment wrong?
    pub(crate) fn has(&self, moment: u64) -> bool {
        self.is_any() && {
            let poisoned = self.poisoned.lock().unwrap_or_else(PoisonError::into_inner);
            poisoned.iter().any(|range| range.contains(&moment))
        }
    }
}
