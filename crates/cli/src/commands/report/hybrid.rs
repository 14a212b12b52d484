//! f32 on all devices, compared with runs that keep halves and runs that convert.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use rustorch_llm::quantize::FileType;
use rustorch_llm::{F32Comparison, F32Measured, F32Variant, F32Workload, Model};
use rustorch_runtime::{Routing, Runtime};
use rustorch_tensor::Discovered;
use serde::{Deserialize, Serialize};

use crate::output::{bytes, duration};
use crate::resume::Progress;
use crate::table::Table;
use crate::variants::{Variants, random};
use crate::{bundled, progress};

/// The comparison, or the reason why there is none.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Hybrid {
    Measured(Comparison),
    Failed(String),
}

/// The comparison of one model.
#[derive(Serialize, Deserialize)]
pub(super) struct Comparison {
    file_type: String,
    prompt_tokens: usize,
    generated_tokens: usize,
    devices: Vec<String>,
    rows: Vec<Row>,
}

/// A way to keep values.
#[derive(Serialize, Deserialize)]
struct Row {
    variant: String,
    prompt_us: f64,
    token_us: f64,
    conversions: u64,
    copied_bytes: u64,
    working_bytes: usize,
    cache_bytes: usize,
    /// The shares of its time and memory that f32 on all devices saves; nothing where both do
    /// the same.
    time_saved: Option<f64>,
    memory_saved: Option<f64>,
}

impl Hybrid {
    /// Measures the model in f16.
    pub(super) fn measure(
        found: &Discovered,
        variants: &Variants,
        workload: F32Workload,
        done: &mut Progress,
    ) -> Self {
        let what = "f32 on all devices";
        let spinner = progress::spinner(what);
        let measured = done.attempt(what, || match variants.get(FileType::F16) {
            Some(variant) => compare(found, &variant.model, workload),
            None => compare(found, &random(FileType::F16)?, workload),
        });
        spinner.finish_and_clear();
        measured.map_or_else(Self::Failed, Self::Measured)
    }
}

fn compare(found: &Discovered, model: &Model, workload: F32Workload) -> Result<Comparison> {
    let runtime = Runtime::new(found.backends.iter().cloned());
    let compared = F32Comparison::measure(model, &runtime, Routing::F32_HYBRID, workload)?;
    let row = |m: &F32Measured| {
        let passes = [m.prompt.activity, m.token.activity];
        Row {
            variant: m.variant.name().to_owned(),
            prompt_us: m.prompt.time.as_secs_f64() * 1e6,
            token_us: m.token.time.as_secs_f64() * 1e6,
            conversions: passes.iter().map(|a| a.conversions).sum(),
            copied_bytes: passes.iter().map(|a| a.copied.bytes).sum(),
            working_bytes: m.working_bytes,
            cache_bytes: m.cache_bytes,
            time_saved: compared.time_saved(m.variant),
            memory_saved: compared.memory_saved(m.variant),
        }
    };
    Ok(Comparison {
        file_type: FileType::F16.name().to_owned(),
        prompt_tokens: workload.prompt,
        generated_tokens: workload.generate,
        devices: compared.devices.iter().map(|d| d.to_string()).collect(),
        rows: compared.measured.iter().map(row).collect(),
    })
}

impl fmt::Display for Hybrid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let compared = match self {
            Self::Failed(why) => return writeln!(f, "Not measured: {why}"),
            Self::Measured(compared) => compared,
        };
        writeln!(
            f,
            "{} with weights in {}, a prompt of {} tokens and {} generated tokens, on {}. `{}` keeps \
             all values in f32. `{}` keeps the KV cache in f16. `{}` converts values to f16 and back \
             between devices, as if the devices had no common dtype. Conversions and copies are \
             those of a prompt and a token.\n",
            bundled::MODEL,
            compared.file_type,
            compared.prompt_tokens,
            compared.generated_tokens,
            compared.devices.join(" and "),
            F32Variant::F32.name(),
            F32Variant::HalfCache.name(),
            F32Variant::Converting.name(),
        )?;
        let share =
            |share: Option<f64>| share.map_or(String::new(), |s| format!("{:.1} %", 100.0 * s));
        let time = |us: f64| duration(Duration::from_secs_f64(us / 1e6));
        let cells = compared.rows.iter().map(|row| {
            vec![
                row.variant.clone(),
                time(row.prompt_us),
                time(row.token_us),
                row.conversions.to_string(),
                bytes(row.copied_bytes),
                bytes(row.working_bytes as u64),
                bytes(row.cache_bytes as u64),
                share(row.time_saved),
                share(row.memory_saved),
            ]
        });
        let header = [
            "values",
            "prompt",
            "token",
            "conversions",
            "copied",
            "working memory",
            "cache",
            "time saved by f32",
            "memory saved by f32",
        ];
        write!(f, "{}", Table::new(header, cells))?;
        writeln!(
            f,
            "\nThe project's goals: save 15 to 25 % of the time and 20 to 30 % of the memory of a run \
             that converts. Apple's Neural Engine cannot compute in f32, so a Mac compares its GPU \
             and CPU."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: F32Workload = F32Workload {
        prompt: 2,
        generate: 1,
        repetitions: 1,
    };

    #[test]
    fn what_was_compared_is_not_compared_again() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report.md");
        let variants = Variants::open(&[]).unwrap();
        let told = |backends| {
            let found = Discovered {
                backends,
                absent: Vec::new(),
            };
            let progress = &mut Progress::open(Some(&report), "a");
            Hybrid::measure(&found, &variants, SMALL, progress).to_string()
        };
        let first = told(rustorch_tensor::host(1));
        assert!(first.contains("hybrid-f32"), "{first}");
        // Nothing could be measured without a device.
        assert_eq!(told(Vec::new()), first);
        std::fs::remove_file(folder.path().join("report.md.partial")).unwrap();
        let nowhere = told(Vec::new());
        assert!(nowhere.starts_with("Not measured: "), "{nowhere}");
    }
}
