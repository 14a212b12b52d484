//! `train`: a language model out of texts.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use rustorch_gguf::Metadata;
use rustorch_ir::DType;
use rustorch_llm::sampler::{SamplerChain, SamplerConfig};
use rustorch_llm::{Event, GenerateOptions, Model, Session, SessionOptions, generate};
use rustorch_tensor::{RusTorchResult, Tensor, with_runtime};
use rustorch_train::{
    Checkpoints, Conversations, Corpus, Decoder, ModelSize, Precision, Prepared, Samples, Settings,
    Step, Text, TrainError, Training, Windows, hugging_face, loss_curve,
};
use serde_json::json;

use super::chat;
use super::generate::interrupts;
use crate::args::{ByteCount, DeviceArgs, Format};
use crate::devices::Devices;
use crate::failure::{INTERRUPTED, Usage};
use crate::model::Source;
use crate::output::{bytes, count, json_line, note};
use crate::progress;

/// The name of new models in their files. It follows from nothing that may change when a run goes on.
const NAME: &str = "trained by rustorch-cli";

const METHOD: &str = "\
A vocabulary of byte-level BPE is made of the texts, and a model of the architecture llama is trained to
predict their tokens: AdamW with betas of 0.9 and 0.95, weight decay on matrices alone, a learning
rate that rises for --warmup steps and falls along a cosine to --min-lr. The file runs in this program
and in llama.cpp; `quantize` makes it smaller. Beside it lies a picture of the losses.

Each --every steps, and at the end, a text that is not learnt from is predicted, a checkpoint is
written, and the model begins a text. A run that ended early, however it did, goes on where it was with
the same command and --resume: its losses and its file are those of a run that was not
interrupted, on the same device. Ctrl-C ends a run after its step, with a checkpoint.";

/// What steps compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Type {
    F32,
    Bf16,
    F16,
}

impl From<Type> for Precision {
    fn from(ty: Type) -> Self {
        match ty {
            Type::F32 => Self::F32,
            Type::Bf16 => Self::BF16,
            Type::F16 => Self::F16,
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = METHOD)]
pub(crate) struct Options {
    /// Texts to learn from, in UTF-8; they may be larger than memory
    #[arg(long, value_name = "FILE", required_unless_present = "chat", num_args = 1..)]
    text: Vec<PathBuf>,

    /// Conversations instead of texts, one in a line as OpenAI's API has them, {"messages": […]}; only
    /// answers are learnt
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "val"], requires = "finetune")]
    chat: Option<PathBuf>,

    /// The model's file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// A text that is only predicted [default: the last twentieth of the texts]
    #[arg(long, value_name = "FILE")]
    val: Option<PathBuf>,

    /// Tokens of a sample, and of a new model's context [default: 512]
    #[arg(long, value_name = "N")]
    context: Option<usize>,

    #[command(flatten)]
    tuning: TuningArgs,

    #[command(flatten)]
    size: SizeArgs,

    #[command(flatten)]
    run: RunArgs,

    /// Folder of checkpoints, the last two of which are kept [default: the file's name with .checkpoint, which a
    /// finished run removes]
    #[arg(long, value_name = "FOLDER", help_heading = "Checkpoints")]
    checkpoint: Option<PathBuf>,

    /// Steps from one validation and checkpoint to the next [default: a tenth of all]
    #[arg(long, value_name = "N", help_heading = "Checkpoints")]
    every: Option<u64>,

    /// Go on from the last checkpoint, if there is one
    #[arg(long, help_heading = "Checkpoints")]
    resume: bool,

    /// text for people; json has a line for each step: step, loss, val_loss (null between validations),
    /// tokens (so far), tokens_per_s, lr
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    devices: DeviceArgs,
}

/// The model's sizes.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Model")]
struct SizeArgs {
    /// Tokens of the vocabulary; fewer, if the texts give fewer
    #[arg(long, value_name = "N", default_value_t = 8192)]
    vocab: usize,

    /// Layers
    #[arg(long, value_name = "N", default_value_t = 6)]
    layers: usize,

    /// Features of a token
    #[arg(long, value_name = "N", default_value_t = 384)]
    width: usize,

    /// Query heads
    #[arg(long, value_name = "N", default_value_t = 6)]
    heads: usize,

