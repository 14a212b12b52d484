//! Which model, and how it is to differ from what its file says.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::list::{Override, Row, Scaled, Whole, row};

/// Which model.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FileArgs {
    /// GGUF file of the model; of a split model, the first part [default: the bundled model]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) keys: KeyArgs,
}

/// What is read instead of what a file says.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct KeyArgs {
    /// Read another value of the file's key, or one that it lacks; types are int, float, bool and
    /// str. Several are separated by commas, and it may be given often
    #[arg(long, value_name = "KEY=TYPE:VALUE,…", value_parser = row::<Override>())]
    pub(crate) override_kv: Vec<Row<Override>>,
}

/// Which model, and what changes it.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,

    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

/// What changes a model.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    pub(crate) adapters: AdapterArgs,

    #[command(flatten)]
    pub(crate) rope: RopeArgs,
}

/// What is added to a model.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct AdapterArgs {
    /// LoRA adapter in GGUF, of this model. Several are separated by commas, and it may be given often
    #[arg(long, value_name = "FILE,…", value_parser = row::<Whole>())]
    pub(crate) lora: Vec<Row<Whole>>,

    /// LoRA adapter, of which SCALE times as much is added
    #[arg(long, value_name = "FILE:SCALE,…", value_parser = row::<Scaled>())]
    pub(crate) lora_scaled: Vec<Row<Scaled>>,

    /// Control vector in GGUF, which is added behind layers. Several are separated by commas
    #[arg(long, value_name = "FILE,…", value_parser = row::<Whole>())]
    pub(crate) control_vector: Vec<Row<Whole>>,

    /// Control vector, of which SCALE times as much is added
    #[arg(long, value_name = "FILE:SCALE,…", value_parser = row::<Scaled>())]
    pub(crate) control_vector_scaled: Vec<Row<Scaled>>,

    /// The first and the last layer of control vectors; 0 for the first and the last there are
    #[arg(long, num_args = 2, value_names = ["START", "END"], action = ArgAction::Set)]
    pub(crate) control_vector_layer_range: Option<Vec<usize>>,
}

/// How angles are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RopeScalingArg {
    None,
    Linear,
    Yarn,
}

/// The rotary embedding.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Rotary embedding")]
pub(crate) struct RopeArgs {
    /// How angles are scaled, for longer contexts than the model was trained with [default: as the
    /// model's file says, else linear]
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) rope_scaling: Option<RopeScalingArg>,

    /// How many times as long the context is
    #[arg(long, value_name = "N", value_parser = times, allow_negative_numbers = true, overrides_with = "rope_freq_scale")]
    pub(crate) rope_scale: Option<f32>,

    /// Base of the frequencies [default: the model's]
    #[arg(long, value_name = "N", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) rope_freq_base: Option<f32>,

    /// What angles are multiplied by: 1 / --rope-scale, the later of which counts [default: the
    /// model's]
    #[arg(long, value_name = "N", value_parser = positive, allow_negative_numbers = true, overrides_with = "rope_scale")]
    pub(crate) rope_freq_scale: Option<f32>,

    /// YaRN: tokens of the context that is stretched [default: the model's]
    #[arg(long, value_name = "N")]
    pub(crate) yarn_orig_ctx: Option<usize>,

    /// YaRN: how much of high frequencies is kept; 0 for scaling all alike [default: 1 with yarn,
    /// else 0]
    #[arg(long, value_name = "N", value_parser = finite, allow_negative_numbers = true)]
    pub(crate) yarn_ext_factor: Option<f32>,

    /// Multiplier of queries and keys, which counts where --yarn-ext-factor is 0; else YaRN's own
    /// stands in its place [default: 1]
    #[arg(long, value_name = "N", value_parser = finite, allow_negative_numbers = true)]
    pub(crate) yarn_attn_factor: Option<f32>,

    /// YaRN: turns over the context below which frequencies are scaled [default: 1]
    #[arg(long, value_name = "N", value_parser = finite, allow_negative_numbers = true)]
    pub(crate) yarn_beta_slow: Option<f32>,

    /// YaRN: turns over the context above which frequencies are kept [default: 32]
    #[arg(long, value_name = "N", value_parser = finite, allow_negative_numbers = true)]
    pub(crate) yarn_beta_fast: Option<f32>,
}

/// A number.
fn finite(text: &str) -> Result<f32, String> {
    let number = text.parse().ok().filter(|number: &f32| number.is_finite());
    number.ok_or_else(|| "expected a number".to_owned())
}

/// A number that is not less than 0, which stands for the model's own.
fn positive(text: &str) -> Result<f32, String> {
    let number = finite(text)?;
    match number >= 0.0 {
        true => Ok(number),
        false => Err("expected a number that is not less than 0".to_owned()),
    }
}

/// How many times as much something is.
fn times(text: &str) -> Result<f32, String> {
    let number = finite(text)?;
    match number > 0.0 {
        true => Ok(number),
        false => Err("expected a number of more than 0".to_owned()),
    }
}
