//! The sequences of an engine. They share the programs of single sequences.

use rustorch_runtime::Runtime;

use crate::selection::Selection;
use crate::session::{Session, SessionOptions};
use crate::{LlmError, Model};

/// Sequences, each with a cache of its own.
pub(super) struct Slots<'m> {
    sessions: Vec<Session<'m>>,
    /// The sequence that has the programs.
    owner: usize,
}

/// The results of the programs for prompts, which nobody reads: the least that there is. One for all prompts, so that
/// they share programs.
pub(super) fn unread() -> Selection {
    Selection::best()
}

impl<'m> Slots<'m> {
    /// Empty sequences.
    ///
    /// # Errors
    /// The same errors as [`Session::new`].
    pub(super) fn new(
        model: &'m Model,
        runtime: &Runtime,
        count: usize,
        options: &SessionOptions,
    ) -> Result<Self, LlmError> {
        let session = |_| Session::new(model, runtime, options.clone());
        Ok(Self {
            sessions: (0..count).map(session).collect::<Result<_, _>>()?,
            owner: 0,
        })
    }

    /// Number of sequences.
    pub(super) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// A sequence.
    pub(super) fn get(&self, slot: usize) -> &Session<'m> {
        &self.sessions[slot]
    }

    /// A sequence, to drop tokens of it or to add some that were computed elsewhere.
    pub(super) fn get_mut(&mut self, slot: usize) -> &mut Session<'m> {
        &mut self.sessions[slot]
    }

    /// A sequence with the programs, to compute tokens.
    ///
    /// # Errors
    /// Fails if the sequence's cache cannot be bound to the programs.
    pub(super) fn with_programs(&mut self, slot: usize) -> Result<&mut Session<'m>, LlmError> {
        if let Ok([to, from]) = self.sessions.get_disjoint_mut([slot, self.owner]) {
            self.owner = slot;
            to.take_programs(from)?;
        }
        Ok(&mut self.sessions[slot])
    }
}
