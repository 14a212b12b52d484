//! Keys of encoders, and of the modules that `sentence-transformers` puts after a model.

use serde_json::{Map, Value};

use crate::LlmError;
use crate::spec::Pooling;

use super::config::{Config, json, opt_json};
use super::rope::Draft;

/// Sets pooling and length as `modules.json` asks for them.
///
/// # Errors
/// A file is damaged, or asks for a module or a pooling that is not supported.
pub(super) fn modules(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let path = config.beside("modules.json");
    let modules: Vec<Map<String, Value>> = opt_json(&path)?.unwrap_or_default();
    for module in &modules {
        let text = |key: &str| module.get(key).and_then(Value::as_str).unwrap_or_default();
        match text("type").rsplit('.').next().unwrap_or_default() {
            "Transformer" | "Normalize" => {}
            "Pooling" => {
                let number = pooling(config, text("path"))?;
                draft.size("pooling_type", number);
            }
            other => {
                let problem = format!(
                    "the module {other:?} is not supported; convert the model with llama.cpp"
                );
                return Err(LlmError::folder(&path, problem));
            }
        }
    }
    let path = config.beside("sentence_bert_config.json");
    let settings: Map<String, Value> = opt_json(&path)?.unwrap_or_default();
    let tokens = settings.get("max_seq_length").and_then(Value::as_u64);
    if let Some(tokens) = tokens
        .and_then(|n| u32::try_from(n).ok())
        .filter(|n| *n > 0)
    {
        draft.size("max_sequence_length", tokens);
    }
    match config.text("classifier_pooling") {
        Some("mean") => draft.size("classifier.pooling_type", Pooling::Mean as u32),
        Some("cls") => draft.size("classifier.pooling_type", Pooling::Cls as u32),
        _ => {}
    }
    Ok(())
}

/// The number of the pooling in a folder's file.
fn pooling(config: &Config, folder: &str) -> Result<u32, LlmError> {
    let path = config.beside(folder).join("config.json");
    let settings: Map<String, Value> = json(&path)?;
    let known = [
        ("pooling_mode_mean_tokens", "mean", Pooling::Mean as u32),
        ("pooling_mode_cls_token", "cls", Pooling::Cls as u32),
        ("pooling_mode_lasttoken", "lasttoken", Pooling::Last as u32),
    ];
    let mode = settings.get("pooling_mode").and_then(Value::as_str);
    let is_set = |key: &str| settings.get(key) == Some(&Value::Bool(true));
    let found = known
        .iter()
        .find(|(key, name, _)| is_set(key) || mode == Some(name));
    let number = found.map(|(.., number)| *number);
    number.ok_or_else(|| {
        let problem =
            "expected a pooling of mean, cls or lasttoken; convert the model with llama.cpp";
        LlmError::folder(&path, problem)
    })
}

/// Sets that tokens see later ones.
pub(super) fn both_sides(_: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    draft.set("attention.causal", false);
    Ok(())
}

/// Sets the keys of BERT.
pub(super) fn bert(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    let types = config.size(&["type_vocab_size"])?;
    draft
        .metadata
        .insert("tokenizer.ggml.token_type_count", types);
    both_sides(config, draft)
}

/// Sets the keys of RoBERTa, whose first two positions are for padding.
pub(super) fn roberta(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    const POSITIONS: &str = "max_position_embeddings";
    let positions = config.size(&[POSITIONS])?;
    let context = positions.checked_sub(2).filter(|n| *n > 0);
    let wrong = || config.wrong(POSITIONS, format!("expected more than 2, got {positions}"));
    draft.size("context_length", context.ok_or_else(wrong)?);
    bert(config, draft)
}

/// Sets the keys of ModernBERT.
pub(super) fn modern_bert(config: &Config, draft: &mut Draft) -> Result<(), LlmError> {
    if let Some(activation) = config.text("hidden_activation") {
        draft.set("hidden_activation", activation);
    }
    both_sides(config, draft)
}
