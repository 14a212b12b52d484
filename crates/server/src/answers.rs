//! Answers of a model: tokens of the engine become text, reasoning and tool calls.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustorch_chat::{
    Answer, AnswerParser, AnswerPart, AnswerSyntax, Delta, ParseOptions, StopTexts,
};
use rustorch_llm::Stop;
use rustorch_llm::engine::{Engine, EngineEvent, Request, RequestId, TokenLogprobs, Usage};
use rustorch_tokenizer::{StreamDecoder, Tokenizer};
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::error::ApiError;
use crate::model::Loaded;

/// A request for one answer.
#[derive(Clone)]
pub(crate) struct Plan {
    pub(crate) request: Request,
    pub(crate) shape: Shape,
    pub(crate) stops: Vec<String>,
    /// The time after the first token, at which the answer ends once it has a whole line.
    pub(crate) time: Option<Duration>,
}

impl Plan {
    /// The same `n` times, with seeds of their own.
    pub(crate) fn times(self, n: usize) -> Vec<Self> {
        let each = |index: usize| {
            let mut plan = self.clone();
            let seed = &mut plan.request.sampler.seed;
            *seed = seed.map(|seed| seed.wrapping_add(index as u32));
            plan
        };
        (0..n).map(each).collect()
    }
}

/// The form of an answer.
#[derive(Clone)]
pub(crate) enum Shape {
    /// Plain text.
    Text {
        /// Are special tokens part of the text?
        special: bool,
    },
    /// The answer of a conversation.
    Chat {
        syntax: &'static AnswerSyntax,
        options: ParseOptions,
    },
}

/// A token of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Token {
    pub(crate) id: u32,
    pub(crate) logprobs: Option<TokenLogprobs>,
}

/// A part of an answer.
#[derive(Debug)]
pub(crate) enum Part {
    /// A part of the prompt was processed.
    Prompt {
        done: usize,
        logprobs: Vec<TokenLogprobs>,
        usage: Usage,
    },
    /// Text, and the tokens that came with it. Text may be held back, or end later than its token.
    Step {
        deltas: Vec<Delta>,
        tokens: Vec<Token>,
        usage: Usage,
    },
    End(End),
}

/// The end of an answer.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) reason: Reason,
    pub(crate) usage: Usage,
}

/// The reason of an answer's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The model ended it.
    End,
    /// This stop text came.
    Stop(String),
    /// The limit was reached.
    Length,
    /// The context is full.
    Full,
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) answer: Answer,
    pub(crate) tokens: Vec<Token>,
    pub(crate) prompt_logprobs: Vec<TokenLogprobs>,
    pub(crate) end: End,
}

/// An answer whose end has not come.
#[derive(Default)]
struct Growing {
    answer: Answer,
    tokens: Vec<Token>,
    prompt_logprobs: Vec<TokenLogprobs>,
    end: Option<End>,
}

impl Growing {
    /// The answer, once its end has come.
    fn whole(self) -> Result<Whole, ApiError> {
        let end = self
            .end
            .ok_or_else(|| ApiError::internal("the engine ended an answer without a reason"))?;
        Ok(Whole {
            answer: self.answer,
            tokens: self.tokens,
            prompt_logprobs: self.prompt_logprobs,
            end,
        })
    }
}

/// Requests in the engine. They are cancelled when this is dropped.
struct Running {
    model: Arc<Loaded>,
    engine: Engine,
    /// Requests that have not ended.
    ids: Vec<Option<RequestId>>,
    events: UnboundedReceiver<(usize, EngineEvent)>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for &id in self.ids.iter().flatten() {
            self.engine.cancel(id);
        }
    }
}

/// Answers that were asked for, and are not read yet.
pub(crate) struct Started {
    running: Running,
    /// Forms of the answers and their ends, and the numbers of their prompts' tokens.
    shapes: Vec<(Shape, Vec<String>, Option<Duration>, usize)>,
    begin: Instant,
}

