//! ollama's interface.

pub(crate) mod chat;
pub(crate) mod generate;
mod stream;

use std::time::SystemTime;

use rustorch_grammar::Grammar;
use rustorch_llm::sampler::SamplerConfig;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::answers::Plan;
use crate::error::ApiError;
use crate::fields::{Fields, Stops};
use crate::form;
use crate::model::Loaded;

/// Fields that change no answer: the models stay.
const HINTS: &[&str] = &["keep_alive"];

/// Options that are about the machine, which the server's own options decide.
const OPTION_HINTS: &[&str] = &[
    "low_vram",
    "main_gpu",
    "num_batch",
    "num_gpu",
    "num_keep",
    "num_thread",
    "use_mlock",
    "use_mmap",
    "vocab_only",
];

/// Options besides those of the samplers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    num_predict: Option<i64>,
    num_ctx: Option<usize>,
    seed: Option<i64>,
    stop: Option<Stops>,
}

/// The options of a request, understood.
struct Settings {
    sampler: SamplerConfig,
    max_tokens: Option<usize>,
    stops: Vec<String>,
}

impl Settings {
    /// Takes the options away.
    fn take(model: &Loaded, fields: &mut Fields) -> Result<Self, ApiError> {
        fields.skip(HINTS);
        let options = match fields.take("options") {
            None => Map::new(),
            Some(Value::Object(options)) => options,
            Some(_) => return Err(ApiError::field("options", "expected an object")),
        };
        let of_options = |error: ApiError| match error.param {
            Some(param) => ApiError::field(
                format!("options.{param}"),
                error.message.trim_start_matches(&format!("{param}: ")),
            ),
            None => error,
        };
        let mut options = Fields::of(options);
        options.skip(OPTION_HINTS);
        for hint in options.ignored().to_vec() {
            fields.ignore(format!("options.{hint}"));
        }
        let mut config = model.defaults.sampler.clone();
        options.samplers(&mut config).map_err(of_options)?;
        let options: Options = options.into().map_err(of_options)?;
        let context = model.context();
        if let Some(size) = options.num_ctx.filter(|&size| size > context) {
            let problem = format!("{size}: the server was started with {context} (-c)");
            return Err(ApiError::field("options.num_ctx", problem));
        }
        let max_tokens = match options.num_predict {
            None => model.defaults.max_tokens,
            Some(-2 | -1) => None,
            Some(n) => Some(usize::try_from(n).map_err(|_| {
                ApiError::field(
                    "options.num_predict",
                    format!("{n}: expected -2, -1, or at least 0"),
                )
            })?),
        };
        Ok(Self {
            sampler: form::sampler(model, config, options.seed, None).map_err(of_options)?,
            max_tokens,
            stops: options.stop.unwrap_or_default().0,
        })
    }

    /// Adds the limits to a plan.
    fn limit(self, mut plan: Plan) -> Plan {
        plan.request.max_tokens = self.max_tokens;
        plan.stops = self.stops;
        plan
    }
}

/// The form of an answer: `json`, or a schema.
fn format(format: Option<Value>) -> Result<Option<Grammar>, ApiError> {
    match format {
        None => Ok(None),
        Some(Value::String(text)) if text.is_empty() => Ok(None),
        Some(Value::String(text)) if text == "json" => {
            let any = json!({"type": "object"});
            Ok(Some(Grammar::JsonSchema(any.to_string())))
        }
        Some(schema @ Value::Object(_)) => Ok(Some(Grammar::JsonSchema(schema.to_string()))),
        Some(_) => Err(ApiError::field("format", "expected json, or a JSON schema")),
    }
}

/// The template's variable for `think`.
fn thinking(think: Option<Value>) -> Result<Map<String, Value>, ApiError> {
    let mut variables = Map::new();
    match think {
        None => {}
        Some(Value::Bool(think)) => {
            variables.insert("enable_thinking".to_owned(), think.into());
        }
        Some(Value::String(effort)) => {
            variables.insert("enable_thinking".to_owned(), true.into());
            variables.insert("reasoning_effort".to_owned(), effort.into());
        }
        Some(_) => {
            return Err(ApiError::field(
                "think",
                "expected true, false, or an effort",
            ));
        }
    }
    Ok(variables)
}

/// The time now, as text.
fn now() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// The kind of a model.
fn details(model: &Loaded) -> Value {
    let metadata = &model.model.gguf().metadata;
    let family = metadata.display("general.architecture");
    json!({
        "format": "gguf",
        "family": family,
        "families": [family],
        "parameter_size": metadata.display("general.size_label").unwrap_or_default(),
        "quantization_level": metadata.display("general.file_type").unwrap_or_default(),
    })
}

/// A model of the lists.
fn listed(model: &Loaded) -> Value {
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_secs(model.created);
    json!({
        "name": model.name,
        "model": model.name,
        "modified_at": humantime::format_rfc3339_seconds(at).to_string(),
        "size": model.bytes,
        "details": details(model),
    })
}

/// The models that there are.
pub(crate) fn tags<'a>(models: impl Iterator<Item = &'a Loaded>) -> Value {
    json!({"models": models.map(listed).collect::<Vec<_>>()})
}

/// The models that are loaded, which all are.
pub(crate) fn running<'a>(models: impl Iterator<Item = &'a Loaded>) -> Value {
    let one = |model: &Loaded| {
        let mut value = listed(model);
        value["context_length"] = model.context().into();
        value
    };
    json!({"models": models.map(one).collect::<Vec<_>>()})
}

/// A request about a model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShowRequest {
    #[serde(default)]
    verbose: bool,
}

/// A description of a model.
///
/// # Errors
/// Fails if a field is wrong.
pub(crate) fn show(model: &Loaded, fields: Fields) -> Result<Value, ApiError> {
    let asked: ShowRequest = fields.into()?;
    let metadata = &model.model.gguf().metadata;
    let mut info = Map::new();
    for (key, _) in metadata.iter() {
        // Vocabularies are long.
        let is_shown = asked.verbose || !key.starts_with("tokenizer.");
        if let Some(text) = metadata.display(key).filter(|_| is_shown) {
            let value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
            info.insert(key.to_owned(), value);
        }
    }
    Ok(json!({
        "template": metadata.display("tokenizer.chat_template").unwrap_or_default(),
        "details": details(model),
        "model_info": info,
        "capabilities": match model.engine() {
            Ok(_) => ["completion", "tools"].as_slice(),
            Err(_) => &["embedding"],
        },
    }))
}
