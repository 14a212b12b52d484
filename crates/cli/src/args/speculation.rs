//! Options of speculative decoding.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use rustorch_llm::SpeculationOptions;
use rustorch_runtime::DeviceType;

/// Sources of drafts, by llama.cpp's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpecType {
    /// No drafts
    None,
    /// Drafts by a smaller model
    DraftSimple,
    /// Drafts from repeats in the text so far
    NgramSimple,
}

/// Speculative decoding: a draft proposes tokens, and the model checks several in one pass. On the CPU with up to
/// three drafted tokens, the text is the same as without. Elsewhere one of two nearly equal tokens may replace the
/// other.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationArgs {
    /// Draft model: GGUF file of a smaller model with the same vocabulary (-md)
    #[arg(long, visible_alias = "spec-draft-model", value_name = "FILE")]
    pub(crate) model_draft: Option<PathBuf>,

    /// Speculative decoding: none, draft-simple (the model of -md) or ngram-simple (repeats of earlier text)
    /// [default: draft-simple with -md, else none]
    #[arg(long, value_name = "TYPE", hide_possible_values = true)]
    pub(crate) spec_type: Option<SpecType>,

    /// Maximum number of tokens to draft at a time; values above 15 count as 15
    #[arg(long, value_name = "N", default_value_t = SpeculationOptions::default().max)]
    pub(crate) spec_draft_n_max: usize,

    /// Minimum number of drafted tokens; shorter drafts are not used
    #[arg(long, value_name = "N", default_value_t = SpeculationOptions::default().min)]
    pub(crate) spec_draft_n_min: usize,

    /// Minimum probability of a drafted token; below it the draft ends
    #[arg(
        long,
        visible_alias = "draft-p-min",
        value_name = "P",
        default_value_t = 0.0
    )]
    pub(crate) spec_draft_p_min: f32,

    /// Device of the draft model (-devd) [default: the device of -b]
    #[arg(long, visible_alias = "device-draft", value_name = "DEVICE")]
    pub(crate) spec_draft_device: Option<DeviceType>,

    /// ngram-simple: number of last tokens to find in earlier text
    #[arg(long, value_name = "N", default_value_t = 12)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub(crate) spec_ngram_simple_size_n: usize,
}
