//! Scales of LoRA adapters, as requests give them.

use serde::Deserialize;

use crate::error::ApiError;

/// The scale of an adapter.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scale {
    id: usize,
    scale: f32,
}

/// The scales of `count` adapters by those of some. The others have no effect.
///
/// # Errors
/// Fails for an adapter that is not there, and for a scale that is no number.
pub(crate) fn scales(given: &[Scale], count: usize) -> Result<Vec<f32>, ApiError> {
    let mut scales = vec![0.0; count];
    for (index, Scale { id, scale }) in given.iter().enumerate() {
        let at = |field: &str, problem: String| {
            Err(ApiError::field(format!("[{index}].{field}"), problem))
        };
        if !scale.is_finite() {
            return at("scale", format!("{scale}: expected a number"));
        }
        match scales.get_mut(*id) {
            Some(own) => *own = *scale,
            None => return at("id", format!("{id}: there are {count}, which begin at 0")),
        }
    }
    Ok(scales)
}
