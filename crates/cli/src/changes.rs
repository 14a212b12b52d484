//! The libraries' options for changes of a model.

use std::collections::BTreeSet;

use anyhow::Result;
use rustorch_gguf::{GgufError, Metadata};
use rustorch_llm::{AdapterFile, LlmError, ModelOptions, RopeKind, RopeOptions};
use rustorch_tokenizer::TokenizerError;

use crate::args::{AdapterArgs, ChangeArgs, KeyArgs, RopeArgs, RopeScalingArg, Row, Scaled, Whole};
use crate::failure::Usage;

impl KeyArgs {
    /// Puts the values into a file's metadata.
    ///
    /// # Errors
    /// Fails if a key has two values.
    pub(crate) fn apply(&self, metadata: &mut Metadata) -> Result<(), Usage> {
        let mut seen = BTreeSet::new();
        for change in self.override_kv.iter().flat_map(|row| &row.0) {
            if !seen.insert(&change.key) {
                let problem = format!("--override-kv {}: given twice", change.key);
                return Err(Usage(problem));
            }
            metadata.insert(&change.key, change.value.clone());
        }
        Ok(())
    }

    /// The same error, which names the option if it is that a value is of a wrong type.
    pub(crate) fn explain(&self, error: LlmError) -> anyhow::Error {
        let wrong = match &error {
            LlmError::Gguf(e) | LlmError::Tokenizer(TokenizerError::Metadata(e)) => e,
            _ => return error.into(),
        };
        let changes = || self.override_kv.iter().flat_map(|row| &row.0);
        match wrong {
            GgufError::WrongType {
                key,
                expected,
                found,
            } if changes().any(|change| change.key == *key) => Usage(format!(
                "--override-kv {key}: the model expects {expected}, not {found}"
            ))
            .into(),
            _ => error.into(),
        }
    }
}

impl ChangeArgs {
    /// The same for loading a model.
    ///
    /// # Errors
    /// Fails if a file cannot be read.
    pub(crate) fn options(&self) -> Result<ModelOptions> {
        let AdapterArgs {
            lora,
            lora_scaled,
            control_vector,
            control_vector_scaled,
            control_vector_layer_range,
        } = &self.adapters;
        Ok(ModelOptions {
            rope: self.rope.options(),
            loras: open(lora, lora_scaled)?,
            control_vectors: open(control_vector, control_vector_scaled)?,
            control_layers: match control_vector_layer_range.as_deref() {
                Some(&[first, last]) => Some((first, last)),
                _ => None,
            },
            row_split: None,
        })
    }
}

impl ChangeArgs {
    /// The same with these scales of the LoRA adapters, one for each.
    pub(crate) fn rescaled(&self, scales: &[f32]) -> Self {
        let mut changed = self.clone();
        let mut files = self.adapters.loras();
        for (file, scale) in files.iter_mut().zip(scales) {
            file.scale = *scale;
        }
        changed.adapters.lora.clear();
        changed.adapters.lora_scaled = vec![Row(files)];
        changed
    }
}

impl AdapterArgs {
    /// The LoRA adapters with their scales.
    pub(crate) fn loras(&self) -> Vec<Scaled> {
        files(&self.lora, &self.lora_scaled)
    }
}

/// Files and their scales.
fn files(whole: &[Row<Whole>], scaled: &[Row<Scaled>]) -> Vec<Scaled> {
    let whole = whole.iter().flat_map(|row| &row.0);
    let whole = whole.map(|Whole(path)| Scaled {
        path: path.clone(),
        scale: 1.0,
    });
    let scaled = scaled.iter().flat_map(|row| &row.0);
    whole.chain(scaled.cloned()).collect()
}

/// Opens files.
fn open(whole: &[Row<Whole>], scaled: &[Row<Scaled>]) -> Result<Vec<AdapterFile>> {
    let all = files(whole, scaled).into_iter();
    all.map(|Scaled { path, scale }| Ok(AdapterFile::open(path, scale)?))
        .collect()
}

impl RopeArgs {
    /// 0 stands for the value in the model's file, as in llama.cpp. So does a negative value for YaRN.
    fn options(self) -> RopeOptions {
        let given = |value: Option<f32>| value.filter(|value| *value != 0.0);
        let yarn = |value: Option<f32>| value.filter(|value| *value >= 0.0);
        RopeOptions {
            kind: self.rope_scaling.map(|kind| match kind {
                RopeScalingArg::None => RopeKind::None,
                RopeScalingArg::Linear => RopeKind::Linear,
                RopeScalingArg::Yarn => RopeKind::Yarn,
            }),
            freq_base: given(self.rope_freq_base),
            freq_scale: match self.rope_scale {
                Some(times) => Some(1.0 / times),
                None => given(self.rope_freq_scale),
            },
            yarn_orig_ctx: self.yarn_orig_ctx.filter(|tokens| *tokens > 0),
            yarn_ext_factor: yarn(self.yarn_ext_factor),
            yarn_attn_factor: yarn(self.yarn_attn_factor),
            yarn_beta_slow: yarn(self.yarn_beta_slow),
            yarn_beta_fast: yarn(self.yarn_beta_fast),
        }
    }
}
