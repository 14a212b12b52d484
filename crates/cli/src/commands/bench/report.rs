//! Results as a table, or as JSON.

use std::io::{self, Write};

use rustorch_llm::quantize::FileType;
use rustorch_llm::{Model, SessionOptions};
use serde::Serialize;

use super::measure::{Measured, mean_and_deviation};
use crate::devices::Devices;
use crate::output::{bytes, count, json_line, note};
use crate::settings::DEFAULT_BATCH;
use crate::table::Table;

/// All that was measured, and on what.
pub(super) struct Run<'a> {
    pub(super) name: &'a str,
    pub(super) model: &'a Model,
    pub(super) devices: &'a Devices,
    pub(super) settings: &'a SessionOptions,
    /// Bytes a second.
    pub(super) bandwidth: Option<f64>,
    pub(super) results: &'a [Measured],
}

/// A row of the JSON output. The first fields are llama-bench's.
#[derive(Serialize)]
struct Row<'a> {
    cpu_info: String,
    backends: &'a str,
    model_filename: &'a str,
    model_type: String,
    model_size: u64,
    model_n_params: u64,
    n_batch: usize,
    n_ubatch: usize,
    n_threads: usize,
    type_k: String,
    type_v: String,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    avg_ns: u64,
    stddev_ns: u64,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    /// The backend that was asked for.
    backend: &'a str,
    /// The devices that computed.
    devices: Vec<String>,
    /// Bytes a second that plain reading reaches.
    memory_bandwidth: Option<f64>,
    /// Bytes that are read to generate a token, on average.
    bytes_per_token: Option<f64>,
    /// The share of the bandwidth that generation reaches.
    bandwidth_share: Option<f64>,
}

impl Run<'_> {
    pub(super) fn table(&self, out: &mut impl Write) -> io::Result<()> {
        let rows: Vec<Row> = self.results.iter().map(|r| self.row(r)).collect();
        let header = [
            "model",
            "size",
            "params",
            "backend",
            "threads",
            "test",
            "t/s",
            "of bandwidth",
        ];
        let cells = rows.iter().map(|row| {
            let depth = if row.n_depth > 0 {
                format!(" @ d{}", row.n_depth)
            } else {
                String::new()
            };
            let test = match row.n_prompt {
                0 => format!("tg{}{depth}", row.n_gen),
                n => format!("pp{n}{depth}"),
            };
            let share = row
                .bandwidth_share
                .map(|share| format!("{:.0} %", 100.0 * share));
            vec![
                row.model_type.clone(),
                bytes(row.model_size),
                count(row.model_n_params),
                row.backend.to_owned(),
                row.n_threads.to_string(),
                test,
                format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts),
                share.unwrap_or_default(),
            ]
        });
        write!(out, "{}", Table::new(header, cells).right())?;
        if let Some(bandwidth) = self.bandwidth {
            writeln!(
                out,
                "\nmemory: {:.1} GB/s read by {} threads",
                bandwidth / 1e9,
                self.devices.threads
            )?;
        }
        note(format_args!("ran on {}", self.devices.used().join(", ")));
        Ok(())
    }

    pub(super) fn json(&self, out: &mut impl Write) -> io::Result<()> {
        let rows: Vec<Row> = self.results.iter().map(|r| self.row(r)).collect();
        json_line(out, &rows)
    }

    fn row(&self, measured: &Measured) -> Row<'_> {
        let test = measured.test;
        let gguf = self.model.gguf();
        let nanoseconds: Vec<f64> = measured.times.iter().map(|t| t.as_nanos() as f64).collect();
        let speeds = measured.speeds();
        let (avg_ns, stddev_ns) = mean_and_deviation(&nanoseconds);
        let (avg_ts, stddev_ts) = mean_and_deviation(&speeds);
        let bytes_per_token = (test.generate > 0).then(|| {
            let past = test.depth as f64 + test.generate as f64 / 2.0;
            self.weight_bytes() as f64 + past * self.cache_bytes_per_token() as f64
        });
        let share = |bandwidth: f64| bytes_per_token.map(|bytes| bytes * avg_ts / bandwidth);
        let cache_type = self.settings.cache_dtype.to_string();
        let processor = (self.devices.runtime.devices())
            .find(|info| info.device == rustorch_runtime::DeviceType::Cpu)
            .map(|info| info.name.clone());
        Row {
            cpu_info: processor.unwrap_or_default(),
            backends: "RusTorch",
            model_filename: self.name,
            model_type: self.model_type(),
            model_size: gguf.tensors().iter().map(|t| t.bytes() as u64).sum(),
            model_n_params: self.parameters(),
            n_batch: self.devices.batch.unwrap_or(DEFAULT_BATCH),
            n_ubatch: self.settings.batch,
            n_threads: self.devices.threads,
            type_k: cache_type.clone(),
            type_v: cache_type,
            n_prompt: test.prompt,
            n_gen: test.generate,
            n_depth: test.depth,
            avg_ns: avg_ns as u64,
            stddev_ns: stddev_ns as u64,
            avg_ts,
            stddev_ts,
            samples_ns: nanoseconds.iter().map(|&ns| ns as u64).collect(),
            samples_ts: speeds,
            backend: &self.devices.name,
            devices: self.devices.used(),
            memory_bandwidth: self.bandwidth,
            bytes_per_token,
            bandwidth_share: self.bandwidth.and_then(share),
        }
    }

    fn parameters(&self) -> u64 {
        let tensors = self.model.gguf().tensors().iter();
        tensors.map(|t| t.elements() as u64).sum()
    }

    /// Architecture, size and file type: `llama 1.10 G Q4_K_M`.
    fn model_type(&self) -> String {
        let architecture = &self.model.config().architecture;
        let id = self.model.gguf().metadata.u32("general.file_type").ok();
        let file_type = FileType::ALL.iter().find(|ty| Some(ty.id()) == id);
        let file_type = file_type.map_or("mixed", |ty| ty.name());
        format!("{architecture} {} {file_type}", count(self.parameters()))
    }

    /// Bytes of the weights that a token reads: of an embedding table that is not the output
    /// matrix too, only a row.
    fn weight_bytes(&self) -> usize {
        let gguf = self.model.gguf();
        let tied = gguf.tensor("output.weight").is_none();
        let read = gguf
            .tensors()
            .iter()
            .filter(|t| tied || t.name != "token_embd.weight");
        read.map(|t| t.bytes()).sum()
    }

    /// Bytes of keys and values for each token of the context.
    fn cache_bytes_per_token(&self) -> usize {
        let c = self.model.config();
        let element = self.settings.cache_dtype.size().unwrap_or(0);
        c.layers * c.kv_heads * (c.key_width + c.value_width) * element
    }
}
