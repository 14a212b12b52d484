//! Options that several commands have.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rustorch_faulty::{FaultError, Faults};
use rustorch_llm::{GenerateOptions, GpuLayers};
use rustorch_tensor::DeviceOptions;

use super::amount::gpu_layers;
use super::list::{Row, TensorDevice, row};
use super::{BackendArg, ByteCount, RouteArg};

/// More threads than any machine has cores are a mistake.
const MAX_THREADS: i64 = 1024;

/// Format of results: for people, or for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// Format of tables and reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentFormat {
    #[default]
    Md,
    Json,
}

impl DocumentFormat {
    /// File extension of the format.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Md => "md",
            Self::Json => "json",
        }
    }
}

/// The target of a report.
#[derive(Clone, Debug, Args)]
pub(crate) struct DocumentArgs {
    /// File of the report, or - for standard output [default: a new file in the working directory]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// Format of the report [default: by the file's extension, else md]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<DocumentFormat>,
}

/// Injected faults.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct InjectArgs {
    /// Inject device faults, for tests: device=cpu;op=linear;nth=3;kind=lost. Keys: device; op (default: any);
    /// nth, or p and seed; kind. Kinds: unsupported, oom, lost, compile, timeout, sync, and wrong, which
    /// corrupts a result. Separate several faults with commas
    #[arg(long = "inject", value_name = "FAULTS", value_parser = faults)]
    #[arg(env = "RUSTORCH_INJECT", hide_env_values = true)]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) faults: Faults,
}

/// Number of CPU threads.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ThreadArgs {
    /// Number of CPU threads [default: the number of physical cores]
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    #[arg(hide_default_value = true)]
    #[arg(value_parser = threads)]
    pub(crate) threads: usize,
}

/// A number of threads; 0 and, as in llama.cpp, -1 stand for the number of physical cores.
fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(-1) => Ok(0),
        Ok(threads @ 0..=MAX_THREADS) => Ok(threads as usize),
        _ => Err(format!(
            "expected 1 to {MAX_THREADS} threads; 0 or -1 is the number of physical cores"
        )),
    }
}

/// Shares of GPUs.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct GpuArgs {
    /// Number of layers on GPUs, counted from the last (-ngl): `auto` for as many as fit, or `all`. The CPU
    /// computes the other layers
    #[arg(long, visible_alias = "gpu-layers", value_name = "N", value_parser = gpu_layers)]
    #[arg(default_value = "auto", allow_negative_numbers = true)]
    pub(crate) n_gpu_layers: GpuLayers,

    /// Memory limit of each GPU, such as 6G or 500M [default: the free memory]
    #[arg(long, value_name = "BYTES")]
    pub(crate) gpu_memory: Option<ByteCount>,

    /// Device of the weights whose names match a regular expression (-ot), such as `ffn_.*_exps=cpu`. Products
    /// are computed where their weights are. Separate several with commas, the first match counts; repeatable
    #[arg(long, value_name = "PATTERN=DEVICE,…", value_parser = row::<TensorDevice>())]
    pub(crate) override_tensor: Vec<Row<TensorDevice>>,

    /// Keep the weights of all experts on the CPU (-cmoe)
    #[arg(long)]
    pub(crate) cpu_moe: bool,

    /// Keep the experts' weights of the first N layers on the CPU (-ncmoe) [default: as many layers as GPUs have
    /// no room for]
    #[arg(long, value_name = "N")]
    pub(crate) n_cpu_moe: Option<usize>,
}

impl GpuArgs {
    /// Devices that are named for tensors.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = &TensorDevice> {
        self.override_tensor.iter().flat_map(|row| &row.0)
    }

    /// The same without places of tensors.
    pub(crate) fn of_layers(&self) -> Self {
        Self {
            n_gpu_layers: self.n_gpu_layers,
            gpu_memory: self.gpu_memory,
            ..Self::default()
        }
    }

    /// Returns whether there are tensors with devices of their own.
    pub(crate) fn places_tensors(&self) -> bool {
        self.cpu_moe || self.n_cpu_moe.is_some() || self.tensors().next().is_some()
    }
}

/// Options of Core ML, if the program has it.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct CoreMlArgs {
    /// Precision of Core ML for f32 models: f32 or f16. The Neural Engine computes in f16 only
    #[cfg(feature = "coreml")]
    #[arg(long, value_name = "TYPE", default_value_t)]
    pub(crate) coreml_precision: rustorch_coreml::Precision,

    /// Compute units of Core ML: all, cpu-and-ne, cpu-and-gpu or cpu
    #[cfg(feature = "coreml")]
    #[arg(long, value_name = "UNITS", default_value_t)]
    pub(crate) coreml_compute_units: rustorch_coreml::ComputeUnits,

    /// Keep the KV cache in Core ML, in f16; needs macOS 15
    #[cfg(feature = "coreml")]
    #[arg(long)]
    pub(crate) coreml_states: bool,
}

impl CoreMlArgs {
    /// Options for opening devices, with the CPU's number of threads.
    pub(crate) fn options(self, workers: ThreadArgs) -> DeviceOptions {
        let options = DeviceOptions::new(workers.threads);
        #[cfg(feature = "coreml")]
        let options = options.with_coreml(rustorch_coreml::Options {
            precision: self.coreml_precision,
            units: self.coreml_compute_units,
            states: self.coreml_states,
            isolated: true,
        });
        options
    }
}

