//! OpenAI's `/v1/chat/completions`.

use std::sync::Arc;

use rustorch_chat::{Delta, Message};
use rustorch_llm::engine::Usage;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{FINGERPRINT, StreamOptions, finish_reason, logprobs_content, usage_json};
use crate::answers::{End, Part, Token, Whole, unique};
use crate::conversation::{Conversation, ToolChoice};
use crate::error::{ApiError, Dialect};
use crate::fields::{Biases, Fields, Stops};
use crate::form::{self, ResponseFormat};
use crate::interface::{Interface, Understood};
use crate::model::{Loaded, now};
use crate::slot_fields::SlotFields;
use crate::speak::{Frames, Speaker};
use crate::times::{progress, timings};

/// Fields that change no answer.
pub(super) const HINTS: &[&str] = &[
    "metadata",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "user",
    "verbosity",
];

/// A request for an answer. Besides these fields it has the samplers' options.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChatRequest {
    messages: Vec<Message>,
    #[serde(default)]
    tools: Vec<Value>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    max_tokens: Option<i64>,
    max_completion_tokens: Option<i64>,
    n_predict: Option<i64>,
    n: Option<usize>,
    seed: Option<i64>,
    stop: Option<Stops>,
    logit_bias: Option<Biases>,
    logprobs: Option<bool>,
    top_logprobs: Option<usize>,
    response_format: Option<ResponseFormat>,
    json_schema: Option<Value>,
    grammar: Option<String>,
    ignore_eos: Option<bool>,
    /// Variables of the chat template.
    #[serde(default)]
    chat_template_kwargs: Map<String, Value>,
    reasoning_effort: Option<String>,
    reasoning_format: Option<String>,
    /// Adds the prompt to the response, as llama-server does.
    verbose: Option<bool>,
    add_generation_prompt: Option<bool>,
    continue_final_message: Option<bool>,
    #[serde(default)]
    return_progress: bool,
    #[serde(default)]
    timings_per_token: bool,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
}

/// The view of a request.
pub(crate) struct Chat {
    model: Arc<Loaded>,
    wants_logprobs: bool,
    /// The prompt, if it is wanted.
    prompt: Option<String>,
}

impl ChatRequest {
    /// Whether the answer continues the last message, if the request says so.
    fn continues(&self) -> Result<Option<bool>, ApiError> {
        if let [.., one, other] = self.messages.as_slice()
            && [one, other].map(Message::role) == ["assistant"; 2]
        {
            let problem = "the last two messages are the assistant's: join them, or leave one out";
            return Err(ApiError::field("messages", problem));
        }
        match (self.continue_final_message, self.add_generation_prompt) {
            (Some(true), Some(true)) => {
                let problem = "add_generation_prompt begins another message; give one of both";
                Err(ApiError::field("continue_final_message", problem))
            }
            (continues, _) => Ok(continues),
        }
    }
}

impl Interface for Chat {
    type Speaker = ChatSpeaker;