    /// Key and value heads, each for several query heads
    #[arg(long, value_name = "N", default_value_t = 2)]
    kv_heads: usize,

    /// Features of the feed-forward part
    #[arg(long, value_name = "N", default_value_t = 1024)]
    ff: usize,
}

/// The model that is trained further.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Another model")]
struct TuningArgs {
    /// Train this model further, rather than a new one: a GGUF file, or a folder with config.json,
    /// tokenizer.json and safetensors files
    #[arg(long, value_name = "MODEL", conflicts_with = "SizeArgs")]
    finetune: Option<PathBuf>,

    /// Train adapters of this rank beside its weights, which stay: the file is an adapter for --lora
    #[arg(long, value_name = "RANK", requires = "finetune", value_parser = clap::value_parser!(u16).range(1..))]
    lora: Option<u16>,

    /// Write a model that has the adapters in its weights, too
    #[arg(long, value_name = "FILE", requires = "lora")]
    merged: Option<PathBuf>,
}

impl TuningArgs {
    /// What the product of an adapter's matrices is multiplied by, times its rank.
    fn alpha(&self) -> Option<f64> {
        self.lora.map(|rank| 2.0 * f64::from(rank))
    }
}

/// Samples of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    /// So many.
    Of(usize),
    /// As many as fit.
    Auto,
}

/// The most that fit are.
const LARGEST_BATCH: usize = 256;

fn batch(text: &str) -> Result<Batch, String> {
    match text {
        "auto" => Ok(Batch::Auto),
        _ => match text.parse() {
            Ok(samples) => Ok(Batch::Of(samples)),
            Err(_) => Err("expected a number of samples, or auto".to_owned()),
        },
    }
}

fn gpus(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(1) => Ok(1),
        Ok(0) => Err("-b cpu trains without a GPU".to_owned()),
        Ok(_) => Err("a run uses one GPU; start one for each, or leave --gpus out".to_owned()),
        Err(_) => Err("expected a number of GPUs".to_owned()),
    }
}

/// How it is trained.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Training")]
struct RunArgs {
    /// Samples of a step, each as long as the context; auto for the largest power of two up to 256 whose step fits
    /// into memory
    #[arg(long, value_name = "N", default_value = "8", value_parser = batch)]
    batch: Batch,

    /// What a step may take, weights and optimiser included, such as 6G: logits are computed by chunks, and values that
    /// gradients need computed again rather than kept, the cheapest first, until it takes no more. Losses stay the same, up to
    /// rounding
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteCount>,

    /// Values that gradients need may wait in the host's memory, so that the device's lasts longer: all of which that
    /// lowers what a step takes at its peak, or with --memory those that take longer to compute again
    #[arg(long)]
    offload_activations: bool,

    /// GPUs; a run uses one
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = gpus)]
    gpus: u32,

    /// Steps
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    steps: Option<u64>,

    /// Times that all of the texts are learnt from, instead of --steps [default: 1]
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,

    /// The highest learning rate [default: 0.001; 0.0001 for all weights of another model]
    #[arg(long, value_name = "X")]
    lr: Option<f64>,

    /// The learning rate of the last step [default: a tenth of the highest]
    #[arg(long, value_name = "X")]
    min_lr: Option<f64>,

    /// Steps in which the learning rate rises [default: a twentieth of all]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,

    /// Weight decay
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    weight_decay: f64,

    /// The largest norm of the gradients, which are scaled to it; 0 for any
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    clip: f64,

    /// What products and attention are computed in; weights stay f32, and f16 has its losses scaled
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f32")]
    precision: Type,

    /// Seed of the first weights and of the order of samples
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
}

pub(super) fn run(options: &Options) -> Result<ExitCode> {
    let devices = Devices::open(&options.devices)?;
    let interrupted = interrupts()?;
    with_runtime(&devices.runtime, devices.routing, || {
        train(options, &devices, &interrupted)
    })
}

