//! Llama 1 to 3, TinyLlama, Mistral and the many models of their shape.

use rustorch_ir::ops::RopeLayout;

use super::Architecture;
use super::decoder::Decoder;
use crate::LlmError;
use crate::weights::Weights;

pub(super) const NAME: &str = "llama";

pub(super) fn load(w: &Weights) -> Result<Box<dyn Architecture>, LlmError> {
    let config = w.config(NAME, RopeLayout::Interleaved)?;
    Ok(Box::new(Decoder::load(w, config)?))
}
