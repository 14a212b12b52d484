//! The bundled model's tokens and logits against llama.cpp's.

use anyhow::Result;
use rustorch_llm::golden::Agreement;
use rustorch_llm::quantize::FileType;

use super::findings::{Figure, Findings, Row};
use crate::progress;
use crate::subject::Subject;
use crate::variants::{Variant, Variants};

/// Checks the model in all its types.
pub(super) fn check(subject: &Subject, variants: &Variants) -> Findings {
    let bar = progress::steps("goldens", variants.all.len());
    let mut rows = Vec::new();
    for variant in &variants.all {
        let row = compare(subject, variant);
        rows.push(row.unwrap_or_else(|e| Row::failed(variant.name(), format!("{e:#}"))));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let useless = variants.useless.iter();
    rows.extend(useless.map(|(file, why)| Row::skipped(file, why)));
    let missing: Vec<&str> = variants.missing().into_iter().map(FileType::name).collect();
    let left_out = match missing.is_empty() {
        true => Vec::new(),
        false => vec![format!(
            "{}, which need a model file: with -m models/classics-13m-f16.gguf of the repository, F16 \
             and all types made from it are checked",
            missing.join(", ")
        )],
    };
    Findings {
        did: "The results are compared with llama.cpp 0.5.0 on the same file: the tokens of each prompt, \
              then 48 greedy steps with their five largest logits. Tokens must be equal, unless \
              llama.cpp's two best tokens are within its rounding error."
            .to_owned(),
        left_out,
        rows,
        ..Findings::default()
    }
}

fn compare(subject: &Subject, variant: &Variant) -> Result<Row> {
    let bounds = variant.bounds(subject);
    let agreement = variant.agreement(subject)?;
    let Agreement {
        equal, mean, worst, ..
    } = agreement;
    let figures = vec![
        Figure::count("tokens equal", equal),
        Figure::count("tokens wrong", agreement.mistakes.len()).at_most(0.0),
        Figure::new("logit error, mean", mean.into()).at_most(short(bounds.mean)),
        Figure::new("logit error, largest", worst.into()).at_most(short(bounds.worst)),
    ];
    Ok(Row::passed(variant.name(), figures).judged(agreement.problem(&bounds)))
}

/// A bound as it is written in the source: an `f32` has more digits as an `f64`.
fn short(bound: f32) -> f64 {
    (f64::from(bound) * 1e6).round() / 1e6
}