fn train(options: &Options, devices: &Devices, interrupted: &AtomicBool) -> Result<ExitCode> {
    // Settings that make no sense are told before texts are read.
    let asked = options.context.unwrap_or(CONTEXT);
    let batch = match options.run.batch {
        Batch::Of(batch) => batch,
        Batch::Auto => 1,
    };
    options.settings(asked, batch, 1).check().map_err(told)?;
    let size = options.size.model(options.size.vocab, asked);
    size.config().map_err(told)?;
    // A run that ends with a file that cannot be written has taken long by then.
    let files = [Some(&options.out), options.tuning.merged.as_ref()];
    if let Some(path) = (files.into_iter().flatten()).find(|path| path.exists() && !path.is_file())
    {
        let what = match path.is_dir() {
            true => "a directory",
            false => "no ordinary file",
        };
        let path = path.display();
        let problem = format!("{path}: this is {what}; give the path of a .gguf file");
        return Err(Usage(problem).into());
    }
    let base = options
        .tuning
        .finetune
        .as_ref()
        .map(|path| base(path))
        .transpose()?;
    let context = options.context(base.as_ref())?;
    let folder = options
        .checkpoint
        .clone()
        .unwrap_or_else(|| options.out.with_extension("checkpoint"));
    let checkpoints = Checkpoints::new(&folder)?;
    if let Some((step, _)) = checkpoints.list()?.first().filter(|_| !options.resume) {
        let folder = folder.display();
        let problem = format!(
            "{folder}: there is a checkpoint of step {step}; --resume goes on from it, another --checkpoint begins anew"
        );
        return Err(Usage(problem).into());
    }
    let prepared = options.prepared()?;
    let Learnt {
        samples,
        validation,
        metadata,
    } = options.learnt(&prepared, base.as_ref(), &folder, context)?;
    let batch = match options.run.batch {
        Batch::Auto if options.resume => Training::saved_batch(&checkpoints)?,
        Batch::Auto => None,
        Batch::Of(batch) => Some(batch),
    };
    let count = samples.len();
    let settings = |batch: usize| options.settings(context, batch, (count / batch) as u64);
    let vocab = metadata.str_array("tokenizer.ggml.tokens")?.len();
    let size = options.size.model(vocab, context);
    if base.is_none() && vocab < options.size.vocab {
        note(format_args!(
            "the texts give {vocab} tokens rather than {}",
            options.size.vocab
        ));
    }
    let hashes = |texts: &[Text]| Vec::from_iter(texts.iter().map(|text| text.sha256.clone()));
    let subject = json!({
        "model": base.is_none().then_some(size),
        "finetune": hashes(&prepared.model),
        "lora": options.tuning.lora,
        "texts": hashes(&prepared.texts),
        "validation": hashes(prepared.validation.as_slice()),
    });
    let begun = |settings: Settings| -> Result<Training> {
        let decoder = options.decoder(size, base.as_ref())?;
        let (samples, validation) = (samples.clone(), validation.clone());
        let begun = Training::new(
            settings,
            subject.clone(),
            decoder,
            samples,
            Some(validation),
        );
        let mut training = begun.map_err(told)?;
        if options.run.offload_activations {
            training = training.offload_activations();
        }
        Ok(match options.run.memory {
            Some(ByteCount(bytes)) => {
                training.memory_budget(usize::try_from(bytes).unwrap_or(usize::MAX))
            }
            None => training,
        })
    };
    let settings = match batch {
        Some(batch) => settings(batch),
        None => {
            let batch = begun(settings(1))?.largest_batch(LARGEST_BATCH);
            let batch = batch.map_err(told)?;
            note(format_args!("--batch {batch} fits into memory"));
            settings(batch)
        }
    };
    let mut training = begun(settings.clone())?;
    let metadata = options.metadata(training.decoder(), metadata, base.as_ref());
    if options.resume {
        for damaged in training.resume(&checkpoints)? {
            note(format_args!("{damaged}; going on from the one before"));
        }
    }

    let mut run = Run {
        options,
        devices,
        training,
        metadata,
        checkpoints,
        total: settings.steps,
        bar: progress::steps("training", settings.steps as usize),
        begin: Instant::now(),
        first: 0,
        limit: limit(settings.precision),
        lost: (0, 0),
    };
    run.begin()?;
    while run.training.steps() < settings.steps {
        if let Err(error) = run.step(&settings) {
            match error.downcast::<TrainError>() {
                Ok(lost) if lost.is_data_lost() => {
                    run.recover(lost, || begun(settings.clone()))?;
                }
                Ok(error) => return Err(error.into()),
                Err(error) => return Err(error),
            }
        }
        if interrupted.load(Ordering::Relaxed) && run.training.begun() < settings.steps {
            if let Some(step) = run.training.finish()? {
                run.tell(step, None)?;
            }
            run.training.save(&run.checkpoints)?;
            run.bar.finish_and_clear();
            note(format_args!(
                "stopped after step {} of {}; the same with --resume goes on",
                run.training.steps(),
                settings.steps
            ));
            return Ok(ExitCode::from(INTERRUPTED));
        }
    }
    run.end()?;
    Ok(ExitCode::SUCCESS)
}

