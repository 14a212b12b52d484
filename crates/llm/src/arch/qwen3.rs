//! Qwen 3: norms of queries and keys (read where the file has them).

use rustorch_ir::ops::RopeLayout;

use super::Architecture;
use super::decoder::Decoder;
use crate::LlmError;
use crate::weights::Weights;

pub(super) const NAME: &str = "qwen3";

pub(super) fn load(w: &Weights) -> Result<Box<dyn Architecture>, LlmError> {
    let config = w.config(NAME, RopeLayout::Halves)?;
    Ok(Box::new(Decoder::load(w, config)?))
}
