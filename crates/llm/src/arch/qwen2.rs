//! Qwen 2 and 2.5: biases on queries, keys and values (read where the file has them).

use rustorch_ir::ops::RopeLayout;

use super::Architecture;
use super::decoder::Decoder;
use crate::LlmError;
use crate::weights::Weights;

pub(super) const NAME: &str = "qwen2";

pub(super) fn load(w: &Weights) -> Result<Box<dyn Architecture>, LlmError> {
    let config = w.config(NAME, RopeLayout::Halves)?;
    Ok(Box::new(Decoder::load(w, config)?))
}
