//! Options that several commands have.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use rustorch_faulty::{FaultError, Faults};
use rustorch_llm::{GenerateOptions, GpuLayers};
use rustorch_tensor::DeviceOptions;

use super::amount::gpu_layers;
use super::{BackendArg, ByteCount, RouteArg};

/// More threads than any machine has cores are a mistake.
const MAX_THREADS: i64 = 1024;

/// How results are written: for people, or for programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

/// How tables and reports are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum DocumentFormat {
    #[default]
    Md,
    Json,
}

impl DocumentFormat {
    /// How files of this format end.
    pub(crate) fn extension(self) -> &'static str {
        match self {
            Self::Md => "md",
            Self::Json => "json",
        }
    }
}

/// Where a report goes.
#[derive(Clone, Debug, Args)]
pub(crate) struct DocumentArgs {
    /// File of the report, or - for standard output [default: one in this folder, whose name
    /// is printed]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,

    /// How the report is written [default: as the file's name ends, else md]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub(crate) format: Option<DocumentFormat>,
}

/// What goes wrong.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct InjectArgs {
    /// Make devices fail, to see what happens: device=cpu;op=linear;nth=3;kind=lost.
    /// Keys: device, op (default: any), nth, or p and seed, and kind (unsupported, oom,
    /// lost, compile, timeout, sync; or wrong, which falsifies a result, to test `verify`).
    /// Several are separated by commas
    #[arg(long = "inject", value_name = "FAULTS", value_parser = faults)]
    #[arg(env = "RUSTORCH_INJECT", hide_env_values = true)]
    #[arg(default_value = "", hide_default_value = true)]
    pub(crate) faults: Faults,
}

/// How many threads the CPU has.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ThreadArgs {
    /// Worker threads of the CPU [default: as many as physical cores]
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    #[arg(hide_default_value = true)]
    #[arg(value_parser = threads)]
    pub(crate) threads: usize,
}

/// A number of threads; 0 and, as in llama.cpp, -1 for as many as physical cores.
fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(-1) => Ok(0),
        Ok(threads @ 0..=MAX_THREADS) => Ok(threads as usize),
        _ => Err(format!(
            "expected 1 to {MAX_THREADS} threads, or 0 or -1 for as many as physical cores"
        )),
    }
}

/// What GPUs take.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct GpuArgs {
    /// Layers that GPUs compute (-ngl), the last ones and with them the output head; auto for as
    /// many as fit their memory, all for all that fit. The CPU computes the others
    #[arg(long, visible_alias = "gpu-layers", value_name = "N", value_parser = gpu_layers)]
    #[arg(default_value = "auto", allow_negative_numbers = true)]
    pub(crate) n_gpu_layers: GpuLayers,

    /// Memory of each GPU that may be taken, such as 6G or 500M [default: what is free]
    #[arg(long, value_name = "BYTES")]
    pub(crate) gpu_memory: Option<ByteCount>,
}

/// What Core ML is asked for, where the program has it.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct CoreMlArgs {
    /// What Core ML computes f32 in: f32, or f16, which the Neural Engine has and f32 not
    #[cfg(feature = "coreml")]
    #[arg(long, value_name = "TYPE", default_value_t)]
    pub(crate) coreml_precision: rustorch_coreml::Precision,

    /// The units that Core ML may choose from: all, cpu-and-ne, cpu-and-gpu or cpu
    #[cfg(feature = "coreml")]
    #[arg(long, value_name = "UNITS", default_value_t)]
    pub(crate) coreml_compute_units: rustorch_coreml::ComputeUnits,

    /// Have Core ML's programs of a token keep the cache of keys and values in f16 themselves, on macOS 15
    /// and later
    #[cfg(feature = "coreml")]
    #[arg(long)]
    pub(crate) coreml_states: bool,
}

impl CoreMlArgs {
    /// What devices are opened with, if the CPU has so many threads.
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

/// Where it is computed.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Devices")]
pub(crate) struct DeviceArgs {
    /// Backend to compute with: auto, cpu, reference, cuda, metal, opencl, coreml (or, for
    /// the second of them, cuda:1), mac-hybrid, coreml-hybrid (Core ML, then the first GPU, or
    /// as in coreml-hybrid+metal the one that is named) or hybrid-f32; what it fails at moves to
    /// the next device.
    /// A number is taken as llama.cpp's --batch-size. May be given once for each
    #[arg(short, long, visible_aliases = ["batch-size", "device"], value_name = "BACKEND|SIZE")]
    pub(crate) backend: Vec<BackendArg>,

    #[command(flatten)]
    pub(crate) gpus: GpuArgs,

    #[command(flatten)]
    pub(crate) coreml: CoreMlArgs,

    #[command(flatten)]
    pub(crate) workers: ThreadArgs,

    /// Fail where the chosen backend fails, rather than move on to another
    #[arg(long)]
    pub(crate) strict: bool,

    /// Compute one operation on a device of its own: attention=cpu. May be given often
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

/// How the model runs.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Context")]
pub(crate) struct ContextArgs {
    /// Tokens that the context has room for; 0 for as many as the model was trained with
    /// [default: the same, but at most 8192]
    #[arg(short, long, value_name = "N")]
    pub(crate) ctx_size: Option<usize>,

    /// Tokens of a prompt that are computed together, if -b is not less
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub(crate) ubatch_size: usize,

    /// Type of cached keys (-ctk): f16, bf16 with its wider range, f32,
    /// or q8_0, half the size of f16, on the CPU [default: f16; f32 with -b hybrid-f32]
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type_k: Option<CacheType>,

    /// Type of cached values (-ctv), the same as that of the keys
    #[arg(long, value_name = "TYPE")]
    pub(crate) cache_type_v: Option<CacheType>,
}

/// How long a text or an answer becomes.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct LengthArgs {
    /// Tokens to generate; -1 for as many as the context has room for
    #[arg(short, long, visible_alias = "predict", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    pub(crate) n_predict: i64,

    /// Go on where the model would end the text
    #[arg(long)]
    pub(crate) ignore_eos: bool,

    /// When the context is full, go on without its older half (of a conversation, without the oldest
    /// turns), computing the newer one again
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

/// A text from the command line or a file. Without either it is what is piped in.
#[derive(Clone, Debug, Default, Args)]
#[group(multiple = false)]
pub(crate) struct TextArgs {
    /// The text; instead of -p or -f, it may be piped in
    #[arg(short, long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) prompt: Option<String>,

    /// A file with the text, in UTF-8
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,

    /// A file with the text as it is (-bf), with a line break at its end, if it has one
    #[arg(long, value_name = "FILE")]
    pub(crate) binary_file: Option<PathBuf>,
}

impl TextArgs {
    /// Is there a text, rather than one that may be piped in?
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