    fn read(
        model: &Arc<Loaded>,
        mut fields: Fields,
        salt: u64,
    ) -> Result<Understood<Self>, ApiError> {
        fields.skip(HINTS);
        let mut config = model.defaults.sampler.clone();
        fields.samplers(&mut config)?;
        let placed = SlotFields::take(model, &mut fields)?;
        let mut ignored = fields.ignored().to_vec();
        let asked: ChatRequest = fields.into()?;
        let wants_logprobs = asked.logprobs.unwrap_or(false);
        let top = match (wants_logprobs, asked.top_logprobs) {
            (false, Some(1..)) => {
                return Err(ApiError::field("top_logprobs", "it needs logprobs: true"));
            }
            (_, top) => form::logprobs("top_logprobs", top.unwrap_or(0))?,
        };
        let n = form::choices(asked.n)?;
        let limits = [
            ("n_predict", asked.n_predict),
            ("max_completion_tokens", asked.max_completion_tokens),
            ("max_tokens", asked.max_tokens),
        ];
        let max_tokens = form::max_tokens(&limits, model.defaults.max_tokens)?;
        if max_tokens == Some(0) {
            return Err(ApiError::field("max_tokens", "expected at least 1"));
        }
        let continues = asked.continues()?;
        let grammar = form::grammar(asked.response_format, asked.json_schema, asked.grammar)?;
        let mut variables = asked.chat_template_kwargs;
        if let Some(effort) = asked.reasoning_effort {
            variables.entry("reasoning_effort").or_insert(effort.into());
        }
        let conversation = Conversation {
            messages: asked.messages,
            tools: asked.tools,
            choice: asked.tool_choice.unwrap_or_default(),
            parallel: asked.parallel_tool_calls.unwrap_or(true),
            grammar,
            variables,
            reasoning: asked.reasoning_format,
            continues,
        };
        let sampler = form::sampler(model, config, asked.seed, asked.logit_bias)?;
        let mut plan = conversation.plan(model, sampler, salt, &mut ignored)?;
        placed.apply(model, &mut plan);
        plan.request.max_tokens = max_tokens;
        plan.request.ignore_end = asked.ignore_eos.unwrap_or(false);
        plan.request.logprobs = wants_logprobs.then_some(top);
        plan.stops = asked.stop.unwrap_or_default().0;
        let wants = Wants {
            logprobs: wants_logprobs,
            usage: (asked.stream_options).is_some_and(|options| options.include_usage),
            progress: asked.return_progress,
            timings: asked.timings_per_token,
        };
        let prompt = asked.verbose.unwrap_or(model.defaults.shows_prompt);
        let prompt = prompt.then(|| model.shown(&plan.request.prompt));
        let tokens = plan.request.prompt.len();
        // Before it is copied. One alone may be too long here: its tokens can be counted.
        if n > 1 {
            model.check_answers("n", n)?;
            model.check_prompt(tokens)?;
        }
        let speaker = asked
            .stream
            .then(|| ChatSpeaker::new(model, n, tokens, wants));
        let view = Self {
            model: Arc::clone(model),
            wants_logprobs,
            prompt,
        };
        Ok(Understood {
            plans: plan.times(n),
            speaker,
            view,
            ignored,
        })
    }

    fn response(&self, answers: &[Whole]) -> Value {
        let choice = |(index, whole): (usize, &Whole)| {
            let calls = &whole.answer.calls;
            let mut message = json!({"role": "assistant", "content": whole.answer.content});
            if !whole.answer.reasoning.is_empty() {
                message["reasoning_content"] = whole.answer.reasoning.as_str().into();
            }
            if !calls.is_empty() {
                if whole.answer.content.is_empty() {
                    message["content"] = Value::Null;
                }
                let call = |call: &rustorch_chat::ToolCall| {
                    let function = json!({"name": call.name, "arguments": call.arguments});
                    json!({"id": call.id, "type": "function", "function": function})
                };
                message["tool_calls"] = calls.iter().map(call).collect();
            }
            let logprobs = match self.wants_logprobs {
                true => logprobs_content(self.model.tokenizer(), &whole.tokens),
                false => Value::Null,
            };
            json!({
                "index": index,
                "message": message,
                "logprobs": logprobs,
                "finish_reason": finish_reason(&whole.end.reason, !calls.is_empty()),
            })
        };
        let mut body = json!({
            "id": unique("chatcmpl-"),
            "object": "chat.completion",
            "created": now(),
            "system_fingerprint": FINGERPRINT,
            "model": self.model.name,
            "choices": answers.iter().enumerate().map(choice).collect::<Vec<_>>(),
            "usage": usage_json(answers.iter().map(|whole| &whole.end), answers.len()),
        });
        if let [whole] = answers {
            body["timings"] = timings(&whole.end.usage);
        }
        if let Some(prompt) = &self.prompt {
            body["__verbose"] = json!({"prompt": prompt});
        }
        body
    }
}

/// Parts that a stream has besides its text.
#[derive(Clone, Copy)]
struct Wants {
    logprobs: bool,
    usage: bool,
    /// The progress of the prompt.
    progress: bool,
    /// Times in each chunk.
    timings: bool,
}

