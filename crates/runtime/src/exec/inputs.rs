//! The inputs of a run.

use crate::{RunError, Storage};

/// Lists of storages, one after the other, as the inputs of a graph.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a>(pub(super) &'a [&'a [Storage]]);

impl<'a> Inputs<'a> {
    pub(super) fn iter(self) -> impl Iterator<Item = &'a Storage> {
        self.0.iter().copied().flatten()
    }

    pub(super) fn get(self, mut index: usize) -> Option<&'a Storage> {
        for list in self.0 {
            match list.get(index) {
                Some(storage) => return Some(storage),
                None => index -= list.len(),
            }
        }
        None
    }
}

/// The storages of a run, registered as in use.
pub(super) struct Held<'a> {
    inputs: Inputs<'a>,
    writes: &'a [bool],
    /// Number of registered ones.
    count: usize,
}

impl<'a> Held<'a> {
    pub(super) fn acquire(inputs: Inputs<'a>, writes: &'a [bool]) -> Result<Self, RunError> {
        let mut held = Held {
            inputs,
            writes,
            count: 0,
        };
        for (storage, &write) in inputs.iter().zip(writes) {
            if !storage.acquire(write) {
                let input = held.count;
                return Err(RunError::Busy { input });
            }
            held.count += 1;
        }
        Ok(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let all = self.inputs.iter().zip(self.writes);
        for (storage, &write) in all.take(self.count) {
            storage.release(write);
        }
    }
}
