//! Tasks for a slot's tokens, with their keys and values, between requests.

use std::path::PathBuf;
use std::sync::mpsc::Sender;

use crate::LlmError;
use crate::session::Session;

/// An action on the tokens of a slot, with their keys and values.
#[derive(Clone, Debug)]
pub enum SlotAction {
    /// Writes them to a file.
    Save(PathBuf),
    /// Replaces them by those of a file.
    Restore(PathBuf),
    /// Drops them.
    Erase,
}

/// An action that waits until its slot is free.
pub(super) struct SlotTask {
    pub(super) slot: usize,
    pub(super) action: SlotAction,
    /// The salt of the tokens.
    pub(super) salt: u64,
    /// Gets the number of tokens that were saved, restored or dropped.
    pub(super) done: Sender<Result<usize, LlmError>>,
}

impl SlotTask {
    /// Acts on the slot's session, whose tokens have the salt `own`. Returns the number of tokens.
    ///
    /// # Errors
    /// Fails if the tokens have another salt, and with the errors of files.
    pub(super) fn act(&self, session: &mut Session, own: u64) -> Result<usize, LlmError> {
        let count = session.tokens().len();
        let is_own = self.salt == own || count == 0;
        match &self.action {
            SlotAction::Save(path) if is_own => session.save(path).map(|()| count),
            SlotAction::Restore(path) => session.restore(path),
            SlotAction::Erase if is_own => {
                session.truncate(0);
                Ok(count)
            }
            _ => {
                let problem = format!("slot {} has the text of another key", self.slot);
                Err(LlmError::Input(problem))
            }
        }
    }
}
