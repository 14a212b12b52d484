//! OpenAI's `/v1/responses`, without state: a request has the whole conversation.

mod input;
mod stream;
mod view;

use std::sync::Arc;

use rustorch_llm::sampler::SamplerConfig;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::HINTS;
use crate::answers::{Whole, unique};
use crate::conversation::{Conversation, ToolChoice};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::form::{self, NamedSchema, ResponseFormat};
use crate::interface::{Interface, Understood};
use crate::model::{Loaded, now};
use stream::ResponseSpeaker;
pub(crate) use view::Responses;
use view::{call_item, message_item, reasoning_item, status};

/// Fields that change no answer here, besides those of chats.
const MORE_HINTS: &[&str] = &[
    "include",
    "max_tool_calls",
    "stream_options",
    "client_metadata",
];

/// A request for a response. Besides these fields it has the samplers' options.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseRequest {
    input: Value,
    instructions: Option<String>,
    max_output_tokens: Option<usize>,
    #[serde(default)]
    tools: Vec<Map<String, Value>>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    text: Option<TextOptions>,
    reasoning: Option<ReasoningOptions>,
    previous_response_id: Option<String>,
    conversation: Option<Value>,
    truncation: Option<String>,
    background: Option<bool>,
    seed: Option<i64>,
    #[serde(default)]
    stream: bool,
}

impl ResponseRequest {
    /// Refuses what needs a state.
    fn check(&self) -> Result<(), ApiError> {
        for (param, is_given) in [
            ("previous_response_id", self.previous_response_id.is_some()),
            ("conversation", self.conversation.is_some()),
            ("background", self.background == Some(true)),
        ] {
            if is_given {
                return Err(ApiError::field(
                    param,
                    "nothing is kept here; send the whole conversation in input",
                ));
            }
        }
        if self
            .truncation
            .as_deref()
            .is_some_and(|it| it != "disabled")
        {
            return Err(ApiError::field(
                "truncation",
                "nothing is cut off here; only disabled is possible",
            ));
        }
        if self.max_output_tokens == Some(0) {
            return Err(ApiError::field("max_output_tokens", "expected at least 1"));
        }
        Ok(())
    }

    /// The fields that the response repeats.
    fn repeated(&self, config: &SamplerConfig) -> Map<String, Value> {
        Map::from_iter([
            ("instructions".to_owned(), json!(self.instructions)),
            (
                "max_output_tokens".to_owned(),
                json!(self.max_output_tokens),
            ),
            (
                "parallel_tool_calls".to_owned(),
                json!(self.parallel_tool_calls.unwrap_or(true)),
            ),
            (
                "temperature".to_owned(),
                json!(config.temperature.temperature),
            ),
            (
                "tool_choice".to_owned(),
                json!(tool_choice(self.tool_choice.as_ref())),
            ),
            ("tools".to_owned(), json!(self.tools)),
            ("top_p".to_owned(), json!(config.top_p.top_p)),
        ])
    }
}

/// The form of the text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TextOptions {
    format: Option<TextFormat>,
    /// No effect.
    #[serde(rename = "verbosity")]
    _verbosity: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum TextFormat {
    Text,
    JsonObject,
    JsonSchema(NamedSchema),
}

impl From<TextFormat> for ResponseFormat {
    fn from(format: TextFormat) -> Self {
        match format {
            TextFormat::Text => Self::Text,
            TextFormat::JsonObject => Self::JsonObject { schema: None },
            TextFormat::JsonSchema(json_schema) => Self::JsonSchema { json_schema },
        }
    }
}

/// Reasoning before the answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasoningOptions {
    effort: Option<String>,
    /// No effect: reasoning is shown as it is.
    #[serde(rename = "summary")]
    _summary: Option<String>,
}

impl Interface for Responses {
    type Speaker = ResponseSpeaker;

    fn read(
        model: &Arc<Loaded>,
        mut fields: Fields,
        salt: u64,
    ) -> Result<Understood<Self>, ApiError> {
        fields.skip(HINTS);
        fields.skip(MORE_HINTS);
        let mut config = model.defaults.sampler.clone();
        fields.samplers(&mut config)?;
        let mut ignored = fields.ignored().to_vec();
        let asked: ResponseRequest = fields.into()?;
        asked.check()?;
        let repeated = asked.repeated(&config);
        let mut variables = Map::new();
        if let Some(effort) = asked.reasoning.and_then(|reasoning| reasoning.effort) {
            variables.insert("enable_thinking".to_owned(), (effort != "none").into());
            variables.insert("reasoning_effort".to_owned(), effort.into());
        }
        let format = asked
            .text
            .and_then(|text| text.format)
            .map(ResponseFormat::from);
        let conversation = Conversation {
            messages: input::messages(asked.instructions, asked.input)?,
            tools: asked.tools.into_iter().map(input::tool).collect(),
            choice: asked.tool_choice.unwrap_or_default(),
            parallel: asked.parallel_tool_calls.unwrap_or(true),
            grammar: form::grammar(format, None, None)?,
            variables,
            reasoning: None,
            continues: None,
        };
        let sampler = form::sampler(model, config, asked.seed, None)?;
        let mut plan = conversation.plan(model, sampler, salt, &mut ignored)?;
        plan.request.max_tokens = asked.max_output_tokens.or(model.defaults.max_tokens);
        let view = Self {
            id: unique("resp_"),
            created: now(),
            model: Arc::clone(model),
            repeated,
        };
        Ok(Understood {
            plans: vec![plan],
            speaker: asked.stream.then(|| ResponseSpeaker::new(view.clone())),
            view,
            ignored,
        })
    }

    fn response(&self, answers: &[Whole]) -> Value {
        let Some(Whole { answer, end, .. }) = answers.first() else {
            return Value::Null;
        };
        let mut output = Vec::new();
        if !answer.reasoning.is_empty() {
            output.push(reasoning_item(&unique("rs_"), &answer.reasoning));
        }
        if !answer.content.is_empty() {
            output.push(message_item(
                &unique("msg_"),
                &answer.content,
                status(&end.reason),
            ));
        }
        for call in &answer.calls {
            output.push(call_item(
                &unique("fc_"),
                &call.id,
                &call.name,
                &call.arguments,
                "completed",
            ));
        }
        self.body(status(&end.reason), output, Some(end))
    }
}

fn tool_choice(choice: Option<&ToolChoice>) -> Value {
    match choice {
        None | Some(ToolChoice::Auto) => json!("auto"),
        Some(ToolChoice::None) => json!("none"),
        Some(ToolChoice::Required) => json!("required"),
        Some(ToolChoice::Named(name)) => json!({"type": "function", "name": name}),
    }
}