impl Started {
    /// Queues requests.
    ///
    /// # Errors
    /// Fails if a prompt does not fit the context, or if the queue is full. No request is left then.
    pub(crate) fn new(model: &Arc<Loaded>, plans: Vec<Plan>) -> Result<Self, ApiError> {
        let engine = model.engine()?;
        let (sender, events) = mpsc::unbounded_channel();
        let mut running = Running {
            model: Arc::clone(model),
            engine: engine.clone(),
            ids: Vec::new(),
            events,
        };
        let mut shapes = Vec::new();
        for (choice, plan) in plans.into_iter().enumerate() {
            let tokens = plan.request.prompt.len();
            model.check_prompt(tokens)?;
            let sender = sender.clone();
            let sink = move |event| match sender.send((choice, event)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            let id = engine.submit_to(plan.request, sink)?;
            running.ids.push(Some(id));
            shapes.push((plan.shape, plan.stops, plan.time, tokens));
        }
        Ok(Self {
            running,
            shapes,
            begin: Instant::now(),
        })
    }

    /// The whole answers.
    ///
    /// # Errors
    /// Fails if one of them fails.
    pub(crate) async fn all(self) -> Result<Vec<Whole>, ApiError> {
        let model = Arc::clone(&self.running.model);
        let mut answers = Answers::new(self, model.tokenizer());
        let mut all: Vec<Growing> = Vec::new();
        all.resize_with(answers.readers.len(), Default::default);
        while let Some((choice, part)) = answers.next().await? {
            let growing = &mut all[choice];
            match part {
                Part::Prompt { logprobs, .. } => growing.prompt_logprobs.extend(logprobs),
                Part::Step { deltas, tokens, .. } => {
                    growing.tokens.extend(tokens);
                    for delta in deltas {
                        let (source, delta) = (String::new(), Some(delta));
                        growing.answer.add(&AnswerPart { source, delta });
                    }
                }
                Part::End(end) => growing.end = Some(end),
            }
        }
        all.into_iter().map(Growing::whole).collect()
    }

    /// The model.
    pub(crate) fn model(&self) -> &Arc<Loaded> {
        &self.running.model
    }
}

/// Answers while they come.
pub(crate) struct Answers<'m> {
    running: Running,
    readers: Vec<Reader<'m>>,
    ready: VecDeque<(usize, Part)>,
    begin: Instant,
}

impl<'m> Answers<'m> {
    /// Reads answers by the vocabulary of their model.
    pub(crate) fn new(started: Started, tokenizer: &'m Tokenizer) -> Self {
        let Started {
            running,
            shapes,
            begin,
        } = started;
        let reader = |(shape, stops, limit, prompt)| {
            let mut reader = Reader::new(tokenizer, shape, stops);
            reader.usage.prompt = prompt;
            Reader { limit, ..reader }
        };
        Self {
            readers: shapes.into_iter().map(reader).collect(),
            running,
            ready: VecDeque::new(),
            begin,
        }
    }

    /// The next part and its answer's index; nothing after the end of all. It may be dropped and called again.
    ///
    /// # Errors
    /// Fails if an answer fails.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Part)>, ApiError> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Ok(Some(ready));
            }
            if self.readers.iter().all(|reader| reader.ended) {
                return Ok(None);
            }
            let Some((choice, event)) = self.running.events.recv().await else {
                return Err(ApiError::internal("the engine ended"));
            };
            self.hear(choice, event)?;
        }
    }

    fn hear(&mut self, choice: usize, event: EngineEvent) -> Result<(), ApiError> {
        let reader = &mut self.readers[choice];
        let metrics = &self.running.model.metrics;
        match event {
            EngineEvent::Started { cached } => {
                reader.usage.cached = cached;
                reader.started = Instant::now();
                let part = reader.prompt(cached, Vec::new());
                self.ready.push_back((choice, part));
            }
            EngineEvent::Prompt { done, logprobs } => {
                let part = reader.prompt(done, logprobs);
                self.ready.push_back((choice, part));
            }
            EngineEvent::Token { id, logprobs } => {
                let now = Instant::now();
                match reader.last.replace(now) {
                    None => metrics.first_token.observe(now - self.begin),
                    Some(last) => {
                        metrics.between_tokens.observe(now - last);
                        reader.usage.decode.tokens += 1;
                        reader.usage.decode.time += now - last;
                    }
                }
                if reader.stops.found().is_none() && !reader.is_late {
                    let step = reader.token(id, logprobs);
                    self.ready.extend(step.map(|step| (choice, step)));
                    reader.is_late = reader
                        .limit
                        .is_some_and(|limit| reader.usage.decode.time >= limit)
                        && reader.has_line;
                    if (reader.stops.found().is_some() || reader.is_late)
                        && let Some(id) = self.running.ids[choice]
                    {
                        self.running.engine.cancel(id);
                    }
                }
            }
            EngineEvent::Done { stop, usage } => {
                self.running.ids[choice] = None;
                let end = reader.end(stop, usage)?;
                self.ready
                    .extend(end.into_iter().map(|part| (choice, part)));
            }
            EngineEvent::Failed(error) => return Err(error.into()),
            _ => {}
        }
        Ok(())
    }
}

/// The tokens of one answer as text.
struct Reader<'m> {
    tokenizer: &'m Tokenizer,
    decoder: StreamDecoder<'m>,
    /// The parser of a conversation's answer.
    parser: Option<AnswerParser>,
    special: bool,
    stops: StopTexts,
    /// Tokens and times so far.
    usage: Usage,
    started: Instant,
    last: Option<Instant>,
    /// The time after the first token.
    limit: Option<Duration>,
    /// Does the text have a whole line?
    has_line: bool,
    /// Has the time passed?
    is_late: bool,
    ended: bool,
}

