//! Options of sampling.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::RangedU64ValueParser;
use clap::{ArgAction, Args};
use rustorch_llm::sampler::{SamplerKind, UnknownSampler};
use serde::{Serialize, Serializer};

/// Options of sampling: llama.cpp's samplers, with its names and defaults.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Seed of the random numbers; -1 for a new seed in each run
    #[arg(short, long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    pub(crate) seed: i64,

    /// Temperature: higher is more random; 0 always picks the most likely token
    #[arg(
        long,
        visible_alias = "temperature",
        value_name = "T",
        default_value_t = 0.8
    )]
    #[arg(allow_negative_numbers = true)]
    pub(crate) temp: f32,

    /// Top-k: keep the K most likely tokens; 0 disables it
    #[arg(
        long,
        value_name = "K",
        default_value_t = 40,
        allow_negative_numbers = true
    )]
    pub(crate) top_k: i64,

    /// Top-p: keep the most likely tokens up to the total probability P; 1 disables it
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    pub(crate) top_p: f32,

    /// Min-p: drop tokens below P times the probability of the most likely token; 0 disables it
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    pub(crate) min_p: f32,

    /// Locally typical sampling: keep typical tokens up to the total probability P; 1 disables it
    #[arg(
        long,
        visible_alias = "typical-p",
        value_name = "P",
        default_value_t = 1.0
    )]
    pub(crate) typical: f32,

    /// Number of last tokens that the penalties look at; 0 disables the penalties, -1 is the whole context
    #[arg(
        long,
        value_name = "N",
        default_value_t = 64,
        allow_negative_numbers = true
    )]
    pub(crate) repeat_last_n: i64,

    /// Repetition penalty: divides the logit of a repeated token; 1 disables it
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) repeat_penalty: f32,

    /// Presence penalty: subtracted from the logit of a token that occurred; 0 disables it
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) presence_penalty: f32,

    /// Frequency penalty: subtracted from a token's logit for each occurrence; 0 disables it
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) frequency_penalty: f32,

    /// Samplers, in the order in which they apply, separated by ; [default:
    /// penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature]
    #[arg(long, value_name = "NAMES", value_delimiter = ';', action = ArgAction::Set)]
    #[serde(serialize_with = "names")]
    pub(crate) samplers: Vec<SamplerKind>,

    /// Samplers as letters, in the order in which they apply [default: edskypmxt]. Letters are e penalties, d dry,
    /// s top_n_sigma, k top_k, y typ_p, p top_p, m min_p. Others are x xtc, t temperature, i infill, a adaptive_p
    #[arg(long, visible_alias = "sampling-seq", value_name = "LETTERS")]
    #[arg(conflicts_with = "samplers")]
    pub(crate) sampler_seq: Option<SamplerSequence>,

    /// Top-n-sigma: drop tokens more than N standard deviations below the best logit; 0 or less disables it
    #[arg(long, visible_alias = "top-n-sigma", value_name = "N", default_value_t = -1.0)]
    #[arg(allow_negative_numbers = true)]
    pub(crate) top_nsigma: f32,

    /// XTC: probability of removing the most likely tokens at a step; 0 disables it
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub(crate) xtc_probability: f32,

    /// XTC: minimum probability of a token that may be removed; above 0.5 disables it
    #[arg(long, value_name = "P", default_value_t = 0.1)]
    pub(crate) xtc_threshold: f32,

    /// DRY: penalty multiplier for tokens that extend a repetition; 0 disables it
    #[arg(
        long,
        value_name = "X",
        default_value_t = 0.0,
        allow_negative_numbers = true
    )]
    pub(crate) dry_multiplier: f32,

    /// DRY: base; the penalty grows by this factor for each repeated token
    #[arg(long, value_name = "X", default_value_t = 1.75)]
    pub(crate) dry_base: f32,

    /// DRY: repetitions up to this length are not penalised
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub(crate) dry_allowed_length: usize,

    /// DRY: number of last tokens to search for repetitions; 0 disables it
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) dry_penalty_last_n: usize,

    /// DRY: sequence breaker, with escapes such as \n; repeatable; `none` clears the list
    /// [default: \n, :, ", *]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) dry_sequence_breaker: Vec<String>,

    /// Dynamic temperature: range around --temp, chosen by the entropy; 0 disables it
    #[arg(long, value_name = "T", default_value_t = 0.0)]
    pub(crate) dynatemp_range: f32,

    /// Dynamic temperature: exponent from entropy to temperature
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) dynatemp_exp: f32,

    /// Mirostat: version 1 or 2, in place of all samplers but temperature; 0 disables it
    #[arg(long, value_name = "VERSION", default_value_t = 0)]
    #[arg(value_parser = RangedU64ValueParser::<u8>::new().range(..=2))]
    pub(crate) mirostat: u8,

    /// Mirostat: learning rate (η)
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    pub(crate) mirostat_lr: f32,

    /// Mirostat: target entropy (τ), in bits
    #[arg(long, value_name = "X", default_value_t = 5.0)]
    pub(crate) mirostat_ent: f32,

    /// adaptive_p: target probability of the chosen tokens; negative disables it
    #[arg(long, value_name = "P", default_value_t = -1.0, allow_negative_numbers = true)]
    pub(crate) adaptive_target: f32,

    /// adaptive_p: decay rate, 0 to 0.99; lower reacts faster, higher is more stable
    #[arg(long, value_name = "X", default_value_t = 0.9)]
    pub(crate) adaptive_decay: f32,

    /// Bias added to a token's logit: 15043+1, 15043-2.5 or 15043-inf; repeatable
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
    /// JSON schema that the generated text follows
    #[arg(short, long, value_name = "SCHEMA")]
    pub(crate) json_schema: Option<String>,

    /// File of a JSON schema that the generated text follows (-jf)
    #[arg(long, value_name = "FILE")]
    pub(crate) json_schema_file: Option<PathBuf>,

    /// Grammar that the generated text follows: llama.cpp's GBNF, or Lark if it begins with %llguidance
    #[arg(long, value_name = "GRAMMAR")]
    pub(crate) grammar: Option<String>,

    /// File of a grammar that the generated text follows
    #[arg(long, value_name = "FILE")]
    pub(crate) grammar_file: Option<PathBuf>,

    /// Regular expression that the whole generated text matches
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true)]
    pub(crate) regex: Option<String>,

    /// Grammar in llguidance's Lark that the generated text follows
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
        let expected = || format!("expected a token id and a bias, as in 15043+1, not {text:?}");
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
