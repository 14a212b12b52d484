//! Options of embeddings and scores.

use clap::{Args, ValueEnum};
use rustorch_llm::spec::Pooling;

use super::{DeviceArgs, ModelArgs};

/// The model that reads texts, and its devices.
#[derive(Clone, Debug, Args)]
pub(crate) struct EncoderArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,

    /// Tokens beyond which a text is cut; 0 for the model's own number
    #[arg(
        short,
        long,
        value_name = "N",
        default_value_t = 0,
        help_heading = "Context"
    )]
    pub(crate) ctx_size: usize,

    #[command(flatten)]
    pub(crate) devices: DeviceArgs,
}

/// Pooling of tokens into a text's vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolingArg {
    /// A vector for each token
    None,
    /// The mean of all tokens
    Mean,
    /// The first token
    Cls,
    /// The last token
    Last,
    /// Scores of the model's classifier
    Rank,
}

impl From<PoolingArg> for Pooling {
    fn from(arg: PoolingArg) -> Self {
        match arg {
            PoolingArg::None => Self::None,
            PoolingArg::Mean => Self::Mean,
            PoolingArg::Cls => Self::Cls,
            PoolingArg::Last => Self::Last,
            PoolingArg::Rank => Self::Rank,
        }
    }
}
