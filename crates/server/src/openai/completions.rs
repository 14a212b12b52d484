//! OpenAI's `/v1/completions`.

use std::sync::Arc;

use rustorch_llm::engine::TokenLogprobs;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::HINTS;
use super::{FINGERPRINT, StreamOptions, finish_reason, finite, token_text, usage_json};
use crate::answers::{End, Part, Plan, Shape, Token, Whole, unique};
use crate::error::{ApiError, Dialect};
use crate::fields::{Biases, Fields, Stops};
use crate::form::{self, ResponseFormat};
use crate::interface::{Interface, Understood};
use crate::model::{Loaded, now};
use crate::prompts::{Prompt, Prompts};
use crate::slot_fields::SlotFields;
use crate::speak::{Frames, Speaker};

/// OpenAI's length of a text, unless a request has its own.
const DEFAULT_TOKENS: usize = 16;

/// A request for texts. Besides these fields it has the samplers' options.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompletionRequest {
    /// A text, token ids, or an array of these.
    prompt: Value,
    max_tokens: Option<i64>,
    n_predict: Option<i64>,
    n: Option<usize>,
    seed: Option<i64>,
    stop: Option<Stops>,
    logit_bias: Option<Biases>,
    logprobs: Option<usize>,
    #[serde(default)]
    echo: bool,
    best_of: Option<usize>,
    suffix: Option<String>,
    response_format: Option<ResponseFormat>,
    json_schema: Option<Value>,
    grammar: Option<String>,
    ignore_eos: Option<bool>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
}

impl CompletionRequest {
    /// Refuses what is not supported.
    fn check(&self, n: usize) -> Result<(), ApiError> {
        if self.best_of.is_some_and(|best| best != n) {
            let problem = "only the value of n is possible";
            return Err(ApiError::field("best_of", problem));
        }
        match self.suffix.as_deref() {
            None | Some("") => Ok(()),
            Some(_) => {
                let problem = "text in the middle is not supported here; omit it";
                Err(ApiError::field("suffix", problem))
            }
        }
    }
}

/// A prompt that is shown in front of its text.
#[derive(Clone)]
struct Echo {
    text: String,
    ids: Vec<u32>,
}

impl Echo {
    /// The tokens of a prompt, with the text that the request gave or that they say.
    fn of(model: &Loaded, ids: &[u32], text: Option<String>) -> Self {
        Self {
            text: text.unwrap_or_else(|| model.tokenizer().decode(ids)),
            ids: ids.to_vec(),
        }
    }
}

/// The view of a request.
#[derive(Clone)]
pub(crate) struct Completion {
    id: String,
    created: u64,
    model: Arc<Loaded>,
    n: usize,
    wants_logprobs: bool,
    /// The prompt of each choice, if it is wanted.
    echoes: Vec<Option<Echo>>,
}

impl Interface for Completion {
    type Speaker = CompletionSpeaker;

