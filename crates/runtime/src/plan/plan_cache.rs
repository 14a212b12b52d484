//! Plans of graphs that were run before: the least recently used go when they take too much
//! memory.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::mem;
use std::sync::Arc;

use crate::PlanCounters;

/// Bytes that plans may take by default.
const DEFAULT_LIMIT: usize = 128 << 20;

/// Hashes of evicted plans that are remembered, to report why a graph is planned again.
const REMEMBERED: usize = 1 << 14;

/// Plans by the hash of their graph and of other conditions.
///
/// Evicted plans go to the caller, which drops them after the cache is unlocked, since that may take
/// time.
pub(crate) struct PlanCache<T> {
    known: HashMap<u64, usize, BuildHasherDefault<Identity>>,
    slots: Vec<Entry<T>>,
    /// Slots without a plan.
    free: Vec<usize>,
    /// The ends of the list of plans by their last use.
    newest: Option<usize>,
    oldest: Option<usize>,
    bytes: usize,
    limit: usize,
    evicted: HashSet<u64, BuildHasherDefault<Identity>>,
    reused: u64,
}

/// A plan, with its neighbours in the list.
struct Entry<T> {
    hash: u64,
    plan: Option<Arc<T>>,
    bytes: usize,
    newer: Option<usize>,
    older: Option<usize>,
}

/// Takes a hash as it is.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = self.0 << 8 | u64::from(byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<T> Default for PlanCache<T> {
    fn default() -> Self {
        Self {
            known: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            newest: None,
            oldest: None,
            bytes: 0,
            limit: DEFAULT_LIMIT,
            evicted: HashSet::default(),
            reused: 0,
        }
    }
}

impl<T> PlanCache<T> {
    /// The plan with this hash for which `is_it` holds; from now on the last one to go.
    pub(crate) fn find(&mut self, hash: u64, is_it: impl FnOnce(&T) -> bool) -> Option<Arc<T>> {
        let at = *self.known.get(&hash)?;
        let plan = self.slots[at].plan.clone().filter(|plan| is_it(plan))?;
        if self.newest != Some(at) {
            self.unlink(at);
            self.link(at);
        }
        self.reused += 1;
        Some(plan)
    }

    /// Was a plan with this hash evicted?
    pub(crate) fn was_evicted(&self, hash: u64) -> bool {
        self.evicted.contains(&hash)
    }

    /// Keeps a plan, in the place of one with the same hash.
    pub(crate) fn insert(&mut self, hash: u64, plan: Arc<T>) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        gone.extend(self.known.get(&hash).copied().and_then(|at| self.take(at)));
        let slot = Entry {
            hash,
            plan: Some(plan),
            bytes: 0,
            newer: None,
            older: None,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        self.known.insert(hash, at);
        self.link(at);
        gone
    }

    /// Sets the size of a plan, which is known when it was made.
    pub(crate) fn charge(&mut self, hash: u64, plan: &Arc<T>, bytes: usize) -> Vec<Arc<T>> {
        if let Some(&at) = self.known.get(&hash) {
            let slot = &mut self.slots[at];
            if slot
                .plan
                .as_ref()
                .is_some_and(|kept| Arc::ptr_eq(kept, plan))
            {
                self.bytes = self.bytes - slot.bytes + bytes;
                slot.bytes = bytes;
            }
        }
        self.evict()
    }

    /// Sets the limit in bytes; the plan that was used last stays in any case.
    pub(crate) fn set_limit(&mut self, bytes: usize) -> Vec<Arc<T>> {
        self.limit = bytes;
        self.evict()
    }

    /// Gives up all plans.
    pub(crate) fn clear(&mut self) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        while let Some(at) = self.oldest {
            gone.extend(self.forget(at));
        }
        gone
    }

    /// Adds the cache's counts.
    pub(crate) fn count(&self, counters: &mut PlanCounters) {
        counters.reused = self.reused;
        counters.kept = self.known.len();
        counters.bytes = self.bytes;
    }

    fn evict(&mut self) -> Vec<Arc<T>> {
        let mut gone = Vec::new();
        while let Some(at) = self.oldest.filter(|at| Some(*at) != self.newest)
            && self.bytes > self.limit
        {
            gone.extend(self.forget(at));
        }
        gone
    }

    /// Takes a plan out and remembers that.
    fn forget(&mut self, at: usize) -> Option<Arc<T>> {
        if self.evicted.len() >= REMEMBERED {
            self.evicted.clear();
        }
        self.evicted.insert(self.slots[at].hash);
        self.take(at)
    }

    fn take(&mut self, at: usize) -> Option<Arc<T>> {
        self.unlink(at);
        let slot = &mut self.slots[at];
        self.bytes -= mem::take(&mut slot.bytes);
        self.known.remove(&slot.hash);
        self.free.push(at);
        slot.plan.take()
    }

    fn unlink(&mut self, at: usize) {
        let (newer, older) = (self.slots[at].newer, self.slots[at].older);
        match newer {
            Some(newer) => self.slots[newer].older = older,
            None => self.newest = older,
        }
        match older {
            Some(older) => self.slots[older].newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link(&mut self, at: usize) {
        let older = self.newest.replace(at);
        (self.slots[at].newer, self.slots[at].older) = (None, older);
        match older {
            Some(older) => self.slots[older].newer = Some(at),
            None => self.oldest = Some(at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three plans of 10 bytes each.
    fn filled() -> (PlanCache<u32>, Vec<Arc<u32>>) {
        let mut cache = PlanCache::default();
        let plans: Vec<_> = (0..3).map(Arc::new).collect();
        for (hash, plan) in (0..).zip(&plans) {
            assert!(cache.insert(hash, plan.clone()).is_empty());
            assert!(cache.charge(hash, plan, 10).is_empty());
        }
        (cache, plans)
    }

    fn gone(evicted: Vec<Arc<u32>>) -> Vec<u32> {
        evicted.iter().map(|plan| **plan).collect()
    }

    #[test]
    fn what_was_used_least_recently_goes_first() {
        let (mut cache, plans) = filled();
        assert_eq!(cache.find(0, |_| true).as_deref(), Some(&0));
        assert_eq!(
            cache.find(1, |_| false),
            None,
            "another graph with this hash"
        );
        assert_eq!(gone(cache.set_limit(25)), [1]);
        assert_eq!(gone(cache.charge(0, &plans[0], 16)), [2]);
        assert!(cache.was_evicted(1) && cache.was_evicted(2) && !cache.was_evicted(0));
        // The last one stays, however large.
        assert!(gone(cache.charge(0, &plans[0], 100)).is_empty());
        let mut counters = PlanCounters::default();
        cache.count(&mut counters);
        let expected = PlanCounters {
            reused: 1,
            kept: 1,
            bytes: 100,
            ..PlanCounters::default()
        };
        assert_eq!(counters, expected);
        assert_eq!(gone(cache.clear()), [0]);
    }

    #[test]
    fn a_plan_replaces_another_of_the_same_hash() {
        let (mut cache, plans) = filled();
        assert_eq!(gone(cache.insert(1, Arc::new(7))), [1]);
        assert_eq!(cache.find(1, |_| true).as_deref(), Some(&7));
        // A plan that has left takes nothing.
        assert!(gone(cache.charge(1, &plans[1], 1000)).is_empty());
        let mut counters = PlanCounters::default();
        cache.count(&mut counters);
        assert_eq!((counters.kept, counters.bytes), (3, 20));
        assert_eq!(gone(cache.set_limit(0)), [0, 2]);
    }
}
