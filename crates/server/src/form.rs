//! Fields that all interfaces share: sampling, and the form of the text.

use rustorch_grammar::Grammar;
use rustorch_llm::engine::Request;
use rustorch_llm::sampler::SamplerConfig;
use rustorch_tokenizer::EncodeOptions;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::fields::{Biased, Biases};
use crate::model::Loaded;

/// Beginning of llama.cpp's grammars in Lark.
const LARK: &str = "%llguidance";

/// Top log probabilities that a request may ask for.
pub(crate) const MAX_LOGPROBS: usize = 100;

/// Answers that a request may ask for.
const MAX_CHOICES: usize = 128;

/// OpenAI's `response_format`.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ResponseFormat {
    Text,
    JsonObject {
        /// llama-server's.
        schema: Option<Value>,
    },
    JsonSchema {
        json_schema: NamedSchema,
    },
}

/// A schema with its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedSchema {
    /// The name, of no effect.
    #[serde(rename = "name")]
    _name: Option<String>,
    /// The description, of no effect.
    #[serde(rename = "description")]
    _description: Option<String>,
    schema: Value,
    /// Whether the schema is enforced. It always is.
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

/// The form of a text, by the fields that may ask for one.
///
/// # Errors
/// Fails if several ask.
pub(crate) fn grammar(
    format: Option<ResponseFormat>,
    json_schema: Option<Value>,
    grammar: Option<String>,
) -> Result<Option<Grammar>, ApiError> {
    let of_schema = |schema: Value| Grammar::JsonSchema(schema.to_string());
    let format = format.and_then(|format| match format {
        ResponseFormat::Text => None,
        ResponseFormat::JsonObject { schema } => Some(of_schema(
            schema.unwrap_or_else(|| json!({"type": "object"})),
        )),
        ResponseFormat::JsonSchema { json_schema } => Some(of_schema(json_schema.schema)),
    });
    let grammar = grammar.filter(|grammar| !grammar.is_empty());
    let grammar = grammar.map(|grammar| match grammar.starts_with(LARK) {
        true => Grammar::Lark(grammar),
        false => Grammar::Gbnf(grammar),
    });
    let forms = [
        ("response_format", format),
        ("json_schema", json_schema.map(of_schema)),
        ("grammar", grammar),
    ];
    let mut forms = forms
        .into_iter()
        .filter_map(|(name, form)| Some((name, form?)));
    match (forms.next(), forms.next()) {
        (form, None) => Ok(form.map(|(_, form)| form)),
        (_, Some((name, _))) => Err(ApiError::field(
            name,
            "another field asks for a form, too; give one",
        )),
    }
}

/// The error of a form, with the field that it came from.
pub(crate) fn named(param: &str, error: ApiError) -> ApiError {
    ApiError::field(param, error.message)
}

/// The sampler of a request.
///
/// # Errors
/// Fails for a seed or token out of range.
pub(crate) fn sampler(
    model: &Loaded,
    mut config: SamplerConfig,
    seed: Option<i64>,
    biases: Option<Biases>,
) -> Result<SamplerConfig, ApiError> {
    config.seed =
        match seed {
            None => config.seed,
            Some(-1) => None,
            Some(seed) => Some(u32::try_from(seed).map_err(|_| {
                ApiError::field("seed", format!("expected -1, or 0 to {}", u32::MAX))
            })?),
        };
    if let Some(Biases(biases)) = biases {
        for (biased, bias) in biases {
            let ids = match biased {
                Biased::Token(id) => vec![id],
                Biased::Text(text) => model.tokenizer().encode(&text, EncodeOptions::default()),
            };
            config
                .logit_bias
                .extend(ids.into_iter().map(|id| (id, bias)));
        }
        model.check_tokens(
            "logit_bias",
            config.logit_bias.iter().map(|&(token, _)| token),
        )?;
    }
    config.bind(model.tokenizer());
    config.check()?;
    Ok(config)
}

/// A request without options.
pub(crate) fn request(prompt: Vec<u32>, sampler: SamplerConfig, salt: u64) -> Request {
    Request {
        sampler,
        cache_salt: salt,
        ..Request::new(prompt)
    }
}

/// A number of answers.
///
/// # Errors
/// Fails for a number out of range.
pub(crate) fn choices(n: Option<usize>) -> Result<usize, ApiError> {
    match n.unwrap_or(1) {
        n @ 1..=MAX_CHOICES => Ok(n),
        n => Err(ApiError::field(
            "n",
            format!("{n}: expected 1 to {MAX_CHOICES}"),
        )),
    }
}

/// The limit of an answer's tokens by the fields that may have it, the first of which counts; `None` for no limit.
/// Without such a field it is `default`.
///
/// # Errors
/// Fails for a number out of range.
pub(crate) fn max_tokens(
    fields: &[(&str, Option<i64>)],
    default: Option<usize>,
) -> Result<Option<usize>, ApiError> {
    let given = fields
        .iter()
        .find_map(|&(param, value)| Some((param, value?)));
    match given {
        None => Ok(default),
        Some((_, -1)) => Ok(None),
        Some((param, n)) => match usize::try_from(n) {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(ApiError::field(
                param,
                format!("{n}: expected -1, or at least 0"),
            )),
        },
    }
}

/// A number of log probabilities.
///
/// # Errors
/// Fails for a number out of range.
pub(crate) fn logprobs(param: &str, count: usize) -> Result<usize, ApiError> {
    match count {
        0..=MAX_LOGPROBS => Ok(count),
        n => Err(ApiError::field(
            param,
            format!("{n}: expected 0 to {MAX_LOGPROBS}"),
        )),
    }
}
