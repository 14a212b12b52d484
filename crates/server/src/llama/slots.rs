//! llama-server's `/slots`: the sequences, and what they hold.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use rustorch_llm::engine::SlotAction;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::Loaded;

/// The sequences that are computed at once.
pub(crate) fn slots(model: &Loaded) -> Value {
    let busy = model.busy_slots();
    let slot = |id: usize| json!({"id": id, "n_ctx": model.context(), "is_processing": busy.contains(&id)});
    (0..model.sequences()).map(slot).collect()
}

/// The action of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Save,
    Restore,
    Erase,
}

impl Action {
    /// # Errors
    /// Fails if the query has none.
    fn of(query: &str) -> Result<Self, ApiError> {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        match pairs.find(|(name, _)| *name == "action") {
            Some((_, "save")) => Ok(Self::Save),
            Some((_, "restore")) => Ok(Self::Restore),
            Some((_, "erase")) => Ok(Self::Erase),
            _ => {
                let problem = "expected ?action=save, restore or erase";
                Err(ApiError::field("action", problem))
            }
        }
    }
}

/// The file of an action.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileRequest {
    filename: String,
}

/// Longest name of a file, in bytes.
const LONGEST: usize = 200;

/// Is it the name of a file in a folder, and not a path?
fn is_plain(name: &str) -> bool {
    let is_safe = |it: char| it.is_alphanumeric() || "._- ".contains(it);
    (1..=LONGEST).contains(&name.len())
        && name.chars().all(is_safe)
        && !name.starts_with(['.', ' '])
        && !name.ends_with(['.', ' '])
}

/// A request for an action on a slot.
pub(crate) struct SlotRequest {
    pub(crate) slot: String,
    pub(crate) query: String,
    pub(crate) fields: Fields,
    pub(crate) salt: u64,
}

/// Acts on a slot. Files are in `folder`.
///
/// # Errors
/// Fails if there is no such slot or action, or if the name of the file is a path. Also fails if the file cannot be
/// written or read, or is for another model.
pub(crate) fn act(
    model: &Arc<Loaded>,
    folder: Option<&Path>,
    asked: SlotRequest,
) -> Result<Value, ApiError> {
    let count = model.sequences();
    let slot = asked.slot.parse().ok().filter(|&slot: &usize| slot < count);
    let slot = slot.ok_or_else(|| {
        let problem = format!(
            "{:?}: expected 0 to {}",
            asked.slot,
            count.saturating_sub(1)
        );
        ApiError::field("id_slot", problem)
    })?;
    let action = Action::of(&asked.query)?;
    let begin = Instant::now();
    let run = |action| {
        model
            .engine()?
            .act(slot, action, asked.salt)
            .map_err(ApiError::from)
    };
    if action == Action::Erase {
        return Ok(json!({"id_slot": slot, "n_erased": run(SlotAction::Erase)?}));
    }
    let folder = folder.ok_or_else(|| {
        let problem = "the server saves no slots; start it with --slot-save-path FOLDER";
        ApiError::unsupported(problem)
    })?;
    let FileRequest { filename } = asked.fields.into()?;
    if !is_plain(&filename) {
        let problem =
            "expected the name of a file: letters, digits, `.`, `-`, `_` and spaces within";
        return Err(ApiError::field("filename", problem));
    }
    let path = folder.join(&filename);
    let bytes = || path.metadata().map_or(0, |metadata| metadata.len());
    let milliseconds = || begin.elapsed().as_secs_f64() * 1e3;
    Ok(match action {
        Action::Save => {
            let tokens = run(SlotAction::Save(path.clone()))?;
            json!({
                "id_slot": slot, "filename": filename, "n_saved": tokens, "n_written": bytes(),
                "timings": {"save_ms": milliseconds()},
            })
        }
        _ if !path.is_file() => {
            return Err(ApiError::field("filename", "there is no such file"));
        }
        _ => {
            let tokens = run(SlotAction::Restore(path.clone())).map_err(|error| {
                let message = error
                    .message
                    .replace(&path.display().to_string(), &filename);
                ApiError::field("filename", message)
            })?;
            json!({
                "id_slot": slot, "filename": filename, "n_restored": tokens, "n_read": bytes(),
                "timings": {"restore_ms": milliseconds()},
            })
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_paths() {
        for name in ["slot1.bin", "a b-c_d", "Wörter"] {
            assert!(is_plain(name), "{name}");
        }
        let long = "x".repeat(LONGEST + 1);
        for name in [
            "", ".", "..", ".hidden", "a/b", "a\\b", "C:a", "a\0", " a", "a.", &long,
        ] {
            assert!(!is_plain(name), "{name:?}");
        }
    }
}
