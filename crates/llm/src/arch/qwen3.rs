//! Qwen 3: norms of queries and keys (read where the file has them).

use rustorch_ir::ops::RopeLayout;

use super::Architecture;
use super::decoder::Decoder;
use crate::LlmError;
use crate::config::Config;
use crate::weights::Weights;

pub(super) const NAME: &str = "qwen3";

pub(super) fn load(w: &Weights) -> Result<Box<dyn Architecture>, LlmError> {
    let config = Config::from_gguf(w.gguf(), NAME, RopeLayout::Halves)?;
    Ok(Box::new(Decoder::load(w, config)?))
}
