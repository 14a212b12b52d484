//! Types of models on backends: speed, agreement, memory.

use std::fmt;

use anyhow::{Context, Result};
use rustorch_llm::quantize::FileType;
use rustorch_llm::{Model, Session, SessionOptions, perplexity};
use rustorch_tokenizer::EncodeOptions;
use serde::{Deserialize, Serialize};

use super::Options;
use crate::commands::bench::measure::{self, Test, mean_and_deviation};
use crate::output::bytes;
use crate::resume::Progress;
use crate::subject::Subject;
use crate::table::Table;
use crate::variants::{Variant, Variants, random};
use crate::{bundled, progress};

const PROMPT: Test = Test {
    prompt: 512,
    generate: 0,
    depth: 0,
};
const GENERATION: Test = Test {
    prompt: 0,
    generate: 64,
    depth: 0,
};
/// Tokens of a piece of text, as llama.cpp has them.
const CHUNK: usize = 512;

/// All measurements.
#[derive(Serialize, Deserialize)]
pub(super) struct Models {
    pub(super) rows: Vec<Row>,
    /// Failed measurements, and why.
    pub(super) failed: Vec<String>,
}

/// A type on a backend.
#[derive(Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) backend: String,
    pub(super) file_type: String,
    /// Without a file, its weights are random.
    random_weights: bool,
    /// The devices that computed.
    devices: Vec<String>,
    /// Tokens a second, and as a multiple of the CPU's.
    pub(super) prompt: f64,
    prompt_by_cpu: Option<f64>,
    pub(super) generation: f64,
    generation_by_cpu: Option<f64>,
    /// Differences from llama.cpp's logits.
    logits_mean: Option<f32>,
    logits_largest: Option<f32>,
    perplexity: Option<f64>,
    weight_bytes: usize,
    /// The bytes of the KV cache for 512 tokens.
    cache_bytes: usize,
    working_bytes: usize,
    /// The most of it that was in memory of the devices' own.
    device_bytes: u64,
    conversions: u64,
    copied_bytes: u64,
}

