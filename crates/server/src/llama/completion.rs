//! llama-server's `/completion`.

use std::sync::Arc;

use rustorch_llm::Speed;
use rustorch_llm::engine::Usage;
use rustorch_llm::sampler::SamplerConfig;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::answers::{End, Part, Plan, Reason, Shape, Token, Whole, content};
use crate::error::{ApiError, Dialect};
use crate::fields::{Biases, Fields, Stops};
use crate::form;
use crate::interface::{Interface, Understood};
use crate::model::Loaded;
use crate::openai::completions::PromptText;
use crate::openai::{finite, token_text};
use crate::speak::{Frames, Speaker};

/// Fields that change no answer.
const HINTS: &[&str] = &["cache_prompt", "id_slot", "n_keep", "n_discard"];

/// A request for a text. Besides these fields it has the samplers' options.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NativeRequest {
    prompt: PromptText,
    #[serde(alias = "max_tokens")]
    n_predict: Option<i64>,
    seed: Option<i64>,
    stop: Option<Stops>,
    logit_bias: Option<Biases>,
    n_probs: Option<usize>,
    json_schema: Option<Value>,
    grammar: Option<String>,
    ignore_eos: Option<bool>,
    #[serde(default)]
    return_tokens: bool,
    #[serde(default)]
    return_progress: bool,
    #[serde(default)]
    timings_per_token: bool,
    #[serde(default)]
    stream: bool,
}

/// The view of a request.
#[derive(Clone)]
pub(crate) struct Native {
    model: Arc<Loaded>,
    /// Tokens of the prompt.
    prompt: usize,
    wants_tokens: bool,
    wants_probs: bool,
    wants_progress: bool,
}

impl Interface for Native {
    type Speaker = NativeSpeaker;

    fn read(
        model: &Arc<Loaded>,
        mut fields: Fields,
        salt: u64,
    ) -> Result<Understood<Self>, ApiError> {
        fields.skip(HINTS);
        let mut config = SamplerConfig::default();
        fields.samplers(&mut config)?;
        let ignored = fields.ignored().to_vec();
        let asked: NativeRequest = fields.into()?;
        let max_tokens = match asked.n_predict {
            None | Some(-1) => None,
            Some(n) => Some(usize::try_from(n).map_err(|_| {
                ApiError::field("n_predict", format!("{n}: expected -1, or at least 0"))
            })?),
        };
        let probs = asked.n_probs.filter(|&count| count > 0);
        let probs = probs
            .map(|count| form::logprobs("n_probs", count))
            .transpose()?;
        let grammar = form::grammar(None, asked.json_schema, asked.grammar)?;
        let constraint = grammar
            .map(|grammar| model.constraint(&grammar))
            .transpose()?;
        let sampler = form::sampler(model, config, asked.seed, asked.logit_bias)?;
        let ids = asked.prompt.tokens(model)?;
        let view = Self {
            model: Arc::clone(model),
            prompt: ids.len(),
            wants_tokens: asked.return_tokens,
            wants_probs: probs.is_some(),
            wants_progress: asked.return_progress,
        };
        let mut request = form::request(ids, sampler, salt);
        request.max_tokens = max_tokens;
        request.ignore_end = asked.ignore_eos.unwrap_or(false);
        request.constraint = constraint;
        request.logprobs = probs;
        let plan = Plan {
            request,
            shape: Shape::Text { special: false },
            stops: asked.stop.unwrap_or_default().0,
        };
        // Times of a stream come with its end; there are none of single tokens.
        if asked.timings_per_token {
            return Err(ApiError::field(
                "timings_per_token",
                "only the last event has timings; omit it",
            ));
        }
        Ok(Understood {
            plans: vec![plan],
            speaker: asked.stream.then(|| NativeSpeaker { view: view.clone() }),
            view,
            ignored,
        })
    }

    fn response(&self, answers: &[Whole]) -> Value {
        let Some(whole) = answers.first() else {
            return Value::Null;
        };
        let mut body = self.body(&whole.answer.content, &whole.tokens);
        self.finish(&mut body, &whole.end);
        body
    }
}

impl Native {
    fn body(&self, text: &str, tokens: &[Token]) -> Value {
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let mut body = json!({
            "index": 0,
            "content": text,
            "tokens": if self.wants_tokens { ids } else { Vec::new() },
            "stop": false,
            "model": self.model.name,
        });
        if self.wants_probs {
            body["completion_probabilities"] = self.probabilities(tokens);
        }
        body
    }

    fn probabilities(&self, tokens: &[Token]) -> Value {
        let tokenizer = self.model.tokenizer();
        let one = |id: u32, logprob: f32| {
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            json!({"id": id, "token": token_text(tokenizer, id), "bytes": bytes.as_ref(), "logprob": finite(logprob)})
        };
        let token = |token: &Token| {
            let logprobs = token.logprobs.as_ref()?;
            let mut value = one(token.id, logprobs.logprob);
            let top = logprobs.top.iter().map(|&(id, logprob)| one(id, logprob));
            value["top_logprobs"] = top.collect();
            Some(value)
        };
        tokens.iter().filter_map(token).collect()
    }

    /// Adds what the last event has.
    fn finish(&self, body: &mut Value, end: &End) {
        let (kind, word) = match &end.reason {
            Reason::End => ("eos", ""),
            Reason::Length => ("limit", ""),
            Reason::Stop(word) => ("word", word.as_str()),
        };
        body["stop"] = true.into();
        body["stop_type"] = kind.into();
        body["stopping_word"] = word.into();
        body["truncated"] = false.into();
        body["tokens_predicted"] = end.usage.generated.into();
        body["tokens_evaluated"] = end.usage.prompt.into();
        body["tokens_cached"] = (end.usage.prompt + end.usage.generated).into();
        body["timings"] = timings(&end.usage);
    }
}

/// Times of an answer.
pub(crate) fn timings(usage: &Usage) -> Value {
    let milliseconds = |speed: &Speed| speed.time.as_secs_f64() * 1e3;
    let each = |speed: &Speed| milliseconds(speed) / speed.tokens.max(1) as f64;
    let Usage {
        prefill, decode, ..
    } = usage;
    json!({
        "cache_n": usage.cached,
        "prompt_n": prefill.tokens,
        "prompt_ms": milliseconds(prefill),
        "prompt_per_token_ms": each(prefill),
        "prompt_per_second": prefill.per_second(),
        "predicted_n": usage.generated,
        "predicted_ms": milliseconds(decode),
        "predicted_per_token_ms": each(decode),
        "predicted_per_second": decode.per_second(),
    })
}

/// The stream of a completion.
pub(crate) struct NativeSpeaker {
    view: Native,
}

impl Speaker for NativeSpeaker {
    fn part(&mut self, _: usize, part: Part, frames: &mut Frames) {
        match part {
            Part::Prompt { done, .. } if self.view.wants_progress => {
                let mut body = self.view.body("", &[]);
                body["prompt_progress"] = json!({"total": self.view.prompt, "processed": done});
                frames.data(&body);
            }
            Part::Prompt { .. } => {}
            Part::Step { deltas, tokens } => {
                let text: String = deltas.iter().map(content).collect();
                frames.data(&self.view.body(&text, &tokens));
            }
            Part::End(end) => {
                let mut body = self.view.body("", &[]);
                self.view.finish(&mut body, &end);
                frames.data(&body);
            }
        }
    }

    fn end(&mut self, _: &mut Frames) {}

    fn error(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error.json(Dialect::OpenAi));
    }
}
