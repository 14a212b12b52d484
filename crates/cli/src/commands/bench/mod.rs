//! `bench`: how fast a model is, by llama-bench's methods, or operations or training are.

mod bandwidth;
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
Prompts (pp) and generation (tg) are measured apart, each after a run to warm up: prompts of random
tokens in batches, generation of the likeliest token each time, one by one. Beside generation
stands the share of the memory's bandwidth that it reaches: the bytes of weights, cached keys and
values that a token reads, times tokens a second, of what the device reaches with plain work: the
CPU's threads reading, other devices copying a large vector. A model that fits the processor's
caches can exceed it. Beside prompts stands the share of the rate of matrix products: the
multiplications and additions of the prompt's products and attention, of those of a large product
of bf16 matrices on the same device. Where layers are split between devices, each counts with the
layers that it holds; where operations are, the fastest device counts for all. With --ops operations are
measured, each on every device by itself: the median time of runs that follow each other, the bytes of
operands and results and the multiplications and additions of products in a second. With --train steps
of training are, of random weights by random samples: forward, backward, clipping and AdamW as one
program, after five steps to warm up.";

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    #[command(flatten)]
    model: ModelArgs,

    /// Shape of a model to be made with random weights: classics-13m, tinyllama-1.1b, llama-3-8b
    #[arg(long, value_name = "NAME", conflicts_with_all = ["model", "KeyArgs", "AdapterArgs", "RopeArgs"])]
    preset: Option<Preset>,

    /// File type of the preset
    #[arg(
        long,
        value_name = "TYPE",
        default_value = "Q4_K_M",
        requires = "preset"
    )]
    quant: FileType,

    /// Write the preset to a file and measure nothing: for llama-bench, or for -m
    #[arg(long, value_name = "FILE", requires = "preset")]
    save: Option<PathBuf>,

    /// Lengths of prompts; 0 for none
    #[arg(
        short = 'p',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "512"
    )]
    n_prompt: Vec<usize>,

    /// Numbers of tokens to generate; 0 for none
    #[arg(
        short,
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "128"
    )]
    n_gen: Vec<usize>,

    /// Tokens that are in the context before
    #[arg(
        short = 'd',
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "0"
    )]
    n_depth: Vec<usize>,

    /// Measure operations on every device in place of a model: all, or those named
    #[arg(long, value_name = "NAME,…", value_delimiter = ',', num_args = 0..=1)]
    #[arg(conflicts_with_all = ["model", "preset", "n_prompt", "n_gen", "n_depth", "repetitions"])]
    ops: Option<Vec<String>>,

    /// Run operations when standard input asks for it, one line each: CASE RUNS. What there is comes first,
    /// as a line of JSON; each answer is the seconds that the runs took
    #[arg(long, requires = "ops", hide = true)]
    on_request: bool,

    #[command(flatten)]
    train: TrainArgs,

    /// How often each is measured
    #[arg(short, long, value_name = "N", default_value_t = 5)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,

    /// How the results are written: a table, or a list of objects with llama-bench's fields
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
    if let (Some(preset), Some(path)) = (options.preset, &options.save) {
        let spinner = progress::spinner("making the model");
        preset.save(options.quant, path)?;
        spinner.finish_and_clear();
        note(format_args!(
            "{}: {} {}",
            path.display(),
            preset.name,
            options.quant
        ));
        return Ok(());
    }
    let tests = options.tests();
    if tests.is_empty() {
        return Err(Usage("-p and -n are 0: there is nothing to measure".to_owned()).into());
    }
    let devices = Devices::open(&options.devices)?;
    let (name, model) = options.model()?;
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

    /// The model, and its name.
    fn model(&self) -> Result<(String, Model)> {
        let Some(preset) = self.preset else {
            let source = Source::from(&self.model);
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
