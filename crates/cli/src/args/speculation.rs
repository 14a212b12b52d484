//! How tokens are guessed.

use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, ValueEnum};
use rustorch_llm::SpeculationOptions;
use rustorch_runtime::DeviceType;

/// What guesses come from, by llama.cpp's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpecType {
    /// Nothing is guessed.
    None,
    /// A smaller model.
    DraftSimple,
    /// The text so far.
    NgramSimple,
}

/// Guessing what comes next, and checking several guesses at once: the text is the same, and comes
/// faster where guesses are right.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Speculation")]
pub(crate) struct SpeculationArgs {
    /// GGUF file of a smaller model with the same vocabulary (-md), whose guesses the model checks,
    /// several in one pass: the text stays the same
    #[arg(long, visible_alias = "spec-draft-model", value_name = "FILE")]
    pub(crate) model_draft: Option<PathBuf>,

    /// What guesses come from: none, draft-simple (the model of -md), or ngram-simple (what followed
    /// when the last tokens came before) [default: draft-simple with -md, else none]
    #[arg(long, value_name = "TYPE", hide_possible_values = true)]
    pub(crate) spec_type: Option<SpecType>,

    /// Tokens that are guessed at a time, at most; no more than 15 are
    #[arg(long, value_name = "N", default_value_t = SpeculationOptions::default().max)]
    pub(crate) spec_draft_n_max: usize,

    /// Leave guesses of fewer tokens alone
    #[arg(long, value_name = "N", default_value_t = SpeculationOptions::default().min)]
    pub(crate) spec_draft_n_min: usize,

    /// Let the draft guess on as long as it gives its best token this probability
    #[arg(
        long,
        visible_alias = "draft-p-min",
        value_name = "P",
        default_value_t = 0.0
    )]
    pub(crate) spec_draft_p_min: f32,

    /// Device of the draft (-devd) [default: as with -b]
    #[arg(long, visible_alias = "device-draft", value_name = "DEVICE")]
    pub(crate) spec_draft_device: Option<DeviceType>,

    /// How many of the last tokens ngram-simple looks up
    #[arg(long, value_name = "N", default_value_t = 12)]
    #[arg(value_parser = RangedU64ValueParser::<usize>::new().range(1..=1024))]
    pub(crate) spec_ngram_simple_size_n: usize,
}