impl Models {
    /// Measures every type on every backend, the CPU first.
    pub(super) fn measure(
        subjects: &[Subject],
        variants: &Variants,
        options: &Options,
        text: Option<&str>,
        progress: &mut Progress,
    ) -> Self {
        let mut models = Self {
            rows: Vec::new(),
            failed: Vec::new(),
        };
        let bar = progress::steps("models", subjects.len() * options.types.len());
        for &file_type in &options.types {
            let made;
            let (model, variant) = match variants.get(file_type) {
                Some(variant) => (&variant.model, Some(variant)),
                None => match random(file_type) {
                    Ok(model) => {
                        made = model;
                        (&made, None)
                    }
                    Err(e) => {
                        models.failed.push(format!("{file_type}: {e:#}"));
                        continue;
                    }
                },
            };
            for subject in subjects {
                let row = progress.attempt(&format!("{file_type} on {}", subject.name), || {
                    Row::measure(subject, file_type, model, options.repetitions)
                        .and_then(|row| row.with_answers(subject, variant, options.chunks, text))
                });
                match row {
                    Ok(row) => models.push(row),
                    Err(e) => (models.failed).push(format!("{file_type} on {}: {e}", subject.name)),
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        models
    }

    /// Adds a row, beside the CPU's of the same type.
    fn push(&mut self, mut row: Row) {
        let same = |other: &&Row| other.backend == "cpu" && other.file_type == row.file_type;
        if let Some(cpu) = self.rows.iter().find(same) {
            row.prompt_by_cpu = Some(row.prompt / cpu.prompt);
            row.generation_by_cpu = Some(row.generation / cpu.generation);
        }
        self.rows.push(row);
    }
}

impl Row {
    /// Measures speed, memory and copies.
    fn measure(
        subject: &Subject,
        file_type: FileType,
        model: &Model,
        repetitions: u32,
    ) -> Result<Self> {
        let (runtime, settings) = (subject.runtime(), subject.session(model)?);
        let measure = |test| measure::run(model, &runtime, &settings, test, repetitions);
        let (prompt, generation) = (measure(PROMPT)?, measure(GENERATION)?);
        let memory = runtime.memory();
        let used = runtime.used_devices();
        let devices: Vec<String> = used.iter().map(|(device, _)| device.to_string()).collect();
        Ok(Self {
            backend: subject.name.clone(),
            file_type: file_type.name().to_owned(),
            random_weights: true,
            devices,
            prompt: mean_and_deviation(&prompt.speeds()).0,
            prompt_by_cpu: None,
            generation: mean_and_deviation(&generation.speeds()).0,
            generation_by_cpu: None,
            logits_mean: None,
            logits_largest: None,
            perplexity: None,
            weight_bytes: model.gguf().tensors().iter().map(|t| t.bytes()).sum(),
            cache_bytes: prompt.cache_bytes,
            working_bytes: prompt.working_bytes,
            device_bytes: memory.pools().iter().map(|pool| pool.peak).sum(),
            conversions: memory.conversions(),
            copied_bytes: memory.copied().bytes,
        })
    }

    /// Adds the answers of a model with its own weights.
    fn with_answers(
        mut self,
        subject: &Subject,
        variant: Option<&Variant>,
        chunks: usize,
        text: Option<&str>,
    ) -> Result<Self> {
        let Some(variant) = variant else {
            return Ok(self);
        };
        let agreement = variant.agreement(subject)?;
        self.random_weights = false;
        self.logits_mean = Some(agreement.mean);
        self.logits_largest = Some(agreement.worst);
        if let Some(text) = text {
            self.perplexity = Some(score(subject, &variant.model, chunks, text)?);
        }
        Ok(self)
    }

    fn cells(&self) -> Vec<String> {
        let by_cpu = |speed: f64, by: Option<f64>| {
            let by = by.map(|by| format!(" ({by:.2} × cpu)"));
            format!("{speed:.0}{}", by.unwrap_or_default())
        };
        let logits = match (self.logits_mean, self.logits_largest) {
            (Some(mean), Some(largest)) => format!("{mean:.4} · {largest:.3}"),
            _ => "random weights".to_owned(),
        };
        let memory = self.weight_bytes + self.cache_bytes + self.working_bytes;
        vec![
            self.file_type.clone(),
            self.backend.clone(),
            by_cpu(self.prompt, self.prompt_by_cpu),
            by_cpu(self.generation, self.generation_by_cpu),
            logits,
            self.perplexity.map_or(String::new(), |p| format!("{p:.4}")),
            bytes(memory as u64),
            bytes(self.device_bytes),
            self.conversions.to_string(),
            bytes(self.copied_bytes),
        ]
    }
}

/// The perplexity of the beginning of a text.
fn score(subject: &Subject, model: &Model, chunks: usize, text: &str) -> Result<f64> {
    let tokenizer = model.tokenizer()?;
    let encode = EncodeOptions {
        add_special: true,
        parse_special: false,
    };
    let tokens = tokenizer.encode(text, encode);
    let options = SessionOptions {
        context: CHUNK,
        ..subject.session(model)?
    };
    let mut session = Session::new(model, &subject.runtime(), options)?;
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let result = perplexity(&mut session, &tokens, bos, Some(chunks), |_| ());
    Ok(result.context("perplexity")?.value)
}

impl fmt::Display for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}. Speeds are in tokens/s. `logit error` is the mean and largest difference to the five \
             largest logits of llama.cpp's greedy steps. Perplexity needs a text (-f). `memory` is \
             that of weights, KV cache for {} tokens and intermediate values; `devices' own` is its \
             part in the devices' own memory. `conversions` counts conversions between dtypes, \
             `copied` the bytes copied between devices.\n",
            bundled::MODEL,
            PROMPT.prompt,
        )?;
        let header = [
            "type",
            "backend",
            "prompt 512",
            "generation 64",
            "logit error",
            "perplexity",
            "memory",
            "devices' own",
            "conversions",
            "copied",
        ];
        write!(
            f,
            "{}",
            Table::new(header, self.rows.iter().map(Row::cells))
        )?;
        writeln!(
            f,
            "\nThe project's goals: Core ML 50 to 80 % faster than the CPU, and a GPU in its place \
             20 to 40 % faster."
        )?;
        for failed in &self.failed {
            writeln!(f, "\nNot measured: {failed}")?;
        }
        Ok(())
    }
}
