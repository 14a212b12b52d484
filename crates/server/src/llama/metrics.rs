//! llama-server's figures, by its names: sums over all models.

use std::time::Duration;

use rustorch_llm::engine::EngineStats;

/// A figure: its kind, name, help and value.
type Figure = (
    &'static str,
    &'static str,
    &'static str,
    fn(&EngineStats) -> f64,
);

/// llama-server's figures, which have the prefix `llamacpp:`.
#[rustfmt::skip]
pub(crate) const FIGURES: [Figure; 15] = [
    ("counter", "prompt_tokens_total", "Tokens of prompts that were computed", |s| computed(s) as f64),
    ("counter", "prompt_tokens_cached_total", "Tokens of prompts that were cached", |s| s.cached_tokens as f64),
    ("counter", "prompt_seconds_total", "Time of prompts", |s| s.prompt_time.as_secs_f64()),
    ("counter", "tokens_predicted_total", "Generated tokens", |s| s.generated_tokens as f64),
    ("counter", "tokens_predicted_seconds_total", "Time of generated tokens", |s| s.generated_time.as_secs_f64()),
    ("counter", "n_decode_total", "Passes that computed tokens", |s| s.steps as f64),
    ("counter", "n_tokens_max", "Most tokens of a prompt and its text", |s| s.longest as f64),
    ("counter", "spec_decode_num_draft_tokens_total", "Drafted tokens: the server drafts none", |_| 0.0),
    ("counter", "spec_decode_num_accepted_tokens_total", "Accepted drafted tokens", |_| 0.0),
    ("counter", "spec_decode_num_drafts_total", "Drafts", |_| 0.0),
    ("gauge", "prompt_tokens_seconds", "Tokens of prompts per second", |s| rate(computed(s), s.prompt_time)),
    ("gauge", "predicted_tokens_seconds", "Generated tokens per second", |s| rate(s.generated_tokens, s.generated_time)),
    ("gauge", "requests_processing", "Requests that are being answered", |s| s.running as f64),
    ("gauge", "requests_deferred", "Requests in the queue", |s| s.waiting as f64),
    ("gauge", "n_busy_slots_per_decode", "Texts of a pass, on average", |s| s.rows as f64 / s.steps.max(1) as f64),
];

/// Tokens of prompts that were not cached.
fn computed(stats: &EngineStats) -> u64 {
    stats.prompt_tokens - stats.cached_tokens
}

fn rate(tokens: u64, time: Duration) -> f64 {
    match time.is_zero() {
        true => 0.0,
        false => tokens as f64 / time.as_secs_f64(),
    }
}