impl<'m> Reader<'m> {
    fn new(tokenizer: &'m Tokenizer, shape: Shape, stops: Vec<String>) -> Self {
        let (parser, special) = match shape {
            Shape::Text { special } => (None, special),
            Shape::Chat { syntax, options } => (Some(AnswerParser::new(syntax, &options)), true),
        };
        Self {
            tokenizer,
            decoder: tokenizer.decoder(),
            parser,
            special,
            stops: StopTexts::new(stops),
            usage: Usage::default(),
            started: Instant::now(),
            last: None,
            limit: None,
            has_line: false,
            is_late: false,
            ended: false,
        }
    }

    /// A part of the prompt.
    fn prompt(&mut self, done: usize, logprobs: Vec<TokenLogprobs>) -> Part {
        self.usage.prefill.tokens = done.saturating_sub(self.usage.cached);
        if done > self.usage.cached {
            self.usage.prefill.time = self.started.elapsed();
        }
        Part::Prompt {
            done,
            logprobs,
            usage: self.usage,
        }
    }

    fn token(&mut self, id: u32, logprobs: Option<TokenLogprobs>) -> Option<Part> {
        self.usage.generated += 1;
        // What ends an answer is not part of it.
        if self.tokenizer.is_end_of_generation(id) {
            return None;
        }
        let mut piece = self.decoder.push(id).to_owned();
        if self.special && self.tokenizer.is_control(id) {
            piece += self.tokenizer.token_text(id).unwrap_or_default();
        }
        self.has_line |= piece.contains('\n');
        let deltas = self.read(&piece, false);
        let tokens = vec![Token { id, logprobs }];
        Some(Part::Step {
            deltas,
            tokens,
            usage: self.usage,
        })
    }

    /// The parts of a piece of text, of which it may be the last.
    fn read(&mut self, piece: &str, last: bool) -> Vec<Delta> {
        let mut deltas: Vec<Delta> = match &mut self.parser {
            None => vec![Delta::Content(piece.to_owned())],
            Some(parser) => {
                let mut parts = parser.push(piece);
                if last {
                    parts.extend(parser.finish());
                }
                parts.into_iter().filter_map(|part| part.delta).collect()
            }
        };
        for delta in &mut deltas {
            match delta {
                Delta::Content(text) => *text = self.stops.push(text),
                // A call needs an identifier at once, which the client answers to.
                Delta::Call { id, .. } => {
                    *id = Some(
                        id.take()
                            .filter(|id| !id.is_empty())
                            .unwrap_or_else(call_id),
                    )
                }
                _ => {}
            }
        }
        if last {
            deltas.push(Delta::Content(self.stops.finish()));
        }
        deltas.retain(|delta| match delta {
            Delta::Content(text) | Delta::Reasoning(text) => !text.is_empty(),
            Delta::Id { .. } => false,
            _ => true,
        });
        deltas
    }

    /// The held text, and the end.
    fn end(&mut self, stop: Stop, mut usage: Usage) -> Result<Vec<Part>, ApiError> {
        self.ended = true;
        usage.generated = self.usage.generated;
        let rest = std::mem::replace(&mut self.decoder, self.tokenizer.decoder()).finish();
        let deltas = match self.stops.found() {
            Some(_) => Vec::new(),
            None => self.read(&rest, true),
        };
        let reason = match (self.stops.found(), stop) {
            (Some(text), _) => Reason::Stop(text.to_owned()),
            (None, Stop::End) => Reason::End,
            (None, Stop::Limit) => Reason::Length,
            (None, Stop::Context) => Reason::Full,
            (None, Stop::Caller) if self.is_late => Reason::Length,
            (None, Stop::Caller) => return Err(ApiError::internal("the request was cancelled")),
        };
        let tokens = Vec::new();
        let step = (!deltas.is_empty()).then_some(Part::Step {
            deltas,
            tokens,
            usage,
        });
        let end = Part::End(End { reason, usage });
        Ok(step.into_iter().chain([end]).collect())
    }
}

/// A name that no other object of this server has.
pub(crate) fn unique(prefix: &str) -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!(
        "{prefix}{:016x}{count:08x}",
        RandomState::new().hash_one(count)
    )
}

/// The identifier of a tool call. Templates of Mistral's take nine letters and digits alone.
fn call_id() -> String {
    let name = unique("");
    let count = &name[name.len() - 4..];
    format!("{}{count}", &name[..5])
}

/// The content of a delta.
pub(crate) fn content(delta: &Delta) -> &str {
    match delta {
        Delta::Content(text) => text,
        _ => "",
    }
}
