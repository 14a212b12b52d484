//! `train`: trains a language model on texts.

use std::collections::BTreeMap;
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
use rustorch_llm::spec::ModelSpec;
use rustorch_llm::{
    Event, GenerateOptions, Model, Session, SessionOptions, generate, hugging_face,
};
use rustorch_tensor::{RusTorchResult, Tensor, with_runtime};
use rustorch_train::{
    Checkpoints, Conversations, Corpus, Decoder, ModelSize, Precision, Prepared, Samples, Settings,
    Step, Text, TrainError, Training, Windows, loss_curve,
};
use serde_json::json;

use super::chat;
use super::generate::interrupts;
use crate::args::{ByteCount, DeviceArgs, Format, KeyArgs};
use crate::devices::Devices;
use crate::failure::{INTERRUPTED, Usage};
use crate::model::Source;
use crate::output::{bytes, count, json_line, note};
use crate::progress;

/// The name of new models in their files. It follows from nothing that may change when a run goes on.
const NAME: &str = "trained by rustorch-cli";

const METHOD: &str = "\
The program trains a byte-level BPE tokenizer on the texts, and then a model of the --architecture. The \
optimizer is AdamW (betas 0.9 and 0.95, weight decay on matrices only). The learning rate warms up for \
--warmup steps and decays along a cosine to --min-lr. The output file runs in this program and in llama.cpp; \
`quantize` makes it smaller. The program also writes a picture of the loss curve.

Every --every steps and at the end, the program measures the validation loss, writes a checkpoint and prints \
a sample text. After an interruption, the same command with --resume continues from the last checkpoint. On \
the same device, the losses and the file equal those of an uninterrupted run. Ctrl-C ends the run after the \
current step and writes a checkpoint.";

/// The dtype of computations.
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
    /// Training texts in UTF-8; they may be larger than memory
    #[arg(long, value_name = "FILE", required_unless_present = "chat", num_args = 1..)]
    text: Vec<PathBuf>,

    /// Training conversations, one per line in OpenAI's form {"messages": […]}; only answers count for the
    /// loss
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "val"], requires = "finetune")]
    chat: Option<PathBuf>,

    /// Output GGUF file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// Validation text [default: the last twentieth of the training texts]
    #[arg(long, value_name = "FILE")]
    val: Option<PathBuf>,

    /// Sequence length in tokens, and context size of a new model [default: 512]
    #[arg(long, value_name = "N")]
    context: Option<usize>,

    #[command(flatten)]
    tuning: TuningArgs,

    #[command(flatten)]
    size: SizeArgs,

    #[command(flatten)]
    keys: KeyArgs,

    #[command(flatten)]
    run: RunArgs,

    /// Checkpoint directory; the last two checkpoints are kept [default: the output file's name with
    /// .checkpoint, removed after a finished run]
    #[arg(long, value_name = "FOLDER", help_heading = "Checkpoints")]
    checkpoint: Option<PathBuf>,

    /// Number of steps between validations and checkpoints [default: a tenth of all steps]
    #[arg(long, value_name = "N", help_heading = "Checkpoints")]
    every: Option<u64>,

    /// Resume from the last checkpoint, if there is one
    #[arg(long, help_heading = "Checkpoints")]
    resume: bool,

    /// Output format: json prints one line per step with step, loss, val_loss (null between validations),
    /// tokens (so far), tokens_per_s and lr
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    devices: DeviceArgs,
}

/// The model's sizes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
struct SizeArgs {
    /// Architecture, such as qwen3 or gemma3. --override-kv sets keys that the sizes do not, such as
    /// qwen3moe.expert_count=int:8; an error lists those that are missing
    #[arg(long, value_name = "NAME", default_value = "llama")]
    architecture: String,

    /// Vocabulary size; smaller if the texts are too short for it
    #[arg(long, value_name = "N", default_value_t = 8192)]
    vocab: usize,

    /// Number of layers
    #[arg(long, value_name = "N", default_value_t = 6)]
    layers: usize,

    /// Embedding size
    #[arg(long, value_name = "N", default_value_t = 384)]
    width: usize,

    /// Number of attention heads
    #[arg(long, value_name = "N", default_value_t = 6)]
    heads: usize,

    /// Number of key-value heads (grouped-query attention)
    #[arg(long, value_name = "N", default_value_t = 2)]
    kv_heads: usize,

    /// Hidden size of the feed-forward network
    #[arg(long, value_name = "N", default_value_t = 1024)]
    ff: usize,
}

/// The model that is trained further.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Another model")]
struct TuningArgs {
    /// Fine-tune this model: a GGUF file, or a directory with config.json, tokenizer.json and safetensors files
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["SizeArgs", "KeyArgs"])]
    finetune: Option<PathBuf>,

    /// Train LoRA adapters of this rank; the output is an adapter for --lora
    #[arg(long, value_name = "RANK", requires = "finetune", value_parser = clap::value_parser!(u16).range(1..))]
    lora: Option<u16>,

    /// Also write the model with the adapters merged into its weights
    #[arg(long, value_name = "FILE", requires = "lora")]
    merged: Option<PathBuf>,
}

