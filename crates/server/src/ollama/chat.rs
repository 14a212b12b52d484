//! ollama's `/api/chat`.

use std::sync::Arc;

use rustorch_chat::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::stream::{LineSpeaker, View};
use super::{Settings, format, thinking};
use crate::answers::Whole;
use crate::conversation::{Conversation, ToolChoice};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::interface::{Interface, Understood};
use crate::model::Loaded;

/// A request for an answer, besides `options` and `keep_alive`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatRequest {
    messages: Vec<Said>,
    #[serde(default)]
    tools: Vec<Value>,
    format: Option<Value>,
    think: Option<Value>,
    stream: Option<bool>,
}

/// A message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    role: String,
    #[serde(default)]
    content: String,
    thinking: Option<String>,
    #[serde(default)]
    images: Vec<Value>,
    #[serde(default)]
    tool_calls: Vec<Call>,
    #[serde(alias = "name")]
    tool_name: Option<String>,
    tool_call_id: Option<String>,
}

/// A tool call.
#[derive(Debug, Deserialize)]
struct Call {
    id: Option<String>,
    function: Called,
}

#[derive(Debug, Deserialize)]
struct Called {
    name: String,
    #[serde(default)]
    arguments: Map<String, Value>,
}

impl Said {
    /// The message as OpenAI's interface has it.
    fn message(self, index: usize) -> Result<Message, ApiError> {
        if !self.images.is_empty() {
            let problem = "this server reads no images; send text";
            return Err(ApiError::field(
                format!("messages[{index}].images"),
                problem,
            ));
        }
        let mut message = Message::new(&self.role, &self.content);
        if let Some(thinking) = self.thinking {
            message.set("reasoning_content", thinking);
        }
        if !self.tool_calls.is_empty() {
            let call = |call: Call| {
                let arguments = Value::from(call.function.arguments).to_string();
                let function = json!({"name": call.function.name, "arguments": arguments});
                json!({"id": call.id.unwrap_or_default(), "type": "function", "function": function})
            };
            let calls: Vec<Value> = self.tool_calls.into_iter().map(call).collect();
            message.set("tool_calls", calls);
        }
        if let Some(name) = self.tool_name {
            message.set("name", name);
        }
        if let Some(id) = self.tool_call_id {
            message.set("tool_call_id", id);
        }
        Ok(message)
    }
}

/// The view of a request.
pub(crate) struct Chat(View);

impl Interface for Chat {
    type Speaker = LineSpeaker;

    fn read(
        model: &Arc<Loaded>,
        mut fields: Fields,
        salt: u64,
    ) -> Result<Understood<Self>, ApiError> {
        let settings = Settings::take(model, &mut fields)?;
        let mut ignored = fields.ignored().to_vec();
        let asked: ChatRequest = fields.into()?;
        let messages = asked.messages.into_iter().enumerate();
        let conversation = Conversation {
            messages: messages
                .map(|(index, said)| said.message(index))
                .collect::<Result<_, _>>()?,
            tools: asked.tools,
            choice: ToolChoice::Auto,
            parallel: true,
            grammar: format(asked.format)?,
            variables: thinking(asked.think)?,
            reasoning: None,
            continues: None,
        };
        let plan = conversation.plan(model, settings.sampler.clone(), salt, &mut ignored)?;
        let view = View::new(model, true);
        Ok(Understood {
            plans: vec![settings.limit(plan)],
            speaker: asked
                .stream
                .unwrap_or(true)
                .then(|| LineSpeaker::new(view.clone())),
            view: Self(view),
            ignored,
        })
    }

    fn response(&self, answers: &[Whole]) -> Value {
        self.0.whole(answers)
    }
}
