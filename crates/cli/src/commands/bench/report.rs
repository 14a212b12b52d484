//! Results as a table, or as JSON.

use std::io::{self, Write};

use rustorch_gguf::TensorInfo;
use rustorch_llm::Model;
use rustorch_llm::quantize::FileType;
use rustorch_llm::spec::{
    KeysValues, LayerSpec, RecurrentSpec, Role, Window, is_before_layers, layer_of,
};
use rustorch_runtime::DeviceType;
use serde::Serialize;

use super::limits::{Limits, together};
use super::measure::{Measured, Test, mean_and_deviation};
use crate::devices::Devices;
use crate::output::{bytes, count, json_line, note};
use crate::settings::{DEFAULT_BATCH, Settings};
use crate::table::Table;

/// All that was measured, and on what.
pub(super) struct Run<'a> {
    pub(super) name: &'a str,
    pub(super) model: &'a Model,
    pub(super) devices: &'a Devices,
    pub(super) settings: &'a Settings,
    /// The limits of devices, the busiest device first.
    pub(super) limits: &'a [Limits],
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
    n_gpu_layers: usize,
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
    /// The devices that the limits were measured on.
    limits_of: String,
    /// Bytes a second that plain reading, or copying, reaches on the devices that hold the weights.
    memory_bandwidth: Option<f64>,
    /// Bytes of weights that are read to generate a token.
    weight_bytes_per_token: Option<usize>,
    /// Bytes of weights, keys and values that are read to generate a token, on average.
    bytes_per_token: Option<f64>,
    /// The share of the bandwidth that generation reaches.
    bandwidth_share: Option<f64>,
    /// Operations a second that a product of matrices reaches.
    matrix_rate: Option<f64>,
    /// Operations of the prompt's products and attention.
    operations: Option<f64>,
    /// The share of the matrix rate that the prompt reaches.
    matrix_share: Option<f64>,
    /// Bytes of keys and values for the whole context.
    cache_bytes: usize,
    /// Bytes of intermediate values.
    working_bytes: usize,
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
            "of peak rate",
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
            let percent = |share: Option<f64>| {
                let text = share.map(|share| format!("{:.0} %", 100.0 * share));
                text.unwrap_or_default()
            };
            vec![
                row.model_type.clone(),
                bytes(row.model_size),
                count(row.model_n_params),
                row.backend.to_owned(),
                row.n_threads.to_string(),
                test,
                format!("{:.2} ± {:.2}", row.avg_ts, row.stddev_ts),
                percent(row.bandwidth_share),
                percent(row.matrix_share),
            ]
        });
        write!(out, "{}", Table::new(header, cells).right())?;
        writeln!(out)?;
        for limits in self.limits {
            self.reached(limits, out)?;
        }
        note(format_args!("ran on {}", self.devices.used().join(", ")));
        Ok(())
    }

    /// A device's rate with plain work.
    fn reached(&self, limits: &Limits, out: &mut impl Write) -> io::Result<()> {
        let Limits {
            device,
            bandwidth,
            matrix_rate,
        } = limits;
        if let Some(bandwidth) = bandwidth {
            let how = match device {
                DeviceType::Cpu => format!("read by {} threads", self.devices.threads),
                device => format!("copied on {device}"),
            };
            writeln!(out, "memory: {:.1} GB/s {how}", bandwidth / 1e9)?;
        }
        if let Some(rate) = matrix_rate {
            let rate = rate / 1e12;
            writeln!(
                out,
                "products of matrices: {rate:.2} Tflop/s in bf16 on {device}"
            )?;
        }
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
        let generates = test.generate > 0;
        let past = test.depth + test.generate / 2;
        let bytes = self.bytes_by_device(past);
        let bytes_per_token = generates.then(|| bytes.iter().map(|(_, bytes)| bytes).sum());
        let operations = (!generates).then(|| self.operations(test));
        let bandwidth = together(self.limits, &bytes, |l| l.bandwidth);
        // Products are as many as the weights that they are with.
        let matrix_rate = together(self.limits, &bytes, |l| l.matrix_rate);
        let share = |amount: Option<f64>, limit: Option<f64>| {
            let seconds = avg_ns / 1e9 / test.tokens().max(1) as f64;
            Some(amount? / seconds / limit?)
        };
        let cache_type = self.settings.session.cache_dtype.to_string();
        let processor = (self.devices.runtime.devices())
            .find(|info| info.device == DeviceType::Cpu)
            .map(|info| info.name.clone());
        Row {
            cpu_info: processor.unwrap_or_default(),
            backends: "RusTorch",
            model_filename: self.name,
            model_type: self.model_type(),
            model_size: gguf.tensors().iter().map(|t| t.bytes() as u64).sum(),
            model_n_params: self.parameters(),
            n_batch: self.devices.batch.unwrap_or(DEFAULT_BATCH),
            n_ubatch: self.settings.session.batch,
            n_threads: self.devices.threads,
            n_gpu_layers: self.gpu_layers(),
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
            limits_of: (self.limits.iter().map(|l| l.device.to_string()))
                .collect::<Vec<_>>()
                .join(", "),
            memory_bandwidth: bandwidth,
            weight_bytes_per_token: generates.then(|| self.weight_bytes()),
            bytes_per_token,
            bandwidth_share: share(bytes_per_token, bandwidth),
            matrix_rate,
            operations,
            matrix_share: share(operations.map(|n| n / test.tokens() as f64), matrix_rate),
            cache_bytes: measured.cache_bytes,
            working_bytes: measured.working_bytes,
        }
    }

    /// Layers that devices other than the processor compute.
    fn gpu_layers(&self) -> usize {
        let is_cpu = |limits: &Limits| limits.device == DeviceType::Cpu;
        let on_cpu = match self.settings.session.placement.layers() {
            [] if self.limits.first().is_none_or(is_cpu) => return 0,
            layers => layers.iter().filter(|d| **d == DeviceType::Cpu).count(),
        };
        self.model.spec().layers.len() - on_cpu
    }

    fn parameters(&self) -> u64 {
        let tensors = self.model.gguf().tensors().iter();
        tensors.map(|t| t.elements() as u64).sum()
    }

    /// Architecture, size and file type: `llama 1.10 G Q4_K_M`.
    fn model_type(&self) -> String {
        let architecture = &self.model.spec().architecture;
        let id = self.model.gguf().metadata.u32("general.file_type").ok();
        let file_type = FileType::ALL.iter().find(|ty| Some(ty.id()) == id);
        let file_type = file_type.map_or("mixed", |ty| ty.name());
        format!("{architecture} {} {file_type}", count(self.parameters()))
    }

    /// Bytes of the weights that a token reads.
    fn weight_bytes(&self) -> usize {
        let bytes = self.bytes_by_device(0);
        bytes.iter().map(|(_, bytes)| bytes).sum::<f64>() as usize
    }

    /// Bytes that a token reads, with their devices, where these are fixed: weights, and the keys and values of
    /// `past` tokens.
    fn bytes_by_device(&self, past: usize) -> Vec<(Option<DeviceType>, f64)> {
        let placement = &self.settings.session.placement;
        let only = match self.limits {
            [only] if placement.is_empty() => Some(only.device),
            _ => None,
        };
        let (specs, dtype) = (&self.model.spec().layers, self.settings.session.cache_dtype);
        let layers = specs.len();
        let caches = specs.iter().enumerate().map(|(layer, spec)| {
            let state = lender(specs, spec).state();
            let each = state.token_bytes(dtype).unwrap_or(0) as f64;
            (
                placement.layer(layer).or(only),
                // Recurrent states are read, and written anew.
                seen(spec, past) as f64 * each + spec.recurrent_bytes() as f64,
            )
        });
        let gguf = self.model.gguf();
        let tied = gguf.tensor("output.weight").is_none();
        let tensors = gguf.tensors().iter();
        let tensors = tensors.filter(|t| !is_looked_up(&t.name, tied));
        let weights = tensors.map(|tensor| {
            let home = match is_before_layers(&tensor.name) {
                true => 0,
                false => layers.saturating_sub(1),
            };
            let layer = layer_of(&tensor.name).unwrap_or(home);
            let device = placement.elsewhere(&tensor.name).or(placement.layer(layer));
            let bytes = tensor.bytes() as f64 * self.part_read(tensor);
            (device.or(only), bytes)
        });
        caches.chain(weights).collect()
    }

    /// Part of a tensor that a token reads.
    fn part_read(&self, tensor: &TensorInfo) -> f64 {
        let spec = self.model.spec();
        spec.part_read(&tensor.name, tensor.dims.len())
    }

    /// Operations of a prompt, a multiplication and an addition being two: its products with
    /// weights, and attention. The output head's product is for one row of each batch.
    fn operations(&self, test: Test) -> f64 {
        let spec = self.model.spec();
        let tensors = self.model.gguf().tensors().iter();
        let in_layers = tensors.filter(|t| t.name.starts_with("blk.") && t.dims.len() > 1);
        let weights: f64 = in_layers
            .map(|t| t.elements() as f64 * self.part_read(t))
            .sum();
        let batches = test.prompt.div_ceil(self.settings.session.batch);
        // A token sees itself and all before it, or a window of them.
        let all_seen = |layer: &LayerSpec| -> usize {
            let pasts = test.depth + 1..=test.depth + test.prompt;
            pasts.map(|past| seen(layer, past)).sum()
        };
        let mixed = |layer: &LayerSpec| {
            let attention = layer.mixer.attention();
            let attention = attention.map_or(0, |a| {
                all_seen(layer) * a.heads * (a.key_width + a.value_width)
            });
            let recurrent = layer.mixer.recurrent();
            let recurrent = recurrent.map_or(0, RecurrentSpec::multiplications);
            attention + test.prompt * recurrent
        };
        let mixed: usize = spec.layers.iter().map(mixed).sum();
        let others = batches * spec.vocab * spec.width + mixed;
        2.0 * (test.prompt as f64 * weights + others as f64)
    }
}

