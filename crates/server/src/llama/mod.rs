//! llama-server's interface.

pub(crate) mod completion;
pub(crate) mod infill;
pub(crate) mod metrics;
pub(crate) mod slots;

use rustorch_tokenizer::EncodeOptions;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::conversation::{Conversation, ToolChoice};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::model::Loaded;
use rustorch_chat::Message;
use rustorch_llm::sampler::{OptionValue, SamplerConfig, SamplerOption};

/// Properties of the server and its first model.
pub(crate) fn props(model: &Loaded) -> Value {
    let tokenizer = model.tokenizer();
    let metadata = &model.model.gguf().metadata;
    let text = |id: Option<u32>| {
        id.and_then(|id| tokenizer.token_text(id))
            .unwrap_or_default()
    };
    let params = settings(&model.defaults.sampler);
    json!({
        "default_generation_settings": {"n_ctx": model.context(), "params": params},
        "total_slots": model.sequences(),
        "model_alias": model.name,
        "model_path": model.path,
        "is_sleeping": false,
        "chat_template": metadata.display("tokenizer.chat_template"),
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "modalities": {"vision": false, "audio": false},
        "build_info": concat!("rustorch ", env!("CARGO_PKG_VERSION")),
    })
}

/// The options of samplers, and the seed.
fn settings(config: &SamplerConfig) -> Map<String, Value> {
    let option = |option: &'static SamplerOption| {
        let value = match option.get(config) {
            OptionValue::Number(number) => json!(number),
            OptionValue::Integer(integer) => json!(integer),
            OptionValue::Texts(texts) => json!(texts),
        };
        (option.name.to_owned(), value)
    };
    let mut settings: Map<String, Value> = SamplerConfig::options().map(option).collect();
    // llama-server's number for a random seed.
    settings.insert("seed".to_owned(), config.seed.unwrap_or(u32::MAX).into());
    settings
}

/// A request for token ids.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenizeRequest {
    content: String,
    #[serde(default)]
    add_special: bool,
    #[serde(default = "yes")]
    parse_special: bool,
    #[serde(default)]
    with_pieces: bool,
}

fn yes() -> bool {
    true
}

/// The token ids of a text.
pub(crate) fn tokenize(model: &Loaded, fields: Fields) -> Result<Value, ApiError> {
    let asked: TokenizeRequest = fields.into()?;
    let tokenizer = model.tokenizer();
    let options = EncodeOptions {
        add_special: asked.add_special,
        parse_special: asked.parse_special,
    };
    let ids = tokenizer.encode(&asked.content, options);
    let piece = |&id: &u32| {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        // A part of a character is an array of bytes.
        let piece = match str::from_utf8(&bytes) {
            Ok(text) => json!(text),
            Err(_) => json!(bytes.as_ref()),
        };
        json!({"id": id, "piece": piece})
    };
    let tokens: Value = match asked.with_pieces {
        true => ids.iter().map(piece).collect(),
        false => ids.into(),
    };
    Ok(json!({"tokens": tokens}))
}

/// A request for the text of token ids.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DetokenizeRequest {
    tokens: Vec<u32>,
}

/// The text of token ids.
pub(crate) fn detokenize(model: &Loaded, fields: Fields) -> Result<Value, ApiError> {
    let asked: DetokenizeRequest = fields.into()?;
    model.check_tokens("tokens", asked.tokens.iter().copied())?;
    Ok(json!({"content": model.tokenizer().decode(&asked.tokens)}))
}

/// A request for a conversation's prompt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TemplateRequest {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Value>,
    tool_choice: Option<ToolChoice>,
    #[serde(default)]
    chat_template_kwargs: Map<String, Value>,
    #[serde(default = "yes")]
    add_generation_prompt: bool,
}

/// The prompt of a conversation.
pub(crate) fn apply_template(model: &Loaded, fields: Fields) -> Result<Value, ApiError> {
    let asked: TemplateRequest = fields.into()?;
    let mut conversation = Conversation {
        messages: asked.messages,
        tools: asked.tools,
        choice: asked.tool_choice.unwrap_or_default(),
        parallel: true,
        grammar: None,
        variables: asked.chat_template_kwargs,
        reasoning: None,
        continues: None,
    };
    let prompt = conversation.render(model, asked.add_generation_prompt, &mut Vec::new())?;
    Ok(json!({"prompt": prompt.text()}))
}
