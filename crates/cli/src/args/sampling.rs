//! Options of sampling.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args};
use rustorch_llm::sampler::{SamplerKind, UnknownSampler};
use serde::{Serialize, Serializer};

use super::sampler::{SamplerArgs, letters_help, samplers_help};

/// Options of sampling: llama.cpp's samplers, with its names and defaults.
#[derive(Clone, Debug, Args, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    /// Seed of the random numbers; -1 for a new seed in each run
    #[arg(short, long, value_name = "N", default_value_t = -1, allow_negative_numbers = true)]
    pub(crate) seed: i64,

    #[command(flatten)]
    #[serde(flatten)]
    pub(crate) options: SamplerArgs,

    #[arg(long, value_name = "NAMES", value_delimiter = ';', action = ArgAction::Set)]
    #[arg(help = samplers_help())]
    #[serde(serialize_with = "names")]
    pub(crate) samplers: Vec<SamplerKind>,

    #[arg(long, visible_alias = "sampling-seq", value_name = "LETTERS")]
    #[arg(conflicts_with = "samplers", help = letters_help())]
    pub(crate) sampler_seq: Option<SamplerSequence>,

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
