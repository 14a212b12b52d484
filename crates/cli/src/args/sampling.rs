//! How tokens are chosen.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args};
use rustorch_llm::sampler::{SamplerKind, UnknownSampler};
use serde::{Serialize, Serializer};

/// How the next token is chosen; llama.cpp's samplers, with its names and defaults.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Seed of the random choices; -1 for another one each time
    #[arg(short, long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    pub(crate) seed: i64,

    /// Temperature: higher is more surprising, 0 always takes the likeliest token
    #[arg(
        long,
        visible_alias = "temperature",
        value_name = "T",
        default_value_t = 0.8
    )]
    #[arg(allow_negative_numbers = true)]
    pub(crate) temp: f32,

    /// Choose among the K likeliest tokens; 0 for all
    #[arg(
        long,
        value_name = "K",
        default_value_t = 40,
        allow_negative_numbers = true
    )]
    pub(crate) top_k: i64,

    /// Choose among the likeliest tokens that together have probability P; 1 for all
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub(crate) top_p: f32,

    /// Leave out tokens less likely than P times the likeliest; 0 for none
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub(crate) min_p: f32,

    /// Choose among locally typical tokens of probability P together; 1 for all
    #[arg(
        long,
        visible_alias = "typical-p",
        value_name = "P",
        default_value_t = 1.0
    )]
    pub(crate) typical: f32,

    /// How many of the last tokens are looked at for repetitions; 0 for none, -1 for all
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        allow_negative_numbers = true
    )]
    pub(crate) repeat_last_n: i64,

    /// What divides a repeated token's score; 1 for nothing
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) repeat_penalty: f32,

    /// What is taken from a repeated token's score once
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) presence_penalty: f32,

    /// What is taken from a repeated token's score for every time it occurred
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) frequency_penalty: f32,

    /// Samplers in the order in which they are applied, separated by ; [default:
    /// penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES", value_delimiter = ';', action = ArgAction::Set)]
    #[serde(serialize_with = "names")]
    pub(crate) samplers: Vec<SamplerKind>,

    /// The same, as a letter for each: edskypmxt, and i for infill, a for adaptive_p
    #[arg(long, visible_alias = "sampling-seq", value_name = "LETTERS")]
    #[arg(conflicts_with = "samplers")]
    pub(crate) sampler_seq: Option<SamplerSequence>,

    /// Leave out tokens whose score is more than N standard deviations below the best; 0 for none
    #[arg(long, visible_alias = "top-n-sigma", value_name = "N", default_value_t = -1.0)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) top_nsigma: f32,

    /// How often the likeliest tokens are left out, all but the least likely of them; 0 for never
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) xtc_probability: f32,

    /// The probability from which on tokens are left out then; above 0.5 none are
    #[arg(long, value_name = "P", default_value_t = 0.1)]
    pub(crate) xtc_threshold: f32,

    /// What is taken from the score of a token that continues a repetition; 0 for nothing
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) dry_multiplier: f32,

    /// What that grows by with each token of the repetition
    #[arg(long, value_name = "X", default_value_t = 1.75)]
    pub(crate) dry_base: f32,

    /// Repetitions this long are let pass
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) dry_allowed_length: usize,

    /// How many of the last tokens are looked at for repetitions to continue; 0 for none
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) dry_penalty_last_n: usize,

    /// A text behind which nothing counts as repeated, with \\n and the like; may be given often,
    /// none for none [default: \\n, :, ", *]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) dry_sequence_breaker: Vec<String>,

    /// How far the temperature may be from --temp, by how sure the model is; 0 for not at all
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) dynatemp_range: f32,

    /// The power of the entropy by which it is
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) dynatemp_exp: f32,

    /// Mirostat 1 or 2 instead of all samplers but the temperature; 0 for neither
    #[arg(long, value_name = "VERSION", default_value_t = 0)]
    #[arg(value_parser = RangedU64ValueParser::<u8>::new().range(..=2))]
    pub(crate) mirostat: u8,

    /// How fast Mirostat learns (η)
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    pub(crate) mirostat_lr: f32,

    /// The surprise that Mirostat aims at (τ), in bits
    #[arg(long, value_name = "X", default_value_t = 5.0)]
    pub(crate) mirostat_ent: f32,

    /// The probability near which the sampler adaptive_p draws; below 0 it draws as usual
    #[arg(long, value_name = "P", default_value_t = -1.0, allow_negative_numbers = true)]
    pub(crate) adaptive_target: f32,

    /// How much adaptive_p remembers with each token, at most 0.99
    #[arg(long, value_name = "X", default_value_t = 0.9)]
    pub(crate) adaptive_decay: f32,

    /// What is added to a token's score: 15043+1, 15043-2.5 or 15043-inf. May be given often
    #[arg(short, long, value_name = "TOKEN(+|-)BIAS")]
    pub(crate) logit_bias: Vec<LogitBias>,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) form: FormArgs,
}

/// The form that the text is held to.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[group(multiple = false)]
pub(crate) struct FormArgs {
    /// Generate JSON that is valid by this JSON schema
    #[arg(short, long, value_name = "SCHEMA")]
    pub(crate) json_schema: Option<String>,

    /// The same with a file of the schema (-jf)
    #[arg(long, value_name = "FILE")]
    pub(crate) json_schema_file: Option<PathBuf>,

    /// Generate a text of this grammar, as llama.cpp writes them (GBNF); one that begins with
    /// %llguidance is in Lark
    #[arg(long, value_name = "GRAMMAR")]
    pub(crate) grammar: Option<String>,

    /// The same with a file of the grammar
    #[arg(long, value_name = "FILE")]
    pub(crate) grammar_file: Option<PathBuf>,

    /// Generate a text that matches this regular expression as a whole
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) regex: Option<String>,

    /// Generate a text of this grammar in llguidance's Lark
    #[arg(long, value_name = "GRAMMAR")]
    pub(crate) lark: Option<String>,
}

fn names<S: Serializer>(samplers: &[SamplerKind], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(samplers.iter().map(SamplerKind::to_string))
}

/// The value of `--sampler-seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SamplerSequence(pub(crate) Vec<SamplerKind>);

impl Serialize for SamplerSequence {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        names(&self.0, serializer)
    }
}

impl FromStr for SamplerSequence {
    type Err = UnknownSampler;

    fn from_str(letters: &str) -> Result<Self, UnknownSampler> {
        SamplerKind::sequence(letters).map(Self)
    }
}

/// The value of `--logit-bias`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct LogitBias {
    pub(crate) token: u32,
    pub(crate) bias: f32,
}

impl Serialize for LogitBias {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}{:+}", self.token, self.bias))
    }
}

impl FromStr for LogitBias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("expected a token and what is added to it, as in 15043+1, not {text:?}");
        let sign = text.find(['+', '-']).ok_or_else(expected)?;
        let (token, bias) = text.split_at(sign);
        let (token, bias) = (token.parse(), bias.parse::<f32>());
        match (token, bias) {
            (Ok(token), Ok(bias)) if !bias.is_nan() => Ok(Self { token, bias }),
            _ => Err(expected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_and_its_bias() {
        for (text, token, bias) in [
            ("15043+1", 15043, 1.0),
            ("7-2.5", 7, -2.5),
            ("0-inf", 0, f32::NEG_INFINITY),
        ] {
            assert_eq!(text.parse(), Ok(LogitBias { token, bias }), "{text}");
        }
        for bad in ["", "7", "7+", "+1", "a+1", "7+nan", "-1+2"] {
            let error = bad.parse::<LogitBias>().unwrap_err();
            assert!(error.contains("as in 15043+1"), "{error}");
        }
    }
}
