//! llama-server's `/completion`.

use std::sync::Arc;

use rustorch_llm::engine::Usage;
use rustorch_llm::sampler::SamplerConfig;
use serde::Deserialize;
use serde_json::{Value, json};

use super::settings;
use crate::answers::{End, Part, Plan, Reason, Shape, Token, Whole, content};
use crate::error::{ApiError, Dialect};
use crate::fields::{Biases, Fields, Stops};
use crate::form;
use crate::interface::{Interface, Understood};
use crate::model::Loaded;
use crate::openai::{finite, token_text};
use crate::prompts::Prompts;
use crate::slot_fields::SlotFields;
use crate::speak::{Frames, Speaker};
use crate::times::{progress, timings};

/// Fields that change no answer.
const HINTS: &[&str] = &["n_discard", "backend_sampling"];

/// A request for a text. Besides these fields it has the samplers' options.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NativeRequest {
    prompt: Value,
    n_predict: Option<i64>,
    max_tokens: Option<i64>,
    seed: Option<i64>,
    stop: Option<Stops>,
    logit_bias: Option<Biases>,
    n_probs: Option<usize>,
    #[serde(default)]
    post_sampling_probs: bool,
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
    response_fields: Vec<String>,
    #[serde(default)]
    stream: bool,
}

/// The view of a request.
#[derive(Clone)]
pub(crate) struct Native {
    model: Arc<Loaded>,
    /// The prompts, and their numbers of tokens.
    prompts: Vec<(String, usize)>,
    /// Did they come in an array?
    is_list: bool,
    /// The settings of the request.
    settings: Value,
    /// Paths of the fields that are wanted; all without one.
    fields: Vec<String>,
    wants_timings: bool,
    wants_tokens: bool,
    wants_probs: bool,
    /// Are probabilities those after the samplers?
    is_sampled: bool,
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
        let mut config = model.defaults.sampler.clone();
        fields.samplers(&mut config)?;
        let placed = SlotFields::take(model, &mut fields)?;
        let ignored = fields.ignored().to_vec();
        let asked: NativeRequest = fields.into()?;
        let limits = [
            ("n_predict", asked.n_predict),
            ("max_tokens", asked.max_tokens),
        ];
        let max_tokens = form::max_tokens(&limits, model.defaults.max_tokens)?;
        let probs = asked.n_probs.filter(|&count| count > 0);
        let probs = probs
            .map(|count| form::logprobs("n_probs", count))
            .transpose()?;
        let grammar = form::grammar(None, asked.json_schema, asked.grammar)?;
        let constraint = grammar
            .map(|grammar| model.constraint(&grammar))
            .transpose()?;
        let sampler = form::sampler(model, config, asked.seed, asked.logit_bias)?;
        let Prompts { all, is_list } = Prompts::read(model, "prompt", asked.prompt)?;
        model.check_answers("prompt", all.len())?;
        for prompt in &all {
            model.check_prompt(prompt.ids.len())?;
        }
        let shown = all
            .iter()
            .map(|prompt| (model.shown(&prompt.ids), prompt.ids.len()));
        let ignore_end = asked.ignore_eos.unwrap_or(false);
        let stops = asked.stop.unwrap_or_default().0;
        let mut settings = Value::Object(settings(&sampler));
        settings["n_predict"] = max_tokens.map_or(json!(-1), Into::into);
        settings["stop"] = json!(stops);
        settings["stream"] = asked.stream.into();
        settings["n_probs"] = asked.n_probs.unwrap_or(0).into();
        settings["logit_bias"] = biases(model, &sampler, ignore_end);
        let view = Self {
            model: Arc::clone(model),
            prompts: shown.collect(),
            is_list,
            settings,
            fields: asked.response_fields,
            wants_timings: asked.timings_per_token,
            wants_tokens: asked.return_tokens,
            wants_probs: probs.is_some(),
            is_sampled: asked.post_sampling_probs,
            wants_progress: asked.return_progress,
        };
        let plan = |ids| {
            let mut request = form::request(ids, sampler.clone(), salt);
            request.max_tokens = max_tokens;
            request.ignore_end = ignore_end;
            request.constraint.clone_from(&constraint);
            request.logprobs = probs;
            request.sampled_logprobs = asked.post_sampling_probs;
            let mut plan = Plan {
                request,
                shape: Shape::Text { special: false },
                stops: stops.clone(),
                time: None,
            };
            placed.apply(model, &mut plan);
            plan
        };
        Ok(Understood {
            plans: all.into_iter().map(|prompt| plan(prompt.ids)).collect(),
            speaker: asked.stream.then(|| NativeSpeaker {
                lines: vec![false; view.prompts.len()],
                held: vec![String::new(); view.prompts.len()],
                view: view.clone(),
            }),
            view,
            ignored,
        })
    }

    fn response(&self, answers: &[Whole]) -> Value {
        let body = |(index, whole): (usize, &Whole)| {
            let mut body = self.body(index, &whole.answer.content, &whole.tokens, true);
            let has_lines = whole.answer.content.contains('\n');
            self.finish(&mut body, index, &whole.end, has_lines);
            self.chosen(body)
        };
        let mut bodies = answers.iter().enumerate().map(body);
        match self.is_list {
            true => bodies.collect(),
            false => bodies.next().unwrap_or_default(),
        }
    }
}

