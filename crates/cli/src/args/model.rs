//! The model, and changes to its file's values.

use std::path::PathBuf;

use clap::{ArgAction, Args, ValueEnum};

use super::list::{Override, Row, Scaled, Whole, row};

/// The model.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct FileArgs {
    /// Model: a GGUF file, the first part of a split one, or a folder of Hugging Face's transformers [default:
    /// the bundled model]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) model: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) keys: KeyArgs,
}

/// Overrides of a file's metadata.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct KeyArgs {
    /// Override a metadata key of the file, or add one. TYPE is int, float, bool or str. Separate several
    /// with commas; repeatable
    #[arg(long, value_name = "KEY=TYPE:VALUE,…", value_parser = row::<Override>())]
    pub(crate) override_kv: Vec<Row<Override>>,
}

/// The model and its changes.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ModelArgs {
    #[command(flatten)]
    pub(crate) file: FileArgs,

    #[command(flatten)]
    pub(crate) changes: ChangeArgs,
}

/// Changes of a model.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ChangeArgs {
    #[command(flatten)]
    pub(crate) adapters: AdapterArgs,

    #[command(flatten)]
    pub(crate) rope: RopeArgs,
}

/// Additions to a model.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct AdapterArgs {
    /// LoRA adapter in GGUF. Separate several with commas; repeatable
    #[arg(long, value_name = "FILE,…", value_parser = row::<Whole>())]
    pub(crate) lora: Vec<Row<Whole>>,

    /// LoRA adapter, scaled by SCALE. Separate several with commas; repeatable
    #[arg(long, value_name = "FILE:SCALE,…", value_parser = row::<Scaled>())]
    pub(crate) lora_scaled: Vec<Row<Scaled>>,

    /// Control vector in GGUF, added to the output of layers. Separate several with commas; repeatable
    #[arg(long, value_name = "FILE,…", value_parser = row::<Whole>())]
    pub(crate) control_vector: Vec<Row<Whole>>,

    /// Control vector, scaled by SCALE. Separate several with commas; repeatable
    #[arg(long, value_name = "FILE:SCALE,…", value_parser = row::<Scaled>())]
    pub(crate) control_vector_scaled: Vec<Row<Scaled>>,

    /// First and last layer that control vectors change; 0 for the model's first or last layer
    #[arg(long, num_args = 2, value_names = ["START", "END"], action = ArgAction::Set)]
    pub(crate) control_vector_layer_range: Option<Vec<usize>>,
}

/// RoPE scaling methods.
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
    /// RoPE scaling method, for contexts longer than in training [default: the model's, else linear]
    #[arg(long, value_enum, value_name = "KIND")]
    pub(crate) rope_scaling: Option<RopeScalingArg>,

    /// RoPE context scaling factor: the context becomes N times as long
    #[arg(long, value_name = "N", value_parser = times, allow_negative_numbers = true, overrides_with = "rope_freq_scale")]
    pub(crate) rope_scale: Option<f32>,

    /// RoPE base frequency [default: the model's]
    #[arg(long, value_name = "N", value_parser = positive, allow_negative_numbers = true)]
    pub(crate) rope_freq_base: Option<f32>,

    /// RoPE frequency scaling factor, which is 1 / --rope-scale. If both are given, the last one counts
    /// [default: the model's]
    #[arg(long, value_name = "N", value_parser = positive, allow_negative_numbers = true, overrides_with = "rope_scale")]
    pub(crate) rope_freq_scale: Option<f32>,

    /// YaRN: context size in training [default: the model's]
    #[arg(long, value_name = "N")]
    pub(crate) yarn_orig_ctx: Option<usize>,

    /// YaRN: weight of unscaled frequencies in the mix; 0 scales all fully [default: 1 with yarn, else 0]
    #[arg(long, value_name = "N", value_parser = finite, allow_negative_numbers = true)]
    pub(crate) yarn_ext_factor: Option<f32>,

    /// YaRN: factor of rotated queries and keys, used only if --yarn-ext-factor is 0 [default: 1]
    #[arg(long, value_name = "N", value_parser = finite, allow_negative_numbers = true)]
    pub(crate) yarn_attn_factor: Option<f32>,

    /// YaRN: frequencies with fewer than N turns in the original context are fully scaled [default: 1]
    #[arg(long, value_name = "N", value_parser = finite, allow_negative_numbers = true)]
    pub(crate) yarn_beta_slow: Option<f32>,

    /// YaRN: frequencies with more than N turns in the original context stay as they are [default: 32]
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
        false => Err("expected a number of at least 0".to_owned()),
    }
}

/// A factor.
fn times(text: &str) -> Result<f32, String> {
    let number = finite(text)?;
    match number > 0.0 {
        true => Ok(number),
        false => Err("expected a number above 0".to_owned()),
    }
}
