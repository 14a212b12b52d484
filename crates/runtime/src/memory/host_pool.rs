//! A pool of host memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use crate::HostBuffer;
use crate::journal::lock;

/// A pool that keeps freed host memory for later requests of about the same size.
///
/// Clones share one pool.
#[derive(Clone, Debug)]
pub struct HostPool(Arc<Mutex<Free>>);

/// Statistics of a [`HostPool`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HostPoolCounters {
    /// Number of requests that reused returned memory.
    pub hits: u64,
    /// Number of requests to the system.
    pub misses: u64,
    /// Bytes that are in use.
    pub in_use: usize,
    /// Bytes that are kept for reuse.
    pub kept: usize,
}

#[derive(Debug)]
struct Free {
    /// Buffers by their size.
    buffers: BTreeMap<usize, Vec<HostBuffer>>,
    /// The most bytes that may wait.
    limit: usize,
    counters: HostPoolCounters,
}

impl HostPool {
    /// An empty pool that keeps at most `limit` unused bytes.
    pub fn new(limit: usize) -> Self {
        Self(Arc::new(Mutex::new(Free {
            buffers: BTreeMap::new(),
            limit,
            counters: HostPoolCounters::default(),
        })))
    }

    /// Uninitialised memory; `None` if there is not enough. It returns to the pool when its last
    /// user drops it.
    pub fn take(&self, bytes: usize) -> Option<HostBuffer> {
        let memory = match self.reuse(bytes) {
            Some(memory) => memory,
            None => {
                let memory = HostBuffer::uninit(bytes)?;
                lock(&self.0).counters.misses += 1;
                memory
            }
        };
        lock(&self.0).counters.in_use += memory.bytes();
        let lease = Lease {
            memory: memory.clone(),
            pool: Arc::downgrade(&self.0),
        };
        Some(memory.first(bytes).owned_by(lease))
    }

    /// The smallest piece that is large enough and not more than twice as large.
    fn reuse(&self, bytes: usize) -> Option<HostBuffer> {
        let mut free = lock(&self.0);
        let most = bytes.saturating_mul(2);
        let (&size, buffers) = free.buffers.range_mut(bytes..=most).next()?;
        let memory = buffers.pop();
        if buffers.is_empty() {
            free.buffers.remove(&size);
        }
        free.counters.kept -= size;
        free.counters.hits += 1;
        memory
    }

    /// The statistics.
    pub fn counters(&self) -> HostPoolCounters {
        lock(&self.0).counters
    }

    /// Returns unused memory to the system.
    pub fn trim(&self) {
        let mut free = lock(&self.0);
        free.buffers.clear();
        free.counters.kept = 0;
    }
}

/// Memory that goes back to its pool.
struct Lease {
    memory: HostBuffer,
    pool: Weak<Mutex<Free>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        let size = self.memory.bytes();
        let mut free = lock(&pool);
        free.counters.in_use -= size;
        if free.counters.kept + size <= free.limit {
            free.counters.kept += size;
            let buffers = free.buffers.entry(size).or_default();
            buffers.push(self.memory.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_used_again_by_those_of_about_its_size() {
        let pool = HostPool::new(1 << 20);
        let first = pool.take(1000).unwrap();
        let (at, second) = (first.as_ptr(), first.clone());
        drop(first);
        assert_eq!(pool.counters().in_use, 1000);
        drop(second);
        let expected = HostPoolCounters {
            hits: 0,
            misses: 1,
            in_use: 0,
            kept: 1000,
        };
        assert_eq!(pool.counters(), expected);
        let smaller = pool.take(600).unwrap();
        assert_eq!((smaller.as_ptr(), smaller.bytes()), (at, 600));
        assert!(smaller.is_writable());
        drop(smaller);
        let (tiny, larger) = (pool.take(400).unwrap(), pool.take(1001).unwrap());
        let expected = HostPoolCounters {
            hits: 1,
            misses: 3,
            in_use: 1401,
            kept: 1000,
        };
        assert_eq!(pool.counters(), expected);
        drop((tiny, larger));
        pool.trim();
        assert_eq!(pool.counters().kept, 0);
    }

    #[test]
    fn no_more_is_kept_than_allowed() {
        let pool = HostPool::new(1500);
        drop((pool.take(1000), pool.take(1000)));
        assert_eq!(pool.counters().kept, 1000);
        let outlives = pool.take(10).unwrap();
        drop(pool);
        assert_eq!(outlives.bytes(), 10);
    }
}
