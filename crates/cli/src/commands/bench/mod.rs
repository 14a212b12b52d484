//! `bench`: the speed of a model by llama-bench's methods, of operations, or of training.

pub(super) mod batched;
pub(crate) mod kernels;
pub(crate) mod limits;
pub(crate) mod measure;
pub(crate) mod ops;
mod report;
mod train;

use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rustorch_cpu::bandwidth;
use rustorch_llm::quantize::FileType;
use rustorch_llm::{Model, Preset};
use rustorch_runtime::DeviceType;

use crate::args::{ContextArgs, DeviceArgs, DocumentFormat, ModelArgs};
use crate::devices::Devices;
use crate::failure::Usage;
use crate::model::Source;
use crate::output::note;
use crate::progress;
use limits::Limits;
use measure::Test;
use train::{TrainArgs, Trainings};

const METHOD: &str = "\
Prompt processing (pp) and text generation (tg) are measured separately, each after a warm-up run. Prompts \
are random tokens in batches. Generation picks the most likely token each time.

The column beside generation is the share of the memory bandwidth in use. The bytes that a token reads \
(weights and KV cache) times tokens per second are divided by the bandwidth of a plain copy or read on the \
device. Models that fit in the processor's caches can exceed 100 %. The column beside prompts is the share \
of the peak rate. The floating-point operations of the prompt's matrix products and attention are divided by \
those of a large bf16 product on the same device. If layers are split between devices, each device counts \
for its own layers. If operations are split, the fastest device counts for all.

--ops measures each operation on each device: the median time of consecutive runs, bytes per second of \
operands and results, and floating-point operations per second of products.

--train measures training steps with random weights and samples: forward, backward, gradient clipping and \
AdamW as one program, after five warm-up steps.";

/// A parser that help and completions take the names from.
fn preset_parser() -> impl TypedValueParser<Value = Preset> {
    PossibleValuesParser::new(Preset::ALL.map(|preset| preset.name))
        .try_map(|name| name.parse::<Preset>())
}

/// A model that is made for measuring.
#[derive(Debug, Args)]
pub(crate) struct PresetArgs {
    /// Model shape with random weights
    #[arg(long, value_name = "NAME", value_parser = preset_parser(), conflicts_with_all = ["model", "KeyArgs", "AdapterArgs", "RopeArgs"])]
    preset: Option<Preset>,

    /// Quantization type of the preset
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "Q4_K_M",
        requires = "preset"
    )]
    quant: FileType,
}

impl PresetArgs {
    /// The preset, or else the model of `model`, and its name.
    ///
    /// # Errors
    /// Fails if the model cannot be made or loaded.
    pub(super) fn model(&self, model: &ModelArgs) -> Result<(String, Model)> {
        let Some(preset) = self.preset else {
            let source = Source::from(model);
            return Ok((source.to_string(), source.load()?));
        };
        let spinner = progress::spinner("making the model");
        let gguf = preset.build(self.quant)?;
        spinner.finish_and_clear();
        Ok((
            preset.name.to_owned(),
            Model::load(gguf).context(preset.name)?,
        ))
    }
}

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    preset: PresetArgs,

    /// Write the preset to a GGUF file and exit
    #[arg(long, value_name = "FILE", requires = "preset")]
    save: Option<PathBuf>,

    /// Prompt lengths, in tokens; 0 measures no prompt
    #[arg(
        short = 'p',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "512"
    )]
    n_prompt: Vec<usize>,

    /// Numbers of tokens to generate; 0 measures no generation
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "128"
    )]
    n_gen: Vec<usize>,

    /// Context depths: numbers of tokens already in the KV cache
    #[arg(
        short = 'd',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "0"
    )]
    n_depth: Vec<usize>,

    /// Benchmark operations on every device instead of a model: all, or the named ones
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', num_args = 0..=1)]
    #[arg(conflicts_with_all = ["model", "preset", "n_prompt", "n_gen", "n_depth", "repetitions"])]
    ops: Option<Vec<String>>,

    /// Run operations on request. The first output line is JSON and lists the cases. Each input line is CASE
    /// RUNS; the answer is the seconds that the runs took
    #[arg(long, requires = "ops", hide = true)]
    on_request: bool,

    #[command(flatten)]
    train: TrainArgs,

    /// Number of repetitions
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// Output format: md is a table; json is a list of objects with llama-bench's fields
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    output: DocumentFormat,

    #[command(flatten)]
    context: ContextArgs,

    #[command(flatten)]
    devices: DeviceArgs,
}

pub(super) fn run(options: &Options) -> Result<()> {
    if let Some(names) = &options.ops {
        let benches = ops::Benches::open(names, &options.devices)?;
        return match options.on_request {
            true => benches.answer(),
            false => benches.run(options.output),
        };
    }
    if !options.train.recipes.is_empty() {
        return Trainings::measure(&options.train, &options.devices)?.write(options.output);
    }
    if let (Some(preset), Some(path)) = (options.preset.preset, &options.save) {
        let quant = options.preset.quant;
        let spinner = progress::spinner("making the model");
        preset.save(quant, path)?;
        spinner.finish_and_clear();
        note(format_args!(
            "{}: {} {}",
            path.display(),
            preset.name,
            quant
        ));
        return Ok(());
    }
    let tests = options.tests();
    if tests.is_empty() {
        return Err(
            Usage("-p and -n are both 0; give at least one number above 0".to_owned()).into(),
        );
    }
    let devices = Devices::open(&options.devices)?;
    let (name, model) = options.preset.model(&options.model)?;
    let bar = progress::steps("measuring", tests.len());
    // Before and after, for other programs may have used the memory meanwhile.
    let before = match devices.runtime.has_gpu() {
        true => None,
        false => bandwidth::measure(devices.threads),
    };
    let settings = options.context.session(&model, &devices)?;
    let mut results = Vec::with_capacity(tests.len());
    for test in tests {
        let repetitions = options.repetitions;
        results.push(measure::run(
            &model,
            &devices.runtime,
            &settings.session,
            test,
            repetitions,
        )?);
        bar.inc(1);
    }
    let mut limits = Limits::measure(&devices.runtime, devices.threads);
    for cpu in limits.iter_mut().filter(|l| l.device == DeviceType::Cpu) {
        cpu.bandwidth = before.into_iter().chain(cpu.bandwidth).reduce(f64::max);
    }
    bar.finish_and_clear();

    let run = report::Run {
        name: &name,
        model: &model,
        devices: &devices,
        settings: &settings,
        limits: &limits,
        results: &results,
    };
    let out = &mut io::stdout().lock();
    match options.output {
        DocumentFormat::Md => run.table(out)?,
        DocumentFormat::Json => run.json(out)?,
    }
    Ok(())
}

impl Options {
    fn tests(&self) -> Vec<Test> {
        let mut tests = Vec::new();
        for &depth in &self.n_depth {
            let prompts = self.n_prompt.iter().map(|&prompt| (prompt, 0));
            let generations = self.n_gen.iter().map(|&generate| (0, generate));
            for (prompt, generate) in prompts.chain(generations).filter(|&test| test != (0, 0)) {
                tests.push(Test {
                    prompt,
                    generate,
                    depth,
                });
            }
        }
        tests
    }
}
