//! Anthropic's `/v1/messages`.

mod convert;
mod stream;
mod view;

use std::sync::Arc;

use rustorch_chat::ToolCall;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::answers::{Whole, unique};
use crate::conversation::{Conversation, ToolChoice};
use crate::error::ApiError;
use crate::fields::{Fields, Stops};
use crate::form;
use crate::interface::{Interface, Understood};
use crate::model::Loaded;
use stream::MessageSpeaker;
pub(crate) use view::Messages;
use view::{stop_reason, usage};

/// Fields that change no answer.
const HINTS: &[&str] = &[
    "metadata",
    "service_tier",
    "context_management",
    "container",
    "inference_geo",
];

/// A request for a message. Besides these fields it has the samplers' options.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageRequest {
    messages: Vec<Map<String, Value>>,
    system: Option<Value>,
    max_tokens: Option<usize>,
    stop_sequences: Option<Stops>,
    #[serde(default)]
    tools: Vec<Value>,
    tool_choice: Option<Choice>,
    thinking: Option<Thinking>,
    seed: Option<i64>,
    #[serde(default)]
    stream: bool,
}

/// Whether the model calls tools.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Choice {
    r#type: ChoiceType,
    name: Option<String>,
    #[serde(default)]
    disable_parallel_tool_use: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ChoiceType {
    Auto,
    Any,
    Tool,
    None,
}

/// Reasoning before the answer.
#[derive(Debug, Deserialize)]
struct Thinking {
    r#type: ThinkingType,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
enum ThinkingType {
    Enabled,
    Adaptive,
    Disabled,
}

impl MessageRequest {
    /// The conversation. Parts without effect are added to `ignored`.
    fn conversation(&mut self, ignored: &mut Vec<String>) -> Result<Conversation, ApiError> {
        let mut messages = Vec::new();
        if let Some(system) = self.system.take() {
            messages.extend(convert::system(system, ignored)?);
        }
        for (index, message) in std::mem::take(&mut self.messages).into_iter().enumerate() {
            convert::message(index, message, &mut messages)?;
        }
        let (choice, parallel) = match &self.tool_choice {
            None => (ToolChoice::Auto, true),
            Some(choice) => {
                let named = || {
                    choice
                        .name
                        .clone()
                        .ok_or_else(|| ApiError::field("tool_choice.name", "this field is missing"))
                };
                let kind = match choice.r#type {
                    ChoiceType::Auto => ToolChoice::Auto,
                    ChoiceType::Any => ToolChoice::Required,
                    ChoiceType::None => ToolChoice::None,
                    ChoiceType::Tool => ToolChoice::Named(named()?),
                };
                (kind, !choice.disable_parallel_tool_use)
            }
        };
        let mut variables = Map::new();
        if let Some(thinking) = &self.thinking {
            let thinks = thinking.r#type != ThinkingType::Disabled;
            variables.insert("enable_thinking".to_owned(), thinks.into());
        }
        Ok(Conversation {
            messages,
            tools: convert::tools(std::mem::take(&mut self.tools), ignored)?,
            choice,
            parallel,
            grammar: None,
            variables,
            reasoning: None,
            continues: None,
        })
    }
}

impl Interface for Messages {
    type Speaker = MessageSpeaker;

    fn read(
        model: &Arc<Loaded>,
        mut fields: Fields,
        salt: u64,
    ) -> Result<Understood<Self>, ApiError> {
        fields.skip(HINTS);
        let mut config = model.defaults.sampler.clone();
        fields.samplers(&mut config)?;
        let mut ignored = fields.ignored().to_vec();
        let mut asked: MessageRequest = fields.into()?;
        let max_tokens = match asked.max_tokens {
            Some(n @ 1..) => n,
            Some(0) => return Err(ApiError::field("max_tokens", "expected at least 1")),
            None => return Err(ApiError::field("max_tokens", "this field is missing")),
        };
        let conversation = asked.conversation(&mut ignored)?;
        let sampler = form::sampler(model, config, asked.seed, None)?;
        let mut plan = conversation.plan(model, sampler, salt, &mut ignored)?;
        plan.request.max_tokens = Some(max_tokens);
        plan.stops = asked.stop_sequences.unwrap_or_default().0;
        let view = Self {
            id: unique("msg_"),
            model: Arc::clone(model),
        };
        let prompt = plan.request.prompt.len();
        Ok(Understood {
            plans: vec![plan],
            speaker: asked
                .stream
                .then(|| MessageSpeaker::new(view.clone(), prompt)),
            view,
            ignored,
        })
    }

    fn response(&self, answers: &[Whole]) -> Value {
        let Some(whole) = answers.first() else {
            return Value::Null;
        };
        let answer = &whole.answer;
        let mut content = Vec::new();
        if !answer.reasoning.is_empty() {
            content
                .push(json!({"type": "thinking", "thinking": answer.reasoning, "signature": ""}));
        }
        if !answer.content.is_empty() {
            content.push(json!({"type": "text", "text": answer.content}));
        }
        let call = |call: &ToolCall| {
            // Arguments that were cut off are no object.
            let input: Option<Map<String, Value>> = serde_json::from_str(&call.arguments).ok();
            json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input.unwrap_or_default()})
        };
        content.extend(answer.calls.iter().map(call));
        let (reason, stop) = stop_reason(&whole.end.reason, !answer.calls.is_empty());
        let mut body = self.body(json!(content), usage(&whole.end));
        body["stop_reason"] = reason.into();
        body["stop_sequence"] = stop;
        body
    }
}

/// The number of a request's tokens.
///
/// # Errors
/// Fails if a field is wrong.
pub(crate) fn count_tokens(model: &Loaded, mut fields: Fields) -> Result<Value, ApiError> {
    fields.skip(HINTS);
    let mut asked: MessageRequest = fields.into()?;
    let mut ignored = Vec::new();
    let prompt = asked
        .conversation(&mut ignored)?
        .render(model, true, &mut ignored)?;
    Ok(json!({"input_tokens": prompt.encode(model.tokenizer()).len()}))
}