impl TuningArgs {
    /// The scale of an adapter's product, times its rank.
    fn alpha(&self) -> Option<f64> {
        self.lora.map(|rank| 2.0 * f64::from(rank))
    }
}

/// Batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Batch {
    /// This number of sequences.
    Of(usize),
    /// The largest batch that fits.
    Auto,
}

/// The most that fit are.
const LARGEST_BATCH: usize = 256;

fn batch(text: &str) -> Result<Batch, String> {
    match text {
        "auto" => Ok(Batch::Auto),
        _ => match text.parse() {
            Ok(samples) => Ok(Batch::Of(samples)),
            Err(_) => Err("expected a batch size, or auto".to_owned()),
        },
    }
}

fn gpus(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(1) => Ok(1),
        Ok(0) => Err("-b cpu trains without a GPU".to_owned()),
        Ok(_) => Err("a run uses one GPU; start one run per GPU, or omit --gpus".to_owned()),
        Err(_) => Err("expected a number of GPUs".to_owned()),
    }
}

/// Options of a training run.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Training")]
struct RunArgs {
    /// Batch size, in sequences; `auto` is the largest power of two up to 256 that fits in memory
    #[arg(long, value_name = "N", default_value = "8", value_parser = batch)]
    batch: Batch,

    /// Memory limit of a step, weights and optimizer included, such as 6G. Logits are computed in chunks, and
    /// cheap activations are recomputed. Losses stay the same up to rounding
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteCount>,

    /// Offload activations to host memory. With --memory, only activations that are slower to recompute are
    /// offloaded
    #[arg(long)]
    offload_activations: bool,