/// Options of devices.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct DeviceArgs {
    /// Backend: auto, cpu, reference, cuda, metal, opencl, webgpu, coreml, mac-hybrid, coreml-hybrid or hybrid-f32.
    /// cuda:1 is the second CUDA device. coreml-hybrid is Core ML, then the first GPU, or the GPU named as in
    /// coreml-hybrid+metal. An operation that fails moves to the next device. A number is llama.cpp's
    /// --batch-size; give -b twice for both (-dev)
    #[arg(short, long, visible_aliases = ["batch-size", "device"], value_name = "BACKEND|SIZE")]
    pub(crate) backend: Vec<BackendArg>,

    #[command(flatten)]
    pub(crate) gpus: GpuArgs,

    #[command(flatten)]
    pub(crate) coreml: CoreMlArgs,

    #[command(flatten)]
    pub(crate) workers: ThreadArgs,

    /// Fail if the chosen backend fails, instead of falling back to another device
    #[arg(long)]
    pub(crate) strict: bool,

    /// Run one operation on another device: attention=cpu; repeatable
    #[arg(long, value_name = "OP=DEVICE")]
    pub(crate) route: Vec<RouteArg>,

    #[command(flatten)]
    pub(crate) inject: InjectArgs,
}

/// Reads faults; nothing stands for none, so that an empty variable has no effect.
fn faults(text: &str) -> Result<Faults, FaultError> {
    match text {
        "" => Ok(Faults::default()),
        text => text.parse(),
    }
}

/// The type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CacheType {
    F16,
    Bf16,
    #[value(name = "q8_0")]
    Q8_0,
    F32,
}

/// Options of a model's run.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextArgs {
    /// Context size, in tokens; 0 for the model's own [default: the model's own, up to 8192]
    #[arg(short, long, value_name = "N")]
    pub(crate) ctx_size: Option<usize>,

    /// Maximum prompt tokens per forward pass (-ub); -b may lower it
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) ubatch_size: usize,

    /// KV cache type of keys (-ctk): f16, bf16, f32, or q8_0 on the CPU only [default: f16; f32 with -b
    /// hybrid-f32]
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type_k: Option<CacheType>,

    /// KV cache type of values (-ctv), with the same types and default
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type_v: Option<CacheType>,
}

/// Length of a text or an answer.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LengthArgs {
    /// Maximum number of tokens to generate; -1 for no limit but the context
    #[arg(short, long, visible_alias = "predict", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub(crate) n_predict: i64,

    /// Ignore the end-of-text token and continue generating
    #[arg(long)]
    pub(crate) ignore_eos: bool,

    /// Drop the older half of a full context and continue; a conversation drops its oldest turns
    #[arg(long)]
    pub(crate) context_shift: bool,
}

impl LengthArgs {
    /// The same for generating; `shift` is how many tokens at the beginning of a full context stay.
    pub(crate) fn limits(self, shift: Option<usize>) -> GenerateOptions {
        GenerateOptions {
            max_tokens: usize::try_from(self.n_predict).ok(),
            ignore_end: self.ignore_eos,
            shift,
        }
    }
}

/// A text from the command line or a file. Without either it is the piped input.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub(crate) struct TextArgs {
    /// Text. Without -p and -f the program reads it from a pipe
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,

    /// File of the text, in UTF-8
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// File of the text, whose last line break is kept (-bf)
    #[arg(long, value_name = "FILE")]
    pub(crate) binary_file: Option<PathBuf>,
}

impl TextArgs {
    /// Returns whether there is a text, rather than one that may be piped in.
    pub(crate) fn is_given(&self) -> bool {
        self.prompt.is_some() || self.file.is_some() || self.binary_file.is_some()
    }
}

#[cfg(all(test, feature = "coreml"))]
mod tests {
    use clap::Parser;
    use rustorch_coreml::{ComputeUnits, Precision};

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        coreml: CoreMlArgs,
    }

    fn parse(precision: &str, units: &str) -> Result<CoreMlArgs, clap::Error> {
        let precision = format!("--coreml-precision={precision}");
        let units = format!("--coreml-compute-units={units}");
        let line = Line::try_parse_from(["program".to_owned(), precision, units]);
        line.map(|line| line.coreml)
    }

    #[test]
    fn core_ml_is_asked_for_states() {
        for (line, states) in [
            (&["program"][..], false),
            (&["program", "--coreml-states"], true),
        ] {
            assert_eq!(Line::parse_from(line).coreml.coreml_states, states);
        }
    }

    #[test]
    fn core_ml_is_asked_for_a_precision_and_for_units() {
        for (precision, expected) in [("f32", Precision::F32), ("f16", Precision::F16)] {
            for units in ComputeUnits::ALL {
                let coreml = parse(precision, &units.to_string()).unwrap();
                let chosen = (coreml.coreml_precision, coreml.coreml_compute_units);
                assert_eq!(chosen, (expected, units));
            }
        }
        for (precision, units, why) in [
            ("f64", "all", "expected f32 or f16"),
            ("f32", "npu", "expected all, cpu-and-ne, cpu-and-gpu, cpu"),
        ] {
            let error = parse(precision, units).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }
}