/// The context of new models, unless another is asked for.
const CONTEXT: usize = 512;

/// The model that is trained further: a GGUF file, or a folder as Hugging Face's `transformers` saves models.
fn base(path: &Path) -> Result<Model> {
    match hugging_face::folder(path) {
        Some(folder) => {
            let loaded = hugging_face::read(&folder).map(Model::load)?;
            loaded.with_context(|| folder.display().to_string())
        }
        None => Source::new(Some(path.to_owned())).load(),
    }
}

/// Settings that make no sense are bad usage.
fn told(error: TrainError) -> anyhow::Error {
    match error {
        TrainError::Setting(problem) => Usage(problem).into(),
        error => error.into(),
    }
}

/// Operations a second of a large product, in what steps compute with, where they compute: what no step can exceed.
/// Infinite where it cannot be measured.
fn limit(precision: Precision) -> f64 {
    /// Rows and columns of the smallest and largest matrices.
    const SIDES: [usize; 2] = [1024, 8192];
    /// Products take at least this long, so that launching them does not count.
    const LONG: Duration = Duration::from_millis(5);
    const ROUNDS: usize = 3;
    let dtype = match precision {
        Precision::F32 => DType::F32,
        Precision::BF16 => DType::BF16,
        Precision::F16 => DType::F16,
    };
    let measured = |side: usize| -> RusTorchResult<Duration> {
        let matrix = Tensor::rand_seeded([side, side], dtype, 0)?;
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            // An element is read, so that it has been computed.
            let product = matrix.matmul(&matrix)?;
            product
                .eval()?
                .select(0, 0)?
                .to_dtype(DType::F32)?
                .to_vec::<f32>()?;
            best = best.min(begin.elapsed());
        }
        Ok(best)
    };
    let [mut side, largest] = SIDES;
    loop {
        match measured(side) {
            Ok(time) if time < LONG && side < largest => side *= 2,
            Ok(time) => return 2.0 * (side as f64).powi(3) / time.as_secs_f64(),
            Err(_) => return f64::INFINITY,
        }
    }
}

/// What there is to learn, and the keys of the vocabulary that it is in.
struct Learnt {
    samples: Samples,
    validation: Samples,
    metadata: Metadata,
}

impl Options {
    /// The tokens of a sample.
    fn context(&self, base: Option<&Model>) -> Result<usize> {
        let longest = base.map_or(usize::MAX, |model| model.config().context);
        match self.context {
            Some(context) if context > longest => {
                Err(Usage(format!("--context {context}: the model has {longest}")).into())
            }
            Some(context) => Ok(context),
            None => Ok(CONTEXT.min(longest)),
        }
    }

    /// The texts and the model that is trained further, read once.
    fn prepared(&self) -> Result<Prepared> {
        let texts = self.text.iter().chain(&self.chat);
        let model = match &self.tuning.finetune {
            Some(path) => match hugging_face::folder(path) {
                Some(folder) => hugging_face::weights(&folder)?,
                None => vec![path.clone()],
            },
            None => Vec::new(),
        };
        let all = || texts.clone().chain(&self.val).chain(&model);
        let bar = progress::bytes(
            "reading",
            all()
                .filter_map(|path| Some(path.metadata().ok()?.len()))
                .sum(),
        );
        let open =
            |path: &PathBuf| -> Result<Text> { Ok(Text::open(path, |bytes| bar.inc(bytes))?) };
        let prepared = Prepared {
            texts: texts.clone().map(open).collect::<Result<_, _>>()?,
            validation: self.val.as_ref().map(open).transpose()?,
            vocab: self.tuning.finetune.is_none().then_some(self.size.vocab),
            model: model.iter().map(open).collect::<Result<_, _>>()?,
        };
        bar.finish_and_clear();
        Ok(prepared)
    }

