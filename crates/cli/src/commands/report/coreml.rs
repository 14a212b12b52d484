//! Core ML in f32 and in f16, on each set of its units, and the effect of its cache.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use rustorch_coreml::cache::Cache;
use rustorch_coreml::{ComputeUnits, Helper, Options, Precision, Settings};
use rustorch_llm::{Model, Scores, Selection, Session, SessionOptions};
use rustorch_runtime::{Absent, Backend, Deadline, DeviceType};
use rustorch_tensor::Discovered;
use serde::{Deserialize, Serialize};

use crate::args::BackendArg;
use crate::commands::bench::measure::{self, Test, mean_and_deviation};
use crate::output::bytes;
use crate::progress;
use crate::resume::Progress;
use crate::subject::Subject;
use crate::table::Table;
use crate::variants::Variant;

/// Bytes of compiled models that are kept while a configuration is measured.
const CACHE: u64 = 4 << 30;

/// Function that opens Core ML.
type Open<'a> = &'a dyn Fn(Settings) -> Result<Vec<Arc<dyn Backend>>, Absent>;

/// Amount of measuring.
pub(super) struct Workload {
    prompt: usize,
    generate: usize,
    repetitions: u32,
    /// Are answers compared with llama.cpp's?
    answers: bool,
    units: &'static [ComputeUnits],
}

impl Workload {
    /// The workload of types on backends.
    pub(super) fn of(repetitions: u32) -> Self {
        Self {
            prompt: 512,
            generate: 64,
            repetitions,
            answers: true,
            units: &ComputeUnits::ALL,
        }
    }
}

/// The measurements, or the reason why there are none.
#[derive(Serialize)]
pub(super) struct CoreMl {
    rows: Vec<Row>,
    failed: Vec<String>,
}

/// A precision on some units.
#[derive(Serialize, Deserialize)]
struct Row {
    precision: String,
    units: String,
    /// Do programs of a token keep the cache?
    states: bool,
    /// The devices that computed, with their segments.
    computed: String,
    /// Tokens a second.
    prompt: f64,
    generation: f64,
    /// Differences from llama.cpp's logits.
    logits_mean: Option<f32>,
    logits_largest: Option<f32>,
    /// Time of a prompt and a token, first with an empty cache, then with the cache that this
    /// filled.
    cold_seconds: f64,
    warm_seconds: f64,
    /// Bytes of compiled models.
    compiled_bytes: u64,
    working_bytes: usize,
    /// Bytes that were copied by its programs.
    copied_bytes: u64,
    /// The units that Core ML prefers for a token, which does not say where operations ran.
    preferred: Vec<String>,
}