/// Is it a table of which a token reads a row? A head without weights of its own reads the whole embedding table.
fn is_looked_up(name: &str, tied: bool) -> bool {
    let is_head = tied && name == "token_embd.weight";
    Role::of(name).is_some_and(Role::is_table) && !is_head
}

/// The layer whose keys and values a layer of `layers` reads: itself, or an earlier one.
fn lender<'l>(layers: &'l [LayerSpec], layer: &'l LayerSpec) -> &'l LayerSpec {
    let source = layer.mixer.attention().map(|attention| attention.source);
    let place = match source {
        Some(KeysValues::Of(place)) => Some(place),
        Some(KeysValues::Own | KeysValues::Lent) | None => None,
    };
    place.and_then(|place| layers.get(place)).unwrap_or(layer)
}

/// Tokens of `past` ones that a layer's attention sees.
fn seen(layer: &LayerSpec, past: usize) -> usize {
    match layer.mixer.attention().map(|attention| attention.window) {
        Some(Some(Window::Sliding(n) | Window::Chunked(n))) => n.min(past),
        Some(Some(Window::Symmetric(_)) | None) => past,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use rustorch_ir::DType;
    use rustorch_llm::spec::ModelSpec;
    use rustorch_testing::models::{Header, headers_folder};

    use super::*;

    #[test]
    fn another_layers_keys_are_read_through_a_window() {
        let headers = Header::all(&headers_folder());
        let mut headers = headers.iter();
        let header = headers.find(|h| h.name == "gemma4-moe").unwrap();
        let layers = ModelSpec::of_keys(&header.keys).unwrap().layers;
        // The last two layers read keys of the first two. Every second layer has a window of 12.
        let own = |layer: &LayerSpec| layer.state().token_bytes(DType::F16);
        let owned: Vec<_> = layers.iter().map(own).collect();
        let read: Vec<_> = layers.iter().map(|l| own(lender(&layers, l))).collect();
        assert_eq!(owned[2..], [Some(0); 2]);
        assert!(owned[0] > Some(0) && owned[1] > Some(0));
        assert_eq!(read, [owned[0], owned[1], owned[0], owned[1]]);
        let seen: Vec<_> = layers.iter().map(|l| seen(l, 100)).collect();
        assert_eq!(seen, [12, 100, 12, 100]);
    }

    #[test]
    fn tables_are_looked_up_unless_they_are_the_head() {
        assert!(is_looked_up("token_embd.weight", false));
        assert!(!is_looked_up("token_embd.weight", true));
        for tied in [false, true] {
            for table in ["per_layer_token_embd", "position_embd", "token_types"] {
                assert!(is_looked_up(&format!("{table}.weight"), tied), "{table}");
            }
            assert!(!is_looked_up("token_embd_norm.weight", tied));
            assert!(!is_looked_up("per_layer_model_proj.weight", tied));
            assert!(!is_looked_up("output.weight", tied));
        }
    }
}