    fn read(
        model: &Arc<Loaded>,
        mut fields: Fields,
        salt: u64,
    ) -> Result<Understood<Self>, ApiError> {
        fields.skip(HINTS);
        let mut config = model.defaults.sampler.clone();
        fields.samplers(&mut config)?;
        let placed = SlotFields::take(model, &mut fields)?;
        let ignored = fields.ignored().to_vec();
        let asked: CompletionRequest = fields.into()?;
        let n = form::choices(asked.n)?;
        let limits = [
            ("n_predict", asked.n_predict),
            ("max_tokens", asked.max_tokens),
        ];
        let max_tokens =
            form::max_tokens(&limits, model.defaults.max_tokens.or(Some(DEFAULT_TOKENS)))?;
        asked.check(n)?;
        let logprobs = asked
            .logprobs
            .map(|count| form::logprobs("logprobs", count));
        let logprobs = logprobs.transpose()?;
        let grammar = form::grammar(asked.response_format, asked.json_schema, asked.grammar)?;
        let constraint = grammar
            .map(|grammar| model.constraint(&grammar))
            .transpose()?;
        let sampler = form::sampler(model, config, asked.seed, asked.logit_bias)?;
        let stops = asked.stop.unwrap_or_default().0;
        let (mut plans, mut echoes) = (Vec::new(), Vec::new());
        let prompts = Prompts::read(model, "prompt", asked.prompt)?;
        prompts.check_answers(n)?;
        model.check_answers("prompt", prompts.all.len())?;
        model.check_answers("n", prompts.all.len() * n)?;
        for Prompt { ids, text } in prompts.all {
            // Before it is copied for each answer.
            model.check_prompt(ids.len())?;
            let echo = asked.echo.then(|| Echo::of(model, &ids, text));
            let mut request = form::request(ids, sampler.clone(), salt);
            request.max_tokens = max_tokens;
            request.ignore_end = asked.ignore_eos.unwrap_or(false);
            request.constraint.clone_from(&constraint);
            request.logprobs = logprobs;
            request.prompt_logprobs = logprobs.filter(|_| asked.echo);
            let mut plan = Plan {
                request,
                shape: Shape::Text { special: false },
                stops: stops.clone(),
                time: None,
            };
            placed.apply(model, &mut plan);
            plans.extend(plan.times(n));
            echoes.extend(vec![echo; n]);
        }
        let view = Self {
            id: unique("cmpl-"),
            created: now(),
            model: Arc::clone(model),
            n,
            wants_logprobs: logprobs.is_some(),
            echoes,
        };
        let wants_usage = asked
            .stream_options
            .is_some_and(|options| options.include_usage);
        let speaker = asked.stream.then(|| CompletionSpeaker {
            ends: vec![None; plans.len()],
            offsets: vec![0; plans.len()],
            echoed: vec![false; plans.len()],
            prompts: vec![Vec::new(); plans.len()],
            view: view.clone(),
            wants_usage,
        });
        Ok(Understood {
            plans,
            speaker,
            view,
            ignored,
        })
    }

    fn response(&self, answers: &[Whole]) -> Value {
        let choice = |(index, whole): (usize, &Whole)| {
            let mut text = String::new();
            let mut table = Table::default();
            if let Some(echo) = &self.echoes[index] {
                text.clone_from(&echo.text);
                table.echo(&self.model, echo, &whole.prompt_logprobs);
            }
            text += &whole.answer.content;
            table.add(&self.model, &whole.tokens);
            let logprobs = match self.wants_logprobs {
                true => table.json(),
                false => Value::Null,
            };
            let finish = finish_reason(&whole.end.reason, false);
            json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish})
        };
        let choices: Vec<Value> = answers.iter().enumerate().map(choice).collect();
        let mut body = self.body(json!(choices));
        body["usage"] = usage_json(answers.iter().map(|whole| &whole.end), self.n);
        body
    }
}

impl Completion {
    fn body(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "system_fingerprint": FINGERPRINT,
            "model": self.model.name,
            "choices": choices,
        })
    }
}

/// Log probabilities, as texts have them.
#[derive(Default)]
struct Table {
    tokens: Vec<String>,
    logprobs: Vec<Option<f32>>,
    top: Vec<Value>,
    offsets: Vec<usize>,
    /// Characters so far.
    length: usize,
}

impl Table {
    /// The table behind so many characters.
    fn at(length: usize) -> Self {
        Self {
            length,
            ..Self::default()
        }
    }

    fn push(&mut self, model: &Loaded, id: u32, logprobs: Option<&TokenLogprobs>) {
        let tokenizer = model.tokenizer();
        let text = token_text(tokenizer, id);
        self.offsets.push(self.length);
        self.length += text.chars().count();
        self.tokens.push(text);
        self.logprobs.push(logprobs.map(|it| finite(it.logprob)));
        self.top.push(match logprobs {
            // Clients want an object, although nothing was likely in place of the first token.
            None => json!({}),
            Some(logprobs) => {
                let top = logprobs.top.iter();
                let top =
                    top.map(|&(id, logprob)| (token_text(tokenizer, id), finite(logprob).into()));
                // Of tokens with the same text the likeliest is kept.
                let mut map = Map::new();
                top.for_each(|(text, logprob)| {
                    map.entry(text).or_insert(logprob);
                });
                Value::Object(map)
            }
        });
    }