impl CoreMl {
    /// Measures each precision on each set of units, in f16 with states as well where there are any.
    pub(super) fn measure(
        variant: &Variant,
        workload: Workload,
        open: Open,
        progress: &mut Progress,
    ) -> Self {
        let mut all = Self {
            rows: Vec::new(),
            failed: Vec::new(),
        };
        // Nothing is written where the device is only opened.
        let opened = open(Settings::new(Cache::new(std::env::temp_dir(), CACHE)));
        let has_states = match opened {
            Ok(backends) => backends.iter().any(|backend| has_states(&**backend)),
            Err(absent) => {
                all.failed.push(absent.to_string());
                return all;
            }
        };
        let mut configurations = vec![(Precision::F32, false), (Precision::F16, false)];
        configurations.extend(has_states.then_some((Precision::F16, true)));
        let bar = progress::steps("Core ML", configurations.len() * workload.units.len());
        for &units in workload.units {
            for &(precision, states) in &configurations {
                let with = if states { " with states" } else { "" };
                let key = format!("Core ML in {precision}{with} on {units}");
                let options = Options {
                    precision,
                    units,
                    states,
                    isolated: true,
                };
                let row =
                    progress.attempt(&key, || Row::measure(variant, &workload, options, open));
                match row {
                    Ok(row) => all.rows.push(row),
                    Err(e) => all.failed.push(format!("{key}: {e}")),
                }
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        all
    }

    /// Speed of f16 as a multiple of f32's on the same units.
    fn by_f32(&self, row: &Row) -> Option<[f64; 2]> {
        let is_f32 = |other: &&Row| other.units == row.units && other.precision == "f32";
        let f32 = self
            .rows
            .iter()
            .find(is_f32)
            .filter(|_| row.precision != "f32")?;
        Some([row.prompt / f32.prompt, row.generation / f32.generation])
    }
}

impl Row {
    fn measure(
        variant: &Variant,
        workload: &Workload,
        options: Options,
        open: Open,
    ) -> Result<Self> {
        let folder = tempfile::tempdir()
            .context("cannot create a temporary directory for compiled models")?;
        let cache = Cache::new(folder.path(), CACHE);
        let subject = || -> Result<Subject> {
            let settings = Settings {
                options,
                deadline: Deadline::of_user(),
                helper: Helper::this_program().filter(|_| cfg!(not(test))),
                ..Settings::new(cache.clone())
            };
            let mut backends = rustorch_tensor::host(0);
            let coreml = open(settings).map_err(|absent| anyhow::anyhow!("{absent}"))?;
            backends.extend(coreml);
            let found = Discovered {
                backends,
                absent: Vec::new(),
            };
            let device = BackendArg::Device(DeviceType::CoreML(0));
            let mut subjects = Subject::find(Some(device), &found)?;
            subjects.pop().context("there is no Core ML")
        };
        let model = &variant.model;
        let (cold_seconds, _) = first_answers(&subject()?, model, workload.prompt)?;
        let subject = subject()?;
        let (warm_seconds, preferred) = first_answers(&subject, model, workload.prompt)?;
        let compiled_bytes = cache.bytes();
        let copied = || subject.backends.iter().map(|b| b.copied()).sum::<u64>();
        let before = copied();
        let (runtime, settings) = (subject.runtime(), subject.session(model)?);
        let test = |prompt, generate| Test {
            prompt,
            generate,
            depth: 0,
        };
        let measure = |test| measure::run(model, &runtime, &settings, test, workload.repetitions);
        let prompt = measure(test(workload.prompt, 0))?;
        let generation = measure(test(0, workload.generate))?;
        let (computed, idle) = subject.computed(&runtime);
        if let Some(idle) = idle {
            anyhow::bail!("{idle}");
        }
        let answers = workload
            .answers
            .then(|| variant.agreement(&subject))
            .transpose()?;
        Ok(Self {
            precision: options.precision.to_string(),
            units: options.units.to_string(),
            states: options.states,
            computed,
            prompt: mean_and_deviation(&prompt.speeds()).0,
            generation: mean_and_deviation(&generation.speeds()).0,
            logits_mean: answers.as_ref().map(|a| a.mean),
            logits_largest: answers.as_ref().map(|a| a.worst),
            cold_seconds,
            warm_seconds,
            compiled_bytes,
            working_bytes: prompt.working_bytes,
            copied_bytes: copied() - before,
            preferred,
        })
    }
}

/// Knows the system states (`MLState`)?
fn has_states(backend: &dyn Backend) -> bool {
    let mut details = backend.info().details.iter();
    details.any(|(name, value)| name == "states" && value.contains("MLState"))
}

/// Seconds until a prompt and a token are there, and the preferred units for the token.
fn first_answers(subject: &Subject, model: &Model, prompt: usize) -> Result<(f64, Vec<String>)> {
    let runtime = subject.runtime();
    let options = SessionOptions {
        context: prompt + 1,
        ..subject.session(model)?
    };
    let vocab = model.spec().vocab;
    let ids: Vec<u32> = (0..prompt).map(|i| (i * 7 % vocab) as u32).collect();
    let (best, mut scores) = (Selection::best(), Scores::default());
    let start = Instant::now();
    let mut session = Session::new(model, &runtime, options)?;
    session.feed_and_select(&ids, &best, &mut scores)?;
    session.feed_and_select(&ids[..1], &best, &mut scores)?;
    let seconds = start.elapsed().as_secs_f64();
    let preferred = session.preferred_units(1, &best).into_iter();
    let told = preferred.filter_map(|p| Some(format!("{} {}", p.unit?, p.operations)));
    Ok((seconds, told.collect()))
}

impl fmt::Display for CoreMl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "The bundled model on Core ML, with the CPU as fallback. Speeds are in tokens/s, `logit error` is \
             the difference to llama.cpp's logits. Start-up times are in seconds, with an empty and \
             with a filled cache. Further columns: compiled files on disk, memory of intermediate \
             values, bytes copied by programs. The last column counts a token's operations by the \
             compute unit that Core ML prefers; it does not report where they ran. The table above has \
             Metal, mac-hybrid and the CPU.\n"
        )?;
        let cells = self.rows.iter().map(|row| {
            let [prompt, generation] = match self.by_f32(row) {
                Some(by) => by.map(|by| format!(" ({by:.2} × f32)")),
                None => Default::default(),
            };
            let logits = match (row.logits_mean, row.logits_largest) {
                (Some(mean), Some(largest)) => format!("{mean:.4} · {largest:.3}"),
                _ => String::new(),
            };
            vec![
                row.units.clone(),
                match row.states {
                    true => format!("{}, states", row.precision),
                    false => row.precision.clone(),
                },
                format!("{:.0}{prompt}", row.prompt),
                format!("{:.0}{generation}", row.generation),
                logits,
                format!("{:.2}", row.cold_seconds),
                format!("{:.2}", row.warm_seconds),
                bytes(row.compiled_bytes),
                bytes(row.working_bytes as u64),
                bytes(row.copied_bytes),
                row.preferred.join(", "),
                row.computed.clone(),
            ]
        });
        let header = [
            "units",
            "precision",
            "prompt",
            "generation",
            "logit error",
            "cold, s",
            "warm, s",
            "compiled",
            "working memory",
            "copied",
            "preferred",
            "computed",
        ];
        if !self.rows.is_empty() {
            write!(f, "{}", Table::new(header, cells))?;
        }
        for failed in &self.failed {
            writeln!(f, "\nNot measured: {failed}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rustorch_coreml_emulator::Emulated;

    use super::*;
    use crate::variants::Variants;

    const SMALL: Workload = Workload {
        prompt: 3,
        generate: 1,
        repetitions: 1,
        answers: false,
        units: &[ComputeUnits::All, ComputeUnits::CpuAndNeuralEngine],
    };

    #[test]
    fn precisions_are_compared_on_each_set_of_units() {
        let variants = Variants::open(&[]).unwrap();
        let emulated = |settings: Settings| -> Result<Vec<Arc<dyn Backend>>, Absent> {
            let api = Emulated::new(15).without_neural_engine();
            let device = rustorch_coreml::CoreMl::new(api, 0, settings)?;
            Ok(vec![Arc::new(device)])
        };
        let progress = &mut Progress::default();
        let all = CoreMl::measure(variants.bundled(), SMALL, &emulated, progress);
        let configurations: Vec<_> = (all.rows.iter())
            .map(|row| (&*row.units, &*row.precision, row.states))
            .collect();
        let expected = [("f32", false), ("f16", false), ("f16", true)];
        assert_eq!(
            configurations,
            expected.map(|(ty, states)| ("all", ty, states))
        );
        for row in &all.rows {
            assert!(row.prompt > 0.0 && row.generation > 0.0);
            assert!(row.cold_seconds > 0.0 && row.warm_seconds > 0.0);
            assert!(row.compiled_bytes > 1 << 20, "{}", row.compiled_bytes);
            assert!(row.computed.contains("coreml:0 ran"), "{}", row.computed);
            assert!(row.preferred[0].starts_with("GPU "), "{:?}", row.preferred);
        }
        // There is no Neural Engine.
        assert_eq!(all.failed.len(), 3, "{:?}", all.failed);
        let told = all.to_string();
        for part in ["× f32", "f16, states", "Not measured: "] {
            assert!(told.contains(part), "{told}");
        }
    }
}
