//! Times and progress of answers, in llama-server's form.

use rustorch_llm::Speed;
use rustorch_llm::engine::Usage;
use serde_json::{Value, json};

/// Times of an answer.
pub(crate) fn timings(usage: &Usage) -> Value {
    let milliseconds = |speed: &Speed| speed.time.as_secs_f64() * 1e3;
    let each = |speed: &Speed| milliseconds(speed) / speed.tokens.max(1) as f64;
    let Usage {
        prefill, decode, ..
    } = usage;
    json!({
        "cache_n": usage.cached,
        "prompt_n": prefill.tokens,
        "prompt_ms": milliseconds(prefill),
        "prompt_per_token_ms": each(prefill),
        "prompt_per_second": prefill.per_second().unwrap_or(0.0),
        "predicted_n": usage.generated,
        "predicted_ms": milliseconds(decode),
        "predicted_per_token_ms": each(decode),
        "predicted_per_second": decode.per_second().unwrap_or(0.0),
    })
}

/// The progress of a prompt of `total` tokens.
pub(crate) fn progress(total: usize, done: usize, usage: &Usage) -> Value {
    json!({
        "total": total,
        "cache": usage.cached,
        "processed": done,
        "time_ms": usage.prefill.time.as_secs_f64() * 1e3,
    })
}
