//! ollama's `/api/generate`.

use std::sync::Arc;

use rustorch_chat::Message;
use serde::Deserialize;
use serde_json::Value;

use super::stream::{LineSpeaker, View};
use super::{Settings, format, thinking};
use crate::answers::{Plan, Shape, Whole};
use crate::conversation::{Conversation, ToolChoice};
use crate::error::ApiError;
use crate::fields::Fields;
use crate::form;
use crate::interface::{Interface, Understood};
use crate::model::Loaded;

/// A request for a text, besides `options` and `keep_alive`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GenerateRequest {
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    system: String,
    /// Is the prompt not a message, but the text itself?
    #[serde(default)]
    raw: bool,
    #[serde(default)]
    suffix: String,
    #[serde(default)]
    images: Vec<Value>,
    format: Option<Value>,
    think: Option<Value>,
    stream: Option<bool>,
}

/// The view of a request.
pub(crate) struct Generate(View);

impl Interface for Generate {
    type Speaker = LineSpeaker;

    fn read(
        model: &Arc<Loaded>,
        mut fields: Fields,
        salt: u64,
    ) -> Result<Understood<Self>, ApiError> {
        let settings = Settings::take(model, &mut fields)?;
        let mut ignored = fields.ignored().to_vec();
        let asked: GenerateRequest = fields.into()?;
        if !asked.suffix.is_empty() {
            return Err(ApiError::field(
                "suffix",
                "text in the middle is not supported here; omit it",
            ));
        }
        if !asked.images.is_empty() {
            return Err(ApiError::field(
                "images",
                "this server reads no images; send text",
            ));
        }
        let grammar = format(asked.format)?;
        let sampler = settings.sampler.clone();
        let plan = match asked.raw {
            true => {
                let mut request = form::request(model.encode(&asked.prompt), sampler, salt);
                request.constraint = grammar
                    .map(|grammar| model.constraint(&grammar))
                    .transpose()?;
                Plan {
                    request,
                    shape: Shape::Text { special: false },
                    stops: Vec::new(),
                    time: None,
                }
            }
            false => {
                let system = (!asked.system.is_empty()).then(|| Message::system(&asked.system));
                let conversation = Conversation {
                    messages: system
                        .into_iter()
                        .chain([Message::user(&asked.prompt)])
                        .collect(),
                    tools: Vec::new(),
                    choice: ToolChoice::Auto,
                    parallel: true,
                    grammar,
                    variables: thinking(asked.think)?,
                    reasoning: None,
                    continues: None,
                };
                conversation.plan(model, sampler, salt, &mut ignored)?
            }
        };
        let view = View::new(model, false);
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