    fn echo(&mut self, model: &Loaded, echo: &Echo, logprobs: &[TokenLogprobs]) {
        // Nothing comes before the first.
        let logprobs = [None].into_iter().chain(logprobs.iter().map(Some));
        let logprobs = logprobs.chain(std::iter::repeat(None));
        for (&id, logprobs) in echo.ids.iter().zip(logprobs) {
            self.push(model, id, logprobs);
        }
    }

    fn add(&mut self, model: &Loaded, tokens: &[Token]) {
        for token in tokens {
            self.push(model, token.id, token.logprobs.as_ref());
        }
    }

    fn json(&self) -> Value {
        json!({
            "tokens": self.tokens,
            "token_logprobs": self.logprobs,
            "top_logprobs": self.top,
            "text_offset": self.offsets,
        })
    }
}

/// The stream of a completion.
pub(crate) struct CompletionSpeaker {
    view: Completion,
    wants_usage: bool,
    ends: Vec<Option<End>>,
    /// Characters of each choice's tokens.
    offsets: Vec<usize>,
    echoed: Vec<bool>,
    prompts: Vec<Vec<TokenLogprobs>>,
}

impl CompletionSpeaker {
    fn chunk(&self, index: usize, text: &str, logprobs: Value, finish: Option<&str>) -> Value {
        let choice =
            json!({"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish});
        self.body(json!([choice]))
    }

    fn body(&self, choices: Value) -> Value {
        let mut body = self.view.body(choices);
        if self.wants_usage {
            body["usage"] = Value::Null;
        }
        body
    }

    /// Shows the prompt, once it was processed.
    fn echo(&mut self, choice: usize, frames: &mut Frames) {
        let Some(echo) = self.view.echoes[choice]
            .clone()
            .filter(|_| !self.echoed[choice])
        else {
            return;
        };
        self.echoed[choice] = true;
        let mut table = Table::default();
        table.echo(&self.view.model, &echo, &self.prompts[choice]);
        self.offsets[choice] = table.length;
        let logprobs = match self.view.wants_logprobs {
            true => table.json(),
            false => Value::Null,
        };
        frames.data(&self.chunk(choice, &echo.text, logprobs, None));
    }
}

impl Speaker for CompletionSpeaker {
    fn part(&mut self, choice: usize, part: Part, frames: &mut Frames) {
        match part {
            Part::Prompt { logprobs, .. } => self.prompts[choice].extend(logprobs),
            Part::Step { deltas, tokens, .. } => {
                self.echo(choice, frames);
                let text: String = deltas.iter().map(crate::answers::content).collect();
                let logprobs = match self.view.wants_logprobs {
                    false => Value::Null,
                    true => {
                        let mut table = Table::at(self.offsets[choice]);
                        table.add(&self.view.model, &tokens);
                        self.offsets[choice] = table.length;
                        table.json()
                    }
                };
                if !text.is_empty() || self.view.wants_logprobs {
                    frames.data(&self.chunk(choice, &text, logprobs, None));
                }
            }
            Part::End(end) => {
                self.echo(choice, frames);
                let finish = finish_reason(&end.reason, false);
                frames.data(&self.chunk(choice, "", Value::Null, Some(finish)));
                self.ends[choice] = Some(end);
            }
        }
    }

    fn end(&mut self, frames: &mut Frames) {
        if self.wants_usage {
            let mut body = self.body(json!([]));
            body["usage"] = usage_json(self.ends.iter().flatten(), self.view.n);
            frames.data(&body);
        }
        frames.done();
    }

    fn error(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error.json(Dialect::OpenAi));
    }
}