    /// Makes samples of the texts or conversations.
    fn learnt(
        &self,
        prepared: &Prepared,
        base: Option<&Model>,
        folder: &Path,
        context: usize,
    ) -> Result<Learnt> {
        if let (Some(path), Some(model)) = (&self.chat, base) {
            let tokenizer = model.tokenizer()?;
            let templates = chat::templates(model, tokenizer, None)?;
            let all = Conversations::read(path, &templates, tokenizer, context)?;
            let [samples, validation] = all.split_last().map(|part| -> Samples { Arc::new(part) });
            let metadata = model.gguf().metadata.clone();
            return Ok(Learnt {
                samples,
                validation,
                metadata,
            });
        }
        let vocabulary = base.map(|model| model.gguf().metadata.clone());
        let corpus = prepare(prepared, vocabulary, folder)?;
        let windows = |tokens| Windows::new(Arc::new(tokens), context);
        let learnt = windows(corpus.tokens);
        let [samples, validation] = match corpus.validation {
            Some(tokens) => {
                let count = tokens.len();
                let predicted = windows(tokens);
                if predicted.steps(1) == 0 {
                    let val = self.val.as_deref().unwrap_or(Path::new("")).display();
                    return Err(Usage(format!(
                        "{val}: the text is too short: it has {count} tokens, and a sample {context} and one more; \
                         give more text, or a smaller --context"
                    ))
                    .into());
                }
                [learnt, predicted]
            }
            None => learnt.split_last(),
        };
        Ok(Learnt {
            samples: Arc::new(samples),
            validation: Arc::new(validation),
            metadata: corpus.metadata,
        })
    }

    /// The keys of the model's file: those of the model that is trained further, or those of a new one with its vocabulary.
    fn metadata(&self, decoder: &Decoder, vocabulary: Metadata, base: Option<&Model>) -> Metadata {
        let Some(model) = base else {
            let mut metadata = rustorch_train::metadata(decoder.config(), NAME);
            for (key, value) in vocabulary.iter() {
                metadata.insert(key, value.clone());
            }
            return metadata;
        };
        model.gguf().metadata.clone()
    }

    /// The model at the beginning: a new one of this size, or the one that is trained further, with adapters if they are
    /// what is trained.
    fn decoder(&self, size: ModelSize, base: Option<&Model>) -> Result<Decoder> {
        let Some(base) = base else {
            return Ok(Decoder::new(size.config().map_err(told)?, self.run.seed)?);
        };
        let mut decoder = Decoder::load(base)?;
        if let (Some(rank), Some(alpha)) = (self.tuning.lora, self.tuning.alpha()) {
            decoder.adapt(rank.into(), alpha, self.run.seed)?;
        }
        Ok(decoder)
    }

    /// The settings, with defaults that follow from how many steps an epoch has.
    fn settings(&self, context: usize, batch: usize, epoch: u64) -> Settings {
        let run = &self.run;
        let steps = run
            .steps
            .unwrap_or(run.epochs.unwrap_or(1).saturating_mul(epoch));
        let tunes_all = self.tuning.finetune.is_some() && self.tuning.lora.is_none();
        let lr = run.lr.unwrap_or(if tunes_all { 1e-4 } else { 1e-3 });
        Settings {
            context,
            batch,
            steps,
            lr,
            min_lr: run.min_lr.unwrap_or(lr / 10.0),
            warmup: run.warmup.unwrap_or(steps / 20),
            weight_decay: run.weight_decay,
            clip: run.clip,
            precision: run.precision.into(),
            seed: run.seed,
            every: self.every.unwrap_or((steps / 10).max(1)),
        }
    }
}

/// Makes tokens of the texts, or takes those of the run that is gone on with.
fn prepare(prepared: &Prepared, vocabulary: Option<Metadata>, folder: &Path) -> Result<Corpus> {
    let learnt: u64 = prepared.texts.iter().map(|text| text.bytes).sum();
    let predicted = prepared.validation.as_ref().map_or(0, |text| text.bytes);
    let bar = progress::bytes("texts", 2 * learnt + predicted);
    let corpus = Corpus::prepare(prepared, vocabulary, folder, |what, bytes| {
        bar.set_message(what);
        bar.inc(bytes);
    })?;
    bar.finish_and_clear();
    Ok(corpus)
}