/// The stream of a chat.
pub(crate) struct ChatSpeaker {
    id: String,
    created: u64,
    model: Arc<Loaded>,
    choices: usize,
    /// Tokens of the prompt.
    prompt: usize,
    wants: Wants,
    /// Has a choice calls?
    calls: Vec<bool>,
    ends: Vec<Option<End>>,
}

impl ChatSpeaker {
    fn new(model: &Arc<Loaded>, choices: usize, prompt: usize, wants: Wants) -> Self {
        Self {
            id: unique("chatcmpl-"),
            created: now(),
            model: Arc::clone(model),
            choices,
            prompt,
            wants,
            calls: vec![false; choices],
            ends: vec![None; choices],
        }
    }

    fn chunk(&self, choices: Value) -> Value {
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "system_fingerprint": FINGERPRINT,
            "model": self.model.name,
            "choices": choices,
        });
        if self.wants.usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    /// Adds times, if they are wanted in each chunk.
    fn time(&self, chunk: &mut Value, usage: &Usage) {
        if self.wants.timings {
            chunk["timings"] = timings(usage);
        }
    }

    fn choice(&self, index: usize, delta: Value, tokens: &[Token], finish: Option<&str>) -> Value {
        let is_text = delta.get("role").is_none() && finish.is_none();
        let logprobs = match self.wants.logprobs && is_text {
            true => logprobs_content(self.model.tokenizer(), tokens),
            false => Value::Null,
        };
        self.chunk(json!([{
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish,
        }]))
    }
}

impl Speaker for ChatSpeaker {
    fn begin(&mut self, frames: &mut Frames) {
        for index in 0..self.choices {
            let delta = json!({"role": "assistant", "content": null});
            frames.data(&self.choice(index, delta, &[], None));
        }
    }

    fn part(&mut self, choice: usize, part: Part, frames: &mut Frames) {
        match part {
            Part::Prompt { done, usage, .. } => {
                if self.wants.progress {
                    let mut chunk = self.choice(choice, json!({}), &[], None);
                    chunk["prompt_progress"] = progress(self.prompt, done, &usage);
                    self.time(&mut chunk, &usage);
                    frames.data(&chunk);
                }
            }
            Part::Step {
                deltas,
                tokens,
                usage,
            } => {
                // The tokens go with the first delta, or wait for none.
                let mut tokens = tokens.as_slice();
                if deltas.is_empty() && self.wants.logprobs {
                    frames.data(&self.choice(choice, json!({"content": ""}), tokens, None));
                }
                for delta in deltas {
                    let delta = match delta {
                        Delta::Content(text) => json!({"content": text}),
                        Delta::Reasoning(text) => json!({"reasoning_content": text}),
                        Delta::Call { index, name, id } => {
                            self.calls[choice] = true;
                            let function = json!({"name": name, "arguments": ""});
                            json!({"tool_calls": [
                                {"index": index, "id": id, "type": "function", "function": function}
                            ]})
                        }
                        Delta::Arguments { index, text } => {
                            json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
                        }
                        Delta::Id { .. } => continue,
                    };
                    let mut chunk = self.choice(choice, delta, tokens, None);
                    self.time(&mut chunk, &usage);
                    frames.data(&chunk);
                    tokens = &[];
                }
            }
            Part::End(end) => {
                let finish = finish_reason(&end.reason, self.calls[choice]);
                frames.data(&self.choice(choice, json!({}), &[], Some(finish)));
                self.ends[choice] = Some(end);
            }
        }
    }

    fn end(&mut self, frames: &mut Frames) {
        if self.wants.usage {
            let mut chunk = self.chunk(json!([]));
            chunk["usage"] = usage_json(self.ends.iter().flatten(), self.choices);
            if let [Some(end)] = self.ends.as_slice() {
                chunk["timings"] = timings(&end.usage);
            }
            frames.data(&chunk);
        }
        frames.done();
    }

    fn error(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error.json(Dialect::OpenAi));
    }
}
