//! llama-server's fields for the slot, the cache and the time of an answer.

use std::time::Duration;

use serde::Deserialize;

use crate::answers::Plan;
use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::Loaded;
use crate::model::adapters::Scale;

/// The fields of a request.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct SlotFields {
    /// The slot that computes the answer; -1 for any.
    id_slot: Option<i64>,
    /// Whether computed beginnings of prompts are used.
    cache_prompt: Option<bool>,
    /// Number of first tokens that stay when the context is full; -1 for the prompt.
    n_keep: Option<i64>,
    /// Milliseconds after the first token. The answer ends then, once it has a whole line.
    t_max_predict_ms: Option<i64>,
    /// Scales of adapters, which are those of the server.
    lora: Option<Vec<Scale>>,
}

const NAMES: [&str; 5] = [
    "id_slot",
    "cache_prompt",
    "n_keep",
    "t_max_predict_ms",
    "lora",
];

impl SlotFields {
    /// Takes the fields away. Notes those without effect.
    ///
    /// # Errors
    /// Fails for a value of a wrong type, or out of range.
    pub(crate) fn take(model: &Loaded, fields: &mut Fields) -> Result<Self, ApiError> {
        let own: Self = fields.split(&NAMES).into()?;
        let slots = model.sequences() as i64;
        let range = |param, value: Option<i64>, most: i64| match value {
            Some(value) if !(-1..=most).contains(&value) => {
                let problem = match most {
                    i64::MAX => format!("{value}: expected -1, or at least 0"),
                    most => format!("{value}: expected -1 to {most}"),
                };
                Err(ApiError::field(param, problem))
            }
            _ => Ok(()),
        };
        range("id_slot", own.id_slot, slots - 1)?;
        range("n_keep", own.n_keep, i64::MAX)?;
        range("t_max_predict_ms", own.t_max_predict_ms, i64::MAX)?;
        if let Some(given) = &own.lora {
            let is_same = match &model.adapters {
                Some(adapters) => adapters.scales(given)? == adapters.current(),
                None => given.is_empty(),
            };
            if !is_same {
                let problem = "all requests have the same scales; set them by POST /lora-adapters";
                return Err(ApiError::field("lora", problem));
            }
        }
        if own.n_keep.is_some() && !model.defaults.context_shift {
            fields.ignore("n_keep".to_owned());
        }
        Ok(own)
    }

    /// Puts the values into the plan of an answer.
    pub(crate) fn apply(&self, model: &Loaded, plan: &mut Plan) {
        let request = &mut plan.request;
        request.slot = self.id_slot.and_then(|slot| usize::try_from(slot).ok());
        request.recompute = self.cache_prompt == Some(false);
        let keep = self.n_keep.unwrap_or(0);
        let keep = usize::try_from(keep).unwrap_or(request.prompt.len());
        request.shift = model.defaults.context_shift.then_some(keep);
        let time = self
            .t_max_predict_ms
            .and_then(|time| u64::try_from(time).ok());
        plan.time = time.filter(|&time| time > 0).map(Duration::from_millis);
    }
}