    /// Number of GPUs; only 1 is supported
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true, value_parser = gpus)]
    gpus: u32,

    /// Number of training steps
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    steps: Option<u64>,

    /// Number of epochs, instead of --steps [default: 1]
    #[arg(long, value_name = "N")]
    epochs: Option<u64>,

    /// Maximum learning rate [default: 0.001; 0.0001 for full fine-tuning]
    #[arg(long, value_name = "X")]
    lr: Option<f64>,

    /// Final learning rate [default: a tenth of --lr]
    #[arg(long, value_name = "X")]
    min_lr: Option<f64>,

    /// Number of warmup steps [default: a twentieth of all steps]
    #[arg(long, value_name = "N")]
    warmup: Option<u64>,

    /// Weight decay
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    weight_decay: f64,

    /// Maximum gradient norm; 0 disables clipping
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    clip: f64,

    /// Precision of matrix products and attention. Weights stay f32; f16 uses loss scaling
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f32")]
    precision: Type,

    /// Seed of the initial weights and the sample order
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
    options.new_metadata(options.size.vocab, asked)?;
    // A run that ends with a file that cannot be written has taken long by then.
    let files = [Some(&options.out), options.tuning.merged.as_ref()];
    if let Some(path) = (files.into_iter().flatten()).find(|path| path.exists() && !path.is_file())
    {
        let what = match path.is_dir() {
            true => "a directory",
            false => "not an ordinary file",
        };
        let path = path.display();
        let problem = format!("{path}: this is {what}; give the path of a .gguf file");
        return Err(Usage(problem).into());
    }
    let base = options
        .tuning
        .finetune
        .as_ref()
        .map(|path| Source::new(Some(path.clone())).load())
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
            "{folder}: found a checkpoint of step {step}; continue with --resume, or choose another --checkpoint"
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
    let keys = options.new_metadata(vocab, context)?;
    if base.is_none() && vocab < options.size.vocab {
        note(format_args!(
            "the texts give {vocab} tokens rather than {}",
            options.size.vocab
        ));
    }
    let hashes = |texts: &[Text]| Vec::from_iter(texts.iter().map(|text| text.sha256.clone()));
    let subject = json!({
        "model": base.is_none().then(|| options.subject(vocab, context)),
        "finetune": hashes(&prepared.model),
        "lora": options.tuning.lora,
        "texts": hashes(&prepared.texts),
        "validation": hashes(prepared.validation.as_slice()),
    });
    let begun = |settings: Settings| -> Result<Training> {
        let decoder = options.decoder(&keys, base.as_ref())?;
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
            note(format_args!("--batch {batch} fits in memory"));
            settings(batch)
        }
    };
    let mut training = begun(settings.clone())?;
    let metadata = match &base {
        Some(model) => model.gguf().metadata.clone(),
        None => merged(keys.clone(), &metadata),
    };
    if options.resume {
        for damaged in training.resume(&checkpoints)? {
            note(format_args!(
                "warning: {damaged}; continuing from the checkpoint before it"
            ));
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
                "stopped after step {} of {}; add --resume to continue",
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

/// Settings that make no sense are bad usage.
fn told(error: TrainError) -> anyhow::Error {
    match error {
        TrainError::Setting(problem) => Usage(problem).into(),
        error => error.into(),
    }
}

/// Operations a second of a large product, with the dtype and device of the steps: no step can exceed it.
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

/// The training data, and the keys of its vocabulary.
struct Learnt {
    samples: Samples,
    validation: Samples,
    metadata: Metadata,
}

impl Options {
    /// The tokens of a sample.
    fn context(&self, base: Option<&Model>) -> Result<usize> {
        let longest = base.map_or(usize::MAX, |model| model.spec().context);
        match self.context {
            Some(context) if context > longest => Err(Usage(format!(
                "--context {context} is more than the model's {longest} tokens"
            ))
            .into()),
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

    /// The keys of a new model.
    fn new_metadata(&self, vocab: usize, context: usize) -> Result<Metadata> {
        let size = self.size.model(vocab, context);
        let metadata = size.metadata(&self.size.architecture, NAME);
        let mut metadata = metadata.map_err(told)?;
        self.keys.apply(&mut metadata)?;
        let described = ModelSpec::of_keys(&metadata);
        described.map_err(|error| Usage(format!("--architecture: {error}")))?;
        Ok(metadata)
    }

    /// Things that a new model follows from.
    fn subject(&self, vocab: usize, context: usize) -> serde_json::Value {
        let changes = self.keys.override_kv.iter().flat_map(|row| &row.0);
        let changes = changes.map(|change| (&change.key, format!("{:?}", change.value)));
        json!({
            "architecture": self.size.architecture,
            "size": self.size.model(vocab, context),
            "keys": changes.collect::<BTreeMap<_, _>>(),
        })
    }

    /// The model at the beginning: a new model of these keys, or the fine-tuned one, with adapters if these are
    /// trained.
    fn decoder(&self, keys: &Metadata, base: Option<&Model>) -> Result<Decoder> {
        let Some(base) = base else {
            return Ok(Decoder::new(keys, self.run.seed)?);
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

/// The keys of a new model with its vocabulary.
fn merged(mut keys: Metadata, vocabulary: &Metadata) -> Metadata {
    for (key, value) in vocabulary.iter() {
        keys.insert(key, value.clone());
    }
    keys
}

impl SizeArgs {
    fn model(&self, vocab: usize, context: usize) -> ModelSize {
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
    /// Time at which this process began its steps, and the number of earlier steps.
    begin: Instant,
    first: u64,
    /// Operations a second of a large product.
    limit: f64,
    /// The last step that was lost with a device, and the number of its losses.
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
                "--offload-activations: nothing is offloaded; the CPU uses the host's memory, \
                 and short-lived values stay on their device"
            )),
            (true, waiting) => note(format_args!(
                "{} of activations are offloaded to host memory",
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
                "warning: step {lost} was lost: {error}; continuing from step {}",
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

    /// Speed, its share of the device's limit, and the remaining time.
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

    /// A sample of the model, on one line.
    fn text(&self) -> Result<String> {
        const LENGTH: usize = 48;
        let model = Model::load(rustorch_train::gguf(
            self.training.decoder(),
            &self.metadata,
        )?)?;
        let options = SessionOptions {
            context: model.spec().context.min(LENGTH + 1),
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
            return Ok("(no sample: the vocabulary has no BOS token)".to_owned());
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

    /// Writes a checkpoint. If that fails, the run continues: the checkpoint before is still there.
    fn keep(&self) {
        let saved = self
            .training
            .save(&self.checkpoints)
            .map_err(anyhow::Error::from);
        if let Err(error) = saved.and_then(|()| self.draw()) {
            self.bar.suspend(|| {
                note(format_args!(
                    "warning: cannot write the checkpoint of step {}: {error:#}; training continues",
                    self.training.steps()
                ))
            });
        }
    }

    /// Writes the picture of the losses.
    fn draw(&self) -> Result<()> {
        let path = self.options.out.with_extension("svg");
        let written = std::fs::write(&path, loss_curve(self.training.history()));
        written.with_context(|| format!("{}: cannot write the loss curve", path.display()))
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
        let what = match tuning.alpha() {
            Some(alpha) => {
                rustorch_train::save_adapter(out, decoder, alpha)?;
                "adapter"
            }
            None => {
                rustorch_train::save(out, decoder, &self.metadata)?;
                "model"
            }
        };
        let merged = match &tuning.merged {
            Some(path) => {
                rustorch_train::save(path, decoder, &self.metadata)?;
                format!(", the merged model to {}", path.display())
            }
            None => String::new(),
        };
        self.draw()?;
        note(format_args!(
            "wrote the {what} to {}{merged} and the loss curve to {}",
            self.options.out.display(),
            self.options.out.with_extension("svg").display()
        ));
        match self.options.checkpoint {
            Some(_) => Ok(()),
            None => Ok(self.checkpoints.remove()?),
        }
    }
}
