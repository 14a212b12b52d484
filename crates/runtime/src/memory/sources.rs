//! Storages that are kept so that lost tensors can be computed from them again.

use rustorch_ir::order::sort_by_key;
use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::Storage;
use crate::journal::lock;

/// A storage that is kept, as it was when that began.
#[derive(Debug)]
pub struct Source {
    kept: Arc<Kept>,
    version: u64,
}

impl Source {
    /// The storage; `None` once it was written over, or given up to bound memory.
    pub fn storage(&self) -> Option<Storage> {
        let storage = lock(&self.kept.storage).clone();
        storage.filter(|storage| storage.version() == self.version)
    }
}

/// The common state of all sources of a storage.
#[derive(Debug)]
struct Kept {
    /// `None` once it was given up.
    storage: Mutex<Option<Storage>>,
    id: usize,
    /// Counts those that began before.
    number: u64,
    ledger: Weak<Ledger>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(ledger) = self.ledger.upgrade() {
            ledger.forget(self);
        }
    }
}

/// The storages that sources keep, and the bytes that they may.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// 0 for none.
    limit: AtomicU64,
    /// Kept storages, by their ids.
    kept: Mutex<HashMap<usize, Weak<Kept>>>,
    next: AtomicU64,
}

impl Ledger {
    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
        self.settle();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.limit.load(Ordering::Relaxed) > 0
    }

    /// Keeps a storage that has a copy on the host.
    pub(crate) fn keep(self: &Arc<Self>, storage: &Storage) -> Option<Source> {
        if !self.is_on() || !storage.is_on_host() {
            return None;
        }
        let id = storage.id();
        let known = lock(&self.kept).get(&id).and_then(Weak::upgrade);
        let kept = known.unwrap_or_else(|| {
            let kept = Arc::new(Kept {
                storage: Mutex::new(Some(storage.clone())),
                id,
                number: self.next.fetch_add(1, Ordering::Relaxed),
                ledger: Arc::downgrade(self),
            });
            lock(&self.kept).insert(id, Arc::downgrade(&kept));
            kept
        });
        let version = storage.version();
        Some(Source { kept, version })
    }

    /// The oldest first.
    fn all(&self) -> Vec<Arc<Kept>> {
        let kept = lock(&self.kept);
        let mut all: Vec<Arc<Kept>> = kept.values().filter_map(Weak::upgrade).collect();
        drop(kept);
        sort_by_key(&mut all, |kept| kept.number);
        all
    }

    /// One is gone, or was given up: its id may soon be another storage's.
    fn forget(&self, gone: &Kept) {
        let mut kept = lock(&self.kept);
        let is_it = |known: &Weak<Kept>| ptr::eq(known.as_ptr(), gone);
        if kept.get(&gone.id).is_some_and(is_it) {
            kept.remove(&gone.id);
        }
    }

    /// Bytes of those without other handles.
    pub(crate) fn bytes(&self) -> u64 {
        self.all().iter().map(|kept| kept.own_bytes()).sum()
    }

    /// Drops storages without other handles until the limit holds, the oldest first.
    pub(crate) fn settle(&self) {
        if lock(&self.kept).is_empty() {
            return;
        }
        let all = self.all();
        let limit = self.limit.load(Ordering::Relaxed);
        let mut bytes: u64 = all.iter().map(|kept| kept.own_bytes()).sum();
        for kept in all {
            if bytes <= limit {
                break;
            }
            let own = kept.own_bytes();
            if own > 0 {
                bytes -= own;
                self.forget(&kept);
                let given_up = lock(&kept.storage).take();
                drop(given_up);
            }
        }
    }
}

impl Kept {
    /// Bytes that are there for its sake alone.
    fn own_bytes(&self) -> u64 {
        let storage = lock(&self.storage);
        let own = storage.as_ref().filter(|storage| storage.handles() == 1);
        own.map_or(0, |storage| storage.bytes() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HostBuffer;

    fn storage(bytes: usize) -> Storage {
        Storage::from_host(HostBuffer::zeroed(bytes).unwrap())
    }

    fn ledger(limit: u64) -> Arc<Ledger> {
        let ledger = Arc::<Ledger>::default();
        ledger.set_limit(limit);
        ledger
    }

    #[test]
    fn what_others_hold_does_not_count() {
        let ledger = ledger(100);
        let held = storage(1000);
        let sources = [ledger.keep(&held).unwrap(), ledger.keep(&held).unwrap()];
        ledger.settle();
        assert_eq!(ledger.bytes(), 0);
        assert!(sources.iter().all(|source| source.storage().is_some()));
        drop(held);
        assert_eq!(ledger.bytes(), 1000);
        ledger.settle();
        assert_eq!(ledger.bytes(), 0);
        assert!(sources.iter().all(|source| source.storage().is_none()));
    }

    #[test]
    fn the_oldest_are_given_up_first() {
        let ledger = ledger(100);
        let sources = [40, 50, 60].map(|bytes| ledger.keep(&storage(bytes)).unwrap());
        assert_eq!(ledger.bytes(), 150);
        ledger.settle();
        assert_eq!(ledger.bytes(), 60);
        let kept = sources.each_ref().map(|source| source.storage().is_some());
        assert_eq!(kept, [false, false, true]);
        drop(sources);
        assert_eq!(ledger.bytes(), 0);
        assert!(lock(&ledger.kept).is_empty());
    }

    #[test]
    fn what_was_written_over_is_no_source() {
        let ledger = ledger(100);
        let written = storage(4);
        let source = ledger.keep(&written).unwrap();
        written.write(&[1, 2, 3, 4]).unwrap();
        assert!(source.storage().is_none());
        assert!(ledger.keep(&written).unwrap().storage().is_some());
    }

    #[test]
    fn nothing_is_kept_unless_it_is_asked_for() {
        assert!(ledger(0).keep(&storage(4)).is_none());
    }
}