impl SizeArgs {
    fn model(self, vocab: usize, context: usize) -> ModelSize {
        ModelSize {
            vocab,
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            kv_heads: self.kv_heads,
            ff: self.ff,
            context,
        }
    }
}

/// A run as it is shown.
struct Run<'a> {
    options: &'a Options,
    devices: &'a Devices,
    training: Training,
    /// The keys of the model's file.
    metadata: Metadata,
    checkpoints: Checkpoints,
    /// Steps of the whole run.
    total: u64,
    bar: ProgressBar,
    /// When this process began with steps, and how many there were already.
    begin: Instant,
    first: u64,
    /// Operations a second of a large product.
    limit: f64,
    /// The last step that was lost with a device, and how often it was.
    lost: (u64, usize),
}

/// Tries of a step that is lost with one device after the other.
const TRIES: usize = 3;

impl Run<'_> {
    fn begin(&mut self) -> Result<()> {
        let memory = self.training.memory()?;
        self.first = self.training.steps();
        self.bar.set_position(self.first);
        self.bar.reset_eta();
        let (parameters, per_step) = (self.training.parameters(), self.training.tokens_per_step());
        let epochs = self.total as f64 / self.training.steps_per_epoch() as f64;
        let from = match self.first {
            0 => String::new(),
            first => format!(", from step {first} on"),
        };
        note(format_args!(
            "{} parameters, {} steps of {per_step} tokens ({epochs:.1} epochs) on {}{from}; a step takes {}",
            count(parameters as u64),
            self.total,
            self.devices.name,
            bytes(memory.peak() as u64),
        ));
        match (self.options.run.offload_activations, memory.offloaded()) {
            (false, _) => {}
            (true, 0) => note(format_args!(
                "--offload-activations: nothing waits on the host; the processor's memory is the host's, and values that a \
                 device keeps for a short time stay there"
            )),
            (true, waiting) => note(format_args!(
                "{} of values wait in the host's memory",
                bytes(waiting as u64)
            )),
        }
        self.begin = Instant::now();
        Ok(())
    }

    /// Begins a step, and shows those that are done.
    fn step(&mut self, settings: &Settings) -> Result<()> {
        for step in self.training.step()? {
            let is_last = step.step == settings.steps;
            let is_due = step.step % settings.every == 0;
            let validated = match is_due || is_last {
                true => self.training.validate()?,
                false => None,
            };
            self.tell(step, validated)?;
            if is_due && !is_last {
                self.keep();
            }
        }
        Ok(())
    }

    /// Goes on from the newest checkpoint, or from the beginning, after weights were lost with a device.
    fn recover(&mut self, error: TrainError, new: impl FnOnce() -> Result<Training>) -> Result<()> {
        let lost = self.training.steps() + 1;
        self.lost = match self.lost {
            (step, times) if step == lost => (step, times + 1),
            _ => (lost, 1),
        };
        if self.lost.1 > TRIES {
            return Err(error.into());
        }
        self.training = new()?;
        self.training.resume(&self.checkpoints)?;
        self.first = self.training.steps();
        self.begin = Instant::now();
        self.bar.set_position(self.first);
        self.bar.suspend(|| {
            note(format_args!(
                "warning: step {lost} was lost: {error}; going on from step {}",
                self.first
            ))
        });
        Ok(())
    }

    /// Shows a step.
    fn tell(&mut self, step: Step, validated: Option<f64>) -> Result<()> {
        let Step { step, loss, lr } = step;
        let made = (step - self.first) * self.training.tokens_per_step();
        let rate = made as f64 / self.begin.elapsed().as_secs_f64();
        let speed = self.speed(step, rate);
        self.bar.set_position(step);
        self.bar.set_message(format!("loss {loss:.4}, {speed}"));
        let mut out = io::stdout().lock();
        if self.options.output == Format::Json {
            let line = json!({
                "step": step,
                "loss": loss,
                "val_loss": validated,
                "tokens": step * self.training.tokens_per_step(),
                "tokens_per_s": rate,
                "lr": lr,
            });
            return Ok(json_line(&mut out, &line)?);
        }
        if let Some(validation) = validated {
            let text = self.text()?;
            self.bar.suspend(|| {
                writeln!(
                    out,
                    "step {step} of {}: loss {loss:.4}, validation {validation:.4}, {speed}\n  {text}",
                    self.total,
                )
            })?;
        }
        Ok(())
    }

    /// How fast it goes, what of the device's limit that is, and how long it takes from here.
    fn speed(&self, step: u64, rate: f64) -> String {
        let per_step = self.training.tokens_per_step() as f64;
        let operations = self.training.operations_per_step() * rate / per_step;
        let share = 100.0 * operations / self.limit;
        let left = (self.total - step) as f64 * per_step / rate;
        let left = Duration::try_from_secs_f64(left.ceil()).unwrap_or(Duration::MAX);
        let rate = count(rate as u64);
        match left.is_zero() {
            true => format!("{rate} tokens/s, {share:.0} % of the limit"),
            false => {
                let left = humantime::format_duration(left);
                format!("{rate} tokens/s, {share:.0} % of the limit, {left} left")
            }
        }
    }

    /// What the model tells now, on one line.
    fn text(&self) -> Result<String> {
        const LENGTH: usize = 48;
        let model = Model::load(rustorch_train::gguf(
            self.training.decoder(),
            &self.metadata,
        )?)?;
        let options = SessionOptions {
            context: model.config().context.min(LENGTH + 1),
            routing: self.devices.routing,
            ..SessionOptions::default()
        };
        let mut session = Session::new(&model, &self.devices.runtime, options)?;
        let config = SamplerConfig {
            seed: Some(0),
            ..SamplerConfig::default()
        };
        let tokenizer = model.tokenizer()?;
        let prompt = Vec::from_iter(tokenizer.bos().or(tokenizer.eos()));
        if prompt.is_empty() {
            return Ok("(no token begins texts)".to_owned());
        }
        let limits = GenerateOptions {
            max_tokens: Some(LENGTH),
            ..GenerateOptions::default()
        };
        let go_on = |_: Event| Ok::<_, anyhow::Error>(ControlFlow::Continue(()));
        let told = generate(
            &mut session,
            &prompt,
            &mut SamplerChain::new(&config)?,
            &limits,
            go_on,
        )?;
        Ok(format!("{:?}", tokenizer.decode(&told.ids)))
    }

    /// Writes a checkpoint. Where that fails, the run goes on: the checkpoint before is still there.
    fn keep(&self) {
        let saved = self
            .training
            .save(&self.checkpoints)
            .map_err(anyhow::Error::from);
        if let Err(error) = saved.and_then(|()| self.draw()) {
            self.bar.suspend(|| {
                note(format_args!(
                    "warning: no checkpoint of step {}: {error:#}; training goes on",
                    self.training.steps()
                ))
            });
        }
    }

    /// Writes the picture of the losses.
    fn draw(&self) -> Result<()> {
        let path = self.options.out.with_extension("svg");
        let written = std::fs::write(&path, loss_curve(self.training.history()));
        written
            .with_context(|| format!("{}: cannot write the picture of the losses", path.display()))
    }

    /// Writes the model.
    fn end(self) -> Result<()> {
        self.bar.finish_and_clear();
        if self.options.checkpoint.is_some() {
            self.keep();
        }
        let (out, tuning, decoder) = (
            &self.options.out,
            &self.options.tuning,
            self.training.decoder(),
        );
        match tuning.alpha() {
            Some(alpha) => rustorch_train::save_adapter(out, decoder, alpha)?,
            None => rustorch_train::save(out, decoder, &self.metadata)?,
        }
        if let Some(path) = &tuning.merged {
            rustorch_train::save(path, decoder, &self.metadata)?;
        }
        self.draw()?;
        note(format_args!(
            "{}: the model; {}: its losses",
            self.options.out.display(),
            self.options.out.with_extension("svg").display()
        ));
        match self.options.checkpoint {
            Some(_) => Ok(()),
            None => Ok(self.checkpoints.remove()?),
        }
    }
}