impl Native {
    /// The fields of a text. A stream has the tokens of each part, as in llama-server.
    fn body(&self, index: usize, text: &str, tokens: &[Token], is_whole: bool) -> Value {
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let mut body = json!({
            "index": index,
            "content": text,
            "tokens": if self.wants_tokens || !is_whole { ids } else { Vec::new() },
            "stop": false,
            "id_slot": -1,
            "model": self.model.name,
        });
        if self.wants_probs {
            body["completion_probabilities"] = self.probabilities(tokens);
        }
        body
    }

    /// The fields that are wanted, by their paths.
    fn chosen(&self, body: Value) -> Value {
        if self.fields.is_empty() {
            return body;
        }
        let field = |path: &String| {
            let value = body.pointer(&format!("/{path}"))?;
            Some((path.clone(), value.clone()))
        };
        Value::Object(self.fields.iter().filter_map(field).collect())
    }

    fn probabilities(&self, tokens: &[Token]) -> Value {
        let tokenizer = self.model.tokenizer();
        let one = |id: u32, logprob: f32| {
            let bytes = tokenizer.token_bytes(id).unwrap_or_default();
            let mut value =
                json!({"id": id, "token": token_text(tokenizer, id), "bytes": bytes.as_ref()});
            match self.is_sampled {
                true => value["prob"] = logprob.exp().into(),
                false => value["logprob"] = finite(logprob).into(),
            }
            value
        };
        let top_name = match self.is_sampled {
            true => "top_probs",
            false => "top_logprobs",
        };
        let token = |token: &Token| {
            let logprobs = token.logprobs.as_ref()?;
            let mut value = one(token.id, logprobs.logprob);
            let top = logprobs.top.iter().map(|&(id, logprob)| one(id, logprob));
            value[top_name] = top.collect();
            Some(value)
        };
        tokens.iter().filter_map(token).collect()
    }

    /// Adds what the last event has.
    fn finish(&self, body: &mut Value, index: usize, end: &End, has_lines: bool) {
        let (kind, word) = match &end.reason {
            Reason::End => ("eos", ""),
            Reason::Length | Reason::Full => ("limit", ""),
            Reason::Stop(word) => ("word", word.as_str()),
        };
        body["stop"] = true.into();
        body["stop_type"] = kind.into();
        body["stopping_word"] = word.into();
        body["truncated"] = (end.reason == Reason::Full || end.usage.dropped > 0).into();
        body["has_new_line"] = has_lines.into();
        body["prompt"] = self.prompts[index].0.as_str().into();
        body["generation_settings"] = self.settings.clone();
        body["tokens_predicted"] = end.usage.generated.into();
        body["tokens_evaluated"] = end.usage.prompt.into();
        body["tokens_cached"] = (end.usage.prompt + end.usage.generated).into();
        body["timings"] = timings(&end.usage);
    }
}

/// The stream of a completion.
pub(crate) struct NativeSpeaker {
    view: Native,
    /// Has a text more than one line?
    lines: Vec<bool>,
    /// Text that was held back until the end of each text, and that the last event has.
    held: Vec<String>,
}

impl Speaker for NativeSpeaker {
    fn part(&mut self, choice: usize, part: Part, frames: &mut Frames) {
        let view = &self.view;
        let time = |body: &mut Value, usage: &Usage| {
            if view.wants_timings {
                body["timings"] = timings(usage);
            }
        };
        match part {
            Part::Prompt { done, usage, .. } => {
                if view.wants_progress {
                    let mut body = view.body(choice, "", &[], false);
                    body["prompt_progress"] = progress(view.prompts[choice].1, done, &usage);
                    time(&mut body, &usage);
                    frames.data(&body);
                }
            }
            Part::Step {
                deltas,
                tokens,
                usage,
            } => {
                let text: String = deltas.iter().map(content).collect();
                self.lines[choice] |= text.contains('\n');
                // Its tokens came before.
                if tokens.is_empty() {
                    self.held[choice] += &text;
                    return;
                }
                let mut body = view.body(choice, &text, &tokens, false);
                time(&mut body, &usage);
                frames.data(&body);
            }
            Part::End(end) => {
                let mut body = view.body(choice, &self.held[choice], &[], false);
                view.finish(&mut body, choice, &end, self.lines[choice]);
                frames.data(&view.chosen(body));
            }
        }
    }

    fn end(&mut self, _: &mut Frames) {}

    fn error(&mut self, error: &ApiError, frames: &mut Frames) {
        frames.data(&error.json(Dialect::OpenAi));
    }
}

/// The biases of a request, as llama-server shows them. JSON has no infinity: it is null.
fn biases(model: &Loaded, sampler: &SamplerConfig, ignore_end: bool) -> Value {
    let tokenizer = model.tokenizer();
    let ends = (0..tokenizer.vocab_size() as u32)
        .filter(|&id| ignore_end && tokenizer.is_end_of_generation(id))
        .map(|id| (id, f32::NEG_INFINITY));
    let given = sampler.logit_bias.iter().copied();
    let one = |(token, bias): (u32, f32)| json!({"token": token, "bias": bias});
    given.chain(ends).map(one).collect()
}
