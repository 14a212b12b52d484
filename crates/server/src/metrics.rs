//! Figures of the server, in Prometheus's text format.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use rustorch_llm::engine::EngineStats;

use crate::histogram::{BOUNDS, Histogram, ModelMetrics};
use crate::llama;
use crate::model::Loaded;

/// Responses by their status's first digit.
#[derive(Default)]
pub(crate) struct Responses([AtomicU64; 6]);

impl Responses {
    pub(crate) fn count(&self, status: u16) {
        let class = usize::from(status / 100).min(self.0.len() - 1);
        self.0[class].fetch_add(1, Ordering::Relaxed);
    }
}

/// A figure of an engine: its kind, name, help and value.
type Figure = (
    &'static str,
    &'static str,
    &'static str,
    fn(&EngineStats) -> u64,
);

const FIGURES: [Figure; 6] = [
    (
        "gauge",
        "rustorch_requests_running",
        "Requests that are being answered",
        |s| s.running as u64,
    ),
    (
        "gauge",
        "rustorch_requests_waiting",
        "Requests in the queue",
        |s| s.waiting as u64,
    ),
    (
        "counter",
        "rustorch_requests_total",
        "Requests that ended",
        |s| s.finished,
    ),
    (
        "counter",
        "rustorch_prompt_tokens_total",
        "Tokens of prompts, cached ones included",
        |s| s.prompt_tokens,
    ),
    (
        "counter",
        "rustorch_generated_tokens_total",
        "Generated tokens",
        |s| s.generated_tokens,
    ),
    (
        "counter",
        "rustorch_prefix_cached_tokens_total",
        "Tokens of prompts that were cached",
        |s| s.cached_tokens,
    ),
];

/// The text of all figures.
pub(crate) fn text<'a>(
    models: impl Iterator<Item = &'a Loaded> + Clone,
    fallbacks: usize,
    responses: &Responses,
) -> String {
    let mut page = Page(String::new());
    let stats: Vec<_> = models.clone().map(|model| (model, model.stats())).collect();
    for (kind, name, help, figure) in FIGURES {
        page.head(kind, name, help);
        for (model, stats) in &stats {
            page.sample(name, &[("model", &model.name)], figure(stats));
        }
    }
    for (kind, name, help, figure) in llama::metrics::FIGURES {
        let name = format!("llamacpp:{name}");
        page.head(kind, &name, help);
        let all = stats.iter().map(|(_, stats)| figure(stats));
        page.sample(&name, &[], all.sum::<f64>());
    }
    let name = "rustorch_fallbacks_total";
    page.head("counter", name, "Operations that moved to another device");
    page.sample(name, &[], fallbacks);
    type Times = fn(&ModelMetrics) -> &Histogram;
    let times: [(&str, &str, Times); 2] = [
        (
            "rustorch_time_to_first_token_seconds",
            "Time from a request to its first token",
            |m| &m.first_token,
        ),
        (
            "rustorch_time_between_tokens_seconds",
            "Time between two tokens of an answer",
            |m| &m.between_tokens,
        ),
    ];
    for (name, help, histogram) in times {
        page.head("histogram", name, help);
        for model in models.clone() {
            page.histogram(name, &model.name, histogram(&model.metrics));
        }
    }
    let name = "rustorch_http_responses_total";
    page.head("counter", name, "Responses by class of status");
    for (class, count) in responses.0.iter().enumerate().skip(1) {
        let class = format!("{class}xx");
        page.sample(name, &[("status", &class)], count.load(Ordering::Relaxed));
    }
    page.0
}

/// A growing page. Writing to a string does not fail.
struct Page(String);

impl Page {
    fn head(&mut self, kind: &str, name: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escaped(value));
        let labels: Vec<String> = labels.iter().map(label).collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(",")),
        };
        let _ = writeln!(self.0, "{name}{labels} {value}");
    }

    fn histogram(&mut self, name: &str, model: &str, histogram: &Histogram) {
        let mut total = 0;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bucket, bound) in histogram.buckets.iter().zip(bounds) {
            total += bucket.load(Ordering::Relaxed);
            let labels = [("model", model), ("le", bound.as_str())];
            self.sample(&format!("{name}_bucket"), &labels, total);
        }
        let seconds = histogram.micros.load(Ordering::Relaxed) as f64 / 1e6;
        self.sample(&format!("{name}_sum"), &[("model", model)], seconds);
        self.sample(&format!("{name}_count"), &[("model", model)], total);
    }
}

/// A label's value as the format writes it.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn buckets_are_cumulative() {
        let histogram = Histogram::default();
        for millis in [1, 2, 3, 200_000] {
            histogram.observe(Duration::from_millis(millis));
        }
        let mut page = Page(String::new());
        page.histogram("t", "a\"b", &histogram);
        for line in [
            r#"t_bucket{model="a\"b",le="0.001"} 1"#,
            r#"t_bucket{model="a\"b",le="0.0025"} 2"#,
            r#"t_bucket{model="a\"b",le="120"} 3"#,
            r#"t_bucket{model="a\"b",le="+Inf"} 4"#,
            r#"t_sum{model="a\"b"} 200.006"#,
            r#"t_count{model="a\"b"} 4"#,
        ] {
            assert!(page.0.lines().any(|it| it == line), "{line} in {}", page.0);
        }
    }
}
