//! The options of `train`, and the settings that follow from them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use rustorch_gguf::Metadata;
use rustorch_llm::Model;
use rustorch_llm::spec::ModelSpec;
use rustorch_train::{Decoder, ModelSize, Precision, TrainingSettings};
use serde_json::json;

use super::super::ranks::RankArgs;
use super::as_usage;
use crate::args::{ByteCount, DeviceArgs, Format, KeyArgs};
use crate::failure::Usage;

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
current step and writes a checkpoint.

--gpus and --ranks divide each batch among ranks. The losses stay those of one rank, up to rounding. A checkpoint \
resumes with any number of ranks.";

/// The dtype of computations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Type {
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
    pub(super) text: Vec<PathBuf>,

    /// Training conversations, one per line in OpenAI's form {"messages": […]}; only answers count for the
    /// loss
    #[arg(long, value_name = "FILE", conflicts_with_all = ["text", "val"], requires = "finetune")]
    pub(super) chat: Option<PathBuf>,

    /// Output GGUF file
    #[arg(long, value_name = "FILE")]
    pub(super) out: PathBuf,

    /// Validation text [default: the last twentieth of the training texts]
    #[arg(long, value_name = "FILE")]
    pub(super) val: Option<PathBuf>,

    /// Sequence length in tokens, and context size of a new model [default: 512]
    #[arg(long, value_name = "N")]
    pub(super) context: Option<usize>,

    #[command(flatten)]
    pub(super) tuning: TuningArgs,

    #[command(flatten)]
    pub(super) size: SizeArgs,

    #[command(flatten)]
    pub(super) keys: KeyArgs,

    #[command(flatten)]
    pub(super) run: RunArgs,

    #[command(flatten)]
    pub(super) ranks: RankArgs,

    /// Checkpoint directory; the last two checkpoints are kept [default: the output file's name with
    /// .checkpoint, removed after a finished run]
    #[arg(long, value_name = "FOLDER", help_heading = "Checkpoints")]
    pub(super) checkpoint: Option<PathBuf>,

    /// Number of steps between validations and checkpoints [default: a tenth of all steps]
    #[arg(long, value_name = "N", help_heading = "Checkpoints")]
    pub(super) every: Option<u64>,

    /// Resume from the last checkpoint, if there is one
    #[arg(long, help_heading = "Checkpoints")]
    pub(super) resume: bool,

    /// Output format: json prints one line per step with step, loss, val_loss (null between validations),
    /// tokens (so far), tokens_per_s and lr
    #[arg(short, long, value_enum, default_value_t)]
    pub(super) output: Format,

    #[command(flatten)]
    pub(super) devices: DeviceArgs,
}

/// The model's sizes.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Model")]
pub(super) struct SizeArgs {
    /// Architecture, such as qwen3 or gemma3. --override-kv sets keys that the sizes do not, such as
    /// qwen3moe.expert_count=int:8; an error lists those that are missing
    #[arg(long, value_name = "NAME", default_value = "llama")]
    pub(super) architecture: String,

    /// Vocabulary size; smaller if the texts are too short for it
    #[arg(long, value_name = "N", default_value_t = 8192)]
    pub(super) vocab: usize,

    /// Number of layers
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub(super) layers: usize,

    /// Embedding size
    #[arg(long, value_name = "N", default_value_t = 384)]
    pub(super) width: usize,

    /// Number of attention heads
    #[arg(long, value_name = "N", default_value_t = 6)]
    pub(super) heads: usize,

    /// Number of key-value heads (grouped-query attention)
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(super) kv_heads: usize,

    /// Hidden size of the feed-forward network
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub(super) ff: usize,
}

/// The model that is trained further.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Another model")]
pub(super) struct TuningArgs {
    /// Fine-tune this model: a GGUF file, or a directory with config.json, tokenizer.json and safetensors files
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["SizeArgs", "KeyArgs"])]
    pub(super) finetune: Option<PathBuf>,

    /// Train LoRA adapters of this rank; the output is an adapter for --lora
    #[arg(long, value_name = "RANK", requires = "finetune", value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) lora: Option<u16>,

    /// Also write the model with the adapters merged into its weights
    #[arg(long, value_name = "FILE", requires = "lora")]
    pub(super) merged: Option<PathBuf>,
}

impl TuningArgs {
    /// The scale of an adapter's product, times its rank.
    pub(super) fn alpha(&self) -> Option<f64> {
        self.lora.map(|rank| 2.0 * f64::from(rank))
    }
}

/// Batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Batch {
    /// This number of sequences.
    Of(usize),
    /// The largest batch that fits.
    Auto,
}

/// The most that fit are.
pub(super) const LARGEST_BATCH: usize = 256;

fn batch(text: &str) -> Result<Batch, String> {
    match text {
        "auto" => Ok(Batch::Auto),
        _ => match text.parse() {
            Ok(samples) => Ok(Batch::Of(samples)),
            Err(_) => Err("expected a batch size, or auto".to_owned()),
        },
    }
}

/// Options of a training run.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Training")]
pub(super) struct RunArgs {
    /// Batch size, in sequences; `auto` is the largest power of two up to 256 that fits in memory
    #[arg(long, value_name = "N", default_value = "8", value_parser = batch)]
    pub(super) batch: Batch,

    /// Memory limit of a step, weights and optimizer included, such as 6G. Logits are computed in chunks, and
    /// cheap activations are recomputed. Losses stay the same up to rounding
    #[arg(long, value_name = "SIZE")]
    pub(super) memory: Option<ByteCount>,

    /// Offload activations to host memory. With --memory, only activations that are slower to recompute are
    /// offloaded
    #[arg(long)]
    pub(super) offload_activations: bool,

    /// Number of training steps
    #[arg(long, value_name = "N", conflicts_with = "epochs")]
    pub(super) steps: Option<u64>,

    /// Number of epochs, instead of --steps [default: 1]
    #[arg(long, value_name = "N")]
    pub(super) epochs: Option<u64>,

    /// Maximum learning rate [default: 0.001; 0.0001 for full fine-tuning]
    #[arg(long, value_name = "X")]
    pub(super) lr: Option<f64>,

    /// Final learning rate [default: a tenth of --lr]
    #[arg(long, value_name = "X")]
    pub(super) min_lr: Option<f64>,

    /// Number of warmup steps [default: a twentieth of all steps]
    #[arg(long, value_name = "N")]
    pub(super) warmup: Option<u64>,

    /// Weight decay
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    pub(super) weight_decay: f64,

    /// Maximum gradient norm; 0 disables clipping
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(super) clip: f64,

    /// Precision of matrix products and attention. Weights stay f32; f16 uses loss scaling
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f32")]
    pub(super) precision: Type,

    /// Seed of the initial weights and the sample order
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) seed: u64,
}

/// The context of new models, unless another is asked for.
pub(super) const CONTEXT: usize = 512;

impl Options {
    /// Fails for a batch that these ranks cannot divide.
    pub(super) fn check_ranks(&self, ranks: usize) -> Result<()> {
        let problem = match self.run.batch {
            Batch::Auto if ranks > 1 => {
                format!("--batch auto is for one rank; give a number of at least {ranks}")
            }
            Batch::Of(batch) if batch < ranks => {
                format!("--batch {batch}: {ranks} ranks cannot divide it; give at least {ranks}")
            }
            Batch::Auto | Batch::Of(_) => return Ok(()),
        };
        Err(Usage(problem).into())
    }

    /// The tokens of a sample.
    pub(super) fn context(&self, base: Option<&Model>) -> Result<usize> {
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

    /// The keys of a new model.
    pub(super) fn new_metadata(&self, vocab: usize, context: usize) -> Result<Metadata> {
        let size = self.size.model(vocab, context);
        let metadata = size.metadata(&self.size.architecture, NAME);
        let mut metadata = metadata.map_err(as_usage)?;
        self.keys.apply(&mut metadata)?;
        let described = ModelSpec::of_keys(&metadata);
        described.map_err(|error| Usage(format!("--architecture: {error}")))?;
        Ok(metadata)
    }

    /// Things that a new model follows from.
    pub(super) fn subject(&self, vocab: usize, context: usize) -> serde_json::Value {
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
    pub(super) fn decoder(&self, keys: &Metadata, base: Option<&Model>) -> Result<Decoder> {
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
    pub(super) fn settings(&self, context: usize, batch: usize, epoch: u64) -> TrainingSettings {
        let run = &self.run;
        let steps = run
            .steps
            .unwrap_or(run.epochs.unwrap_or(1).saturating_mul(epoch));
        let tunes_all = self.tuning.finetune.is_some() && self.tuning.lora.is_none();
        let lr = run.lr.unwrap_or(if tunes_all { 1e-4 } else { 1e-3 });
        TrainingSettings {
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
