//! OpenAI's interface.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod responses;

use rustorch_tokenizer::Tokenizer;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answers::{End, Reason, Token};
use crate::model::Loaded;

/// Options of streams.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
    /// No effect: nothing is added to hide lengths.
    #[serde(default, rename = "include_obfuscation")]
    _include_obfuscation: bool,
}

/// The name of this server's version in responses.
const FINGERPRINT: &str = concat!("build-", env!("CARGO_PKG_VERSION"));

/// OpenAI's word for the reason of an end.
fn finish_reason(reason: &Reason, calls: bool) -> &'static str {
    match reason {
        Reason::Length | Reason::Full => "length",
        _ if calls => "tool_calls",
        Reason::End | Reason::Stop(_) => "stop",
    }
}

/// Counts of tokens of answers, `n` for each prompt, which counts once.
fn usage_json<'a>(ends: impl Iterator<Item = &'a End> + Clone, n: usize) -> Value {
    let first = ends.clone().step_by(n);
    let prompt: usize = first.clone().map(|end| end.usage.prompt).sum();
    let cached: usize = first.map(|end| end.usage.cached).sum();
    let generated: usize = ends.map(|end| end.usage.generated).sum();
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached},
    })
}

/// The text of a token, with the sign of the replacement for bytes that are no characters.
pub(crate) fn token_text(tokenizer: &Tokenizer, id: u32) -> String {
    match tokenizer.token_bytes(id) {
        Some(bytes) if !bytes.is_empty() => String::from_utf8_lossy(&bytes).into_owned(),
        _ => tokenizer.token_text(id).unwrap_or_default().to_owned(),
    }
}

/// Log probabilities of tokens, as chats have them.
fn logprobs_content(tokenizer: &Tokenizer, tokens: &[Token]) -> Value {
    let one = |id: u32, logprob: f32| {
        let text = token_text(tokenizer, id);
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        json!({"token": text, "logprob": finite(logprob), "bytes": bytes.as_ref()})
    };
    let token = |token: &Token| {
        let logprobs = token.logprobs.as_ref()?;
        let mut value = one(token.id, logprobs.logprob);
        let top = logprobs.top.iter().map(|&(id, logprob)| one(id, logprob));
        value["top_logprobs"] = top.collect();
        Some(value)
    };
    json!({"content": tokens.iter().filter_map(token).collect::<Vec<_>>(), "refusal": null})
}

/// JSON has no infinity: OpenAI's number for what is impossible.
pub(crate) fn finite(logprob: f32) -> f32 {
    logprob.max(-9999.0)
}

/// A model of the list.
pub(crate) fn model_json(model: &Loaded) -> Value {
    let spec = model.model.spec();
    let aliases = std::iter::once(&model.name).chain(&model.aliases);
    json!({
        "id": model.name,
        "aliases": aliases.collect::<Vec<_>>(),
        "tags": model.tags,
        "object": "model",
        "created": model.created,
        "owned_by": "rustorch",
        "meta": {
            "n_ctx": model.context(),
            "n_ctx_train": spec.context,
            "n_vocab": spec.vocab,
            "size": model.bytes,
        },
    })
}
