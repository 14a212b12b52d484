//! Sessions whose keys and values, or whose programs, are those of others.

use std::mem;
use std::sync::atomic::Ordering;

use super::{NO_STEPS, Session, TOKENS};
use crate::LlmError;
use crate::kv_cache::LayerCache;
use crate::selection::Selection;
use crate::step::Wanted;

impl Session<'_> {
    /// Puts other tokens, fed in these batches, with their keys and values in the place of all
    /// that there are.
    pub(crate) fn replace(
        &mut self,
        layers: Vec<LayerCache>,
        tokens: Vec<u32>,
        batches: Vec<usize>,
    ) -> Result<(), LlmError> {
        self.truncate(0);
        self.rebind(&layers)?;
        self.cache.replace(layers, tokens.len(), &self.runtime)?;
        self.cache.complete();
        (self.tokens, self.batches) = (tokens, batches);
        Ok(())
    }

    /// Makes the programs write to other keys and values.
    pub(super) fn rebind(&mut self, layers: &[LayerCache]) -> Result<(), LlmError> {
        for step in self.steps.iter_mut().flatten() {
            for (old, new) in self.cache.layers().iter().zip(layers) {
                for (old, new) in old.tensors().zip(new.tensors()) {
                    // Even if the new one was lost with a device: a pass is going to say so.
                    let new = new.storage_in_memory().map_or_else(|| new.storage(), Ok)?;
                    if let Some(old) = old.storage_in_memory() {
                        step.rebind(&old, &new)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Takes the programs of another session with the same model and options.
    pub(crate) fn take_programs(&mut self, other: &mut Self) -> Result<(), LlmError> {
        other.settle_ahead();
        other.rebind(self.cache.layers())?;
        self.steps = mem::replace(&mut other.steps, NO_STEPS);
        for step in self.steps.iter_mut().flatten() {
            step.read_cache(&self.cache);
        }
        Ok(())
    }

    /// Prepares the cache for another token behind the session's.
    pub(crate) fn make_ready(&mut self, selection: &Selection) -> Result<(), LlmError> {
        let wanted = Wanted::best(1, selection, self.model.spec().vocab);
        self.reach_back(&wanted)?;
        let (past, runtime) = (self.tokens.len(), self.runtime.clone());
        (self.cache).make_room(&runtime, self.options.routing, past, past + 1)
    }

    /// Is there room for another token, and all in the cache that it sees?
    pub(crate) fn is_ready(&self) -> bool {
        let past = self.tokens.len();
        past < self.context && self.cache.reaches(past) && self.cache.has_room(past + 1)
    }

    /// Chooses the recurrent states for a pass of another program over one token. The state so far stays.
    pub(crate) fn choose_states(&mut self) -> Result<(), LlmError> {
        self.cache.choose_slots(self.tokens.len(), &self.runtime)
    }

    /// Adds a token whose state another program has written to the cache.
    pub(crate) fn push(&mut self, token: u32) {
        let past = self.tokens.len();
        self.cache.advance(past, past + 1);
        TOKENS.fetch_add(1, Ordering::Relaxed);
        self.tokens.push(token);
        self.batches.push(1);
    }

    /// Makes the cache again from the tokens, if it was lost with its device.
    pub(crate) fn recover(&mut self, selection: &Selection) -> Result<(), LlmError> {
        let past = self.tokens.len();
        tracing::warn!("the KV cache was lost with its device; recomputing it from {past} tokens");
        self.rebuild(&Wanted::best(1, selection, self.model.spec().vocab))
    }
}
