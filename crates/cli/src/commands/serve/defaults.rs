//! Values of what requests leave out.

use clap::{Args, ValueEnum};
use rustorch_server::RequestDefaults;

use crate::args::SamplerArgs;
use crate::failure::Usage;

/// Whether templates are asked for reasoning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Thinking {
    On,
    Off,
    Auto,
}

/// Values of what requests leave out.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(super) struct DefaultArgs {
    /// Seed of requests without one; -1 for a random one
    #[arg(short, long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    seed: i64,

    #[command(flatten)]
    sampler: SamplerArgs,

    /// Maximum number of an answer's tokens if the request has none; -1 for no limit but the context
    #[arg(short, long, visible_alias = "predict", value_name = "N", default_value_t = -1)]
    #[arg(allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    n_predict: i64,

    /// Drop the older half of a full context, and go on; without it the text ends there
    #[arg(long)]
    context_shift: bool,

    /// Reasoning of models that can do without: auto leaves it to the chat template
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    reasoning: Thinking,

    /// End a last message of the assistant; without it the answer goes on with this message
    #[arg(long)]
    no_prefill_assistant: bool,

    /// Show the prompt in responses of chats, as `verbose` in a request does
    #[arg(long)]
    verbose_prompt: bool,
}

impl DefaultArgs {
    /// The values.
    ///
    /// # Errors
    /// Fails if a value is out of range.
    pub(super) fn values(&self) -> Result<RequestDefaults, Usage> {
        let mut sampler = self.sampler.0.clone();
        let out_of_range = |_| {
            let (seed, most) = (self.seed, u32::MAX);
            Usage(format!("--seed {seed}: expected -1, or 0 to {most}"))
        };
        sampler.seed = match self.seed {
            -1 => None,
            seed => Some(u32::try_from(seed).map_err(out_of_range)?),
        };
        sampler.check().map_err(|error| Usage(error.to_string()))?;
        Ok(RequestDefaults {
            sampler,
            max_tokens: usize::try_from(self.n_predict).ok(),
            context_shift: self.context_shift,
            thinking: match self.reasoning {
                Thinking::On => Some(true),
                Thinking::Off => Some(false),
                Thinking::Auto => None,
            },
            ends_turns: self.no_prefill_assistant,
            shows_prompt: self.verbose_prompt,
        })
    }
}
