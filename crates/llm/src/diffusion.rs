//! Texts by diffusion: a model fills masked tokens of a whole text, some in each step.

use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::{Tensor, with_runtime};

use crate::LlmError;
use crate::model::Model;

/// Options of [`Diffusion::generate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiffusionOptions {
    /// Number of tokens behind the prompt.
    pub tokens: usize,
    /// Number of steps; each fills an equal part of them.
    pub steps: usize,
}

impl Default for DiffusionOptions {
    fn default() -> Self {
        Self {
            tokens: 128,
            steps: 128,
        }
    }
}

/// Makes texts by a diffusion language model ([LLaDA](https://arxiv.org/abs/2502.09992)), such as Dream, LLaDA and
/// RND1. Each token sees all others, so that nothing is kept from step to step.
pub struct Diffusion<'m> {
    model: &'m Model,
    runtime: Runtime,
    mask: Option<u32>,
    /// Whether the logits of a token are those of the one behind it.
    is_shifted: bool,
}

impl<'m> Diffusion<'m> {
    /// Diffusion by `model`, on the devices of `runtime`.
    ///
    /// # Errors
    /// Fails if the model is none for diffusion, or if a key is of a wrong type.
    pub fn new(model: &'m Model, runtime: &Runtime) -> Result<Self, LlmError> {
        let spec = model.spec();
        if !spec.is_for_diffusion() {
            return Err(LlmError::Input(format!(
                "diffusion: tokens of {} see only those before them; generate texts in another way",
                spec.architecture
            )));
        }
        let metadata = &model.gguf().metadata;
        let mask = metadata.opt_u64("tokenizer.ggml.mask_token_id")?;
        Ok(Self {
            model,
            runtime: runtime.clone(),
            mask: mask.and_then(|mask| u32::try_from(mask).ok()),
            is_shifted: metadata.opt_bool("diffusion.shift_logits")?.unwrap_or(true),
        })
    }

    /// Logits `[t, vocab]` of all tokens of a text, row by row.
    ///
    /// # Errors
    /// Fails if the text has no tokens, more than the model's context, or one outside the vocabulary. Also fails if no
    /// device is left.
    pub fn logits(&self, tokens: &[u32]) -> Result<Vec<f32>, LlmError> {
        let spec = self.model.spec();
        let (count, vocab) = (tokens.len(), spec.vocab);
        if count == 0 || count > spec.context {
            let problem = format!("expected 1 to {} tokens, got {count}", spec.context);
            return Err(LlmError::Input(problem));
        }
        if let Some(id) = tokens.iter().find(|id| **id as usize >= vocab) {
            let problem = format!("token {id} is outside of the vocabulary of {vocab}");
            return Err(LlmError::Input(problem));
        }
        let ids: Vec<i64> = tokens.iter().map(|&id| i64::from(id)).collect();
        let logits = with_runtime(&self.runtime, Routing::default(), || {
            let ids = Tensor::from_vec(ids, [1, count])?;
            let logits = self.model.decoder().forward_sequences(&ids)?;
            logits.flatten(0, 1)?.to_vec()
        })?;
        Ok(logits)
    }

    /// The tokens behind `prompt`. Each step fills those masked tokens that the model is surest of, each with the
    /// likeliest token.
    ///
    /// # Errors
    /// Fails if the model names no mask token, or if an option is 0. Also fails for the reasons of [`Self::logits`].
    pub fn generate(
        &self,
        prompt: &[u32],
        options: DiffusionOptions,
    ) -> Result<Vec<u32>, LlmError> {
        let mask = self.mask.ok_or_else(|| LlmError::Key {
            key: "tokenizer.ggml.mask_token_id".to_owned(),
            problem: "missing".to_owned(),
        })?;
        if options.steps == 0 {
            return Err(LlmError::Input("diffusion needs a step".to_owned()));
        }
        let vocab = self.model.spec().vocab;
        let mut text = prompt.to_vec();
        text.resize(prompt.len() + options.tokens, mask);
        let mut masked: Vec<usize> = (prompt.len()..text.len()).collect();
        for left in (1..=options.steps).rev() {
            let filled = masked.len().div_ceil(left);
            if filled == 0 {
                continue;
            }
            let logits = self.logits(&text)?;
            let mut surest: Vec<(f32, usize, u32)> = (masked.iter())
                .map(|&at| {
                    let row = at.saturating_sub(usize::from(self.is_shifted));
                    let (id, share) = likeliest(&logits[row * vocab..][..vocab], mask);
                    (share, at, id)
                })
                .collect();
            surest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            for &(_, at, id) in &surest[..filled] {
                text[at] = id;
            }
            masked.retain(|&at| text[at] == mask);
        }
        Ok(text.split_off(prompt.len()))
    }
}

/// The likeliest token but the mask, and its probability.
fn likeliest(logits: &[f32], mask: u32) -> (u32, f32) {
    let own = |(id, _): &(usize, &f32)| *id != mask as usize;
    let most = logits.iter().enumerate().filter(own);
    let most = most.max_by(|a, b| a.1.total_cmp(b.1));
    let (id, most) = most.map_or((0, 0.0), |(id, logit)| (id as u32, *logit));
    let total: f32 = logits.iter().map(|logit| (logit - most).exp()).sum();
    (id, 1.0 / total)
}
